//! Transactions, of [`DataPlane`]: markers, guards, and the producers of a partition.

use pyrklog_log::producer_state::guards::{Afterwards, GuardOwner};
use pyrklog_log::producer_state::verification::{ActiveProducer, Verification};
use pyrklog_wire::ErrorCode;

use super::{Closed, DataPlane};
use crate::write_markers;
use pyrklog_base::clock::Now;
use pyrklog_base::ids::TicketId;
use pyrklog_base::network_event::NetworkEvent;
use pyrklog_control::seam::Marker;

/// A coordinator's batches are not numbered.
const NO_LOWEST_SEQUENCE: i32 = i32::MAX;

impl DataPlane {
    /// Ends transactions in partitions that this broker leads. Each marker enters its partition's
    /// log within the call, in memory, so the log has markers in the order of the calls. Completes
    /// as [`pyrklog_control::seam::TicketOutcome::Markers`] once the high watermark has passed
    /// every one, in this leader epoch or in a later one that this broker leads without having
    /// followed in between, or with an error of its own:
    ///
    /// - NOT_LEADER_OR_FOLLOWER: not led here; UNKNOWN_TOPIC_OR_PARTITION: there is none;
    /// - NOT_ENOUGH_REPLICAS: too few in-sync replicas;
    /// - TRANSACTION_COORDINATOR_FENCED: a marker of a later coordinator is known;
    /// - INVALID_PRODUCER_EPOCH: the producer has a newer epoch, or with transaction version 2 the
    ///   same one and an open transaction;
    /// - KAFKA_STORAGE_ERROR: its log directory failed or is full; REQUEST_TIMED_OUT: it is so far
    ///   behind that it takes nothing more.
    pub fn write_markers(&self, markers: &[Marker], timestamp_ms: i64) -> Result<TicketId, Closed> {
        self.command(|| write_markers::write_markers(&self.network.services, markers, timestamp_ms))
    }

    /// Before the coordinator is asked whether a producer's transaction holds this partition: the
    /// guard for its first append here, 0 if its transaction is open. [`Self::end_verification`]
    /// gives it back.
    ///
    /// # Errors
    /// NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR; INVALID_PRODUCER_EPOCH: the producer has a
    /// newer epoch; NOT_ENOUGH_REPLICAS: too many are asked about: try again.
    pub fn begin_verification(
        &self,
        topic: &str,
        partition: i32,
        producer: (i64, i16),
    ) -> Result<u64, ErrorCode> {
        let partition = self.network.registry.partition(topic, partition);
        let partition = partition.ok_or(ErrorCode::NOT_LEADER_OR_FOLLOWER)?;
        let now_ms = Now::read().wall_ms;
        let mut state = partition.lock();
        let log = state.led()?;
        let begun = log.begin_verification(owner(producer), NO_LOWEST_SEQUENCE, now_ms);
        match begun.map_err(|error| error.code())? {
            Verification::Unneeded => Ok(0),
            Verification::Needed(guard) => Ok(guard),
            Verification::Full => Err(ErrorCode::NOT_ENOUGH_REPLICAS),
        }
    }

    /// The coordinator refused, or the append is over. Ignores a guard that is void.
    pub fn end_verification(&self, topic: &str, partition: i32, producer: (i64, i16), guard: u64) {
        let Some(partition) = self.network.registry.partition(topic, partition) else {
            return;
        };
        if let Ok(log) = partition.lock().led() {
            log.end_verification(owner(producer), guard, Afterwards::Closed);
        }
    }

    /// Answers [`pyrklog_control::seam::Event::VerifyTransaction`]: an error code of each
    /// partition, in order; missing ones count as NETWORK_EXCEPTION. Ignores an id that is unknown or
    /// already answered.
    pub fn transaction_verified(&self, id: u64, errors: &[i16]) {
        if let Some(place) = self.network.verifications.answered(id) {
            self.network.inboxes[place.thread].send(NetworkEvent::Verified {
                token: place.token,
                id,
                errors: errors.to_vec(),
            });
        }
    }

    /// `transaction.partition.verification.enable`; initially on. Transactions that enrol their
    /// partitions are verified nevertheless.
    pub fn set_transaction_verification(&self, is_on: bool) {
        self.network.verifications.set(is_on);
    }

    /// Up to `max` producers with state in a partition, those with an open transaction first, in
    /// order of their ids. A follower answers from its own log, which may be behind the leader's.
    ///
    /// # Errors
    /// NOT_LEADER_OR_FOLLOWER: this broker has no open replica; KAFKA_STORAGE_ERROR.
    pub fn active_producers(
        &self,
        topic: &str,
        partition: i32,
        max: usize,
    ) -> Result<Vec<ActiveProducer>, ErrorCode> {
        let partition = self.network.registry.partition(topic, partition);
        let partition = partition.ok_or(ErrorCode::NOT_LEADER_OR_FOLLOWER)?;
        let mut found = partition.lock().replica()?.producers().active(max);
        found.sort_unstable_by_key(|one| (one.txn_start_offset < 0, one.id));
        Ok(found)
    }
}

fn owner((producer_id, epoch): (i64, i16)) -> GuardOwner {
    GuardOwner {
        producer_id,
        epoch,
        transactional_id: 0,
    }
}
