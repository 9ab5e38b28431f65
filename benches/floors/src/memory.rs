//! What all partitions keep in memory: so many chunks, the oldest forgotten first.

use crate::chunks::{CHUNK_BYTES, Chunks};
use crate::partition::Partition;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub struct Memory {
    chunks: Chunks,
    chunks_max: usize,
    partitions: Mutex<Vec<Arc<Partition>>>,
    /// One entry a sealed chunk, oldest first: whose it is.
    kept: Mutex<VecDeque<Arc<Partition>>>,
}

impl Memory {
    /// Nothing yet; at most `memory_bytes`, but one chunk at least.
    pub fn new(memory_bytes: usize) -> Self {
        Self {
            chunks: Chunks::default(),
            chunks_max: (memory_bytes / CHUNK_BYTES).max(1),
            partitions: Mutex::default(),
            kept: Mutex::default(),
        }
    }

    /// The chunks that are free.
    pub fn chunks(&self) -> &Chunks {
        &self.chunks
    }

    /// Takes in the partitions of a new topic.
    pub fn add(&self, partitions: &[Arc<Partition>]) {
        self.partitions.lock().extend_from_slice(partitions);
    }

    /// All partitions there are.
    pub fn partitions(&self) -> Vec<Arc<Partition>> {
        self.partitions.lock().clone()
    }

    /// Notes a sealed chunk, and forgets the oldest beyond the limit.
    pub fn keep(&self, partition: &Arc<Partition>) {
        let oldest = {
            let mut kept = self.kept.lock();
            kept.push_back(Arc::clone(partition));
            (kept.len() > self.chunks_max)
                .then(|| kept.pop_front())
                .flatten()
        };
        if let Some(bytes) = oldest.and_then(|partition| partition.forget_oldest()) {
            self.chunks.give_back(bytes);
        }
    }
}
