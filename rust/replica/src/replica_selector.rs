//! Selects the replica that a consumer should read from: one in its rack (KIP-392). No clock or
//! lock.
//!
//! As Kafka's `RackAwareReplicaSelector`: the leader if it is in the consumer's rack or no other
//! replica is; else the follower with the highest log end offset, then the one caught up last, then
//! the highest id.

/// An in-sync follower that has the requested offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Broker id.
    pub broker: i32,
    /// Its log end offset as the leader knows it.
    pub log_end_offset: i64,
    /// When it was last caught up, monotonic milliseconds.
    pub caught_up_ms: i64,
}

/// The replica for a consumer in `rack`; `None`: the leader. `rack_of` returns the rack of a live
/// broker that the consumer can reach.
pub fn nearest<'i>(
    rack: &str,
    leader: i32,
    candidates: impl Iterator<Item = Candidate>,
    rack_of: impl Fn(i32) -> Option<&'i str>,
) -> Option<i32> {
    let is_near = |broker: i32| rack_of(broker) == Some(rack);
    if rack.is_empty() || is_near(leader) {
        return None;
    }
    candidates
        .filter(|candidate| is_near(candidate.broker))
        .max_by_key(|one| (one.log_end_offset, one.caught_up_ms, one.broker))
        .map(|candidate| candidate.broker)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(broker: i32, log_end_offset: i64, caught_up_ms: i64) -> Candidate {
        Candidate {
            broker,
            log_end_offset,
            caught_up_ms,
        }
    }

    fn chosen(rack: &str, candidates: &[Candidate]) -> Option<i32> {
        let racks = [None, Some("a"), Some("b"), Some("b"), Some("c"), None];
        let rack_of = |broker: i32| racks.get(broker as usize).copied().flatten();
        nearest(rack, 1, candidates.iter().copied(), rack_of)
    }

    #[test]
    fn leader_serves_its_rack_and_racks_without_replicas() {
        let all = [at(2, 10, 0), at(3, 10, 0), at(4, 10, 0), at(5, 10, 0)];
        assert_eq!(chosen("a", &all), None);
        assert_eq!(chosen("d", &all), None);
        assert_eq!(chosen("", &all), None, "the consumer says nothing");
        assert_eq!(chosen("c", &all), Some(4));
        assert_eq!(chosen("c", &all[..2]), None, "4 has not got it, or left");
    }

    #[test]
    fn replica_with_the_longest_log_is_selected() {
        assert_eq!(chosen("b", &[at(2, 11, 0), at(3, 10, 9)]), Some(2));
        assert_eq!(chosen("b", &[at(2, 10, 9), at(3, 10, 5)]), Some(2));
        assert_eq!(chosen("b", &[at(2, 10, 5), at(3, 10, 5)]), Some(3));
    }
}
