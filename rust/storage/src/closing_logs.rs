//! Stopped partitions of a log directory whose logs are not closed yet.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use pyrklog_replica::directory::Directory;
use pyrklog_replica::partition::Partition;

type ByName<D> = HashMap<(Arc<str>, i32), Arc<Partition<D>>>;

/// Stopped partitions of a log directory whose logs are not closed yet. On a full disk they wait
/// for space for their unwritten bytes. Meanwhile the directory is not clean.
#[derive(Debug)]
pub struct ClosingLogs<D> {
    by_name: Mutex<ByName<D>>,
    failed: AtomicUsize,
}

impl<D> Default for ClosingLogs<D> {
    fn default() -> Self {
        ClosingLogs {
            by_name: Mutex::new(HashMap::new()),
            failed: AtomicUsize::new(0),
        }
    }
}

impl<D: Directory> ClosingLogs<D> {
    /// Adds a partition, unless an earlier one of the name is there: then this one has no log yet.
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

    /// Its log is in another directory by now.
    pub fn hand_over(&self, partition: &Arc<Partition<D>>, other: &ClosingLogs<D>) {
        let is_here = self
            .get(&partition.topic.name, partition.index)
            .is_some_and(|known| Arc::ptr_eq(&known, partition));
        if is_here {
            self.closed(partition);
            other.add(partition);
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

    /// Removes and returns the one of a name.
    pub fn take(&self, topic: &str, index: i32) -> Option<Arc<Partition<D>>> {
        let key = (Arc::from(topic), index);
        self.by_name.lock().remove(&key)
    }

    /// All of them.
    pub fn all(&self) -> Vec<Arc<Partition<D>>> {
        self.by_name.lock().values().cloned().collect()
    }

    /// Number of partitions, including failed ones.
    pub fn count(&self) -> usize {
        self.by_name.lock().len() + self.failed.load(Ordering::Relaxed)
    }

    /// Drops them, after the end: partitions hold their directory and so its lock.
    pub fn clear(&self) {
        let forgotten = std::mem::take(&mut *self.by_name.lock());
        self.failed.fetch_add(forgotten.len(), Ordering::Relaxed);
    }
}
