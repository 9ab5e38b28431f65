//! A range of one partition, and how far it is read.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pyrklog_client::Backoff;
use pyrklog_wire::Uuid;

/// Offsets of one partition to read. Several splits may have the same partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// Topic.
    pub topic: Arc<str>,
    /// Topic id, zero unknown.
    pub topic_id: Uuid,
    /// Partition.
    pub partition: i32,
    /// First offset to read.
    pub start: i64,
    /// The offset behind the last one to read.
    pub end: i64,
    /// Leader epoch of the record before the start, -1 unknown.
    pub leader_epoch: i32,
    /// The epoch may be newer than that of the record: it is the leader's that named the start.
    pub is_listed: bool,
}

/// A split on its way through lanes.
#[derive(Clone, Debug)]
pub(crate) struct Cursor {
    /// Its number.
    pub split: usize,
    pub topic: Arc<str>,
    pub topic_id: Uuid,
    pub partition: i32,
    /// The next offset to read.
    pub position: i64,
    pub end: i64,
    /// Leader epoch of the record before `position`, -1 unknown.
    pub last_epoch: i32,
    /// That epoch may be newer than the record's.
    pub is_listed: bool,
    /// The leader epoch in which `position` is known to be in the log, -1 none.
    pub leader_epoch: i32,
    /// The replica to read from instead of the leader, and until when.
    pub preferred: Option<(i32, Instant)>,
    /// The replica refused the position.
    pub is_out_of_range: bool,
    /// The leader's log may have another record where the last one was read ([`crate::ask`]).
    pub is_doubted: bool,
    /// Fetches in a row that found nothing though the end is visible.
    pub empties: u32,
    /// Since when there is no progress, less the time in which nobody asked for it.
    stalled_since: Option<Instant>,
    /// How long brokers' quotas have held it up meanwhile.
    throttled: Duration,
    /// When it was given to a worker that has not taken it yet.
    handed_at: Option<Instant>,
    /// The tries.
    pub backoff: Backoff,
}

impl Cursor {
    pub fn new(number: usize, split: &Split) -> Cursor {
        Cursor {
            split: number,
            topic: Arc::clone(&split.topic),
            topic_id: split.topic_id,
            partition: split.partition,
            position: split.start,
            end: split.end,
            last_epoch: split.leader_epoch,
            is_listed: split.is_listed,
            leader_epoch: -1,
            preferred: None,
            is_out_of_range: false,
            is_doubted: false,
            empties: 0,
            stalled_since: None,
            throttled: Duration::ZERO,
            handed_at: None,
            backoff: Backoff::default(),
        }
    }

    pub fn is_done(&self) -> bool {
        self.position >= self.end
    }

    /// Leader epoch of the record before the position, -1 unknown.
    pub fn known_epoch(&self) -> i32 {
        match self.is_listed {
            true => -1,
            false => self.last_epoch,
        }
    }

    /// Records arrived.
    pub fn moved_to(&mut self, position: i64) {
        self.position = position;
        self.empties = 0;
        self.was_behind();
        self.throttled = Duration::ZERO;
        self.is_out_of_range = false;
        self.backoff.reset();
    }

    /// How long there was no progress; counts from the first call.
    pub fn stalled_for(&mut self, now: Instant) -> Duration {
        now.saturating_duration_since(*self.stalled_since.get_or_insert(now))
    }

    /// Others took the room of an answer: nothing is wrong with it.
    pub fn was_behind(&mut self) {
        self.stalled_since = None;
    }

    /// Nobody asked for it from `since` on: that does not count.
    pub fn was_left_alone(&mut self, since: Instant, now: Instant) {
        if let Some(at) = &mut self.stalled_since {
            *at += now.saturating_duration_since(since.max(*at));
        }
    }

    /// A broker's quota forbade to ask from `since` on. That does not count either, up to `most`
    /// without progress.
    pub fn was_throttled(&mut self, since: Instant, now: Instant, most: Duration) {
        let wait = now.saturating_duration_since(since);
        let counted = wait.min(most.saturating_sub(self.throttled));
        self.throttled += counted;
        self.was_left_alone(now - counted, now);
    }

    /// It is on its way to a worker.
    pub fn handed_over(&mut self, now: Instant) {
        self.handed_at = Some(now);
    }

    /// The worker has it, which may have been held up by the caller.
    pub fn taken_over(&mut self, now: Instant) {
        if let Some(since) = self.handed_at.take() {
            self.was_left_alone(since, now);
        }
    }

    /// "topic-3", for messages.
    pub fn name(&self) -> String {
        format!("{}-{}", self.topic, self.partition)
    }
}
