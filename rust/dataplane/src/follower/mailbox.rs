//! What a fetcher thread is given to follow, and whom it asks.

use std::fmt::Debug;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

use pyrklog_storage::log_dir::Partition;

/// What a thread is given to follow.
#[derive(Debug)]
pub struct Mailbox {
    fd: OwnedFd,
    partitions: Mutex<Vec<Arc<Partition>>>,
    is_stopped: AtomicBool,
}

impl Mailbox {
    /// An empty one. Errors: no file descriptor left.
    pub fn new() -> std::io::Result<Mailbox> {
        Ok(Mailbox {
            fd: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            partitions: Mutex::default(),
            is_stopped: AtomicBool::new(false),
        })
    }

    /// Readable while there is something to take, or the thread is to end.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Whether the thread is to end.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// Takes what there is.
    pub fn take(&self) -> Vec<Arc<Partition>> {
        let mut partitions = self.partitions.lock();
        if !self.is_stopped() {
            let _ = rustix::io::read(&self.fd, &mut [0; 8]);
        }
        std::mem::take(&mut *partitions)
    }

    /// Whether there is nothing to take.
    pub fn is_empty(&self) -> bool {
        self.partitions.lock().is_empty()
    }

    /// Gives the thread a partition.
    pub fn put(&self, partition: &Arc<Partition>) {
        let mut partitions = self.partitions.lock();
        partitions.push(Arc::clone(partition));
        self.wake();
    }

    /// Ends the thread.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }
}

/// One thread's leader, and its number among those of this leader.
pub type FetcherId = (i32, usize);

/// Who starts and ends fetcher threads.
pub trait Fetchers: Debug + Send + Sync {
    /// The partition is followed from now on, if it is to be followed and there is a leader.
    fn follow(self: Arc<Self>, partition: &Arc<Partition>);

    /// Whether the thread may end: nothing more is in its mailbox, and nothing will come.
    fn retire(&self, id: FetcherId, mailbox: &Arc<Mailbox>) -> bool;
}
