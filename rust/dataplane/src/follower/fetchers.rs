//! The fetcher threads: started when there is something to follow, ended when there is not.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

use super::fetcher::Fetcher;
use crate::replica::partition::Role;
use crate::shared::Shared;
use crate::storage::log_dir::Partition;

/// What a thread is given to follow.
#[derive(Debug)]
pub struct Mailbox {
    fd: OwnedFd,
    partitions: Mutex<Vec<Arc<Partition>>>,
    is_stopped: AtomicBool,
}

impl Mailbox {
    fn new() -> std::io::Result<Mailbox> {
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
    #[cfg(feature = "sim")]
    pub fn is_empty(&self) -> bool {
        self.partitions.lock().is_empty()
    }

    fn put(&self, partition: &Arc<Partition>) {
        let mut partitions = self.partitions.lock();
        partitions.push(Arc::clone(partition));
        self.wake();
    }

    fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }
}

/// One thread's leader, and its number among those of this leader.
pub type FetcherId = (i32, usize);

#[derive(Debug, Default)]
struct Inner {
    mailboxes: HashMap<FetcherId, Arc<Mailbox>>,
    threads: Vec<JoinHandle<()>>,
    is_stopped: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Fetchers {
    inner: Mutex<Inner>,
}

impl Fetchers {
    /// The partition is followed from now on, if it is to be followed and there is a leader.
    pub fn follow(&self, shared: &Arc<Shared>, partition: &Arc<Partition>) {
        let Some(cluster) = &shared.config.cluster else {
            return;
        };
        let leader = {
            let state = partition.lock();
            match (state.role, state.leader) {
                (Role::Follower, Some(leader @ 0..)) => leader,
                _ => return,
            }
        };
        let number = partition
            .topic
            .id
            .iter()
            .map(|byte| *byte as usize)
            .sum::<usize>()
            + partition.index.unsigned_abs() as usize;
        let id = (leader, number % cluster.fetchers.max(1));
        let mut inner = self.inner.lock();
        if inner.is_stopped {
            return;
        }
        let mailbox = match inner.mailboxes.get(&id) {
            Some(mailbox) => Arc::clone(mailbox),
            None => match inner.start(shared, id) {
                Ok(mailbox) => mailbox,
                Err(error) => {
                    let fields = vec![("reason", error.to_string())];
                    return shared.events.notice("fetcher_not_started", "error", fields);
                }
            },
        };
        mailbox.put(partition);
    }

    /// Whether the thread may end: nothing more is in its mailbox, and nothing will come.
    pub fn retire(&self, id: FetcherId, mailbox: &Arc<Mailbox>) -> bool {
        let mut inner = self.inner.lock();
        let is_idle = mailbox.is_stopped() || mailbox.partitions.lock().is_empty();
        if is_idle {
            inner.mailboxes.remove(&id);
        }
        is_idle
    }

    /// Those that there are, in order.
    #[cfg(feature = "sim")]
    pub fn ids(&self) -> Vec<FetcherId> {
        let mut ids: Vec<FetcherId> = self.inner.lock().mailboxes.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// The mailbox of one.
    #[cfg(feature = "sim")]
    pub fn mailbox(&self, id: FetcherId) -> Option<Arc<Mailbox>> {
        self.inner.lock().mailboxes.get(&id).cloned()
    }

    /// Ends all threads, and waits for that.
    pub fn stop(&self) {
        let threads = {
            let mut inner = self.inner.lock();
            inner.is_stopped = true;
            for mailbox in inner.mailboxes.values() {
                mailbox.stop();
            }
            std::mem::take(&mut inner.threads)
        };
        for thread in threads {
            let _ = thread.join();
        }
    }
}

impl Inner {
    fn start(&mut self, shared: &Arc<Shared>, id: FetcherId) -> std::io::Result<Arc<Mailbox>> {
        let mailbox = Arc::new(Mailbox::new()?);
        #[cfg(feature = "sim")]
        if shared.is_by_hand() {
            self.mailboxes.insert(id, Arc::clone(&mailbox));
            return Ok(mailbox);
        }
        let fetcher = Fetcher::new(Arc::clone(shared), id, Arc::clone(&mailbox));
        let thread = std::thread::Builder::new()
            .name(format!("fetch-{}-{}", id.0, id.1))
            .spawn(move || fetcher.run())?;
        self.threads.retain(|thread| !thread.is_finished());
        self.threads.push(thread);
        self.mailboxes.insert(id, Arc::clone(&mailbox));
        Ok(mailbox)
    }
}
