//! The memory of all partitions: a number of chunks; the oldest are dropped first.

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
    /// The partition of each sealed chunk, oldest first.
    kept: Mutex<VecDeque<Arc<Partition>>>,
}

impl Memory {
    /// Empty; at most `memory_bytes`, but at least one chunk.
    pub fn new(memory_bytes: usize) -> Self {
        Self {
            chunks: Chunks::default(),
            chunks_max: (memory_bytes / CHUNK_BYTES).max(1),
            partitions: Mutex::default(),
            kept: Mutex::default(),
        }
    }

    /// The free chunks.
    pub fn chunks(&self) -> &Chunks {
        &self.chunks
    }

    /// Adds the partitions of a new topic.
    pub fn add(&self, partitions: &[Arc<Partition>]) {
        self.partitions.lock().extend_from_slice(partitions);
    }

    /// All partitions.
    pub fn partitions(&self) -> Vec<Arc<Partition>> {
        self.partitions.lock().clone()
    }

    /// Adds a sealed chunk, and drops the oldest beyond the limit.
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
