//! What a partition needs of the log directory that holds it.

use std::fmt::Debug;
use std::sync::Arc;

use pyrklog_log::Unwritten;

use crate::partition::Partition;

/// See the module.
pub trait Directory: Debug + Send + Sync + Sized + 'static {
    /// A partition is written when so many of its bytes wait; fewer of them wait for the writer's
    /// next look.
    fn flush_bytes(&self) -> usize;

    /// Hands a partition to the writer.
    fn write(&self, partition: Arc<Partition<Self>>);

    /// The writer is to look at a partition in a while.
    fn write_later(&self, partition: Arc<Partition<Self>>);

    /// A partition has other batches that are not in files than before.
    fn count(&self, before: Unwritten, now: Unwritten);

    /// The high watermark of one of its partitions moved.
    fn high_watermark_moved(&self);

    /// One of its partitions is offline, since it broke an invariant: those who wait at it are to be
    /// told, and the operator. Called with the partition locked.
    fn partition_failed(&self, topic: &Arc<str>, index: i32, reason: String);
}
