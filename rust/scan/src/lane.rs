//! One connection with the splits that are read on it: one Fetch in flight.
//!
//! The next request is sent as soon as an answer's ends are known, before its records are decoded:
//! the broker works meanwhile.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pyrklog_client::{Connection, Frame, Isolation, Result as ClientResult, api};
use pyrklog_wire::fetch::{
    AbortedTransaction, FetchPartitionResponse, FetchResponse, FetchTopicResponse, TOPIC_IDS_SINCE,
};
use pyrklog_wire::{ErrorCode, Uuid};

use crate::ask::{self, Ask, EMPTIES_MAX, FetchTerms};
use crate::entries::{Entry, entry_behind, position_after};
use crate::error::{ErrorKind, Result, ScanError};
use crate::split::Cursor;

/// Topics, partitions and aborted transactions of an answer.
const ELEMENTS_MAX: usize = 200_000;
/// Bytes that give an answer a second more than the time-out: one that takes longer is late, however
/// often a byte of it comes. 8 MiB may take nine minutes.
const BYTES_PER_SECOND_MIN: u64 = 16 << 10;
/// The same for a large answer, counted from when another worker waits to receive one, too.
const WANTED_BYTES_PER_SECOND_MIN: u64 = 1 << 20;
const EMPTY_WAIT: Duration = Duration::from_millis(20);
const THROTTLE_MAX: Duration = Duration::from_secs(30);
/// How long a replica that is not the leader may give nothing before the leader is asked again; half
/// of the scan's time-out if that is less.
const STUCK_REPLICA_FOR: Duration = Duration::from_secs(5);

/// So many time-outs of throttling without a record in between are waited for.
const THROTTLED_TIMEOUTS_MAX: u32 = 5;

/// A lane's name: the broker, and which of several connections to it. No other lane has its number:
/// news of a lane may come when another one is in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LaneId {
    pub broker: i32,
    pub shard: usize,
    pub number: u64,
}

/// Why a split leaves a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The broker does not serve it now.
    Moved(String),
    /// The offset is not in the replica's log.
    OutOfRange,
    /// Another replica is to be preferred.
    Preferred(i32),
    /// The broker gave nothing of it for too long.
    Stalled(String),
}

/// Records of one split, to be decoded.
#[derive(Debug)]
pub(crate) struct Part<'f> {
    /// As when it was asked for.
    pub cursor: Cursor,
    pub records: &'f [u8],
    pub aborted: Option<Cow<'f, [AbortedTransaction]>>,
}

/// What an answer brings.
#[derive(Debug, Default)]
pub(crate) struct Answer<'f> {
    pub parts: Vec<Part<'f>>,
    /// Splits that are read to their end once the parts are decoded.
    pub finished: Vec<Cursor>,
    /// Splits that leave the lane.
    pub released: Vec<(Cursor, Why)>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Lane {
    pub id: LaneId,
    pub connection: Connection,
    terms: Arc<FetchTerms>,
    cursors: VecDeque<Cursor>,
    ask: Ask,
    asked: Vec<Cursor>,
    /// When the request in flight was sent, less the time in which its worker did not receive.
    sent_at: Option<Instant>,
    resume_at: Option<Instant>,
    /// Since when the broker's quota forbids to ask.
    throttled_since: Option<Instant>,
    /// Its worker has the right to a large frame for it.
    pub has_large: bool,
    /// A large frame waits for that right.
    pub is_blocked: bool,
    /// Since when another worker waits for the right that this one has, and how many bytes had come
    /// then.
    wanted: Option<(Instant, usize)>,
}

impl Lane {
    pub fn new(id: LaneId, connection: Connection, terms: Arc<FetchTerms>) -> Lane {
        Lane {
            id,
            connection,
            terms,
            cursors: VecDeque::new(),
            ask: Ask::default(),
            asked: Vec::new(),
            sent_at: None,
            resume_at: None,
            throttled_since: None,
            has_large: false,
            is_blocked: false,
            wanted: None,
        }
    }

    pub fn add(&mut self, mut cursor: Cursor, now: Instant) {
        cursor.taken_over(now);
        self.cursors.push_back(cursor);
    }

    /// Whether it has splits.
    pub fn is_idle(&self) -> bool {
        self.cursors.is_empty() && self.asked.is_empty()
    }

    /// Whose records the answer in flight has, for messages. Of an answer that is too long it is the
    /// first of these partitions that has any: brokers send no other batch beyond what was asked for.
    pub fn asked_for(&self) -> String {
        let place = |one: &Cursor| format!("partition {} at offset {}", one.name(), one.position);
        match &self.asked[..] {
            [] => "no partition".into(),
            [one] => place(one),
            [first, others @ ..] => format!("{}, or one of {} others", place(first), others.len()),
        }
    }

    /// All its splits.
    pub fn into_cursors(self) -> Vec<Cursor> {
        self.asked.into_iter().chain(self.cursors).collect()
    }

    /// When it has something to do next without being woken, if ever.
    pub fn due(&self) -> Option<Instant> {
        match self.sent_at {
            Some(_) => None,
            None => self.resume_at.filter(|_| !self.cursors.is_empty()),
        }
    }

    /// Its worker did not look for what arrived from `since` on: no answer is late for that, and no
    /// split has made no progress.
    pub fn was_left_alone(&mut self, since: Instant, now: Instant) {
        let wanted = self.wanted.as_mut().map(|(at, _)| at);
        for at in self.sent_at.iter_mut().chain(wanted) {
            *at += now.saturating_duration_since(since.max(*at));
        }
        for cursor in self.cursors.iter_mut().chain(&mut self.asked) {
            cursor.was_left_alone(since, now);
        }
    }

    /// Whether another worker waits for the right that this lane has.
    pub fn set_wanted(&mut self, is_wanted: bool, now: Instant) {
        let received = self.connection.received();
        self.wanted = match is_wanted {
            true => self.wanted.or(Some((now, received))),
            false => None,
        };
    }

    /// The time of the request in flight counts from now on: its answer waits for this side.
    pub fn was_sent(&mut self, now: Instant) {
        self.sent_at = self.sent_at.map(|_| now);
    }

    /// Which answer is late, if it is. A large one may take longer, if it comes.
    pub fn late(&self, now: Instant) -> Option<&'static str> {
        let received = self.connection.received();
        let is_over = |since: Instant, bytes: usize, rate: u64| {
            let more = Duration::from_millis(bytes as u64 * 1000 / rate);
            now.saturating_duration_since(since) >= self.terms.request_timeout + more
        };
        let is_late = |at| is_over(at, received, BYTES_PER_SECOND_MIN);
        let holds_up = |(at, before): (Instant, usize)| {
            let since_then = received.saturating_sub(before);
            is_over(at, since_then, WANTED_BYTES_PER_SECOND_MIN)
        };
        if self.sent_at.is_some_and(is_late) {
            Some("Fetch")
        } else if self.wanted.is_some_and(holds_up) {
            Some("Fetch, for which other large batches wait,")
        } else {
            None
        }
    }

    /// Sends the next request if there is something to ask for and nothing in flight.
    ///
    /// # Errors
    /// The connection is gone, or the broker too old.
    pub fn ask(&mut self, now: Instant) -> ClientResult<()> {
        if self.sent_at.is_some() || self.cursors.is_empty() {
            return Ok(());
        }
        if self.resume_at.is_some_and(|at| now < at) {
            return Ok(());
        }
        self.resume_at = None;
        if let Some(since) = self.throttled_since.take() {
            let most = self.terms.timeout * THROTTLED_TIMEOUTS_MAX;
            let cursors = self.cursors.iter_mut();
            cursors.for_each(|cursor| cursor.was_throttled(since, now, most));
        }
        (self.ask, self.asked) = ask::choose(&mut self.cursors, self.terms.isolation);
        let has_ids = self.asked.iter().all(|one| one.topic_id != Uuid::default());
        let fetch = if has_ids {
            api::FETCH
        } else {
            api::FETCH_BY_NAME
        };
        let version = self.connection.version(fetch)?;
        let (what, asked, terms) = (self.ask, &self.asked, &self.terms);
        self.connection.push(fetch.key, version, |out, version| {
            ask::encode(what, asked, terms, out, version);
        })?;
        self.sent_at = Some(now);
        self.connection.flush().map(|_| ())
    }

    /// Sorts out an answer: the splits move on or leave. Decode its parts then.
    ///
    /// # Errors
    /// An answer that does not fit the question, or an error that no other broker will mend.
    pub fn answered<'f>(&mut self, frame: &'f Frame, now: Instant) -> Result<Answer<'f>> {
        (self.sent_at, self.wanted) = (None, None);
        let asked = std::mem::take(&mut self.asked);
        let decoded = FetchResponse::decode_bounded(frame.body(), frame.version, ELEMENTS_MAX);
        let response = decoded.map_err(|error| self.protocol(&error.to_string()))?;
        let throttle = u64::try_from(response.head.throttle_ms).unwrap_or(0);
        if throttle > 0 {
            self.resume_at = Some(now + Duration::from_millis(throttle).min(THROTTLE_MAX));
            self.throttled_since = Some(now);
        }
        let mut answer = Answer::default();
        let code = response.head.error_code;
        if !code.is_none() {
            let why = Why::Moved(format!("broker {}: {code}", self.connection.address()));
            let all = asked.into_iter();
            answer.released.extend(all.map(|one| (one, why.clone())));
            return Ok(answer);
        }
        let found = self.by_split(frame.version, &asked, response.topics)?;
        let mut with_data = Vec::new();
        for (number, (cursor, found)) in asked.into_iter().zip(found).enumerate() {
            match found {
                None => self.not_answered(cursor, now, &mut answer),
                Some(one) => {
                    let moved = self.sort_out(cursor, one, number == 0, now, &mut answer)?;
                    with_data.extend(moved);
                }
            }
        }
        // Those behind had no data, perhaps for lack of room: they come first.
        self.cursors.extend(with_data);
        if answer.parts.is_empty() {
            // A broker waits for data by itself; one that does not is not asked all the time.
            let soon = now + EMPTY_WAIT;
            self.resume_at = Some(self.resume_at.map_or(soon, |at| at.max(soon)));
        }
        Ok(answer)
    }

    /// The answer about each of the splits, which are of distinct partitions. Nothing is kept of
    /// others: a name may be long, and an answer may name it often.
    fn by_split<'f>(
        &self,
        version: i16,
        asked: &[Cursor],
        topics: Vec<FetchTopicResponse<'f>>,
    ) -> Result<Vec<Option<FetchPartitionResponse<'f>>>> {
        let has_ids = version >= TOPIC_IDS_SINCE;
        let mut found: Vec<Option<FetchPartitionResponse<'f>>> = Vec::new();
        found.resize_with(asked.len(), || None);
        let mut numbers: HashMap<(Uuid, &str, i32), usize> = HashMap::new();
        for (number, one) in asked.iter().enumerate() {
            let place = match has_ids {
                true => (one.topic_id, "", one.partition),
                false => (Uuid::default(), &*one.topic, one.partition),
            };
            numbers.insert(place, number);
        }
        for topic in topics {
            let (id, name) = match has_ids {
                true => (topic.id, ""),
                false => (Uuid::default(), topic.name),
            };
            for partition in topic.partitions {
                let Some(number) = numbers.get(&(id, name, partition.head.index)) else {
                    return Err(self.protocol("a partition is answered that was not asked for"));
                };
                if found[*number].replace(partition).is_some() {
                    return Err(self.protocol("a partition is answered twice"));
                }
            }
        }
        Ok(found)
    }

    /// A throttled broker answers for nothing at all. One that says nothing of the wait is asked
    /// again after a moment, and by way of the coordinator, which knows how often that was so. It
    /// also ends a throttling that never ends.
    fn not_answered<'f>(&mut self, mut cursor: Cursor, now: Instant, answer: &mut Answer<'f>) {
        let is_throttled = self.resume_at.is_some_and(|at| at > now);
        if is_throttled && cursor.stalled_for(now) < self.terms.timeout {
            return self.cursors.push_back(cursor);
        }
        let text = format!("broker {} says nothing of it", self.connection.address());
        answer.released.push((cursor, Why::Moved(text)));
    }

    /// One partition's answer. Returns the split if it moved and goes on here.
    fn sort_out<'f>(
        &mut self,
        mut cursor: Cursor,
        one: FetchPartitionResponse<'f>,
        is_first: bool,
        now: Instant,
        answer: &mut Answer<'f>,
    ) -> Result<Option<Cursor>> {
        if let Some(why) = self.refusal(&cursor, &one)? {
            let is_leader = cursor.preferred.is_none();
            if self.ask == Ask::Last && why == Why::OutOfRange && is_leader {
                // Retention has taken that record; nothing tells what it was.
                cursor.is_doubted = false;
                self.cursors.push_back(cursor);
            } else {
                answer.released.push((cursor, why));
            }
            return Ok(None);
        }
        let records = one.records.unwrap_or_default();
        match self.ask {
            Ask::Records => {}
            Ask::Next => return self.sort_out_next(cursor, records, now, answer),
            Ask::Last => return self.sort_out_last(cursor, records, now, answer),
        }
        let (position, epoch) = position_after(records, cursor.position, cursor.end)
            .map_err(|error| corrupt(&cursor, &error.to_string()))?;
        if position > cursor.position {
            let part = Part {
                cursor: cursor.clone(),
                records,
                aborted: one.head.aborted,
            };
            answer.parts.push(part);
            cursor.moved_to(position);
            cursor.last_epoch = cursor.known_epoch().max(epoch);
            cursor.is_listed = false;
            if cursor.is_done() {
                answer.finished.push(cursor);
                return Ok(None);
            }
            return Ok(Some(cursor));
        }
        let visible = match self.terms.isolation {
            Isolation::ReadCommitted => one.head.last_stable_offset,
            Isolation::ReadUncommitted => one.head.high_watermark,
        };
        if visible < cursor.end {
            self.end_not_shown(cursor, visible, now, answer);
        } else if is_first {
            if !records.is_empty() && cursor.empties >= EMPTIES_MAX {
                return Err(corrupt(&cursor, "the broker sends a part of a batch only"));
            }
            self.nothing_found(cursor, now, answer);
        } else {
            // There was no room for it, or the broker reads one partition at a time.
            cursor.was_behind();
            self.cursors.push_back(cursor);
        }
        Ok(None)
    }

    /// What follows a split's position, if anything does. A batch at or behind the end shows that
    /// compaction has left nothing below it.
    fn sort_out_next<'f>(
        &mut self,
        cursor: Cursor,
        records: &'f [u8],
        now: Instant,
        answer: &mut Answer<'f>,
    ) -> Result<Option<Cursor>> {
        let next = entry_behind(records, cursor.position)
            .map_err(|error| corrupt(&cursor, &error.to_string()))?;
        // An old message does not tell where it begins.
        let is_over = match next {
            Some(Entry::Batch(next)) => next.header.base_offset >= cursor.end,
            Some(Entry::Message(_)) | None => false,
        };
        if is_over {
            answer.finished.push(cursor);
        } else {
            self.nothing_found(cursor, now, answer);
        }
        Ok(None)
    }

    /// What lies where a split's last record was read. A record of an older epoch is not the one
    /// that was read. That nothing is there any more is compaction's work.
    fn sort_out_last<'f>(
        &mut self,
        mut cursor: Cursor,
        records: &'f [u8],
        now: Instant,
        answer: &mut Answer<'f>,
    ) -> Result<Option<Cursor>> {
        let last = entry_behind(records, cursor.position - 1)
            .map_err(|error| corrupt(&cursor, &error.to_string()))?;
        let Some(last) = last else {
            self.nothing_found(cursor, now, answer);
            return Ok(None);
        };
        if let Entry::Batch(last) = last
            && last.header.base_offset < cursor.position
            && last.header.partition_leader_epoch < cursor.last_epoch
        {
            let (name, position, epoch) = (cursor.name(), cursor.position, cursor.last_epoch);
            let text = format!(
                "partition {name} was truncated: it was read up to offset {position} in leader \
                 epoch {epoch}, and the leader's log has epoch {} there",
                last.header.partition_leader_epoch
            );
            return Err(ScanError::new(ErrorKind::LogTruncated, text));
        }
        cursor.is_doubted = false;
        cursor.empties = 0;
        self.cursors.push_back(cursor);
        Ok(None)
    }

    /// The split's end is waited for, unless it was for too long. That is no loss: a leader may have
    /// records for long that it does not show.
    fn end_not_shown(
        &mut self,
        mut cursor: Cursor,
        visible: i64,
        now: Instant,
        answer: &mut Answer<'_>,
    ) {
        cursor.empties = 0;
        let Some(mut cursor) = self.unless_stuck(cursor, now, answer) else {
            return;
        };
        if cursor.stalled_for(now) >= self.terms.timeout {
            let (name, end) = (cursor.name(), cursor.end);
            let text =
                format!("partition {name} is to be read up to offset {end}, but ends at {visible}");
            answer.released.push((cursor, Why::Stalled(text)));
        } else {
            self.cursors.push_back(cursor);
        }
    }

    /// Gives the split back, unless it leaves a replica that is stuck: the leader may be ahead.
    fn unless_stuck(
        &self,
        mut cursor: Cursor,
        now: Instant,
        answer: &mut Answer<'_>,
    ) -> Option<Cursor> {
        let most = STUCK_REPLICA_FOR.min(self.terms.timeout / 2);
        if cursor.preferred.is_none() || cursor.stalled_for(now) < most {
            return Some(cursor);
        }
        let (replica, end) = (self.id.broker, cursor.end);
        let text = format!("replica {replica} gives nothing more of what comes before {end}");
        answer.released.push((cursor, Why::Moved(text)));
        None
    }

    /// The split is asked for again, unless it was for too long.
    fn nothing_found(&mut self, mut cursor: Cursor, now: Instant, answer: &mut Answer<'_>) {
        cursor.empties = cursor.empties.saturating_add(1);
        let Some(mut cursor) = self.unless_stuck(cursor, now, answer) else {
            return;
        };
        if cursor.stalled_for(now) < self.terms.timeout {
            self.cursors.push_back(cursor);
            return;
        }
        let (name, position, end) = (cursor.name(), cursor.position, cursor.end);
        let (address, seconds) = (self.connection.address(), self.terms.timeout.as_secs_f64());
        let text = format!(
            "partition {name} could not be read for {seconds:.0} s: broker {address} sends nothing \
             of offsets {position} to {end}, and nothing that follows them"
        );
        answer.released.push((cursor, Why::Stalled(text)));
    }

    /// Why the broker does not serve the split, if it does not.
    fn refusal(&self, cursor: &Cursor, one: &FetchPartitionResponse<'_>) -> Result<Option<Why>> {
        let preferred = one.head.preferred_read_replica;
        match one.head.error_code {
            ErrorCode::NONE if preferred >= 0 && preferred != self.id.broker => {
                Ok(Some(Why::Preferred(preferred)))
            }
            ErrorCode::NONE => Ok(None),
            ErrorCode::OFFSET_OUT_OF_RANGE => Ok(Some(Why::OutOfRange)),
            ErrorCode::TOPIC_AUTHORIZATION_FAILED => {
                let text = format!("this client may not read topic {}", cursor.topic);
                Err(ScanError::new(ErrorKind::NotAuthorized, text))
            }
            ErrorCode::CORRUPT_MESSAGE => Err(corrupt(cursor, "the broker finds it corrupt")),
            ErrorCode::UNSUPPORTED_COMPRESSION_TYPE => {
                let text = format!(
                    "broker {} does not send zstd to this version of Fetch",
                    self.connection.address()
                );
                Err(ScanError::new(ErrorKind::UnsupportedBroker, text))
            }
            code => {
                let text = format!("broker {}: {code}", self.connection.address());
                Ok(Some(Why::Moved(text)))
            }
        }
    }

    fn protocol(&self, reason: &str) -> ScanError {
        let address = self.connection.address();
        let text = format!("broker {address} does not follow Kafka's protocol: {reason}");
        ScanError::new(ErrorKind::Protocol, text)
    }
}

fn corrupt(cursor: &Cursor, reason: &str) -> ScanError {
    let (name, position) = (cursor.name(), cursor.position);
    let text = format!("partition {name} at offset {position}: {reason}");
    ScanError::new(ErrorKind::CorruptBatch, text)
}

#[cfg(test)]
mod tests;
