//! A hosted partition: its log, its role and its waiters.
//!
//! One mutex guards all mutable state and is held for memory work only. Effects for others (a
//! finished produce, a woken fetch) go to an [`Outbox`], which is delivered after the mutex is
//! released.

mod fetch_watchers;
mod guard;
mod health;
mod in_sync;
mod invariants;
mod partial;
mod produce_waiters;
mod standing;

pub use crate::waiters::{DoubtWaiter, ProduceWaiter};
pub use guard::PartitionGuard;
pub use in_sync::{CONFIRMED_WITHIN_MS, FollowerFetch};
pub use produce_waiters::WaitFor;
pub use standing::{Beginning, Standing};

use std::collections::BTreeSet;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use pyrklog_log::{Appended, Log, LogConfig, Unwritten};
use pyrklog_wire::ErrorCode;

use crate::consumed::Consumed;
use crate::directory::Directory;
use crate::fetch_watch::FetchWatchers;
use crate::internal_waiters::InternalWaiters;
use crate::replica_progress::{Follower, high_watermark_limit};
use crate::served_bytes::ServedBytes;
use pyrklog_base::hash::FastMap;
use pyrklog_base::ids::{Token, TopicId};
use pyrklog_base::injected_faults::{Fault, is_injected};
use pyrklog_control::image::TopicState;
use pyrklog_control::outbox::Outbox;
use pyrklog_control::seam::Throttled;

use health::Health;

/// How long a client may wait for the answer of a leader that hangs, and only then go on at the next
/// one: librdkafka's `socket.timeout.ms`, the longest of the known clients.
pub const TAKEOVER_MS: i64 = 60_000;

/// What a topic's partitions share.
#[derive(Debug)]
pub struct Topic {
    /// Topic name.
    pub name: Arc<str>,
    /// Topic id.
    pub id: TopicId,
    /// Whether only the broker itself writes to it.
    pub internal: bool,
    settings: ArcSwap<TopicSettings>,
}

/// A topic's options, swapped as a whole.
#[derive(Clone, Debug)]
pub struct TopicSettings {
    /// The log's options.
    pub log: Arc<LogConfig>,
    /// `min.insync.replicas`.
    pub min_insync_replicas: i32,
    /// Replicas whose traffic counts towards the replication rates.
    pub throttled: Arc<Throttled>,
}

impl TopicSettings {
    /// From the image.
    pub fn new(topic: &TopicState) -> TopicSettings {
        TopicSettings {
            log: Arc::clone(&topic.log_config),
            min_insync_replicas: topic.min_insync_replicas,
            throttled: Arc::clone(&topic.throttled),
        }
    }
}

impl Topic {
    /// From the image.
    pub fn new(topic: &TopicState) -> Topic {
        Topic {
            name: Arc::clone(&topic.name),
            id: topic.id,
            internal: topic.internal,
            settings: ArcSwap::from_pointee(TopicSettings::new(topic)),
        }
    }

    /// The current options.
    pub fn settings(&self) -> arc_swap::Guard<Arc<TopicSettings>> {
        self.settings.load()
    }

    /// Replaces the options.
    pub fn set_settings(&self, settings: TopicSettings) {
        self.settings.store(Arc::new(settings));
    }
}

/// A partition's role on this broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Its log is being opened, or it is changing from follower to leader.
    Loading,
    /// It leads.
    Leader,
    /// It fetches from its leader.
    Follower,
    /// Its log directory failed, or it broke an invariant.
    Offline,
    /// It is no longer hosted.
    Stopped,
}

/// The controller's decision for a partition.
#[derive(Clone, Copy, Debug)]
pub struct LeaderAndIsr<'a> {
    /// As in [`PartitionState`].
    pub leader_to_follow: Option<i32>,
    /// Leader epoch.
    pub leader_epoch: i32,
    /// Assigned replicas.
    pub replicas: &'a [i32],
    /// In-sync replicas.
    pub isr: &'a [i32],
    /// See [`pyrklog_control::seam::LeaderSpec::is_held`].
    pub is_held: bool,
    /// See [`pyrklog_control::seam::LeaderSpec::partial`]; of a follower, itself alone or nobody.
    pub partial: &'a [i32],
}

/// See the module.
#[derive(Debug)]
pub struct Partition<D> {
    /// The topic.
    pub topic: Arc<Topic>,
    /// Partition index.
    pub index: i32,
    /// Exchanged under the lock of the state.
    dir: ArcSwap<D>,
    state: Mutex<PartitionState>,
    /// What fetches got of it.
    pub served: ServedBytes,
}

/// Topic and index, for messages.
impl<D> std::fmt::Display for Partition<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.topic.name, self.index)
    }
}

/// What the mutex guards.
#[derive(Debug)]
pub struct PartitionState {
    /// Its role.
    pub role: Role,
    /// Leader epoch, -1 before the first.
    pub leader_epoch: i32,
    /// Epoch since which this broker has led without a break; valid while it leads.
    pub led_since: i32,
    /// Assigned replicas.
    pub replicas: Vec<i32>,
    /// In-sync replicas as recorded by the controller; `min.insync.replicas` counts them.
    pub isr: Vec<i32>,
    /// Broker that this one follows, -1 while there is no leader; `None` if this broker leads or is
    /// about to.
    pub leader_to_follow: Option<i32>,
    /// The leader's high watermark as last reported, while this broker follows.
    pub leader_high_watermark: i64,
    /// The leader's log start offset as last reported; this log's follows it.
    pub leader_log_start: i64,
    /// The log; present in the roles `Leader` and `Follower`.
    pub log: Option<Log>,
    /// What the directory counts as unwritten of this partition.
    pub unwritten: Unwritten,
    /// Whether it is in the writer's queue.
    pub queued: bool,
    /// Whether the writer will look at it in a while.
    pub queued_later: bool,
    /// Whether to write everything that waits once another writer returns its job.
    pub write_rest: bool,
    /// The control plane's waiting appends and reads.
    pub internal: InternalWaiters,
    topic: Arc<Topic>,
    index: i32,
    node_id: i32,
    health: Health,
    /// Leader epoch at the last check.
    checked_epoch: i32,
    followers: Vec<Follower>,
    /// What the high watermark waits for (glossary).
    members: Vec<i32>,
    /// The high watermark stands still: the controller counts on replicas outside `isr`.
    is_held: bool,
    /// Replicas that may lack older records than this leader's; of a follower, itself alone.
    partial: Vec<i32>,
    /// How this partial replica begins in this leader epoch.
    pub beginning: Beginning,
    /// What was back-filled of a compacted log cannot go on: this partial replica begins anew at the
    /// leader's end.
    pub wants_new_start: bool,
    /// Sources of a back-fill that have failed in this leader epoch, counted each time.
    pub failed_sources: usize,
    /// Back-fills that failed one after the other.
    pub failed_fills: u32,
    /// A reader reads what another replica's back-fill has asked for.
    pub is_reading_segment: bool,
    /// Where consumers read in this leader epoch; of a leader, while there are partial replicas.
    consumed: Consumed,
    /// Its log could not be opened for lack of space; retried when there is some.
    pub waits_for_space: bool,
    /// Start offset of the leader epoch, while this broker leads.
    epoch_start: i64,
    /// Monotonic time at which this broker stopped following to lead.
    took_over_ms: Option<i64>,
    durable_waiters: BTreeSet<ProduceWaiter>,
    replication_waiters: BTreeSet<ProduceWaiter>,
    fetch_watchers: FetchWatchers,
    /// Whether to report a follower's changed log start to the control plane.
    tells_log_starts: bool,
    /// Since when a consumer waits for followers to confirm this leader.
    doubt_ms: Option<i64>,
    /// Since when followers have been asked without any confirmation.
    in_vain_since_ms: Option<i64>,
    doubt_waiters: FastMap<Token, DoubtWaiter>,
}

impl<D: Directory> Partition<D> {
    /// A partition whose log is not open yet.
    pub fn new(topic: Arc<Topic>, index: i32, dir: Arc<D>, node_id: i32) -> Partition<D> {
        let state = PartitionState {
            role: Role::Loading,
            leader_epoch: -1,
            led_since: -1,
            replicas: Vec::new(),
            isr: Vec::new(),
            leader_to_follow: None,
            leader_high_watermark: -1,
            leader_log_start: -1,
            log: None,
            unwritten: Unwritten::default(),
            queued: false,
            queued_later: false,
            write_rest: false,
            internal: InternalWaiters::default(),
            topic: Arc::clone(&topic),
            index,
            node_id,
            health: Health::Sound,
            checked_epoch: -1,
            followers: Vec::new(),
            members: Vec::new(),
            is_held: false,
            partial: Vec::new(),
            beginning: Beginning::Undecided,
            wants_new_start: false,
            failed_sources: 0,
            failed_fills: 0,
            is_reading_segment: false,
            consumed: Consumed::default(),
            waits_for_space: false,
            epoch_start: -1,
            took_over_ms: None,
            durable_waiters: BTreeSet::new(),
            replication_waiters: BTreeSet::new(),
            fetch_watchers: FetchWatchers::default(),
            tells_log_starts: false,
            doubt_ms: None,
            in_vain_since_ms: None,
            doubt_waiters: FastMap::default(),
        };
        Partition {
            topic,
            index,
            dir: ArcSwap::new(dir),
            state: Mutex::new(state),
            served: ServedBytes::default(),
        }
    }

    /// Its log directory. It changes when the replica moves to another one: a caller that needs the
    /// same twice asks once, and one that holds the partition's lock sees that of its log.
    #[inline]
    pub fn dir(&self) -> arc_swap::Guard<Arc<D>> {
        self.dir.load()
    }

    /// Whether what this broker sends of it as leader counts towards the replication rate.
    pub fn is_throttled_leading(&self, node_id: i32) -> bool {
        let settings = self.topic.settings();
        settings.throttled.leading.holds(self.index, node_id)
    }

    /// The same for what it fetches as follower.
    pub fn is_throttled_following(&self, node_id: i32) -> bool {
        let settings = self.topic.settings();
        settings.throttled.following.holds(self.index, node_id)
    }
}

impl PartitionState {
    /// The log if this broker leads, else the protocol's error.
    pub fn led(&mut self) -> Result<&mut Log, ErrorCode> {
        self.shown(true)
    }

    /// The log if this broker leads, to look at.
    pub fn log_led(&self) -> Option<&Log> {
        self.log.as_ref().filter(|_| self.role == Role::Leader)
    }

    /// The log if this broker leads in the client's epoch. As in Kafka, the epoch is checked first.
    pub fn led_in(&mut self, current_leader_epoch: i32) -> Result<&mut Log, ErrorCode> {
        self.shown_in(current_leader_epoch, true)
    }

    /// [`Self::shown`] in the reader's epoch.
    pub fn shown_in(
        &mut self,
        current_leader_epoch: i32,
        of_leader_only: bool,
    ) -> Result<&mut Log, ErrorCode> {
        if self.role != Role::Offline {
            self.check_epoch(current_leader_epoch)?;
        }
        self.shown(of_leader_only)
    }

    /// The log for a reader: of a leader, and of a follower unless `of_leader_only`.
    pub fn shown(&mut self, of_leader_only: bool) -> Result<&mut Log, ErrorCode> {
        match (self.role, &mut self.log) {
            (Role::Leader, Some(log)) => Ok(log),
            (Role::Follower, Some(log)) if !of_leader_only => Ok(log),
            (Role::Offline, _) => Err(ErrorCode::KAFKA_STORAGE_ERROR),
            _ => Err(ErrorCode::NOT_LEADER_OR_FOLLOWER),
        }
    }

    /// The log whatever the role, to look at: also one that is being truncated, or whose broker is
    /// about to lead.
    ///
    /// # Errors
    /// KAFKA_STORAGE_ERROR; NOT_LEADER_OR_FOLLOWER: it is being opened, or it is gone.
    pub fn replica(&self) -> Result<&Log, ErrorCode> {
        match (self.role, &self.log) {
            (Role::Offline, _) => Err(ErrorCode::KAFKA_STORAGE_ERROR),
            (_, Some(log)) => Ok(log),
            (_, None) => Err(ErrorCode::NOT_LEADER_OR_FOLLOWER),
        }
    }

    /// Whether this broker leads in the place of another one for less than [`TAKEOVER_MS`].
    pub fn has_just_taken_over(&self, now_ms: i64) -> bool {
        self.took_over_ms
            .is_some_and(|since_ms| now_ms - since_ms < TAKEOVER_MS)
    }

    /// The high watermark, -1 without a log.
    pub fn high_watermark(&self) -> i64 {
        self.log.as_ref().map_or(-1, Log::high_watermark)
    }

    /// Checks a client's leader epoch (KIP-320); -1 is not checked.
    pub fn check_epoch(&self, current_leader_epoch: i32) -> Result<(), ErrorCode> {
        if is_injected(Fault::AcceptAnyLeaderEpoch) {
            return Ok(());
        }
        if current_leader_epoch < 0 || current_leader_epoch == self.leader_epoch {
            Ok(())
        } else if current_leader_epoch < self.leader_epoch {
            Err(ErrorCode::FENCED_LEADER_EPOCH)
        } else {
            Err(ErrorCode::UNKNOWN_LEADER_EPOCH)
        }
    }

    /// Takes the controller's decision. False if it is outdated, or names a leader that is not in
    /// sync. While a reassignment ends, the ISR may name brokers that are replicas no longer: the
    /// high watermark stands still until they have left it.
    ///
    /// A follower that becomes leader is `Loading` until [`PartitionState::finish_transition`]: its
    /// log may be in the middle of a truncation, and only afterwards its epoch's start is known.
    pub fn set_leadership(&mut self, decision: LeaderAndIsr<'_>, now_ms: i64) -> bool {
        let is_fit = decision.leader_to_follow.is_some() || decision.isr.contains(&self.node_id);
        if decision.leader_epoch < self.leader_epoch || !is_fit {
            return false;
        }
        let is_new_epoch = decision.leader_epoch > self.leader_epoch;
        self.leader_epoch = decision.leader_epoch;
        self.leader_to_follow = decision.leader_to_follow;
        self.replicas = decision.replicas.to_vec();
        self.isr = decision.isr.to_vec();
        self.members = decision.isr.to_vec();
        self.is_held = decision.is_held;
        let watched = self.consumed().is_some();
        self.partial = decision.partial.to_vec();
        if is_new_epoch || !watched {
            self.consumed = Consumed::since(now_ms);
        }
        if is_new_epoch {
            self.beginning = Beginning::Undecided;
            self.failed_sources = 0;
            self.failed_fills = 0;
        }
        let mut followers = Vec::with_capacity(self.replicas.len());
        for id in self
            .replicas
            .iter()
            .copied()
            .filter(|id| *id != self.node_id)
        {
            let known = self.followers.iter().find(|follower| follower.id == id);
            // A fetch in an older epoch says nothing about the follower's log in this one.
            followers.push(match known {
                Some(follower) if !is_new_epoch => follower.clone(),
                _ => Follower::new(id, now_ms),
            });
        }
        self.followers = followers;
        if is_new_epoch {
            self.in_vain_since_ms = None;
        }
        match (self.role, decision.leader_to_follow) {
            (Role::Leader | Role::Follower, Some(_)) => {
                self.void_guards();
                self.role = Role::Follower;
                self.leader_high_watermark = -1;
                self.leader_log_start = -1;
            }
            (Role::Follower, None) => {
                self.role = Role::Loading;
                self.took_over_ms = Some(now_ms);
            }
            (Role::Leader, None) if is_new_epoch => self.begin_epoch(),
            _ => {}
        }
        true
    }

    /// Other leaders end transactions that are asked about here.
    fn void_guards(&mut self) {
        if let Some(log) = &mut self.log {
            log.void_guards();
        }
    }

    fn begin_epoch(&mut self) {
        if let Some(log) = &mut self.log {
            log.assign_epoch_start(self.leader_epoch);
            self.epoch_start = log.log_end_offset();
        }
    }

    /// The log is open and no earlier decision is under way: takes up the role of the last
    /// decision.
    pub fn finish_transition(&mut self) {
        self.void_guards();
        if self.leader_to_follow.is_none() {
            self.role = Role::Leader;
            self.led_since = self.leader_epoch;
            self.begin_epoch();
        } else {
            self.role = Role::Follower;
            self.leader_high_watermark = -1;
            self.leader_log_start = -1;
        }
    }

    /// A batch was appended: counts it, and tells the waiters if the durable end offset is already
    /// past it.
    pub fn appended(&mut self, appended: &Appended, dir: &impl Directory, outbox: &mut Outbox) {
        self.count_unwritten(dir);
        if appended.durable_end_moved && self.raise_high_watermark(appended.appended_bytes, outbox)
        {
            dir.high_watermark_moved();
        }
    }

    /// Reports what of the log is unwritten to the directory.
    pub fn count_unwritten(&mut self, dir: &impl Directory) {
        let is_written = |log: &&Log| !self.has_failed() || log.writes();
        let log = self.log.as_ref().filter(is_written);
        let now = log.map(Log::unwritten).unwrap_or_default();
        dir.count(std::mem::replace(&mut self.unwritten, now), now);
    }

    /// Call after the durable end offset moved: raises the high watermark if possible and tells the
    /// waiters. `new_bytes`: bytes that became readable, `usize::MAX` if unknown. True if the high
    /// watermark moved.
    pub fn raise_high_watermark(&mut self, new_bytes: usize, outbox: &mut Outbox) -> bool {
        self.raise_and_tell(new_bytes, true, outbox)
    }

    /// The same after anything else, such as a follower's fetch: it is no news for other followers.
    pub fn raise_high_watermark_without_growth(&mut self, outbox: &mut Outbox) -> bool {
        self.raise_and_tell(usize::MAX, false, outbox)
    }

    fn raise_and_tell(&mut self, new_bytes: usize, has_grown: bool, outbox: &mut Outbox) -> bool {
        let has_enough = self.has_enough_in_sync();
        let Some(log) = &mut self.log else {
            return false;
        };
        let durable_end_offset = log.durable_end_offset();
        for follower in &mut self.followers {
            follower.leader_grew(durable_end_offset);
        }
        let limit = match self.role {
            Role::Follower => Some(self.leader_high_watermark),
            Role::Loading => None,
            _ if !has_enough => None,
            #[cfg(feature = "sim")]
            _ if is_injected(Fault::HighWatermarkAboveDurableEnd) => {
                let end = log.log_end_offset();
                let offset =
                    high_watermark_limit(self.node_id, end, &self.members, &self.followers);
                log.force_high_watermark(offset.unwrap_or(0));
                offset
            }
            _ => high_watermark_limit(
                self.node_id,
                durable_end_offset,
                &self.members,
                &self.followers,
            ),
        };
        let moved = limit.is_some_and(|offset| log.advance_high_watermark(offset));
        let starts_elsewhere =
            self.role == Role::Follower && follow_log_start(log, self.leader_log_start);
        let reached = log.high_watermark();
        // A partition with a broken invariant acknowledges and shows nothing.
        if !self.is_sound() {
            return false;
        }
        self.acknowledge(durable_end_offset, reached, outbox);
        self.notify_fetches(new_bytes, has_grown, moved, outbox);
        if starts_elsewhere {
            self.tell_fetches_later();
        }
        moved
    }
}

/// Follows the leader's log start, at most to the high watermark; true if the log start moved.
fn follow_log_start(log: &mut Log, leader_log_start: i64) -> bool {
    let target = leader_log_start.min(log.high_watermark());
    // A failing log reports to its directory.
    target > log.log_start_offset() && log.advance_log_start(target).is_ok()
}
