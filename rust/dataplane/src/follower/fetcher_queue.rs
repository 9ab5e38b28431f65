//! What a fetcher thread is given to follow, and its leader.

use std::fmt::Debug;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

use pyrklog_storage::log_dir_state::Partition;

/// Partitions that a thread is to follow.
#[derive(Debug)]
pub struct FetcherQueue {
    fd: OwnedFd,
    partitions: Mutex<Vec<Arc<Partition>>>,
    is_stopped: AtomicBool,
}

impl FetcherQueue {
    /// An empty one. Errors: no file descriptor left.
    pub fn new() -> std::io::Result<FetcherQueue> {
        Ok(FetcherQueue {
            fd: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            partitions: Mutex::default(),
            is_stopped: AtomicBool::new(false),
        })
    }

    /// Readable while there is something to take, or the thread is to end.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    pub fn take(&self) -> Vec<Arc<Partition>> {
        let mut partitions = self.partitions.lock();
        if !self.is_stopped() {
            let _ = rustix::io::read(&self.fd, &mut [0; 8]);
        }
        std::mem::take(&mut *partitions)
    }

    pub fn is_empty(&self) -> bool {
        self.partitions.lock().is_empty()
    }

    pub fn put(&self, partition: &Arc<Partition>) {
        let mut partitions = self.partitions.lock();
        partitions.push(Arc::clone(partition));
        self.wake();
    }

    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }
}

/// The broker that a thread asks, and its number among the fetchers of that leader, with
/// [`CATCH_UP`] added where they have to catch up; or [`BACK_FILL`].
pub type FetcherId = (i32, usize);

/// Added to the number of a fetcher for partitions that are not in sync.
pub const CATCH_UP: usize = 500_000;

/// Instead of a fetcher's number: the thread back-fills from the broker.
pub const BACK_FILL: usize = 1_000_000;

pub trait Fetchers: Debug + Send + Sync {
    /// Follows the partition from now on, if it is to be followed and has a leader.
    fn follow(self: Arc<Self>, partition: &Arc<Partition>);

    /// Follows a partition that its fetcher let go of, since it has caught up, or fallen behind.
    fn change_fetcher(self: Arc<Self>, partition: &Arc<Partition>);

    /// Back-fills the partition from now on, if its log lacks records.
    fn fill(self: Arc<Self>, partition: &Arc<Partition>);

    /// Whether the thread may end: its queue is empty, and nothing will come.
    fn retire(&self, id: FetcherId, queue: &Arc<FetcherQueue>) -> bool;
}
