//! Which offsets a scan reads, asked before anything is read.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pyrklog_client::{Backoff, Cancel, Client, Isolation, OffsetQuery, Topic};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::list_offsets::{EARLIEST_TIMESTAMP, LATEST_TIMESTAMP};

use crate::absence::{Absence, absent};
use crate::columns::Columns;
use crate::error::{ErrorKind, Result, ScanError};
use crate::left_out::LeftOut;
use crate::openers;
use crate::options::{ALL_PARTITIONS, Position, ScanOptions, Unanswered};
use crate::split::Split;

/// How long all brokers may not know a topic or partition: each learns of a new one a moment later
/// than another.
const UNKNOWN_FOR: Duration = Duration::from_secs(1);
/// How long a log may end before the offset at which its scan starts: a new leader learns a moment
/// later how far its followers are.
const LAGGING_FOR: Duration = Duration::from_secs(10);
/// Partitions of one scan.
const PARTITIONS_MAX: usize = 400_000;

/// The splits of a scan, and the client that found them.
#[derive(Debug)]
pub struct Plan {
    /// One a partition, in the order of the topics.
    pub splits: Vec<Split>,
    /// Partitions that have none, since their leaders did not answer ([`Unanswered::Leave`]).
    pub left_out: Vec<LeftOut>,
    pub(crate) options: ScanOptions,
    pub(crate) client: Client,
}

/// Asks the cluster; leaves `options.decode` to others. Blocks up to `options.timeout`, or until `cancel` is used.
///
/// # Errors
/// [`ScanError`] of all kinds but those of records.
pub(crate) fn plan(options: ScanOptions, cancel: Cancel) -> Result<Plan> {
    let bad = |text: String| ScanError::new(ErrorKind::Argument, text);
    options.check().map_err(|error| bad(error.to_string()))?;
    let client = Client::new(options.client.clone(), cancel);
    let mut planner = Planner {
        until: Instant::now() + options.timeout,
        absence: None,
        backoff: Backoff::default(),
        options: &options,
        client,
        left: HashMap::new(),
    };
    let mut splits = planner.partitions()?;
    planner.resolve(&mut splits, Edge::Start)?;
    planner.resolve(&mut splits, Edge::End)?;
    planner.check_starts(&mut splits)?;
    let (client, mut left) = (planner.client, planner.left);
    let mut left_out = Vec::new();
    let numbered = splits.into_iter().enumerate();
    let found = numbered.filter_map(|(number, split)| match left.remove(&number) {
        None => Some(split),
        Some(reason) => {
            left_out.push(LeftOut {
                topic: split.topic,
                partition: split.partition,
                reason,
            });
            None
        }
    });
    let splits = found.collect();
    Ok(Plan {
        splits,
        left_out,
        options,
        client,
    })
}

impl Plan {
    /// What is built.
    pub fn columns(&self) -> Arc<Columns> {
        Arc::clone(&self.options.columns)
    }
}

/// Which end of the ranges.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Edge {
    Start,
    End,
}

struct Planner<'a> {
    options: &'a ScanOptions,
    client: Client,
    until: Instant,
    /// What the brokers that were asked last do not know.
    absence: Option<Absence>,
    backoff: Backoff,
    /// Splits, by their numbers, whose leaders have not answered in time, and why.
    left: HashMap<usize, String>,
}

impl Planner<'_> {
    /// All partitions to read, with the ids of their topics.
    fn partitions(&mut self) -> Result<Vec<Split>> {
        loop {
            let late = self.refresh()?;
            if late.is_none() {
                break;
            }
            self.pause(late)?;
        }
        let mut splits = Vec::new();
        let mut seen = BTreeSet::new();
        for wanted in &self.options.topics {
            let Some(topic) = self.client.metadata().topics.get(wanted.topic.as_str()) else {
                continue;
            };
            let all = || topic.partitions.iter().map(|one| one.index).collect();
            for partition in wanted.partitions.clone().unwrap_or_else(all) {
                if seen.insert((Arc::clone(&topic.name), partition)) {
                    splits.push(Split {
                        topic: Arc::clone(&topic.name),
                        topic_id: topic.id,
                        partition,
                        start: 0,
                        end: 0,
                        leader_epoch: -1,
                        is_listed: false,
                    });
                }
            }
        }
        let places = self.options.starts.keys().chain(self.options.ends.keys());
        for (topic, partition) in places {
            let is_read = *partition == ALL_PARTITIONS
                || seen.contains(&(Arc::from(topic.as_str()), *partition));
            if !is_read {
                let text =
                    format!("a place is given for {topic}-{partition}, which does not exist");
                return Err(ScanError::new(ErrorKind::UnknownTopic, text));
            }
        }
        match splits.len() > PARTITIONS_MAX {
            true => Err(ScanError::new(
                ErrorKind::Argument,
                format!("more than {PARTITIONS_MAX} partitions in one scan"),
            )),
            false => Ok(splits),
        }
    }

    /// Asks for metadata. Returns why it is not whole yet, if it is not.
    fn refresh(&mut self) -> Result<Option<ScanError>> {
        let names: BTreeSet<&str> = self
            .options
            .topics
            .iter()
            .map(|one| one.topic.as_str())
            .collect();
        let names: Vec<&str> = names.into_iter().collect();
        let metadata = match self.client.refresh(&names) {
            Ok(metadata) => metadata,
            Err(error) if error.is_retriable() => return Ok(Some(error.into())),
            Err(error) => return Err(error.into()),
        };
        let mut late = None;
        for name in names {
            if let Some(topic) = metadata.topics.get(name) {
                late = topic_error(topic)?.or(late);
            }
        }
        let missing = absent(self.options, metadata);
        if missing.is_empty() {
            self.absence = None;
            return Ok(late);
        }
        let mut absence = match self.absence.take() {
            Some(before) => before.and(missing),
            None => Absence::new(missing),
        };
        absence.doubts.note(&mut self.client);
        // A scan with less time than that ends with what it has heard.
        let least = UNKNOWN_FOR.min(self.options.timeout / 2);
        let is_sure = absence
            .doubts
            .are_of_all(self.client.metadata(), Instant::now(), least);
        let late = absence.error(is_sure);
        self.absence = Some(absence);
        match is_sure {
            true => Err(late),
            false => Ok(Some(late)),
        }
    }

    /// Waits before the next try; `why` is the failure if the time is over.
    fn pause(&mut self, why: Option<ScanError>) -> Result<()> {
        if Instant::now() >= self.until {
            let late = || ScanError::new(ErrorKind::LeaderNotAvailable, "no answer in time");
            return Err(why.unwrap_or_else(late));
        }
        let wait = match &self.absence {
            Some(absence) => {
                let metadata = self.client.metadata();
                absence.doubts.next_wait(metadata, &mut self.backoff)
            }
            None => self.backoff.next_wait(),
        };
        Ok(self.client.cancel().sleep(wait)?)
    }

    /// Finds one edge of each split.
    fn resolve(&mut self, splits: &mut [Split], edge: Edge) -> Result<()> {
        let mut open = Vec::new();
        for (number, split) in splits.iter_mut().enumerate() {
            if self.left.contains_key(&number) {
                continue;
            }
            let position = match edge {
                Edge::Start => self.options.start_of(&split.topic, split.partition),
                Edge::End => self.options.end_of(&split.topic, split.partition),
            };
            match position {
                Position::Offset {
                    offset,
                    leader_epoch,
                } => set(split, edge, offset, leader_epoch),
                Position::Listed {
                    offset,
                    leader_epoch,
                } => {
                    set(split, edge, offset, leader_epoch);
                    split.is_listed |= edge == Edge::Start;
                }
                Position::Earliest => open.push((number, EARLIEST_TIMESTAMP)),
                Position::Latest => open.push((number, LATEST_TIMESTAMP)),
                Position::Timestamp(at) => open.push((number, at.max(0))),
            }
        }
        let isolation = self.options.isolation;
        self.ask(splits, edge, open, isolation)
    }

    /// Asks for an edge of some splits, each by a timestamp.
    fn ask(
        &mut self,
        splits: &mut [Split],
        edge: Edge,
        mut open: Vec<(usize, i64)>,
        isolation: Isolation,
    ) -> Result<()> {
        let mut is_stale = false;
        while !open.is_empty() {
            if is_stale {
                self.refresh()?;
            }
            let query = |(number, timestamp): &(usize, i64)| OffsetQuery {
                topic: Arc::clone(&splits[*number].topic),
                partition: splits[*number].partition,
                timestamp: *timestamp,
            };
            let queries: Vec<OffsetQuery> = open.iter().map(query).collect();
            let places = queries.iter().map(|one| (&*one.topic, one.partition));
            openers::connect(&mut self.client, places)?;
            let answers = self.client.list_offsets(isolation, &queries)?;
            let (mut again, mut failed) = (Vec::new(), Vec::new());
            for ((number, timestamp), answer) in open.into_iter().zip(answers) {
                let split = &mut splits[number];
                match answer.error {
                    ErrorCode::NONE if answer.offset >= 0 => set(split, edge, answer.offset, -1),
                    // No record is so late.
                    ErrorCode::NONE if timestamp >= 0 => again.push((number, LATEST_TIMESTAMP)),
                    ErrorCode::NONE => return Err(no_offset(split, answer.offset)),
                    code => {
                        offset_error(split, code)?;
                        is_stale = true;
                        failed.push((number, timestamp, code));
                    }
                }
            }
            let is_late = Instant::now() >= self.until;
            if is_late && self.options.unanswered == Unanswered::Leave {
                for (number, _, code) in failed.drain(..) {
                    let why = offset_error(&splits[number], code)?;
                    self.left.insert(number, why.text);
                }
            }
            let last = failed.last();
            let why = last.map(|(number, _, code)| offset_error(&splits[*number], *code));
            open = again;
            open.extend(
                failed
                    .iter()
                    .map(|(number, timestamp, _)| (*number, *timestamp)),
            );
            if let Some(why) = why {
                self.pause(Some(why?))?;
            }
        }
        Ok(())
    }

    /// A scan up to the end that starts behind it would read nothing, and say nothing of records that
    /// are gone.
    fn check_starts(&mut self, splits: &mut [Split]) -> Result<()> {
        let is_committed = self.options.isolation == Isolation::ReadCommitted;
        let until = self.until.min(Instant::now() + LAGGING_FOR);
        loop {
            let beyond: Vec<(usize, i64)> = (0..splits.len())
                .filter(|number| !self.left.contains_key(number))
                .filter(|number| self.starts_beyond(&splits[*number]))
                .map(|number| (number, LATEST_TIMESTAMP))
                .collect();
            // Open transactions may begin before it.
            self.ask(
                splits,
                Edge::End,
                beyond.clone(),
                Isolation::ReadUncommitted,
            )?;
            let mut why = None;
            for (number, _) in beyond {
                if self.left.contains_key(&number) {
                    continue;
                }
                let split = &mut splits[number];
                if split.start > split.end {
                    why = Some(beyond_the_end(split));
                } else if is_committed {
                    split.end = split.start;
                }
            }
            let Some(why) = why else { return Ok(()) };
            if Instant::now() >= until {
                return Err(why);
            }
            self.pause(Some(why))?;
            self.refresh()?;
        }
    }

    fn starts_beyond(&self, split: &Split) -> bool {
        let (topic, partition) = (&split.topic, split.partition);
        split.start > split.end
            && matches!(self.options.end_of(topic, partition), Position::Latest)
            && matches!(
                self.options.start_of(topic, partition),
                Position::Offset { .. } | Position::Listed { .. }
            )
    }
}

fn beyond_the_end(split: &Split) -> ScanError {
    let (topic, partition, start, end) = (&split.topic, split.partition, split.start, split.end);
    let text = format!("partition {topic}-{partition} ends at offset {end}, before {start}");
    ScanError::new(ErrorKind::OffsetOutOfRange, text)
}

fn set(split: &mut Split, edge: Edge, offset: i64, leader_epoch: i32) {
    match edge {
        Edge::Start => {
            split.start = offset;
            split.leader_epoch = leader_epoch;
        }
        Edge::End => split.end = offset,
    }
}

/// Every log has a start and an end.
fn no_offset(split: &Split, offset: i64) -> ScanError {
    let (topic, partition) = (&split.topic, split.partition);
    let text = format!("the leader of partition {topic}-{partition} answers with offset {offset}");
    ScanError::new(ErrorKind::Protocol, text)
}

/// The failure of a topic that may pass; the error is one that does not. One that the broker does
/// not know is no failure here.
fn topic_error(topic: &Topic) -> Result<Option<ScanError>> {
    let name = &topic.name;
    match topic.error {
        ErrorCode::NONE | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => Ok(None),
        ErrorCode::INVALID_TOPIC_EXCEPTION => {
            let text = format!("no topic has the name {name:?}");
            Err(ScanError::new(ErrorKind::UnknownTopic, text))
        }
        ErrorCode::TOPIC_AUTHORIZATION_FAILED => {
            let text = format!("this client may not read topic {name}");
            Err(ScanError::new(ErrorKind::NotAuthorized, text))
        }
        code => {
            let text = format!("topic {name} is not available: {code}");
            Ok(Some(ScanError::new(ErrorKind::LeaderNotAvailable, text)))
        }
    }
}

/// The failure of a partition's offsets that may pass; the error is one that does not.
fn offset_error(split: &Split, code: ErrorCode) -> Result<ScanError> {
    let name = format!("{}-{}", split.topic, split.partition);
    match code {
        ErrorCode::TOPIC_AUTHORIZATION_FAILED => {
            let text = format!("this client may not read topic {}", split.topic);
            Err(ScanError::new(ErrorKind::NotAuthorized, text))
        }
        ErrorCode::UNSUPPORTED_FOR_MESSAGE_FORMAT => {
            let text = format!(
                "partition {name} has messages without timestamps, so no offset can be found by time"
            );
            Err(ScanError::new(ErrorKind::UnsupportedBroker, text))
        }
        code => {
            let text = format!("partition {name} has no leader that answers: {code}");
            Ok(ScanError::new(ErrorKind::LeaderNotAvailable, text))
        }
    }
}
