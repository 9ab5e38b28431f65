//! In-sync replicas as a partition's leader sees them.

use std::sync::Arc;

use pyrklog_log::{Isolation, Log};

use super::{PartitionState, Role};
use crate::fetch_watch::{Change, WatchTerms};
use crate::replica_progress::{Follower, NOT_YET_MS, SessionFetches};
use crate::replica_selector::Candidate;
use crate::waiters::DoubtWaiter;
use pyrklog_base::ids::Token;
use pyrklog_base::injected_faults::{Fault, is_injected};
use pyrklog_base::network_event::NetworkEvent;
use pyrklog_control::outbox::Outbox;

/// How long a confirmation holds. An unreachable leader is replaced after 250 ms at the earliest
/// (cluster.md, section 7).
const CONFIRMED_FOR_MS: i64 = 150;

/// Minimum interval between two requests for confirmation.
const ASK_AGAIN_MS: i64 = 100;

/// How long a request waits for followers to confirm this leader.
pub const CONFIRMED_WITHIN_MS: i64 = 500;

/// An in-sync follower that is silent for longer counts as hung, and its silence no longer suggests
/// another leader. It must have been asked for [`ASKED_IN_VAIN_MS`], too: this broker may have
/// stood still, and in that time it hears of its successor.
const SILENT_MAX_MS: i64 = 10_000;

/// See [`SILENT_MAX_MS`].
const ASKED_IN_VAIN_MS: i64 = 1_000;

/// A follower's fetch as one of its partitions sees it.
#[derive(Clone, Copy, Debug)]
pub struct FollowerFetch<'s> {
    /// Its connection (`ClientContext::id`).
    pub connection: u64,
    /// Broker id.
    pub id: i32,
    /// Broker epoch, -1 unknown.
    pub broker_epoch: i64,
    /// Its log end offset.
    pub offset: i64,
    /// Its log start offset.
    pub log_start_offset: i64,
    /// Session of the fetch, if any.
    pub session: Option<&'s Arc<SessionFetches>>,
    /// When it arrived, monotonic milliseconds.
    pub now_ms: i64,
}

/// Consequences of a follower's fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The follower may join the ISR.
    pub has_caught_up: bool,
    /// Its log start moved, and the control plane asked to be told.
    pub log_start_moved: bool,
    /// It must fetch again at once, to confirm that it still follows this broker.
    pub is_to_confirm: bool,
    /// It has confirmed.
    pub confirms: bool,
    /// All in-sync followers have confirmed.
    pub ends_doubt: bool,
}

fn is_of_replica(terms: WatchTerms) -> bool {
    terms.isolation == Isolation::DurableEnd
}

impl PartitionState {
    /// Sets the ISR of this leader epoch: `members` may join already, `isr` is recorded, `is_held`
    /// as in [`pyrklog_control::seam::LeaderSpec::is_held`]. False if this broker does not lead in
    /// that epoch, if the lists contradict each other, or if a joining replica lacks records below
    /// the high watermark; `has_caught_up` follows again once it has them.
    pub fn set_isr(
        &mut self,
        leader_epoch: i32,
        members: &[i32],
        isr: &[i32],
        is_held: bool,
    ) -> bool {
        if self.leader_to_follow.is_some() || leader_epoch != self.leader_epoch {
            return false;
        }
        let is_member = |id: &i32| members.contains(id);
        let are_in_order = isr.contains(&self.node_id) && isr.iter().all(is_member);
        let log = self.log.as_ref();
        let needed = log.map_or(0, |log| self.needed_to_join(log));
        let before = &self.members;
        let mut joining = self
            .followers
            .iter()
            .filter(|follower| members.contains(&follower.id) && !before.contains(&follower.id));
        let is_fit = are_in_order
            && joining.all(|follower| {
                follower.last_fetch_offset >= needed && !self.lacks_history(follower)
            });
        for follower in &mut self.followers {
            follower.ask_again();
        }
        if is_fit {
            self.members = members.to_vec();
            self.isr = isr.to_vec();
            self.is_held = is_held;
        }
        // Followers are asked again; consumers may be sent elsewhere.
        let concerns = |terms: WatchTerms| is_of_replica(terms) || terms.by_rack;
        self.tell_some_fetches_later(concerns);
        is_fit
    }

    /// Whether the high watermark may move while this broker leads. Not with too few replicas for
    /// acks=-1: what a consumer has seen must survive the loss of any one broker. Nor while the
    /// controller counts on replicas outside the ISR, even if this broker's `min.insync.replicas`
    /// is met: the controller may have used another value.
    pub(super) fn has_enough_in_sync(&self) -> bool {
        let moves_anyway = is_injected(Fault::AckBelowMinIsr) || is_injected(Fault::MoveWhileHeld);
        self.has_min_isr() && (!self.is_held || moves_anyway)
    }

    /// Whether enough replicas are in sync for acks=-1.
    pub fn has_min_isr(&self) -> bool {
        self.isr.len() >= self.min_isr() || is_injected(Fault::AckBelowMinIsr)
    }

    /// `min.insync.replicas`, at most the number of replicas (Kafka's `effectiveMinIsr`). A partial
    /// one may stay out of the ISR for days, and counts for none.
    pub fn min_isr(&self) -> usize {
        let minimum = self.topic.settings().min_insync_replicas;
        let whole = self.replicas.iter().filter(|id| !self.is_partial(**id));
        usize::try_from(minimum).map_or(0, |minimum| minimum.min(whole.count()))
    }

    /// Offset that a follower's log must reach to join.
    fn needed_to_join(&self, log: &Log) -> i64 {
        match is_injected(Fault::JoinBeforeEpochStart) {
            true => log.high_watermark(),
            false => log.high_watermark().max(self.epoch_start),
        }
    }

    /// In-sync followers that lack records and were last caught up more than `max_lag_ms` ago.
    pub fn behind(&self, now_ms: i64, max_lag_ms: i64) -> Vec<i32> {
        let (Role::Leader, Some(log)) = (self.role, &self.log) else {
            return Vec::new();
        };
        // They are not shown more, however long this broker's disk takes.
        let end = log.durable_end_offset();
        let in_sync = self.followers.iter().filter(|f| self.isr.contains(&f.id));
        in_sync
            .filter(|follower| follower.is_behind(end, now_ms, max_lag_ms))
            .map(|follower| follower.id)
            .collect()
    }

    /// Whether all records of earlier epochs are known to be replicated; until then the latest
    /// offset is unknown.
    pub fn knows_latest(&self) -> bool {
        let log = self.log.as_ref();
        log.is_some_and(|log| log.high_watermark() >= self.epoch_start)
    }

    /// A follower's fetch reports its log's start and end. `None` if it is not a replica.
    ///
    /// Each later fetch of its session also counts for this partition, until a
    /// [`Change::is_to_renew`] or until the partition leaves the session.
    pub fn update_follower_fetch_state(&mut self, fetch: FollowerFetch<'_>) -> Option<Fetched> {
        let log = self.log.as_ref()?;
        let durable_end_offset = log.durable_end_offset();
        let needed = self.needed_to_join(log);
        let (id, offset) = (fetch.id, fetch.offset.min(log.log_end_offset()));
        let lacks_history = self.begins_behind(id, fetch.log_start_offset);
        let follower = self
            .followers
            .iter_mut()
            .find(|follower| follower.id == id)?;
        let log_start_moved = follower.log_start_offset != fetch.log_start_offset;
        let has_moved = log_start_moved || follower.last_fetch_offset != offset;
        follower.log_start_offset = fetch.log_start_offset;
        let (connection, now_ms) = (fetch.connection, fetch.now_ms);
        follower.update_fetch_state(
            connection,
            offset,
            durable_end_offset,
            fetch.broker_epoch,
            now_ms,
        );
        let left_another = follower.join_session(fetch.session, now_ms);
        let confirmed_ms = follower.confirmed_ms();
        let is_member = self.members.contains(&id);
        let has_caught_up = !is_member && !lacks_history && follower.tells_of_reaching(needed);
        let log_start_moved = log_start_moved && std::mem::take(&mut self.tells_log_starts);
        let is_before = |ms: i64| self.doubt_ms.is_some_and(|doubt_ms| ms < doubt_ms);
        let is_to_confirm = is_member && is_before(confirmed_ms);
        let confirms = is_member && self.doubt_ms.is_some() && !is_to_confirm;
        if confirms {
            self.in_vain_since_ms = None;
        }
        let ends_doubt = self.doubt_ms.is_some() && !is_before(self.confirmed_ms());
        if ends_doubt {
            self.doubt_ms = None;
        }
        if left_another {
            self.tell_some_fetches_later(is_of_replica);
        }
        if has_moved {
            self.tell_some_fetches_later(|terms| terms.by_rack);
        }
        Some(Fetched {
            has_caught_up,
            log_start_moved,
            is_to_confirm,
            confirms,
            ends_doubt,
        })
    }

    /// Whether all in-sync replicas confirm that this broker led at `asked_ms` or shortly before. A
    /// leader that may have been replaced must not claim that an offset does not exist.
    pub fn is_confirmed(&self, asked_ms: i64) -> bool {
        self.confirmed_ms() > asked_ms - CONFIRMED_FOR_MS
    }

    /// Whether another broker may lead: no in-sync follower confirms this leader as of `asked_ms`.
    /// One confirmation suffices here, so that a broker that stands still does not hold up others'
    /// requests; none is needed if all hang for long. The controller's order confirms nothing: it
    /// may be old.
    pub fn is_in_doubt(&self, asked_ms: i64) -> bool {
        let mut others = self
            .followers
            .iter()
            .filter(|follower| self.members.contains(&follower.id));
        let is_asked_in_vain = self
            .in_vain_since_ms
            .is_some_and(|since_ms| asked_ms - since_ms >= ASKED_IN_VAIN_MS);
        let is_certain = |follower: &Follower| {
            let is_silent = follower.is_silent(asked_ms, SILENT_MAX_MS) && is_asked_in_vain;
            is_silent || follower.confirmed_ms() > asked_ms - CONFIRMED_FOR_MS
        };
        !self.is_confirmed(asked_ms) && !others.any(is_certain)
    }

    /// When the last in-sync follower is known to have followed this broker.
    fn confirmed_ms(&self) -> i64 {
        let others = self.members.iter().filter(|id| **id != self.node_id);
        let confirmed = others.map(|id| {
            let follower = self.followers.iter().find(|follower| follower.id == *id);
            follower.map_or(NOT_YET_MS, Follower::confirmed_ms)
        });
        confirmed.min().unwrap_or(i64::MAX)
    }

    /// Asks the followers to confirm this leader: answers their delayed fetches.
    pub fn ask_followers(&mut self, asked_ms: i64, outbox: &mut Outbox) {
        let is_asked = |doubt_ms| asked_ms - doubt_ms < ASK_AGAIN_MS;
        self.in_vain_since_ms.get_or_insert(asked_ms);
        if !self.doubt_ms.is_some_and(is_asked) {
            self.doubt_ms = Some(asked_ms);
            let change = Change {
                wakes: true,
                must_answer: true,
                ..Change::RENEWAL
            };
            self.wake_some_fetches(change, is_of_replica, outbox);
        }
    }

    /// The same for a request other than a fetch; it is woken like one.
    pub fn ask_followers_for(&mut self, waiter: DoubtWaiter, asked_ms: i64, outbox: &mut Outbox) {
        self.doubt_waiters.insert(waiter.place.token, waiter);
        self.ask_followers(asked_ms, outbox);
    }

    /// The waiter no longer waits.
    pub fn remove_doubt_waiter(&mut self, token: Token) {
        self.doubt_waiters.remove(&token);
    }

    /// The doubt is over: consumers' fetches look again.
    pub fn wake_consumers(&mut self, outbox: &mut Outbox) {
        let change = Change {
            wakes: true,
            ..Change::NEWS
        };
        let concerns = |terms: WatchTerms| !is_of_replica(terms);
        self.wake_some_fetches(change, concerns, outbox);
    }

    /// A follower has confirmed: wakes the requests that wait for a confirmation.
    pub fn wake_doubting(&mut self, outbox: &mut Outbox) {
        for (_, waiter) in self.doubt_waiters.drain() {
            let message = NetworkEvent::FetchWake {
                token: waiter.place.token,
                wait: waiter.wait,
                must_answer: false,
                by: None,
            };
            outbox.push(waiter.place.thread, message);
        }
    }

    /// Followers' log starts as of their last fetches; -1 unknown. The control plane is told once
    /// when one changes.
    pub fn follower_log_starts(&mut self) -> Vec<(i32, i64)> {
        self.tells_log_starts = true;
        let start_of = |follower: &Follower| (follower.id, follower.log_start_offset);
        self.followers.iter().map(start_of).collect()
    }

    /// In-sync followers whose log has the offset.
    pub fn candidates(&self, offset: i64) -> impl Iterator<Item = Candidate> {
        let in_sync = self.followers.iter().filter(|f| self.isr.contains(&f.id));
        in_sync.filter_map(move |follower| follower.candidate(offset))
    }

    /// Whether this follower is in sync as far as it knows: it has everything its leader knows to
    /// be replicated. Before the leader has told it that, whether the controller lists it in the
    /// ISR, for which acks=all waits.
    pub fn is_taken_for_in_sync(&self) -> bool {
        let end = self.log.as_ref().map_or(-1, Log::log_end_offset);
        match self.leader_high_watermark {
            ..0 => self.isr.contains(&self.node_id),
            known => end >= known,
        }
    }

    /// The replicas that the high watermark waits for.
    #[cfg(feature = "sim")]
    pub fn members(&self) -> &[i32] {
        &self.members
    }

    /// Later fetches of the session no longer count for the follower.
    pub fn leave_session(&mut self, id: i32, session: &Arc<SessionFetches>) {
        let mut followers = self.followers.iter_mut();
        let follower = followers.find(|follower| follower.id == id);
        if follower.is_some_and(|follower| follower.leave_session(session)) {
            self.tell_some_fetches_later(is_of_replica);
        }
    }

    /// Whether each fetch of a session counts for a follower.
    #[cfg(debug_assertions)]
    pub fn is_in_session(&self, id: i32, session: &Arc<SessionFetches>) -> bool {
        let mut followers = self.followers.iter();
        followers.any(|follower| follower.id == id && follower.is_in_session(session))
    }

    /// Whether the broker is one of its followers.
    pub fn is_follower(&self, id: i32) -> bool {
        self.followers.iter().any(|follower| follower.id == id)
    }
}
