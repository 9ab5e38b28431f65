//! One producer with sequence numbers, in transactions or without: a state machine over one
//! connection, driven by the readiness of its socket and by time.
//!
//! A transaction is enrolled (version 1), filled, awaited and ended, as by a client's
//! `commitTransaction`, which flushes first. A commit's latency counts from when it was due or
//! called, so the flush is in it, until EndTxn is answered.

use super::messages::{
    ProducerId, TransactionVersion, add_partitions_reply, add_partitions_request, check, end_reply,
    end_request, is_passing,
};
use crate::batch;
use crate::budget::Budget;
use crate::clock::now_ns;
use crate::connection::Connection;
use crate::error::{Failure, Result};
use crate::messages::{PRODUCE, PRODUCE_ENROLLS, produce_reply};
use crate::ring::{Frame, PIECES};
use crate::tally::Tally;
use pyrklog_wire::ErrorCode;
use std::collections::VecDeque;
use std::io::IoSlice;

/// Frames passed to one sendmsg(2).
const FRAMES_MAX: usize = 16;
/// How long Java's client and librdkafka wait while the coordinator completes a transaction.
pub const RETRY_NS: u64 = 20_000_000;

/// When transactions end.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// After so long; with `batches`, not before.
    pub interval_ns: Option<u64>,
    /// After so many batches.
    pub batches: Option<usize>,
    /// How many of a hundred are aborted.
    pub abort_percent: u64,
}

/// What all producers of a run share.
#[derive(Debug)]
pub struct Work<'a> {
    /// Topic.
    pub topic: &'a str,
    /// Bounds of the run.
    pub budget: &'a Budget,
    /// Batches in flight a producer.
    pub in_flight: usize,
    /// Ends of transactions; `None` = an idempotent producer.
    pub pace: Option<Pace>,
    /// Protocol of transactions.
    pub version: TransactionVersion,
    /// What began earlier belongs to the warm-up.
    pub measure_from_ns: u64,
    /// Longest time without a reply.
    pub timeout_ns: u64,
}

/// What a producer brings along.
#[derive(Debug)]
pub struct Setup {
    /// To the leader, which is the coordinator, too.
    pub connection: Connection,
    /// Without one the producer is idempotent only.
    pub transactional_id: String,
    /// Of InitProducerId.
    pub producer: ProducerId,
    /// Partitions in the order of sending.
    pub partitions: Vec<i32>,
    /// Frames of its own for each partition in turn, more than batches in flight.
    pub ring: Vec<Frame>,
    /// Number of the first transaction, and when it would have begun.
    pub first: (u64, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    /// A frame of the ring.
    Batch {
        place: usize,
        from_ns: u64,
    },
    Enroll,
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// No transaction is open.
    Idle,
    /// The request is under way.
    Asked,
    /// The request is to be repeated.
    Again {
        request: Request,
        at_ns: u64,
    },
    Sending,
    Done,
}

/// What a producer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waits {
    /// Its socket takes no more.
    pub to_send: bool,
    /// It has something to do then.
    pub wake_ns: Option<u64>,
}

/// One producer.
#[derive(Debug)]
pub struct Producer<'a> {
    work: &'a Work<'a>,
    setup: Setup,
    stage: Stage,
    /// Unanswered requests, oldest first; the last `unsent` have not left completely.
    window: VecDeque<Request>,
    unsent: usize,
    /// Bytes of the first unsent request that have left.
    sent_of_first: usize,
    /// The frame of `Enroll` or `End`.
    control: Vec<u8>,
    next: usize,
    /// By place in `setup.partitions`.
    sequences: Vec<i32>,
    /// Places whose batches were refused while the last transaction was being completed.
    resend: VecDeque<usize>,
    resend_at_ns: u64,
    /// Batches of this transaction.
    batches: usize,
    /// When this transaction's commit is due, and from when its latency counts.
    due_ns: u64,
    commit_from_ns: Option<u64>,
    transactions: u64,
    stopping: bool,
    progress_ns: u64,
    tally: Tally,
}

impl<'a> Producer<'a> {
    /// A producer that has not begun.
    pub fn new(work: &'a Work<'a>, setup: Setup) -> Self {
        let (transactions, due_ns) = setup.first;
        Self {
            work,
            stage: Stage::Idle,
            window: VecDeque::with_capacity(work.in_flight),
            unsent: 0,
            sent_of_first: 0,
            control: Vec::new(),
            next: 0,
            sequences: vec![0; setup.partitions.len()],
            resend: VecDeque::new(),
            resend_at_ns: 0,
            batches: 0,
            due_ns,
            commit_from_ns: None,
            transactions,
            stopping: false,
            progress_ns: now_ns(),
            tally: Tally::default(),
            setup,
        }
    }

    /// Its connection.
    pub fn connection(&self) -> &Connection {
        &self.setup.connection
    }

    /// Whether the budget is spent and every reply is in.
    pub fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// What it has counted.
    pub fn into_tally(self) -> Tally {
        self.tally
    }

    /// Takes replies in if the socket is `readable`, and does what is due.
    ///
    /// # Errors
    /// A lost connection, an invalid reply, an error code that does not pass.
    pub fn turn(&mut self, readable: bool) -> Result<Waits> {
        let now = now_ns();
        if readable && self.setup.connection.receive(false)? {
            self.take_replies(now)?;
        }
        self.advance(now)?;
        let to_send = !self.send_queued()?;
        Ok(Waits {
            to_send,
            // What is due already waits for replies.
            wake_ns: self.wake_ns().filter(|wake_ns| *wake_ns > now),
        })
    }

    /// # Errors
    /// No reply for too long.
    pub fn check_progress(&self, now: u64) -> Result<()> {
        let waited_ns = now.saturating_sub(self.progress_ns);
        if self.window.is_empty() || waited_ns < self.work.timeout_ns {
            return Ok(());
        }
        Err(Failure::TimedOut(format!(
            "no reply for {:.1} s with {} requests in flight",
            waited_ns as f64 / 1e9,
            self.window.len()
        )))
    }

    fn wake_ns(&self) -> Option<u64> {
        match self.stage {
            Stage::Again { at_ns, .. } => Some(at_ns),
            Stage::Sending if !self.resend.is_empty() => Some(self.resend_at_ns),
            Stage::Sending => self.work.pace?.interval_ns.map(|_| self.due_ns),
            Stage::Idle | Stage::Asked | Stage::Done => None,
        }
    }

    fn advance(&mut self, now: u64) -> Result<()> {
        match self.stage {
            Stage::Idle => self.begin(now)?,
            Stage::Again { request, at_ns } if at_ns <= now => self.ask(request, now),
            _ => {}
        }
        if self.stage != Stage::Sending {
            return Ok(());
        }
        self.queue_batches(now)?;
        if !self.window.is_empty() || !self.resend.is_empty() {
            return Ok(());
        }
        if self.work.pace.is_none() {
            if self.stopping {
                self.stage = Stage::Done;
            }
        } else if self.is_end_due(now) {
            // Version 2 knows no transaction without a batch; version 1 has one once it enrolled.
            match self.batches == 0 && self.work.version == TransactionVersion::V2 {
                true => self.stage = Stage::Done,
                false => self.ask(Request::End, now),
            }
        }
        Ok(())
    }

    fn begin(&mut self, now: u64) -> Result<()> {
        if self.stopping || self.work.budget.is_over(now) {
            self.stage = Stage::Done;
            return Ok(());
        }
        self.batches = 0;
        self.commit_from_ns = None;
        let Some(pace) = self.work.pace else {
            self.stage = Stage::Sending;
            return Ok(());
        };
        if let Some(interval_ns) = pace.interval_ns {
            let fixed = pace.batches.map(|_| self.due_ns + interval_ns);
            self.due_ns = fixed.map_or(now + interval_ns, |due| due.max(now));
        }
        match self.work.version {
            TransactionVersion::V1 => self.ask(Request::Enroll, now),
            TransactionVersion::V2 => self.stage = Stage::Sending,
        }
        Ok(())
    }

    /// Queues a request that is alone under way.
    fn ask(&mut self, request: Request, now: u64) {
        let Setup {
            transactional_id,
            producer,
            partitions,
            ..
        } = &self.setup;
        let work = self.work;
        self.control = match request {
            Request::End => {
                let is_commit = !self.is_abort();
                end_request(work.version, transactional_id, *producer, is_commit)
            }
            _ => add_partitions_request(transactional_id, *producer, work.topic, partitions),
        };
        self.stage = Stage::Asked;
        self.push(request, now);
    }

    /// Spread evenly, whatever the percentage.
    fn is_abort(&self) -> bool {
        let percent = self.work.pace.map_or(0, |pace| pace.abort_percent);
        self.transactions * percent % 100 < percent
    }

    fn push(&mut self, request: Request, now: u64) {
        if self.window.is_empty() {
            self.progress_ns = now;
        }
        self.window.push_back(request);
        self.unsent += 1;
    }

    fn queue_batches(&mut self, now: u64) -> Result<()> {
        while self.window.len() < self.work.in_flight {
            let place = if self.resend.is_empty() {
                if !self.wants_batch(now) || !self.claim(now) {
                    return Ok(());
                }
                self.stamp_next()?
            } else if self.resend_at_ns <= now {
                let Some(place) = self.resend.pop_front() else {
                    return Ok(());
                };
                place
            } else {
                return Ok(());
            };
            let from_ns = now;
            self.push(Request::Batch { place, from_ns }, now);
        }
        Ok(())
    }

    fn wants_batch(&self, now: u64) -> bool {
        if self.stopping {
            return false;
        }
        match self.work.pace {
            None => true,
            Some(pace) => match pace.batches {
                Some(count) => self.batches < count,
                None => now < self.due_ns,
            },
        }
    }

    fn is_end_due(&self, now: u64) -> bool {
        let Some(pace) = self.work.pace else {
            return false;
        };
        let is_full = pace.batches.is_none_or(|count| self.batches == count);
        let is_due = pace.interval_ns.is_none() || now >= self.due_ns;
        self.stopping || (is_full && is_due)
    }

    fn claim(&mut self, now: u64) -> bool {
        let bytes = match now >= self.work.measure_from_ns {
            true => self.setup.ring[self.next].batch_bytes() as u64,
            false => 0,
        };
        self.stopping = !self.work.budget.claim(now, bytes);
        !self.stopping
    }

    /// Gives the next frame its producer and sequence number; returns its place.
    fn stamp_next(&mut self) -> Result<usize> {
        let place = self.next;
        self.next = (place + 1) % self.setup.ring.len();
        let partition = place % self.setup.partitions.len();
        let frame = &mut self.setup.ring[place];
        let records = frame.records();
        let batch = frame.batch_mut().ok_or_else(|| {
            Failure::Protocol("a shared batch cannot carry a sequence number".into())
        })?;
        batch::write_producer(batch, self.setup.producer, self.sequences[partition]);
        // Sequence numbers begin again at 0 behind the largest.
        let next = i64::from(self.sequences[partition]) + i64::from(records);
        self.sequences[partition] = (next & i64::from(i32::MAX)) as i32;
        self.batches += 1;
        if let Some(pace) = self.work.pace
            && pace.interval_ns.is_none()
            && pace.batches == Some(self.batches)
        {
            self.commit_from_ns = Some(now_ns());
        }
        Ok(place)
    }

    // --- replies ---------------------------------------------------------------------------------

    fn take_replies(&mut self, now: u64) -> Result<()> {
        let version = self.produce_version();
        while let Some(reply) = self.setup.connection.next_frame()? {
            let is_sent = self.window.len() > self.unsent;
            let Some(request) = self.window.pop_front().filter(|_| is_sent) else {
                return Err(Failure::Protocol("a reply to no request".into()));
            };
            self.progress_ns = now;
            match request {
                Request::Batch { place, from_ns } => {
                    let (correlation_id, code) = produce_reply(reply, version)?;
                    if usize::try_from(correlation_id).ok() != Some(place) {
                        return Err(Failure::Protocol(format!(
                            "a reply carries correlation id {correlation_id}, {place} was \
                             expected: replies must come in the order of the requests"
                        )));
                    }
                    self.batch_answered(place, from_ns, code, now)?;
                }
                Request::Enroll => {
                    let code = add_partitions_reply(reply)?;
                    if self.is_through(request, code, now)? {
                        self.stage = Stage::Sending;
                    }
                }
                Request::End => {
                    let (code, producer) = end_reply(self.work.version, reply)?;
                    if self.is_through(request, code, now)? {
                        self.ended(producer, now);
                    }
                }
            }
        }
        Ok(())
    }

    fn produce_version(&self) -> i16 {
        match (self.work.pace, self.work.version) {
            (Some(_), TransactionVersion::V2) => PRODUCE_ENROLLS,
            _ => PRODUCE,
        }
    }

    /// False if the request has to be repeated.
    fn is_through(&mut self, request: Request, code: ErrorCode, now: u64) -> Result<bool> {
        if is_passing(code) {
            let at_ns = now + RETRY_NS;
            self.stage = Stage::Again { request, at_ns };
            return Ok(false);
        }
        let what = match request {
            Request::End => "EndTxn",
            _ => "AddPartitionsToTxn",
        };
        check(code, what).map(|()| true)
    }

    fn batch_answered(
        &mut self,
        place: usize,
        from_ns: u64,
        code: ErrorCode,
        now: u64,
    ) -> Result<()> {
        if code == ErrorCode::CONCURRENT_TRANSACTIONS && self.work.pace.is_some() {
            self.resend.push_back(place);
            self.resend_at_ns = now + RETRY_NS;
            return Ok(());
        }
        check(code, "Produce")?;
        if from_ns >= self.work.measure_from_ns {
            let frame = &self.setup.ring[place];
            let (records, bytes) = (u64::from(frame.records()), frame.batch_bytes() as u64);
            self.work.budget.count(records, bytes);
            self.tally.records += records;
            self.tally.bytes += bytes;
            self.tally.finished_ns = now;
            if self.work.pace.is_none() {
                self.tally.requests += 1;
                self.tally.latency.record(now.saturating_sub(from_ns));
            }
        }
        Ok(())
    }

    fn ended(&mut self, producer: Option<ProducerId>, now: u64) {
        let from_ns = self.commit_from_ns.unwrap_or(self.due_ns);
        // One that the run's end has cut short was not due.
        if from_ns >= self.work.measure_from_ns && !self.stopping {
            self.tally.requests += 1;
            self.tally.latency.record(now.saturating_sub(from_ns));
        }
        if now >= self.work.measure_from_ns {
            self.tally.finished_ns = now;
        }
        if let Some(producer) = producer {
            self.setup.producer = producer;
            self.sequences.fill(0);
        }
        self.transactions += 1;
        self.stage = Stage::Idle;
    }

    // --- sending ---------------------------------------------------------------------------------

    /// Sends what is queued; false when the socket takes no more now.
    fn send_queued(&mut self) -> Result<bool> {
        while self.unsent > 0 {
            let mut pieces = [IoSlice::new(&[]); FRAMES_MAX * PIECES];
            let (mut count, mut offered, mut skip) = (0, 0, self.sent_of_first);
            let first = self.window.len() - self.unsent;
            for request in self.window.range(first..).take(FRAMES_MAX) {
                for piece in self.pieces(*request, skip) {
                    if !piece.is_empty() {
                        offered += piece.len();
                        pieces[count] = IoSlice::new(piece);
                        count += 1;
                    }
                }
                skip = 0;
            }
            let sent = self.setup.connection.send_some(&pieces[..count])?;
            self.note_sent(sent);
            if sent < offered {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn pieces(&self, request: Request, skip: usize) -> [&[u8]; PIECES] {
        match request {
            Request::Batch { place, .. } => self.setup.ring[place].pieces(skip),
            Request::Enroll | Request::End => [&self.control[skip..], &[], &[]],
        }
    }

    fn note_sent(&mut self, mut sent: usize) {
        while self.unsent > 0 {
            let request = self.window[self.window.len() - self.unsent];
            let left: usize = self
                .pieces(request, self.sent_of_first)
                .iter()
                .map(|piece| piece.len())
                .sum();
            if sent < left {
                self.sent_of_first += sent;
                return;
            }
            sent -= left;
            self.sent_of_first = 0;
            self.unsent -= 1;
        }
    }
}
