//! How far a partition's records are on every in-sync replica. No clock, no lock, no log.

/// What the leader knows of one follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Follower {
    /// Broker id.
    pub id: i32,
    /// The offset that its last fetch in this leader epoch asked for: everything below is in its
    /// log. -1 until it has fetched.
    pub log_end_offset: i64,
}

/// The high watermark that `gated_end` (the leader's own durable end) and the followers allow:
/// the smallest of the leader's gate and the log end offset of every other member of the ISR.
/// `None` while a member of the ISR has not fetched yet. The caller never moves the high
/// watermark back.
pub fn high_watermark(
    leader: i32,
    gated_end: i64,
    isr: &[i32],
    followers: &[Follower],
) -> Option<i64> {
    let mut end = gated_end;
    for member in isr.iter().filter(|member| **member != leader) {
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

    #[test]
    fn alone_the_gate_decides() {
        assert_eq!(high_watermark(1, 42, &[1], &[]), Some(42));
        assert_eq!(high_watermark(1, 42, &[], &[]), Some(42));
    }

    #[test]
    fn the_slowest_member_of_the_isr_decides_and_others_do_not_count() {
        let follower = |id, log_end_offset| Follower { id, log_end_offset };
        let followers = [follower(2, 30), follower(3, 10)];
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
        let silent = Follower {
            id: 2,
            log_end_offset: -1,
        };
        assert_eq!(high_watermark(1, 42, &[1, 2], &[]), None);
        assert_eq!(high_watermark(1, 42, &[1, 2], &[silent]), None);
    }
}
