//! Digests of replicas, of [`DataPlane`].

use super::{Closed, DataPlane};
use pyrklog_base::ids::TicketId;
use pyrklog_control::seam::DigestRange;
use pyrklog_storage::replica_digest;

impl DataPlane {
    /// Digests the batches of a range of offsets, whether this broker leads the partition or
    /// follows. An empty range asks for the replica's offsets only. Completes as
    /// [`pyrklog_control::seam::TicketOutcome::ReplicaDigest`], with NOT_LEADER_OR_FOLLOWER (no
    /// replica here), KAFKA_STORAGE_ERROR, OFFSET_OUT_OF_RANGE (not all of the range is in the
    /// log), FENCED_LEADER_EPOCH (the leader changed meanwhile) or REQUEST_TIMED_OUT (too many such
    /// requests wait: try again).
    pub fn replica_digest(
        &self,
        topic: &str,
        partition: i32,
        range: DigestRange,
    ) -> Result<TicketId, Closed> {
        self.command(|| {
            self.start_readers();
            replica_digest::replica_digest(&self.network, topic, partition, range)
        })
    }
}
