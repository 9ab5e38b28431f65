//! The hosted partitions, by topic name.
//!
//! An immutable map, swapped when a partition comes or goes: network threads look up without a
//! lock. Opening a log changes its partition, not the map, so 10,000 openings are one swap.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::directory::Directory;
use crate::partition::{Partition, Topic};
use pyrklog_base::hash::FastMap;

/// The partitions of one topic, by index.
#[derive(Debug)]
pub struct HostedTopic<D> {
    /// The topic.
    pub topic: Arc<Topic>,
    partitions: Vec<Option<Arc<Partition<D>>>>,
}

impl<D: Directory> HostedTopic<D> {
    /// A partition, if hosted.
    pub fn partition(&self, index: i32) -> Option<&Arc<Partition<D>>> {
        self.partitions.get(usize::try_from(index).ok()?)?.as_ref()
    }

    /// All hosted partitions.
    pub fn partitions(&self) -> impl Iterator<Item = &Arc<Partition<D>>> {
        self.partitions.iter().flatten()
    }
}

/// One state of the registry.
#[derive(Debug)]
pub struct HostedPartitions<D> {
    by_name: FastMap<Arc<str>, Arc<HostedTopic<D>>>,
}

impl<D> Default for HostedPartitions<D> {
    fn default() -> Self {
        HostedPartitions {
            by_name: FastMap::default(),
        }
    }
}

impl<D> Clone for HostedPartitions<D> {
    fn clone(&self) -> Self {
        HostedPartitions {
            by_name: self.by_name.clone(),
        }
    }
}

impl<D> Clone for HostedTopic<D> {
    fn clone(&self) -> Self {
        HostedTopic {
            topic: Arc::clone(&self.topic),
            partitions: self.partitions.clone(),
        }
    }
}

impl<D: Directory> HostedPartitions<D> {
    /// By name.
    pub fn topic(&self, name: &str) -> Option<&Arc<HostedTopic<D>>> {
        self.by_name.get(name)
    }

    /// A partition by name and index.
    pub fn partition(&self, topic: &str, index: i32) -> Option<&Arc<Partition<D>>> {
        self.by_name.get(topic)?.partition(index)
    }

    /// All partitions.
    pub fn partitions(&self) -> impl Iterator<Item = &Arc<Partition<D>>> {
        self.by_name.values().flat_map(|topic| topic.partitions())
    }

    /// Those in a log directory.
    pub fn partitions_in<'a>(
        &'a self,
        dir: &'a Arc<D>,
    ) -> impl Iterator<Item = &'a Arc<Partition<D>>> {
        let is_in = |partition: &&Arc<Partition<D>>| Arc::ptr_eq(&partition.dir(), dir);
        self.partitions().filter(is_in)
    }

    /// Returns the partitions of topics whose name now has another id.
    fn put(
        &mut self,
        partitions: impl IntoIterator<Item = Arc<Partition<D>>>,
    ) -> Vec<Arc<Partition<D>>> {
        let mut dropped = Vec::new();
        for partition in partitions {
            let Ok(index) = usize::try_from(partition.index) else {
                continue;
            };
            let topic = &partition.topic;
            let hosted = self.by_name.entry(Arc::clone(&topic.name));
            let hosted = hosted.or_insert_with(|| {
                Arc::new(HostedTopic {
                    topic: Arc::clone(topic),
                    partitions: Vec::new(),
                })
            });
            // Copied at its first change: readers share the state before.
            let hosted = Arc::make_mut(hosted);
            if hosted.topic.id != topic.id {
                hosted.topic = Arc::clone(topic);
                dropped.extend(std::mem::take(&mut hosted.partitions).into_iter().flatten());
            }
            if hosted.partitions.len() <= index {
                hosted.partitions.resize(index + 1, None);
            }
            hosted.partitions[index] = Some(partition);
        }
        dropped
    }

    fn remove<'a>(&mut self, partitions: impl IntoIterator<Item = &'a Arc<Partition<D>>>) {
        for partition in partitions {
            let name = &partition.topic.name;
            let Some(hosted) = self.by_name.get_mut(name) else {
                continue;
            };
            let found = hosted.partition(partition.index);
            if !found.is_some_and(|found| Arc::ptr_eq(found, partition)) {
                continue;
            }
            let hosted = Arc::make_mut(hosted);
            hosted.partitions[partition.index as usize] = None;
            if hosted.partitions().next().is_none() {
                self.by_name.remove(name);
            }
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Registry<D> {
    hosted: ArcSwap<HostedPartitions<D>>,
    version: AtomicU64,
    change: Mutex<()>,
}

impl<D> Default for Registry<D> {
    fn default() -> Self {
        Registry {
            hosted: ArcSwap::default(),
            version: AtomicU64::new(0),
            change: Mutex::default(),
        }
    }
}

impl<D: Directory> Registry<D> {
    /// The current state.
    pub fn load(&self) -> Arc<HostedPartitions<D>> {
        self.hosted.load_full()
    }

    /// Rises with every change: holders of an older state reload when it differs.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// A partition by name and index.
    pub fn partition(&self, topic: &str, index: i32) -> Option<Arc<Partition<D>>> {
        self.hosted.load().partition(topic, index).cloned()
    }

    /// Adds partitions in one swap. Returns the partitions of topics whose name now has another id:
    /// they can no longer be found, and the caller closes them.
    #[must_use]
    pub fn put(
        &self,
        partitions: impl IntoIterator<Item = Arc<Partition<D>>>,
    ) -> Vec<Arc<Partition<D>>> {
        self.change(|hosted| hosted.put(partitions))
    }

    /// Takes partitions out in one swap.
    pub fn remove<'a>(&self, partitions: impl IntoIterator<Item = &'a Arc<Partition<D>>>) {
        self.change(|hosted| hosted.remove(partitions));
    }

    fn change<T>(&self, change: impl FnOnce(&mut HostedPartitions<D>) -> T) -> T {
        let _one_at_a_time = self.change.lock();
        let mut hosted = HostedPartitions::clone(&self.hosted.load());
        let changed = change(&mut hosted);
        self.hosted.store(Arc::new(hosted));
        self.version.fetch_add(1, Ordering::Release);
        changed
    }
}
