//! What the leader knows of a partition's followers. No clock, no lock, no log.
//!
//! A follower is known by its fetches: everything below the offset that one asks for is durable in
//! its log. Times are monotonic milliseconds.

use crate::replica_selector::Candidate;

/// Before any time.
pub const NEVER_MS: i64 = i64::MIN;

/// One follower in one leader epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Follower {
    /// Broker id.
    pub id: i32,
    /// The offset that its last fetch in this leader epoch asked for; -1 until it has fetched.
    pub log_end_offset: i64,
    /// Where its log starts, as that fetch said; -1 unknown.
    pub log_start_offset: i64,
    /// The broker epoch that it fetches under, -1 unknown (KIP-903).
    pub broker_epoch: i64,
    /// When it last had all that the leader had.
    caught_up_ms: i64,
    /// When it last fetched, and where the leader's log ended then.
    fetched_ms: i64,
    leader_end: i64,
    /// The connection of its last fetch (`Connection::id`).
    connection: Option<u64>,
    /// When it fetched the time before on the same connection, [`NEVER_MS`] before it has fetched twice: it
    /// has sent its last fetch after the answer to that one, and followed this broker then. Fetches on two
    /// connections may both have lain about, while this broker stood still.
    pub confirmed_ms: i64,
    /// The control plane was told that it may join the in-sync replicas.
    is_told: bool,
}

impl Follower {
    /// A follower of which nothing is known; it is taken for caught up at `now_ms`, so that an
    /// epoch's start takes nobody out of the in-sync replicas.
    pub fn new(id: i32, now_ms: i64) -> Follower {
        Follower {
            id,
            log_end_offset: -1,
            log_start_offset: -1,
            broker_epoch: -1,
            caught_up_ms: now_ms,
            fetched_ms: now_ms,
            leader_end: -1,
            connection: None,
            confirmed_ms: NEVER_MS,
            is_told: false,
        }
    }

    /// It asks on a connection for `offset` while the leader's log ends at `leader_end`.
    pub fn fetches(
        &mut self,
        connection: u64,
        offset: i64,
        leader_end: i64,
        broker_epoch: i64,
        now_ms: i64,
    ) {
        if offset >= leader_end {
            self.caught_up_ms = now_ms;
        } else if self.leader_end >= 0 && offset >= self.leader_end {
            // It has all that there was at its last fetch: it was caught up then.
            self.caught_up_ms = self.caught_up_ms.max(self.fetched_ms);
        }
        if self.connection == Some(connection) {
            self.confirmed_ms = self.fetched_ms;
        }
        self.connection = Some(connection);
        self.log_end_offset = offset;
        self.broker_epoch = broker_epoch;
        self.fetched_ms = now_ms;
        self.leader_end = leader_end;
    }

    /// What a consumer may choose it by, if its log has the offset.
    pub fn candidate(&self, offset: i64) -> Option<Candidate> {
        let has_it = (self.log_start_offset..=self.log_end_offset).contains(&offset);
        has_it.then_some(Candidate {
            broker: self.id,
            log_end_offset: self.log_end_offset,
            caught_up_ms: self.caught_up_ms,
        })
    }

    /// Whether it has not been caught up for longer than `max_lag_ms`.
    pub fn is_behind(&self, leader_end: i64, now_ms: i64, max_lag_ms: i64) -> bool {
        self.log_end_offset < leader_end && now_ms - self.caught_up_ms > max_lag_ms
    }

    /// Whether it has not fetched for longer than `max_ms`.
    pub fn is_silent(&self, now_ms: i64, max_ms: i64) -> bool {
        now_ms - self.fetched_ms > max_ms
    }

    /// Whether the control plane is to be told that its log reaches `needed`; once, until
    /// [`Follower::ask_again`].
    pub fn tells_of_reaching(&mut self, needed: i64) -> bool {
        let tells = !self.is_told && self.log_end_offset >= needed;
        self.is_told |= tells;
        tells
    }

    /// The control plane is told again when it still is so.
    pub fn ask_again(&mut self) {
        self.is_told = false;
    }
}

/// The high watermark that `durable_end_offset` (the leader's own durable end) and the followers allow:
/// the smallest of the leader's gate and the log end offset of every other one of `members`: those
/// in sync, and those that are about to be.
/// `None` while one of them has not fetched yet. The caller never moves the high watermark back.
pub fn high_watermark(
    leader: i32,
    durable_end_offset: i64,
    members: &[i32],
    followers: &[Follower],
) -> Option<i64> {
    let mut end = durable_end_offset;
    for member in members.iter().filter(|member| **member != leader) {
        let follower = followers.iter().find(|follower| follower.id == *member)?;
        if follower.log_end_offset < 0 {
            return None;
        }
        end = end.min(follower.log_end_offset);
    }
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(id: i32, log_end_offset: i64) -> Follower {
        Follower {
            log_end_offset,
            ..Follower::new(id, 0)
        }
    }

    #[test]
    fn alone_the_gate_decides() {
        assert_eq!(high_watermark(1, 42, &[1], &[]), Some(42));
        assert_eq!(high_watermark(1, 42, &[], &[]), Some(42));
    }

    #[test]
    fn the_slowest_member_of_the_isr_decides_and_others_do_not_count() {
        let followers = [at(2, 30), at(3, 10)];
        assert_eq!(high_watermark(1, 42, &[1, 2], &followers), Some(30));
        assert_eq!(high_watermark(1, 42, &[1, 2, 3], &followers), Some(10));
        assert_eq!(
            high_watermark(1, 20, &[1, 2], &followers),
            Some(20),
            "never above the gate"
        );
    }

    #[test]
    fn an_unknown_member_holds_it() {
        assert_eq!(high_watermark(1, 42, &[1, 2], &[]), None);
        assert_eq!(high_watermark(1, 42, &[1, 2], &[at(2, -1)]), None);
    }

    #[test]
    fn who_has_everything_is_never_behind() {
        let mut follower = Follower::new(2, 0);
        follower.fetches(1, 10, 10, 7, 100);
        assert!(!follower.is_behind(10, 1_000_000, 500));
        assert_eq!(follower.broker_epoch, 7);
    }

    #[test]
    fn who_keeps_up_with_a_growing_log_is_not_behind() {
        let mut follower = Follower::new(2, 0);
        for turn in 1..100 {
            // It always has what there was at its last fetch, and never what there is.
            follower.fetches(1, 10 * (turn - 1), 10 * turn, 7, 100 * turn);
        }
        assert!(!follower.is_behind(1_000, 9_950, 500));
    }

    #[test]
    fn who_falls_back_is_behind_after_a_while() {
        let mut follower = Follower::new(2, 0);
        follower.fetches(1, 10, 10, 7, 100);
        follower.fetches(1, 11, 50, 7, 200);
        follower.fetches(1, 12, 90, 7, 300);
        assert!(!follower.is_behind(90, 600, 500), "caught up at 100 or 200");
        assert!(follower.is_behind(90, 701, 500));
    }

    #[test]
    fn a_silent_one_is_behind_once_there_is_something_to_fetch() {
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
        follower.fetches(1, 0, 10, 7, 100);
        assert_eq!(follower.confirmed_ms, NEVER_MS, "it may have lain about");
        follower.fetches(1, 0, 10, 7, 300);
        assert_eq!(follower.confirmed_ms, 100);
        follower.fetches(1, 0, 10, 7, 450);
        assert_eq!(follower.confirmed_ms, 300);
        follower.fetches(2, 0, 10, 7, 500);
        assert_eq!(follower.confirmed_ms, 300, "both may have lain about");
        follower.fetches(2, 0, 10, 7, 550);
        assert_eq!(follower.confirmed_ms, 500);
    }

    #[test]
    fn reaching_is_told_once_until_asked_again() {
        let mut follower = at(2, 9);
        assert!(!follower.tells_of_reaching(10));
        follower.fetches(1, 10, 10, 7, 0);
        assert!(follower.tells_of_reaching(10));
        assert!(!follower.tells_of_reaching(10));
        follower.ask_again();
        assert!(follower.tells_of_reaching(10));
    }
}
