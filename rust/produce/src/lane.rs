//! A leader's connection with its unanswered Produce requests.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use pyrklog_client::{Arrival, ClientError, Connection, Frame, api};
use pyrklog_wire::produce::{TopicToProduce, encode_request};

/// All replicas in sync.
const ACKS_ALL: i16 = -1;
/// As of Java's producer.
pub(crate) const REQUESTS_MAX: usize = 5;
/// Memory of answers that is kept.
const KEPT_BYTES: usize = 64 * 1024;

/// Topic and partition by their numbers in the producer.
pub(crate) type Place = (usize, usize);

/// A batch to send: its place, the topic's name, the partition's number, the bytes.
pub(crate) type ToSend<'a> = (Place, &'a str, i32, &'a [u8]);

/// Of a topic: (partition, batch).
type Batches<'a> = Vec<(i32, Option<&'a [u8]>)>;

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
        let mut by_topic: Vec<(&str, Batches<'_>)> = Vec::new();
        for (_, topic, partition, bytes) in batches {
            match by_topic.last_mut() {
                Some((name, parts)) if name == topic => parts.push((*partition, Some(*bytes))),
                _ => by_topic.push((topic, vec![(*partition, Some(*bytes))])),
            }
        }
        let topics: Vec<TopicToProduce<'_>> = by_topic
            .iter()
            .map(|(name, partitions)| TopicToProduce { name, partitions })
            .collect();
        let version = self.connection.version(api::PRODUCE)?;
        let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        self.connection
            .push(api::PRODUCE.key, version, |out, version| {
                let id = transactional_id;
                encode_request(out, version, id, ACKS_ALL, timeout_ms, &topics);
            })?;
        self.sent.push_back(Sent {
            at: now,
            places: batches.iter().map(|batch| batch.0).collect(),
        });
        self.connection.flush().map(|_| ())
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
