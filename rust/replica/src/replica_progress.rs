//! What the leader knows of a partition's followers. No clock, lock or log.
//!
//! A follower's fetch means that everything below its offset is durable there. A session's fetch
//! counts for all its partitions but names only changed ones; what it says of the others is kept
//! once per session, in [`SessionFetches`]. Times are monotonic milliseconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::replica_selector::Candidate;

/// Earlier than any time.
pub const NOT_YET_MS: i64 = i64::MIN;

/// Number of no connection.
const NO_CONNECTION: u64 = u64::MAX;

/// Fetches of a follower's session, for partitions about which they say nothing new.
#[derive(Debug)]
pub struct SessionFetches {
    /// These three as in [`Follower`].
    connection: AtomicU64,
    fetched_ms: AtomicI64,
    confirmed_ms: AtomicI64,
}

impl Default for SessionFetches {
    fn default() -> SessionFetches {
        SessionFetches {
            connection: AtomicU64::new(NO_CONNECTION),
            fetched_ms: AtomicI64::new(NOT_YET_MS),
            confirmed_ms: AtomicI64::new(NOT_YET_MS),
        }
    }
}

impl SessionFetches {
    /// The session fetches on a connection. Call it after everything the fetch says of single
    /// partitions was noted.
    pub fn update_fetch_state(&self, connection: u64, now_ms: i64) {
        if self.connection.swap(connection, Ordering::Relaxed) == connection {
            let before_ms = self.fetched_ms.load(Ordering::Relaxed);
            self.confirmed_ms.store(before_ms, Ordering::Relaxed);
        }
        self.fetched_ms.store(now_ms, Ordering::Relaxed);
    }

    fn fetched_ms(&self) -> i64 {
        self.fetched_ms.load(Ordering::Relaxed)
    }
}

/// One follower in one leader epoch.
#[derive(Clone, Debug)]
pub struct Follower {
    /// Broker id.
    pub id: i32,
    /// Offset of its last fetch in this leader epoch (Kafka's `logEndOffset` of a remote replica);
    /// -1 before the first. Its log may have grown since.
    pub last_fetch_offset: i64,
    /// Log start offset in that fetch; -1 unknown.
    pub log_start_offset: i64,
    /// Broker epoch of its fetches, -1 unknown (KIP-903).
    pub broker_epoch: i64,
    /// When it was last caught up, by the fetches that named the partition.
    caught_up_ms: i64,
    /// It was caught up at its last fetch, and nothing became durable at the leader since.
    has_all: bool,
    /// When it last fetched, and the leader's durable end offset then.
    fetched_ms: i64,
    leader_end: i64,
    /// Connection of its last fetch (`ClientContext::id`).
    connection: u64,
    /// When it fetched the time before on the same connection; [`NOT_YET_MS`] before two fetches.
    /// Its last fetch followed the answer to that one, so it followed this broker then. Fetches on
    /// two connections confirm nothing: both may have waited in buffers while this broker stood
    /// still.
    confirmed_ms: i64,
    /// A session with the partition: each fetch repeats what the last one that named the partition
    /// said.
    session: Option<Arc<SessionFetches>>,
    /// Since when the session has it.
    in_session_since_ms: i64,
    /// The control plane was told that it may join the ISR.
    is_told: bool,
}

impl Follower {
    /// An unknown follower. It counts as caught up at `now_ms`, so that an epoch's start removes
    /// nobody from the ISR.
    pub fn new(id: i32, now_ms: i64) -> Follower {
        Follower {
            id,
            last_fetch_offset: -1,
            log_start_offset: -1,
            broker_epoch: -1,
            caught_up_ms: now_ms,
            has_all: false,
            fetched_ms: now_ms,
            leader_end: -1,
            connection: NO_CONNECTION,
            confirmed_ms: NOT_YET_MS,
            session: None,
            in_session_since_ms: NOT_YET_MS,
            is_told: false,
        }
    }

    /// It fetches `offset` on a connection. The leader shows its followers what lies below its
    /// durable end offset `leader_end`.
    pub fn update_fetch_state(
        &mut self,
        connection: u64,
        offset: i64,
        leader_end: i64,
        broker_epoch: i64,
        now_ms: i64,
    ) {
        let confirmed_ms = match self.last_connection() == connection {
            true => self.fetched_ms(),
            false => self.confirmed_ms(),
        };
        self.caught_up_ms = self.caught_up_ms();
        self.has_all = offset >= leader_end;
        if self.has_all {
            self.caught_up_ms = now_ms;
        } else if self.leader_end >= 0 && offset >= self.leader_end {
            // It has everything up to the log end at its last fetch: it was caught up then.
            self.caught_up_ms = self.caught_up_ms.max(self.fetched_ms);
        }
        self.confirmed_ms = confirmed_ms;
        self.connection = connection;
        self.last_fetch_offset = offset;
        self.broker_epoch = broker_epoch;
        self.fetched_ms = now_ms;
        self.leader_end = leader_end;
    }

    /// The fetch belongs to this session, or to none. True if another session's fetches counted so
    /// far and no longer do.
    pub fn join_session(&mut self, session: Option<&Arc<SessionFetches>>, now_ms: i64) -> bool {
        if session.is_some_and(|session| self.is_in_session(session)) {
            return false;
        }
        self.in_session_since_ms = now_ms;
        let before = std::mem::replace(&mut self.session, session.cloned());
        before.is_some()
    }

    /// Later fetches of this session no longer count for the partition; false if they did not
    /// before.
    pub fn leave_session(&mut self, session: &Arc<SessionFetches>) -> bool {
        let was_in = self.is_in_session(session);
        if was_in {
            self.confirmed_ms = self.confirmed_ms();
            self.caught_up_ms = self.caught_up_ms();
            (self.connection, self.fetched_ms) = (self.last_connection(), self.fetched_ms());
            self.session = None;
        }
        was_in
    }

    /// Whether its last fetch was of this session, which still has the partition.
    pub fn is_in_session(&self, session: &Arc<SessionFetches>) -> bool {
        let own = self.session.as_ref();
        own.is_some_and(|own| Arc::ptr_eq(own, session))
    }

    /// The leader's durable end offset moved to `leader_end`.
    pub fn leader_grew(&mut self, leader_end: i64) {
        if self.has_all && self.last_fetch_offset < leader_end {
            self.caught_up_ms = self.caught_up_ms();
            self.has_all = false;
        }
    }

    fn last_connection(&self) -> u64 {
        match &self.session {
            Some(session) if session.fetched_ms() >= self.in_session_since_ms => {
                session.connection.load(Ordering::Relaxed)
            }
            _ => self.connection,
        }
    }

    fn fetched_ms(&self) -> i64 {
        let session = self.session.as_ref();
        session.map_or(self.fetched_ms, |session| {
            session.fetched_ms().max(self.fetched_ms)
        })
    }

    /// When it is last known to have followed this broker; see the field.
    pub fn confirmed_ms(&self) -> i64 {
        let session = self.session.as_ref();
        let of_session = session.map(|session| session.confirmed_ms.load(Ordering::Relaxed));
        match of_session {
            Some(of_session) if of_session >= self.in_session_since_ms => {
                of_session.max(self.confirmed_ms)
            }
            _ => self.confirmed_ms,
        }
    }

    /// When it was last caught up.
    fn caught_up_ms(&self) -> i64 {
        match self.has_all {
            true => self.caught_up_ms.max(self.fetched_ms()),
            false => self.caught_up_ms,
        }
    }

    /// Its data for a consumer's choice, if its log has the offset.
    pub fn candidate(&self, offset: i64) -> Option<Candidate> {
        let has_it = (self.log_start_offset..=self.last_fetch_offset).contains(&offset);
        has_it.then_some(Candidate {
            broker: self.id,
            log_end_offset: self.last_fetch_offset,
            caught_up_ms: self.caught_up_ms(),
        })
    }

    /// Whether it lacks records and was last caught up more than `max_lag_ms` ago.
    pub fn is_behind(&self, leader_end: i64, now_ms: i64, max_lag_ms: i64) -> bool {
        self.last_fetch_offset < leader_end && now_ms - self.caught_up_ms() > max_lag_ms
    }

    /// Whether it last fetched more than `max_ms` ago.
    pub fn is_silent(&self, now_ms: i64, max_ms: i64) -> bool {
        now_ms - self.fetched_ms() > max_ms
    }

    /// Whether to tell the control plane that its log reaches `needed`; once, until
    /// [`Follower::ask_again`].
    pub fn tells_of_reaching(&mut self, needed: i64) -> bool {
        let tells = !self.is_told && self.last_fetch_offset >= needed;
        self.is_told |= tells;
        tells
    }

    /// The control plane is told again if it still holds.
    pub fn ask_again(&mut self) {
        self.is_told = false;
    }
}

/// How far the leader's `durable_end_offset` and the followers allow the high watermark: the
/// minimum of it and the other `members`' last fetch offsets. `None` while one of them has not
/// fetched. The caller never moves the high watermark back.
pub fn high_watermark_limit(
    leader: i32,
    durable_end_offset: i64,
    members: &[i32],
    followers: &[Follower],
) -> Option<i64> {
    let mut end = durable_end_offset;
    for member in members.iter().filter(|member| **member != leader) {
        let follower = followers.iter().find(|follower| follower.id == *member)?;
        if follower.last_fetch_offset < 0 {
            return None;
        }
        end = end.min(follower.last_fetch_offset);
    }
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(id: i32, last_fetch_offset: i64) -> Follower {
        Follower {
            last_fetch_offset,
            ..Follower::new(id, 0)
        }
    }

    #[test]
    fn lone_leaders_high_watermark_is_its_durable_end() {
        assert_eq!(high_watermark_limit(1, 42, &[1], &[]), Some(42));
        assert_eq!(high_watermark_limit(1, 42, &[], &[]), Some(42));
    }

    #[test]
    fn high_watermark_is_the_slowest_isr_members_offset() {
        let followers = [at(2, 30), at(3, 10)];
        assert_eq!(high_watermark_limit(1, 42, &[1, 2], &followers), Some(30));
        assert_eq!(
            high_watermark_limit(1, 42, &[1, 2, 3], &followers),
            Some(10)
        );
        assert_eq!(
            high_watermark_limit(1, 20, &[1, 2], &followers),
            Some(20),
            "never above the durable end"
        );
    }

    #[test]
    fn unknown_isr_member_holds_the_high_watermark() {
        assert_eq!(high_watermark_limit(1, 42, &[1, 2], &[]), None);
        assert_eq!(high_watermark_limit(1, 42, &[1, 2], &[at(2, -1)]), None);
    }

    #[test]
    fn follower_with_all_records_is_never_behind() {
        let mut follower = Follower::new(2, 0);
        follower.update_fetch_state(1, 10, 10, 7, 100);
        assert!(!follower.is_behind(10, 1_000_000, 500));
        assert_eq!(follower.broker_epoch, 7);
    }

    #[test]
    fn follower_that_keeps_up_is_not_behind() {
        let mut follower = Follower::new(2, 0);
        for turn in 1..100 {
            // It always has everything up to its last fetch, and never everything.
            follower.update_fetch_state(1, 10 * (turn - 1), 10 * turn, 7, 100 * turn);
        }
        assert!(!follower.is_behind(1_000, 9_950, 500));
    }

    #[test]
    fn follower_that_falls_back_is_behind_after_the_lag_time() {
        let mut follower = Follower::new(2, 0);
        follower.update_fetch_state(1, 10, 10, 7, 100);
        follower.update_fetch_state(1, 11, 50, 7, 200);
        follower.update_fetch_state(1, 12, 90, 7, 300);
        assert!(!follower.is_behind(90, 600, 500), "caught up at 100 or 200");
        assert!(follower.is_behind(90, 701, 500));
    }

    #[test]
    fn silent_follower_is_behind_once_records_exist() {
        let follower = Follower::new(2, 1_000);
        assert!(
            !follower.is_behind(5, 1_500, 500),
            "the epoch has just begun"
        );
        assert!(follower.is_behind(5, 1_501, 500));
    }

    #[test]
    fn a_fetch_confirms_what_was_answered_before_it() {
        let mut follower = Follower::new(2, 0);
        follower.update_fetch_state(1, 0, 10, 7, 100);
        assert_eq!(
            follower.confirmed_ms(),
            NOT_YET_MS,
            "it may have lain about"
        );
        follower.update_fetch_state(1, 0, 10, 7, 300);
        assert_eq!(follower.confirmed_ms(), 100);
        follower.update_fetch_state(1, 0, 10, 7, 450);
        assert_eq!(follower.confirmed_ms(), 300);
        follower.update_fetch_state(2, 0, 10, 7, 500);
        assert_eq!(follower.confirmed_ms(), 300, "both may have lain about");
        follower.update_fetch_state(2, 0, 10, 7, 550);
        assert_eq!(follower.confirmed_ms(), 500);
    }

    /// Single fetches, and fetches of a session that names the partition only at the times in
    /// `named`, say the same.
    #[test]
    fn session_fetch_counts_for_unnamed_partitions() {
        let fetches = [(1, 100), (1, 300), (2, 450), (2, 700), (2, 720), (1, 900)];
        for named in 0..1 << fetches.len() {
            let session = Arc::new(SessionFetches::default());
            let (mut single, mut in_session) = (Follower::new(2, 0), Follower::new(2, 0));
            for (at, (connection, now_ms)) in fetches.into_iter().enumerate() {
                single.update_fetch_state(connection, 10, 10, 7, now_ms);
                if at == 0 || named >> at & 1 == 1 {
                    in_session.update_fetch_state(connection, 10, 10, 7, now_ms);
                    in_session.join_session(Some(&session), now_ms);
                }
                session.update_fetch_state(connection, now_ms);
                let of =
                    |one: &Follower| (one.confirmed_ms(), one.caught_up_ms(), one.fetched_ms());
                assert_eq!(of(&in_session), of(&single), "{named:b} {at}");
            }
        }
    }

    #[test]
    fn append_ends_caught_up_by_session() {
        let session = Arc::new(SessionFetches::default());
        let mut follower = Follower::new(2, 0);
        follower.update_fetch_state(1, 10, 10, 7, 100);
        follower.join_session(Some(&session), 100);
        session.update_fetch_state(1, 100);
        session.update_fetch_state(1, 600_000);
        assert!(!follower.is_behind(11, 600_400, 500), "idle, and caught up");
        follower.leader_grew(10);
        session.update_fetch_state(1, 600_000);
        follower.leader_grew(11);
        session.update_fetch_state(1, 601_000);
        assert!(!follower.is_behind(11, 600_500, 500));
        assert!(follower.is_behind(11, 600_501, 500));
        assert!(!follower.is_silent(601_100, 500), "it fetches, though");
    }

    #[test]
    fn follower_outside_the_session_is_not_counted_with_it() {
        let session = Arc::new(SessionFetches::default());
        let mut follower = Follower::new(2, 0);
        follower.update_fetch_state(1, 10, 10, 7, 100);
        follower.join_session(Some(&session), 100);
        session.update_fetch_state(1, 100);
        session.update_fetch_state(1, 200);
        follower.leave_session(&session);
        session.update_fetch_state(1, 900);
        assert_eq!(follower.confirmed_ms(), 100);
        assert!(!follower.is_behind(11, 700, 500) && follower.is_behind(11, 701, 500));
        // What a session did before it had the partition confirms nothing for it.
        follower.update_fetch_state(1, 10, 10, 7, 1_000);
        follower.join_session(Some(&session), 1_000);
        assert_eq!(follower.confirmed_ms(), 200);
    }

    #[test]
    fn catching_up_is_reported_once_until_asked_again() {
        let mut follower = at(2, 9);
        assert!(!follower.tells_of_reaching(10));
        follower.update_fetch_state(1, 10, 10, 7, 0);
        assert!(follower.tells_of_reaching(10));
        assert!(!follower.tells_of_reaching(10));
        follower.ask_again();
        assert!(follower.tells_of_reaching(10));
    }
}
