//! A leader's connection with its unanswered Produce requests.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use pyrklog_client::{Arrival, ClientError, Connection, Frame, api};
use pyrklog_wire::produce::{
    PartitionToProduceAt, TopicToProduce, encode_request, encode_request_at,
};

/// All replicas in sync.
const ACKS_ALL: i16 = -1;
/// As of Java's producer.
pub(crate) const REQUESTS_MAX: usize = 5;
/// Memory of answers that is kept.
const KEPT_BYTES: usize = 64 * 1024;

/// Topic and partition by their numbers in the producer.
pub(crate) type Place = (usize, usize);

/// A batch to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToSend<'a> {
    pub place: Place,
    pub topic: &'a str,
    pub partition: i32,
    pub bytes: &'a [u8],
    /// Where the log is to end before, of a batch that brings its offsets.
    pub expected_end: Option<i64>,
}

/// Batches that are sorted by topic, under the topics' names.
fn by_topic<'a, T>(
    batches: &[ToSend<'a>],
    part: impl Fn(&ToSend<'a>) -> T,
) -> Vec<(&'a str, Vec<T>)> {
    let mut found: Vec<(&str, Vec<T>)> = Vec::new();
    for batch in batches {
        match found.last_mut() {
            Some((name, parts)) if *name == batch.topic => parts.push(part(batch)),
            _ => found.push((batch.topic, vec![part(batch)])),
        }
    }
    found
}

#[derive(Debug)]
struct Sent {
    at: Instant,
    places: Vec<Place>,
}

#[derive(Debug)]
pub(crate) struct Lane {
    pub connection: Connection,
    sent: VecDeque<Sent>,
}

impl Lane {
    pub fn new(connection: Connection) -> Self {
        let sent = VecDeque::new();
        Lane { connection, sent }
    }

    pub fn is_full(&self) -> bool {
        self.sent.len() >= REQUESTS_MAX
    }

    /// Nobody looked for answers for so long: that does not count as waiting for them.
    pub fn was_left_alone(&mut self, away: Duration) {
        for sent in &mut self.sent {
            sent.at += away;
        }
    }

    /// When the oldest request was sent.
    pub fn oldest(&self) -> Option<Instant> {
        self.sent.front().map(|sent| sent.at)
    }

    /// Writes a request of these batches, one a partition.
    pub fn send(
        &mut self,
        now: Instant,
        transactional_id: Option<&str>,
        timeout: Duration,
        batches: &[ToSend<'_>],
    ) -> Result<(), ClientError> {
        let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        if batches.iter().any(|batch| batch.expected_end.is_some()) {
            self.push_at(timeout_ms, batches)?;
        } else {
            self.push(transactional_id, timeout_ms, batches)?;
        }
        self.sent.push_back(Sent {
            at: now,
            places: batches.iter().map(|batch| batch.place).collect(),
        });
        self.connection.flush().map(|_| ())
    }

    fn push(
        &mut self,
        id: Option<&str>,
        timeout_ms: i32,
        batches: &[ToSend<'_>],
    ) -> Result<(), ClientError> {
        let by_topic = by_topic(batches, |batch| (batch.partition, Some(batch.bytes)));
        let topics: Vec<TopicToProduce<'_>> = by_topic
            .iter()
            .map(|(name, partitions)| TopicToProduce { name, partitions })
            .collect();
        let version = self.connection.version(api::PRODUCE)?;
        let key = api::PRODUCE.key;
        self.connection.push(key, version, |out, version| {
            encode_request(out, version, id, ACKS_ALL, timeout_ms, &topics);
        })
    }

    fn push_at(&mut self, timeout_ms: i32, batches: &[ToSend<'_>]) -> Result<(), ClientError> {
        let topics = by_topic(batches, |batch| PartitionToProduceAt {
            index: batch.partition,
            expected_end: batch.expected_end.unwrap_or_default(),
            records: batch.bytes,
        });
        let api = api::PRODUCE_AT;
        self.connection.push(api.key, api.max, |out, _| {
            encode_request_at(out, timeout_ms, &topics);
        })
    }

    /// The next answer that is there, with what it answers.
    pub fn receive(
        &mut self,
        now: Instant,
        timeout: Duration,
    ) -> Result<Option<(Frame, Vec<Place>)>, ClientError> {
        let Some(oldest) = self.sent.front() else {
            return Ok(None);
        };
        let is_late = now.saturating_duration_since(oldest.at) > timeout;
        let late = is_late.then(|| ClientError::TimedOut {
            address: self.connection.address().to_owned(),
            doing: api::PRODUCE.name,
            seconds: timeout.as_secs_f64(),
        });
        self.connection.flush()?;
        match self.connection.receive()? {
            Arrival::Nothing => late.map_or(Ok(None), Err),
            Arrival::TooLong(len) => Err(ClientError::Protocol {
                address: self.connection.address().to_owned(),
                reason: format!("an answer of {len} bytes"),
            }),
            Arrival::Frame => {
                let frame = self.connection.take_frame()?;
                let sent = self.sent.pop_front();
                Ok(Some((
                    frame,
                    sent.map(|one| one.places).unwrap_or_default(),
                )))
            }
        }
    }

    pub fn give_back(&mut self, frame: Frame) {
        self.connection.give_back(frame, KEPT_BYTES);
    }

    /// What has no answer when the connection is gone.
    pub fn unanswered(self) -> impl Iterator<Item = Place> {
        self.sent.into_iter().flat_map(|sent| sent.places)
    }
}
