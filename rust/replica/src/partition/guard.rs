//! The lock of a partition.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::MutexGuard;
use pyrklog_control::outbox::Outbox;
use pyrklog_log::Log;

use super::{Partition, PartitionState};
use crate::directory::Directory;

/// Guard of a partition's state. Releasing it after a change checks the invariants, so no other
/// thread sees a broken state that still serves.
#[derive(Debug)]
pub struct PartitionGuard<'a, D: Directory> {
    partition: &'a Partition<D>,
    state: MutexGuard<'a, PartitionState>,
    is_changed: bool,
}

impl<D: Directory> Deref for PartitionGuard<'_, D> {
    type Target = PartitionState;

    #[inline]
    fn deref(&self) -> &PartitionState {
        &self.state
    }
}

impl<D: Directory> DerefMut for PartitionGuard<'_, D> {
    #[inline]
    fn deref_mut(&mut self) -> &mut PartitionState {
        self.is_changed = true;
        &mut self.state
    }
}

impl<D: Directory> Drop for PartitionGuard<'_, D> {
    #[inline]
    fn drop(&mut self) {
        if self.is_changed
            && let Some(reason) = self.state.check_once_more()
        {
            let partition = self.partition;
            let dir = partition.dir();
            self.state.count_unwritten(&**dir);
            dir.partition_failed(partition, &mut self.state, reason);
        }
    }
}

impl<D: Directory> PartitionGuard<'_, D> {
    /// The log, which is not open, is in `dir`.
    pub fn is_found_in(&mut self, dir: Arc<D>) {
        debug_assert!(self.log.is_none(), "an open log moves with its records");
        self.partition.dir.store(dir);
    }

    /// The log goes on in `dir` as `log`, which has the same records, all of them in files. Returns
    /// the former log. Waiters and readers are told as if records had become durable.
    pub fn move_to(&mut self, dir: Arc<D>, log: Log, outbox: &mut Outbox) -> Option<Log> {
        let before = self.partition.dir.load_full();
        let former = self.log.replace(log);
        self.count_unwritten(&*before);
        self.partition.dir.store(Arc::clone(&dir));
        self.count_unwritten(&*dir);
        if self.raise_high_watermark(usize::MAX, outbox) {
            dir.high_watermark_moved();
        }
        former
    }
}

impl<D: Directory> Partition<D> {
    /// Locks the partition.
    #[inline]
    pub fn lock(&self) -> PartitionGuard<'_, D> {
        PartitionGuard {
            partition: self,
            state: self.state.lock(),
            is_changed: false,
        }
    }

    /// Releases the lock. Queues anything writable at the directory's writer: at once, or later if
    /// it is little and all of it is in the block cache.
    pub fn unlock_and_write(self: &Arc<Self>, state: PartitionGuard<'_, D>) {
        let flush_bytes = self.dir().flush_bytes();
        self.unlock_and_write_from(state, flush_bytes);
    }

    /// The same, but always at once.
    pub fn unlock_and_write_all(self: &Arc<Self>, state: PartitionGuard<'_, D>) {
        self.unlock_and_write_from(state, 0);
    }

    fn unlock_and_write_from(
        self: &Arc<Self>,
        mut state: PartitionGuard<'_, D>,
        flush_bytes: usize,
    ) {
        let ready = state.log.as_ref().filter(|log| log.is_ready_to_write());
        // A writer that holds batches looks again when it returns them.
        let Some(log) = ready else { return };
        let is_due = !log.may_write_later() || log.waiting_bytes() >= flush_bytes;
        if is_due && !state.queued {
            state.queued = true;
            drop(state);
            self.dir().write(Arc::clone(self));
        } else if !is_due && !state.queued && !state.queued_later {
            state.queued_later = true;
            drop(state);
            self.dir().write_later(Arc::clone(self));
        }
    }
}
