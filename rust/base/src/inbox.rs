//! Messages to one thread. Any thread may send; only a sleeping receiver is woken.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

/// See the module.
#[derive(Debug)]
pub struct Inbox<M> {
    queue: Mutex<Queue<M>>,
    fd: OwnedFd,
    asleep: AtomicBool,
}

#[derive(Debug)]
struct Queue<M> {
    messages: Vec<M>,
    is_closed: bool,
}

impl<M> Inbox<M> {
    /// An empty inbox. Fails without a free file descriptor.
    pub fn new() -> std::io::Result<Inbox<M>> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Inbox {
            queue: Mutex::new(Queue {
                messages: Vec::new(),
                is_closed: false,
            }),
            fd,
            asleep: AtomicBool::new(false),
        })
    }

    /// Watch it edge-triggered; never read it.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Sends one message.
    pub fn send(&self, message: impl Into<M>) {
        self.send_all(&mut vec![message.into()]);
    }

    /// Sends `batch` in order with at most one wake, and empties it.
    pub fn send_all<N: Into<M>>(&self, batch: &mut Vec<N>) {
        if batch.is_empty() {
            return;
        }
        let mut queue = self.queue.lock();
        if queue.is_closed {
            drop(queue);
            batch.clear();
            return;
        }
        queue.messages.extend(batch.drain(..).map(N::into));
        drop(queue);
        self.wake();
    }

    /// The receiver ends: returns waiting messages; later ones are dropped, including connections
    /// that move here.
    pub fn close(&self) -> Vec<M> {
        let mut queue = self.queue.lock();
        queue.is_closed = true;
        std::mem::take(&mut queue.messages)
    }

    fn wake(&self) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }

    /// Announces a sleep; false if messages wait and the receiver must not sleep. It sets the flag,
    /// then looks; senders add a message, then read the flag. So no wake is lost.
    pub fn prepare_sleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        if self.queue.lock().messages.is_empty() {
            return true;
        }
        self.asleep.store(false, Ordering::SeqCst);
        false
    }

    /// The receiver is awake again.
    pub fn awake(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Whether there is nothing to take.
    #[cfg(feature = "sim")]
    pub fn is_empty(&self) -> bool {
        self.queue.lock().messages.is_empty()
    }

    /// Takes all messages into `into`, which must be empty.
    pub fn take(&self, into: &mut Vec<M>) {
        debug_assert!(into.is_empty());
        std::mem::swap(&mut self.queue.lock().messages, into);
    }
}
