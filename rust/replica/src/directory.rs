//! What a partition needs of its log directory.

use std::fmt::Debug;
use std::sync::Arc;

use pyrklog_log::Unwritten;

use crate::partition::{Partition, PartitionState};

/// See the module.
pub trait Directory: Debug + Send + Sync + Sized + 'static {
    /// A partition is written when this many of its bytes wait; fewer wait for the writer's next
    /// look.
    fn flush_bytes(&self) -> usize;

    /// Hands a partition to the writer.
    fn write(&self, partition: Arc<Partition<Self>>);

    /// Has the writer look at a partition in a while.
    fn write_later(&self, partition: Arc<Partition<Self>>);

    /// A partition's unwritten batches changed.
    fn count(&self, before: Unwritten, now: Unwritten);

    /// The high watermark of a partition moved.
    fn high_watermark_moved(&self);

    /// A partition is offline because it broke an invariant: fails its waiters and tells the
    /// control plane. `state` is the partition's, locked.
    fn partition_failed(
        &self,
        partition: &Partition<Self>,
        state: &mut PartitionState,
        reason: String,
    );
}
