//! Partial replicas: they began at their leader's end, and lack older records (`expansion.md`).

use pyrklog_log::Log;

use super::standing::{Beginning, Standing};
use super::{PartitionState, Role};
use crate::consumed::Consumed;
use crate::replica_progress::Follower;
use pyrklog_base::injected_faults::{Fault, is_injected};

impl PartitionState {
    /// Whether the controller lets this replica lack older records for the time being.
    pub fn is_partial(&self, id: i32) -> bool {
        self.partial.contains(&id)
    }

    /// A consumer fetches there.
    pub fn note_consumer(&mut self, offset: i64, now_ms: i64) {
        if self.consumed().is_some() {
            self.consumed.note(offset, now_ms);
        }
    }

    /// Where consumers read. A leader looks while there are partial replicas; followers, which are
    /// not told of others' state, always do.
    pub fn consumed(&self) -> Option<&Consumed> {
        let is_watched = self.leader_to_follow.is_some() || !self.partial.is_empty();
        is_watched.then_some(&self.consumed)
    }

    /// A follower is told where this log ends, and begins there: what its fetches have said until
    /// now no longer holds.
    pub fn begins_anew(&mut self, id: i32) {
        if let Some(follower) = self.followers.iter_mut().find(|follower| follower.id == id) {
            follower.last_fetch_offset = -1;
            follower.log_start_offset = i64::MAX;
        }
    }

    /// Whether its records count for the high watermark.
    pub fn is_member(&self, id: i32) -> bool {
        self.members.contains(&id)
    }

    /// Whether a follower must stay out of the ISR, since it lacks records that this leader has.
    pub(super) fn lacks_history(&self, follower: &Follower) -> bool {
        self.begins_behind(follower.id, follower.log_start_offset)
    }

    /// The same of a follower whose fetch says where its log begins.
    pub(super) fn begins_behind(&self, id: i32, log_start_offset: i64) -> bool {
        let start = self.log.as_ref().map_or(-1, Log::log_start_offset);
        self.is_partial(id) && log_start_offset > start && !is_injected(Fault::JoinPartial)
    }

    /// Whether a replica began at this leader's end, and gets new records alone. The throttle of
    /// replication is for copies (`expansion.md`, section 6).
    pub fn only_follows(&self, id: i32) -> bool {
        let mut followers = self.followers.iter();
        let follower = followers.find(|follower| follower.id == id);
        follower.is_some_and(|follower| self.lacks_history(follower))
    }

    /// Whether it is to lead with a log that lacks records: the others would delete them, too.
    pub fn would_lead_partially(&self) -> bool {
        let is_partial = self.log.as_ref().is_some_and(Log::is_partial);
        is_partial && self.leader_to_follow.is_none()
    }

    /// What stands between this follower and its next fetch.
    pub fn standing(&self) -> Standing {
        let Some(log) = self.log.as_ref().filter(|_| self.role == Role::Follower) else {
            return Standing::Fetches;
        };
        // Where this leader gives no start to a compacted log, it copies.
        let has_no_start = self.beginning == Beginning::Copies && log.config().cleanup_compact;
        let begins_anew = self.begins_compacted_anew(log);
        let is_copied = log.is_partial() && has_no_start && (log.is_empty() || begins_anew);
        let is_listed = self.is_partial(self.node_id) && !is_copied;
        let is_in_sync = self.isr.contains(&self.node_id);
        let is_undecided = self.beginning == Beginning::Undecided && log.is_empty();
        if is_listed && !is_in_sync && (is_undecided || begins_anew) {
            return Standing::NeedsStart;
        }
        if !log.is_partial() {
            return Standing::Fetches;
        }
        // What was joined must not go on with the leader's records, wherever it begins.
        let is_cut = log.ends_before_its_start();
        match self.leader_log_start {
            start if log.log_start_offset() <= start && !is_cut => Standing::IsWhole,
            _ if is_listed || is_injected(Fault::KeepUnlisted) => Standing::Fetches,
            _ => Standing::NeedsLeadersStart,
        }
    }

    /// Whether what there is of a partial log must go before anything follows.
    fn begins_compacted_anew(&self, log: &Log) -> bool {
        let is_mixed = self.wants_new_start && log.config().cleanup_compact;
        log.is_partial() && (is_mixed || log.ends_before_its_start())
    }

    /// Where the log begins, if the leader has records below that which can be back-filled now: they
    /// are committed, and the controller lets the replica lack them.
    pub fn back_fill_end(&self) -> Option<i64> {
        let log = self.log.as_ref().filter(|log| log.is_partial())?;
        let end = log.log_start_offset();
        let is_follower = self.role == Role::Follower && self.is_partial(self.node_id);
        let is_committed =
            self.leader_high_watermark >= end || is_injected(Fault::FillTruncatedEpoch);
        let is_known = self.leader_log_start >= 0 && is_committed;
        let is_follower = is_follower && !self.begins_compacted_anew(log);
        (is_follower && is_known && end > self.leader_log_start).then_some(end)
    }

    /// Whether an offset lies below the log, and the leader may have it.
    pub fn lacks(&self, offset: i64) -> bool {
        let log = self.log.as_ref().filter(|log| log.is_partial());
        log.is_some_and(|log| self.role == Role::Follower && offset < log.log_start_offset())
    }
}
