//! What a request of a lane asks, and for which of its splits.
//!
//! Answers without records do not end a range: a broker gives them while it waits for its disk or
//! for a tier, or after an error. A split that got some is asked for alone, so that no other takes
//! the room of the answer or the broker's time, and the broker may wait longer. The end is known
//! from what follows it: the next batch, which compaction leaves, begins at or behind it. With
//! `read_committed` that batch may belong to an open transaction, so it is asked for without regard
//! to transactions, in turn with the records themselves.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use pyrklog_client::Isolation;
use pyrklog_wire::Uuid;
use pyrklog_wire::fetch::{FetchPartition, FetchRequestToWrite, FetchTopicToWrite};

use crate::split::Cursor;

/// Partitions of one request. A split that waits is asked for with the next ones.
const PARTITIONS_MAX: usize = 128;
/// Answers without records, to a split that was asked for first, before it is asked for alone.
pub(crate) const EMPTIES_MAX: u32 = 2;
const MAX_WAIT_MS: u32 = 500;
/// Of a split that is asked for alone: longer each time.
const ALONE_WAIT_MS: u32 = 5000;

/// Asked for at least, as much as brokers take for a batch by default.
const BYTES_MIN: usize = 1 << 20;
/// Asked for, for each offset that is left of a split: what lies behind its end comes in vain. With
/// larger records it takes more requests.
const OFFSET_BYTES: usize = 4 << 10;

/// What all lanes ask for.
#[derive(Clone, Debug)]
pub(crate) struct FetchTerms {
    pub isolation: Isolation,
    pub rack: String,
    /// Record bytes of an answer, but for a larger first batch.
    pub bytes: usize,
    /// Without progress.
    pub timeout: Duration,
    /// Until an answer comes.
    pub request_timeout: Duration,
}

/// What a request wants to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Records, of one split or several.
    #[default]
    Records,
    /// What follows one split's position, also of open transactions.
    Next,
    /// What lies where one split's last record was read.
    Last,
}

impl Ask {
    fn of(cursor: &Cursor, isolation: Isolation) -> Ask {
        let is_committed = isolation == Isolation::ReadCommitted;
        match cursor.empties {
            _ if cursor.is_doubted => Ask::Last,
            empties if empties >= EMPTIES_MAX && empties % 2 == 0 && is_committed => Ask::Next,
            _ => Ask::Records,
        }
    }

    fn offset(self, cursor: &Cursor) -> i64 {
        match self {
            Ask::Last => cursor.position - 1,
            Ask::Records | Ask::Next => cursor.position,
        }
    }

    /// As on the wire.
    fn isolation_level(self, isolation: Isolation) -> i8 {
        match self {
            Ask::Records => isolation.level(),
            Ask::Next | Ask::Last => Isolation::ReadUncommitted.level(),
        }
    }
}

fn is_alone(cursor: &Cursor) -> bool {
    cursor.is_doubted || cursor.empties >= EMPTIES_MAX
}

/// Takes the splits to ask for next out of `waiting`. A request has room for one split of a
/// partition.
pub(crate) fn choose(waiting: &mut VecDeque<Cursor>, isolation: Isolation) -> (Ask, Vec<Cursor>) {
    let mut places = HashSet::new();
    let (mut asked, mut later) = (Vec::new(), Vec::new());
    let mut ask = Ask::Records;
    while asked.len() < PARTITIONS_MAX
        && let Some(cursor) = waiting.pop_front()
    {
        let is_alone = is_alone(&cursor);
        if is_alone && asked.is_empty() {
            ask = Ask::of(&cursor, isolation);
            asked.push(cursor);
            break;
        }
        match !is_alone && places.insert((Arc::clone(&cursor.topic), cursor.partition)) {
            true => asked.push(cursor),
            false => later.push(cursor),
        }
    }
    waiting.extend(later);
    (ask, asked)
}

/// How long a broker may wait for records, in milliseconds.
fn max_wait_ms(asked: &[Cursor], terms: &FetchTerms) -> i32 {
    let empties = asked.first().map_or(0, |first| first.empties);
    let times = empties.saturating_add(1).saturating_sub(EMPTIES_MAX).max(1);
    let wait = MAX_WAIT_MS.saturating_mul(times).min(ALONE_WAIT_MS);
    // The answer is to come in time.
    let most = (terms.request_timeout.as_millis() / 2).max(u128::from(MAX_WAIT_MS));
    u128::from(wait).min(most) as i32
}

/// Record bytes to ask for of one partition.
fn partition_bytes(cursor: &Cursor, terms: &FetchTerms) -> usize {
    let left = usize::try_from(cursor.end - cursor.position).unwrap_or(0);
    let enough = left.saturating_mul(OFFSET_BYTES).max(BYTES_MIN);
    terms.bytes.min(enough)
}

/// Writes a Fetch without a session: a bounded read asks for each partition a few times only.
pub(crate) fn encode(
    ask: Ask,
    asked: &[Cursor],
    terms: &FetchTerms,
    out: &mut Vec<u8>,
    version: i16,
) {
    // The order of the splits stays: brokers fill an answer from the first on.
    let mut topics: Vec<(&Cursor, Vec<FetchPartition>)> = Vec::new();
    for cursor in asked {
        let partition = FetchPartition {
            index: cursor.partition,
            current_leader_epoch: cursor.leader_epoch,
            fetch_offset: ask.offset(cursor),
            last_fetched_epoch: -1,
            log_start_offset: -1,
            max_bytes: partition_bytes(cursor, terms) as i32,
            directory_id: Uuid::default(),
        };
        match topics.iter_mut().find(|one| one.0.topic == cursor.topic) {
            Some((_, partitions)) => partitions.push(partition),
            None => topics.push((cursor, vec![partition])),
        }
    }
    let topics: Vec<FetchTopicToWrite<'_>> = topics
        .iter()
        .map(|(cursor, partitions)| FetchTopicToWrite {
            name: &cursor.topic,
            id: cursor.topic_id,
            partitions,
        })
        .collect();
    let request = FetchRequestToWrite {
        max_wait_ms: max_wait_ms(asked, terms),
        max_bytes: terms.bytes as i32,
        isolation_level: ask.isolation_level(terms.isolation),
        topics: &topics,
        rack_id: &terms.rack,
        ..FetchRequestToWrite::default()
    };
    request.encode(out, version);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::Split;

    fn cursor(partition: i32, empties: u32) -> Cursor {
        let split = Split {
            topic: Arc::from("t"),
            topic_id: [1; 16],
            partition,
            start: 5,
            end: 10,
            leader_epoch: -1,
            is_listed: false,
        };
        let mut cursor = Cursor::new(0, &split);
        cursor.empties = empties;
        cursor
    }

    fn chosen(waiting: &mut VecDeque<Cursor>) -> (Ask, Vec<i32>) {
        let (ask, asked) = choose(waiting, Isolation::ReadCommitted);
        (ask, asked.iter().map(|one| one.partition).collect())
    }

    #[test]
    fn a_split_that_got_nothing_is_asked_for_alone_in_its_turn() {
        let mut doubted = cursor(4, 0);
        doubted.is_doubted = true;
        let all = [
            cursor(0, 1),
            cursor(1, 2),
            cursor(2, 0),
            cursor(3, 3),
            doubted,
        ];
        let mut waiting = VecDeque::from(all);
        assert_eq!(chosen(&mut waiting), (Ask::Records, vec![0, 2]));
        assert_eq!(chosen(&mut waiting), (Ask::Next, vec![1]));
        assert_eq!(chosen(&mut waiting), (Ask::Records, vec![3]));
        assert_eq!(chosen(&mut waiting), (Ask::Last, vec![4]));
        assert!(waiting.is_empty());
    }

    #[test]
    fn little_is_asked_for_near_the_end() {
        let mut terms = FetchTerms {
            isolation: Isolation::ReadCommitted,
            rack: String::new(),
            bytes: 8 << 20,
            timeout: Duration::from_secs(60),
            request_timeout: Duration::from_secs(30),
        };
        let mut one = cursor(0, 0);
        assert_eq!(partition_bytes(&one, &terms), BYTES_MIN);
        one.end = one.position + 1000;
        assert_eq!(partition_bytes(&one, &terms), 1000 * OFFSET_BYTES);
        one.end = i64::MAX;
        assert_eq!(partition_bytes(&one, &terms), terms.bytes);
        // An epoch may be asked about at the end itself.
        one.end = one.position;
        terms.bytes = 4096;
        assert_eq!(partition_bytes(&one, &terms), 4096);
    }

    #[test]
    fn a_broker_may_wait_longer_for_it_but_not_for_ever() {
        let mut terms = FetchTerms {
            isolation: Isolation::ReadCommitted,
            rack: String::new(),
            bytes: 1,
            timeout: Duration::from_secs(60),
            request_timeout: Duration::from_secs(30),
        };
        let wait = |empties, terms: &FetchTerms| max_wait_ms(&[cursor(0, empties)], terms);
        let waits: Vec<i32> = (0..6).map(|empties| wait(empties, &terms)).collect();
        assert_eq!(waits, [500, 500, 500, 1000, 1500, 2000]);
        assert_eq!(wait(u32::MAX, &terms), 5000);
        terms.request_timeout = Duration::from_secs(2);
        assert_eq!(wait(100, &terms), 1000);
    }
}
