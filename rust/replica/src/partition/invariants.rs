//! Invariants of a partition, checked when its lock is released and before anything is reported as
//! acknowledged or readable.
//!
//! A partition that breaks one is taken out of service: it is `Offline`, its log refuses
//! everything, and its files stay for the next start to recover. The broker's other partitions go
//! on (design.md, section 7). What was appended is still written if the log's own invariants hold.

use pyrklog_log::Log;
use pyrklog_log::invariants::ensure;

use super::health::Health;
use super::{PartitionState, ProduceWaiter, Role};
#[cfg(feature = "sim")]
use pyrklog_base::injected_faults::{Fault, is_injected};

impl PartitionState {
    /// Checks what must hold after each transition. The cost grows with the number of replicas
    /// only; for the log see [`Log::check_invariants`].
    ///
    /// # Errors
    /// The broken invariant, one sentence.
    pub fn check_invariants(&mut self) -> Result<(), String> {
        self.check_log_and_role()?;
        self.check_waiters()
    }

    /// Whether an invariant was found broken.
    pub fn has_failed(&self) -> bool {
        self.health != Health::Sound
    }

    /// Whether waiters may be told what is acknowledged and readable; if not, takes the partition
    /// out of service.
    pub(super) fn is_sound(&mut self) -> bool {
        if !self.has_failed()
            && let Err(broken) = self.check_log_and_role()
        {
            self.fail(&broken);
        }
        !self.has_failed()
    }

    /// The check at the lock's release: one sentence for the directory, once.
    #[inline]
    pub(super) fn check_once_more(&mut self) -> Option<String> {
        if self.health == Health::Sound {
            let broken = self.check_invariants().err()?;
            self.fail(&broken);
        }
        match std::mem::replace(&mut self.health, Health::Told) {
            Health::Broken(reason) => Some(reason),
            Health::Sound | Health::Told => None,
        }
    }

    #[cold]
    fn fail(&mut self, broken: &str) {
        let offsets = self.log.as_ref().map(Log::describe_offsets);
        let reason = format!(
            "{}-{} is taken out of service, since it broke an invariant: {broken} ({:?}, leader \
             epoch {}, {})",
            self.topic.name,
            self.index,
            self.role,
            self.leader_epoch,
            offsets.as_deref().unwrap_or("no log"),
        );
        if let Some(log) = &mut self.log {
            // Acknowledged records must not stay in memory until somebody restarts the broker. A log
            // whose own offsets contradict each other might write them to the wrong place.
            match log.check_invariants() {
                Ok(()) => log.seal(reason.clone()),
                Err(_) => log.poison(reason.clone()),
            }
        }
        if self.role != Role::Stopped {
            self.role = Role::Offline;
        }
        self.health = Health::Broken(reason);
        self.tell_fetches_later();
    }

    fn check_log_and_role(&mut self) -> Result<(), String> {
        #[cfg(feature = "sim")]
        if is_injected(Fault::HighWatermarkAboveDurableEnd) {
            return Ok(());
        }
        let (checked, epoch) = (self.checked_epoch, self.leader_epoch);
        ensure(checked <= epoch, || {
            format!("the leader epoch fell from {checked} to {epoch}")
        })?;
        self.checked_epoch = epoch;
        let Some(log) = &mut self.log else {
            let is_without = !matches!(self.role, Role::Leader | Role::Follower);
            return ensure(is_without, || "it has no log".to_owned());
        };
        log.check_invariants()?;
        let end = log.log_end_offset();
        match self.role {
            Role::Leader => self.check_leader(end),
            Role::Follower => ensure(self.leader_to_follow.is_some(), || {
                "it follows nobody".to_owned()
            }),
            Role::Loading | Role::Offline | Role::Stopped => Ok(()),
        }
    }

    /// Checks a leader's epoch and followers; its log ends at `end`.
    fn check_leader(&self, end: i64) -> Result<(), String> {
        ensure(self.leader_to_follow.is_none(), || {
            format!("it leads and follows broker {:?}", self.leader_to_follow)
        })?;
        ensure(self.led_since <= self.leader_epoch, || {
            format!("it has led since epoch {}", self.led_since)
        })?;
        ensure(self.epoch_start <= end, || {
            format!("its leader epoch starts at {}", self.epoch_start)
        })?;
        let (node_id, isr, members) = (self.node_id, &self.isr, &self.members);
        ensure(isr.contains(&node_id), || {
            format!("it leads and is not in sync: {isr:?}")
        })?;
        ensure(isr.iter().all(|id| members.contains(id)), || {
            format!("{isr:?} are in sync, {members:?} are waited for")
        })?;
        for follower in &self.followers {
            ensure(follower.last_fetch_offset <= end, || {
                let (id, reached) = (follower.id, follower.last_fetch_offset);
                format!("replica {id} reaches {reached}")
            })?;
        }
        Ok(())
    }

    /// Waiters wait for offsets that are in the log and not acknowledged.
    fn check_waiters(&self) -> Result<(), String> {
        let (Role::Leader, Some(log)) = (self.role, &self.log) else {
            return Ok(());
        };
        #[cfg(feature = "sim")]
        if is_injected(Fault::HighWatermarkAboveDurableEnd) {
            return Ok(());
        }
        let end = log.log_end_offset();
        let waits_within = |first: Option<i64>, last: Option<i64>, mark: i64| {
            ensure(
                first.is_none_or(|first| first > mark) && last.is_none_or(|last| last <= end),
                || format!("produce requests wait for {first:?} to {last:?} at {mark}"),
            )
        };
        let durable = &self.durable_waiters;
        let ends = |waiter: &ProduceWaiter| waiter.end_offset;
        waits_within(
            durable.first().map(ends),
            durable.last().map(ends),
            log.durable_end_offset(),
        )?;
        let high_watermark = log.high_watermark();
        let replication = &self.replication_waiters;
        waits_within(
            replication.first().map(ends),
            replication.last().map(ends),
            high_watermark,
        )?;
        let (first, last) = self.internal.append_ends();
        waits_within(first, last, high_watermark)?;
        let (counted, unwritten) = (self.unwritten, log.unwritten());
        ensure(
            (counted.bytes, counted.heap_bytes) == (unwritten.bytes, unwritten.heap_bytes),
            || format!("the directory counts {counted:?}, but there are {unwritten:?}"),
        )
    }
}

#[cfg(test)]
mod tests;
