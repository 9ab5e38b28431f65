//! Partitions of a log directory that were given up and whose logs are not closed yet.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use pyrklog_replica::directory::Directory;
use pyrklog_replica::partition::Partition;

type ByName<D> = HashMap<(Arc<str>, i32), Arc<Partition<D>>>;

/// Partitions of a log directory that were given up and whose logs are not closed yet. On a full disk
/// that lasts: what is unwritten waits for space. While there are any, the directory is not clean.
#[derive(Debug)]
pub struct Unclosed<D> {
    by_name: Mutex<ByName<D>>,
    /// Whose closing failed, so that they never will be.
    failed: AtomicUsize,
}

impl<D> Default for Unclosed<D> {
    fn default() -> Self {
        Unclosed {
            by_name: Mutex::new(HashMap::new()),
            failed: AtomicUsize::new(0),
        }
    }
}

impl<D: Directory> Unclosed<D> {
    /// One that is given up. Where an earlier one of the name is not closed, this one has no log yet.
    pub fn add(&self, partition: &Arc<Partition<D>>) {
        let mut by_name = self.by_name.lock();
        let entry = by_name.entry((Arc::clone(&partition.topic.name), partition.index));
        entry.or_insert_with(|| Arc::clone(partition));
    }

    /// Its log is closed.
    pub fn closed(&self, partition: &Arc<Partition<D>>) {
        let key = (Arc::clone(&partition.topic.name), partition.index);
        let mut by_name = self.by_name.lock();
        if by_name
            .get(&key)
            .is_some_and(|other| Arc::ptr_eq(other, partition))
        {
            by_name.remove(&key);
        }
    }

    /// Its log cannot be closed.
    pub fn failed(&self, partition: &Arc<Partition<D>>) {
        self.closed(partition);
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// The one of a name.
    pub fn get(&self, topic: &str, index: i32) -> Option<Arc<Partition<D>>> {
        let key = (Arc::from(topic), index);
        self.by_name.lock().get(&key).cloned()
    }

    /// Takes the one of a name out.
    pub fn take(&self, topic: &str, index: i32) -> Option<Arc<Partition<D>>> {
        let key = (Arc::from(topic), index);
        self.by_name.lock().remove(&key)
    }

    /// All of them.
    pub fn all(&self) -> Vec<Arc<Partition<D>>> {
        self.by_name.lock().values().cloned().collect()
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.by_name.lock().len() + self.failed.load(Ordering::Relaxed)
    }

    /// Forgets them, after the end: partitions hold their directory, and so its lock.
    pub fn clear(&self) {
        let forgotten = std::mem::take(&mut *self.by_name.lock());
        self.failed.fetch_add(forgotten.len(), Ordering::Relaxed);
    }
}
