//! The follower's side of an incremental fetch session: what it asks its leader for. Pure.

use std::collections::HashMap;

use pyrklog_log::Log;
use pyrklog_wire::fetch::{FetchPartition, FetchRequestToWrite, FetchTopicToWrite};

use pyrklog_base::ids::TopicId;
use pyrklog_base::injected_faults::{Fault, is_injected};

/// Kafka's version between brokers of 3.9.
pub const FETCH_VERSION: i16 = 17;

/// A partition, as the wire names it.
pub type Key = (TopicId, i32);

/// What is asked about one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Leader epoch in which the partition is followed.
    pub leader_epoch: i32,
    /// Our log end offset.
    pub offset: i64,
    /// Epoch of the last record, -1 for an empty log.
    pub last_epoch: i32,
    /// Our log start offset.
    pub log_start: i64,
    /// Our log lacks older records. The leader is told that it begins nowhere, so that it does not
    /// count.
    pub is_partial: bool,
}

impl Ask {
    /// The question for a log that is followed in this epoch.
    pub fn of(log: &Log, leader_epoch: i32) -> Ask {
        Ask {
            leader_epoch,
            offset: log.log_end_offset(),
            last_epoch: match is_injected(Fault::TruncateToHighWatermark) {
                true => -1,
                false => log.latest_epoch().unwrap_or(-1),
            },
            log_start: log.log_start_offset(),
            is_partial: log.is_partial(),
        }
    }

    /// Whether the answer still counts: the log end and the epoch are those of the question.
    pub fn still_holds(&self, log: &Log, leader_epoch: i32) -> bool {
        let now = Ask::of(log, leader_epoch);
        let log_start = self.log_start;
        Ask { log_start, ..now } == *self
    }
}

#[derive(Debug, Default)]
pub struct FetchSessionHandler {
    id: i32,
    epoch: i32,
    asked: HashMap<Key, Ask>,
}

impl FetchSessionHandler {
    /// The leader may have lost the session: the next request is full, and ends the session if
    /// there is one.
    pub fn reset(&mut self) {
        self.epoch = 0;
        self.asked.clear();
    }

    /// Appends the body of a request for exactly what is `wanted`, with at most `max_bytes` of each
    /// partition. `terms` name the replica and the limits.
    pub fn ask(
        &mut self,
        wanted: &HashMap<Key, Ask>,
        terms: FetchRequestToWrite<'_>,
        max_bytes: i32,
        out: &mut Vec<u8>,
    ) {
        let is_new = self.epoch == 0;
        let mut changed: Vec<(Key, Ask)> = wanted
            .iter()
            .filter(|(key, ask)| is_new || self.asked.get(*key) != Some(*ask))
            .map(|(key, ask)| (*key, *ask))
            .collect();
        changed.sort_unstable_by_key(|(key, _)| *key);
        let mut dropped: Vec<Key> = self
            .asked
            .keys()
            .filter(|key| !is_new && !wanted.contains_key(*key))
            .copied()
            .collect();
        dropped.sort_unstable();
        let partitions: Vec<FetchPartition> = changed
            .iter()
            .map(|((_, index), ask)| partition(*index, *ask, max_bytes))
            .collect();
        let indexes: Vec<i32> = dropped.iter().map(|(_, index)| *index).collect();
        let changed: Vec<Key> = changed.iter().map(|(key, _)| *key).collect();
        let topics = by_topic(&changed, &partitions);
        let forgotten = by_topic(&dropped, &indexes);
        FetchRequestToWrite {
            session_id: self.id,
            session_epoch: self.epoch,
            topics: &topics,
            forgotten: &forgotten,
            ..terms
        }
        .encode(out, FETCH_VERSION);
        self.asked.clone_from(wanted);
    }

    /// The leader has answered; `id` is the session's id now, 0 for none.
    pub fn answered(&mut self, id: i32) {
        if id == 0 {
            *self = FetchSessionHandler::default();
            return;
        }
        self.id = id;
        self.epoch = match self.epoch {
            i32::MAX => 1,
            epoch => epoch + 1,
        };
    }

    /// What was last asked about a partition in the session.
    pub fn asked(&self, key: &Key) -> Option<Ask> {
        self.asked.get(key).copied()
    }
}

fn partition(index: i32, ask: Ask, max_bytes: i32) -> FetchPartition {
    FetchPartition {
        index,
        current_leader_epoch: ask.leader_epoch,
        fetch_offset: ask.offset,
        last_fetched_epoch: ask.last_epoch,
        log_start_offset: match ask.is_partial {
            true => i64::MAX,
            false => ask.log_start,
        },
        max_bytes,
        directory_id: [0; 16],
    }
}

/// The items of sorted partitions, by topic.
fn by_topic<'a, T>(sorted: &[Key], mut items: &'a [T]) -> Vec<FetchTopicToWrite<'a, T>> {
    let topics = sorted.chunk_by(|one, next| one.0 == next.0);
    let topic = |keys: &[Key]| {
        let (partitions, rest) = items.split_at(keys.len());
        items = rest;
        FetchTopicToWrite {
            name: "",
            id: keys[0].0,
            partitions,
        }
    };
    topics.map(topic).collect()
}

#[cfg(test)]
mod tests {
    use pyrklog_wire::fetch::FetchRequest;

    use super::*;

    const A: TopicId = [1; 16];
    const B: TopicId = [2; 16];
    fn terms() -> FetchRequestToWrite<'static> {
        FetchRequestToWrite {
            replica_id: 3,
            replica_epoch: 77,
            ..FetchRequestToWrite::default()
        }
    }

    fn at(offset: i64) -> Ask {
        Ask {
            leader_epoch: 5,
            offset,
            last_epoch: 4,
            log_start: 0,
            is_partial: false,
        }
    }

    fn asked(session: &mut FetchSessionHandler, wanted: &[(Key, Ask)]) -> FetchRequest {
        let mut body = Vec::new();
        session.ask(&wanted.iter().copied().collect(), terms(), 100, &mut body);
        let mut request = FetchRequest::default();
        request.decode(&body, 0, FETCH_VERSION).unwrap();
        request
    }

    fn offsets(request: &FetchRequest) -> Vec<(TopicId, i32, i64)> {
        request
            .topics
            .iter()
            .flat_map(|topic| {
                let partitions = request.partitions_of(topic);
                partitions
                    .iter()
                    .map(|p| (topic.id, p.index, p.fetch_offset))
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    fn forgotten(request: &FetchRequest) -> Vec<(TopicId, i32)> {
        request
            .forgotten
            .iter()
            .flat_map(|topic| request.forgotten_of(topic).iter().map(|i| (topic.id, *i)))
            .collect()
    }

    #[test]
    fn first_fetch_is_full_and_names_the_replica() {
        let mut session = FetchSessionHandler::default();
        let request = asked(
            &mut session,
            &[((B, 0), at(7)), ((A, 1), at(8)), ((A, 0), at(9))],
        );
        assert_eq!((request.session_id, request.session_epoch), (0, 0));
        assert_eq!((request.replica_id, request.replica_epoch), (3, 77));
        assert_eq!(offsets(&request), [(A, 0, 9), (A, 1, 8), (B, 0, 7)]);
        let first = request.partitions[0];
        assert_eq!(
            (first.current_leader_epoch, first.last_fetched_epoch),
            (5, 4)
        );
        assert_eq!(first.max_bytes, 100);
    }

    #[test]
    fn later_fetches_name_changed_partitions() {
        let mut session = FetchSessionHandler::default();
        asked(
            &mut session,
            &[((A, 0), at(1)), ((A, 1), at(1)), ((B, 0), at(1))],
        );
        session.answered(42);
        let request = asked(
            &mut session,
            &[((A, 0), at(2)), ((A, 1), at(1)), ((B, 1), at(0))],
        );
        assert_eq!((request.session_id, request.session_epoch), (42, 1));
        assert_eq!(offsets(&request), [(A, 0, 2), (B, 1, 0)]);
        assert_eq!(forgotten(&request), [(B, 0)]);
        assert_eq!(session.asked(&(A, 1)), Some(at(1)));
        assert_eq!(session.asked(&(B, 0)), None);
        session.answered(42);
        let request = asked(
            &mut session,
            &[((A, 0), at(2)), ((A, 1), at(1)), ((B, 1), at(0))],
        );
        assert_eq!(request.session_epoch, 2);
        assert!(request.topics.is_empty() && request.forgotten.is_empty());
    }

    #[test]
    fn fetch_without_a_session_is_full() {
        let mut session = FetchSessionHandler::default();
        for _ in 0..2 {
            let request = asked(&mut session, &[((A, 0), at(1))]);
            assert_eq!((request.session_id, request.session_epoch), (0, 0));
            assert_eq!(offsets(&request), [(A, 0, 1)]);
            assert!(request.forgotten.is_empty());
            session.answered(0);
        }
        session.answered(7);
        asked(&mut session, &[((A, 0), at(1))]);
        session.reset();
        let request = asked(&mut session, &[((A, 0), at(1))]);
        assert_eq!(
            (request.session_id, request.session_epoch),
            (7, 0),
            "ends the old one"
        );
        assert_eq!(offsets(&request), [(A, 0, 1)]);
    }

    #[test]
    fn partial_log_is_told_to_begin_nowhere_until_it_is_whole() {
        let mut session = FetchSessionHandler::default();
        let partial = Ask {
            log_start: 5,
            is_partial: true,
            ..at(9)
        };
        let told = |request: &FetchRequest| request.partitions[0].log_start_offset;
        assert_eq!(told(&asked(&mut session, &[((A, 0), partial)])), i64::MAX);
        session.answered(42);
        let whole = Ask {
            is_partial: false,
            ..partial
        };
        let request = asked(&mut session, &[((A, 0), whole)]);
        assert_eq!(told(&request), 5, "it is named again");
    }

    #[test]
    fn the_epoch_starts_again_at_one() {
        let mut session = FetchSessionHandler {
            id: 9,
            epoch: i32::MAX,
            asked: HashMap::new(),
        };
        session.answered(9);
        assert_eq!(session.epoch, 1);
    }
}
