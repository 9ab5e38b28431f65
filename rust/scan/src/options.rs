//! What to scan, and how.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use pyrklog_client::{ClientConfig, Isolation};
use pyrklog_wire::Uuid;
use thiserror::Error;

use crate::columns::Columns;
use crate::typed::Decode;

/// Least and most memory of a scan.
const MEMORY_BYTES: std::ops::RangeInclusive<usize> = 16 << 20..=64 << 30;
const BATCH_ROWS: std::ops::RangeInclusive<usize> = 1..=16 << 20;
/// More, and a batch's offsets would not fit in 32 bits.
const BATCH_BYTES: std::ops::RangeInclusive<usize> = 4096..=512 << 20;
const LARGE_BYTES: std::ops::RangeInclusive<usize> = 64 << 10..=512 << 20;
/// Least memory for each of several threads.
const THREAD_BYTES: usize = 512 << 10;
const THREADS: std::ops::RangeInclusive<usize> = 1..=64;

/// A place in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The first record that is there.
    Earliest,
    /// Behind the last record that the reader may see.
    Latest,
    /// An offset. With the leader epoch of the record before it the reader notices if that record
    /// is no longer in the log; -1 unknown.
    Offset {
        /// Offset.
        offset: i64,
        /// Leader epoch.
        leader_epoch: i32,
    },
    /// An offset as a leader lists it: its epoch may be newer than that of the record before.
    Listed {
        /// Offset.
        offset: i64,
        /// Leader epoch.
        leader_epoch: i32,
    },
    /// The first record that is not older, in milliseconds; behind the last one if all are.
    Timestamp(i64),
}

/// A topic, and which of its partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPartitions {
    /// Name.
    pub topic: String,
    /// `None` for all.
    pub partitions: Option<Vec<i32>>,
}

/// What to do if records at the start of a range were deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The scan fails.
    Fail,
    /// It reads from the first record that is left.
    Skip,
}

/// What becomes of partitions whose leaders do not answer for `ScanOptions::timeout`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// The scan fails.
    Fail,
    /// It goes on without them, and tells which they are.
    Leave,
}

/// All options of a scan.
#[derive(Clone, Debug)]
pub struct ScanOptions {
    /// The cluster.
    pub client: ClientConfig,
    /// What to read.
    pub topics: Vec<TopicPartitions>,
    /// Ids of topics as they were seen before: no other topic of the name is read.
    pub topic_ids: HashMap<String, Uuid>,
    /// Where to begin, unless `starts` says otherwise.
    pub start: Position,
    /// Where to end, unless `ends` says otherwise; the end itself is not read.
    pub end: Position,
    /// Of single partitions, and of topics ([`ALL_PARTITIONS`]).
    pub starts: HashMap<(String, i32), Position>,
    /// The same for ends.
    pub ends: HashMap<(String, i32), Position>,
    /// What to build.
    pub columns: Arc<Columns>,
    /// Values as typed columns; the plan has what comes of it in `columns`.
    pub decode: Option<Decode>,
    /// Which records the reader sees.
    pub isolation: Isolation,
    /// The reader's rack, for replicas in it (KIP-392); empty for none.
    pub rack: String,
    /// Deleted records.
    pub missing: Missing,
    /// Leaders that do not answer.
    pub unanswered: Unanswered,
    /// Threads that decode.
    pub threads: usize,
    /// Rows of a batch at most.
    pub batch_rows: usize,
    /// Bytes of a batch, about: the last record may exceed it.
    pub batch_bytes: usize,
    /// Bytes of everything that is fetched, decoded and not yet taken, besides one large batch.
    pub memory_bytes: usize,
    /// Most bytes of one batch as fetched, and of its expansion.
    pub large_bytes: usize,
    /// How long a partition may be without progress before the scan fails.
    pub timeout: Duration,
    /// Whether to check batches' CRCs.
    pub check_crcs: bool,
}

/// An option that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct OptionsError(pub String);

impl ScanOptions {
    /// Checks the bounds of all numbers.
    ///
    /// # Errors
    /// Names the option.
    pub fn check(&self) -> Result<(), OptionsError> {
        within("threads", self.threads, &THREADS)?;
        within("batch_rows", self.batch_rows, &BATCH_ROWS)?;
        within("batch_bytes", self.batch_bytes, &BATCH_BYTES)?;
        within("memory_bytes", self.memory_bytes, &MEMORY_BYTES)?;
        within("large_bytes", self.large_bytes, &LARGE_BYTES)?;
        let needed = self.threads * THREAD_BYTES;
        if self.memory_bytes < needed {
            let (memory, threads) = (self.memory_bytes, self.threads);
            let text = format!("memory_bytes is {memory}; {threads} threads need {needed}");
            return Err(OptionsError(text));
        }
        if self.topics.is_empty() {
            return Err(OptionsError("no topic to read".into()));
        }
        if self.client.client_id.len() > 255 || self.rack.len() > 255 {
            let text = "client_id and rack have at most 255 bytes";
            return Err(OptionsError(text.into()));
        }
        match self.topics.iter().find(|one| !is_topic_name(&one.topic)) {
            Some(bad) => Err(OptionsError(format!(
                "no topic has the name {:?}",
                bad.topic
            ))),
            None => Ok(()),
        }
    }

    pub(crate) fn start_of(&self, topic: &str, partition: i32) -> Position {
        own(&self.starts, topic, partition).unwrap_or(self.start)
    }

    pub(crate) fn end_of(&self, topic: &str, partition: i32) -> Position {
        own(&self.ends, topic, partition).unwrap_or(self.end)
    }
}

/// Stands for all partitions of a topic in `starts` and `ends`.
pub const ALL_PARTITIONS: i32 = -1;

fn own(places: &HashMap<(String, i32), Position>, topic: &str, partition: i32) -> Option<Position> {
    let find = |partition| places.get(&(topic.to_owned(), partition)).copied();
    find(partition).or_else(|| find(ALL_PARTITIONS))
}

/// Kafka's rule for names.
fn is_topic_name(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=249).contains(&name.len()) && name.bytes().all(legal)
}

fn within(
    name: &str,
    value: usize,
    range: &std::ops::RangeInclusive<usize>,
) -> Result<(), OptionsError> {
    match range.contains(&value) {
        true => Ok(()),
        false => Err(OptionsError(format!(
            "{name} is {value}; it can be {} to {}",
            range.start(),
            range.end()
        ))),
    }
}
