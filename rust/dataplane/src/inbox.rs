//! Messages to a network thread. Any thread may send; the receiver is woken only if it sleeps.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use pyrklog_wire::ErrorCode;
use rustix::event::{EventfdFlags, eventfd};

use crate::acceptor::NewConnection;
use crate::api::RequestId;
use crate::cold_reads::FetchJob;
use crate::connection::Connection;
use crate::list_offsets::LookUpJob;
use crate::memory_budget::Held;
use crate::reader::SendWork;
use crate::validators::ValidateJob;

/// Names one connection of one network thread: slot and generation in one word, so that a message
/// for a connection that is gone reaches nobody.
pub type Token = u64;

/// What a network thread is told.
#[derive(Debug)]
pub enum Message {
    /// A connection was accepted for this thread.
    Connect(Box<NewConnection>),
    /// A connection that another thread served moves here.
    Move(Box<Connection>),
    /// One partition of a produce request is done: durable or replicated as asked, or failed.
    Produced {
        /// The connection.
        token: Token,
        /// The request's number on its connection.
        sequence: u64,
        /// Index of the partition in the request.
        index: u32,
        /// Protocol error.
        error: ErrorCode,
    },
    /// A waiting fetch may have something to send, or its partition changed.
    FetchWake {
        /// The connection.
        token: Token,
        /// Which of its waits.
        wait: u64,
        /// It is answered, with whatever there is.
        must_answer: bool,
        /// The network thread that found it out, if it was one.
        by: Option<usize>,
    },
    /// A reader has done a fetch's reads of one queue.
    FetchRead {
        /// The connection.
        token: Token,
        /// The reads, with what they found.
        job: Box<FetchJob>,
    },
    /// The batches of a produce request are validated.
    Validated {
        /// The connection.
        token: Token,
        /// The request, with what was found.
        job: Box<ValidateJob>,
    },
    /// A reader has done the time look-ups of a ListOffsets request in one log directory.
    OffsetsListed {
        /// The connection.
        token: Token,
        /// The look-ups, with what they found.
        job: Box<LookUpJob>,
    },
    /// A reader gives back the sending side of a socket.
    Sent {
        /// The connection.
        token: Token,
        /// What is left to send, and how it ended.
        work: Box<SendWork>,
    },
    /// The control plane's answer.
    Reply {
        /// The connection.
        token: Token,
        /// Which request.
        request: RequestId,
        /// The answer.
        answer: Answer,
    },
    /// What held back the connection's input may be gone.
    Unblock {
        /// The connection.
        token: Token,
    },
    /// Requests wait for memory of replies: look at all connections soon.
    Hungry,
    /// Answer what is in flight, take nothing new, end at the deadline at the latest.
    Drain {
        /// Monotonic milliseconds.
        deadline_ms: i64,
    },
    /// End now.
    Stop,
}

/// How the control plane answers.
#[derive(Debug)]
pub enum Answer {
    /// The response body; what is large counts as memory of replies on its way.
    Body(Vec<u8>, Option<Held>),
    /// Answer Metadata from the image, with these errors for these names.
    Resume(Vec<(String, i16)>),
    /// No answer fits: close the connection.
    Close,
    /// The same, since there is no memory for the answer of so many bytes.
    NoRoom(usize),
}

/// See the module.
#[derive(Debug)]
pub struct Inbox {
    queue: Mutex<Queue>,
    fd: OwnedFd,
    asleep: AtomicBool,
}

#[derive(Debug, Default)]
struct Queue {
    messages: Vec<Message>,
    is_closed: bool,
}

impl Inbox {
    /// An empty inbox. Errors: no file descriptor left.
    pub fn new() -> std::io::Result<Inbox> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Inbox {
            queue: Mutex::default(),
            fd,
            asleep: AtomicBool::new(false),
        })
    }

    /// To be watched edge-triggered; it is never read.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Sends one message.
    pub fn send(&self, message: Message) {
        self.send_all(&mut vec![message]);
    }

    /// Sends all of `batch`, in order, with one wake at most, and leaves it empty.
    pub fn send_all(&self, batch: &mut Vec<Message>) {
        if batch.is_empty() {
            return;
        }
        let mut queue = self.queue.lock();
        if queue.is_closed {
            drop(queue);
            batch.clear();
            return;
        }
        queue.messages.append(batch);
        drop(queue);
        self.wake();
    }

    /// The receiver is gone: what is there is handed out, and what comes later is dropped, a
    /// connection that moves here among it.
    pub fn close(&self) -> Vec<Message> {
        let mut queue = self.queue.lock();
        queue.is_closed = true;
        std::mem::take(&mut queue.messages)
    }

    fn wake(&self) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }

    /// Says that the receiver is about to sleep; false when messages are already there, and it
    /// must not. The order (flag, then a look) and the sender's (message, then the flag) make a
    /// lost wake impossible.
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
    pub fn take(&self, into: &mut Vec<Message>) {
        debug_assert!(into.is_empty());
        std::mem::swap(&mut self.queue.lock().messages, into);
    }
}
