//! The partitions that this broker holds, found by topic name.
//!
//! An immutable map, swapped when a partition comes or goes: network threads look it up without a
//! lock. Opening a log changes its partition, not the map, so 10,000 openings are one swap.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::hash::FastMap;
use crate::partition::{Partition, Topic};

/// The partitions of one topic, by index.
#[derive(Clone, Debug)]
pub struct HeldTopic {
    /// The topic.
    pub topic: Arc<Topic>,
    partitions: Vec<Option<Arc<Partition>>>,
}

impl HeldTopic {
    /// A partition, if it is held.
    pub fn partition(&self, index: i32) -> Option<&Arc<Partition>> {
        self.partitions.get(usize::try_from(index).ok()?)?.as_ref()
    }

    /// All that are held.
    pub fn partitions(&self) -> impl Iterator<Item = &Arc<Partition>> {
        self.partitions.iter().flatten()
    }
}

/// One state of the registry.
#[derive(Clone, Debug, Default)]
pub struct Held {
    by_name: FastMap<Arc<str>, Arc<HeldTopic>>,
}

impl Held {
    /// By name.
    pub fn topic(&self, name: &str) -> Option<&Arc<HeldTopic>> {
        self.by_name.get(name)
    }

    /// A partition by name and index.
    pub fn partition(&self, topic: &str, index: i32) -> Option<&Arc<Partition>> {
        self.by_name.get(topic)?.partition(index)
    }

    /// All partitions.
    pub fn partitions(&self) -> impl Iterator<Item = &Arc<Partition>> {
        self.by_name.values().flat_map(|topic| topic.partitions())
    }

    fn put(&mut self, partition: Arc<Partition>) {
        let Ok(index) = usize::try_from(partition.index) else {
            return;
        };
        let topic = Arc::clone(&partition.topic);
        let mut held = match self.by_name.get(&topic.name) {
            Some(held) if held.topic.id == topic.id => HeldTopic::clone(held),
            _ => HeldTopic {
                topic: Arc::clone(&topic),
                partitions: Vec::new(),
            },
        };
        if held.partitions.len() <= index {
            held.partitions.resize(index + 1, None);
        }
        held.partitions[index] = Some(partition);
        self.replace(held);
    }

    fn remove(&mut self, partition: &Arc<Partition>) {
        let Some(held) = self.by_name.get(&partition.topic.name) else {
            return;
        };
        let Ok(index) = usize::try_from(partition.index) else {
            return;
        };
        let mut held = HeldTopic::clone(held);
        match held.partitions.get_mut(index) {
            Some(place)
                if place
                    .as_ref()
                    .is_some_and(|old| Arc::ptr_eq(old, partition)) =>
            {
                *place = None;
            }
            _ => return,
        }
        self.replace(held);
    }

    fn replace(&mut self, held: HeldTopic) {
        let topic = Arc::clone(&held.topic);
        if held.partitions().next().is_none() {
            self.by_name.remove(&topic.name);
            return;
        }
        let held = Arc::new(held);
        self.by_name.insert(Arc::clone(&topic.name), held);
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Registry {
    held: ArcSwap<Held>,
    version: AtomicU64,
    change: Mutex<()>,
}

impl Registry {
    /// The present state.
    pub fn load(&self) -> Arc<Held> {
        self.held.load_full()
    }

    /// Rises with every change: a holder of an older state loads again when it differs.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// A partition by name and index.
    pub fn partition(&self, topic: &str, index: i32) -> Option<Arc<Partition>> {
        self.held.load().partition(topic, index).cloned()
    }

    /// Adds partitions in one swap.
    pub fn put(&self, partitions: impl IntoIterator<Item = Arc<Partition>>) {
        self.change(|held| {
            partitions
                .into_iter()
                .for_each(|partition| held.put(partition))
        });
    }

    /// Takes partitions out in one swap.
    pub fn remove<'a>(&self, partitions: impl IntoIterator<Item = &'a Arc<Partition>>) {
        self.change(|held| {
            partitions
                .into_iter()
                .for_each(|partition| held.remove(partition))
        });
    }

    fn change(&self, change: impl FnOnce(&mut Held)) {
        let _one_at_a_time = self.change.lock();
        let mut held = Held::clone(&self.held.load());
        change(&mut held);
        self.held.store(Arc::new(held));
        self.version.fetch_add(1, Ordering::Release);
    }
}
