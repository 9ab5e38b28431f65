//! One connection that produces: a window of requests in flight, answered in order.

use crate::batch::{self, Keys};
use crate::budget::Budget;
use crate::clock::now_ns;
use crate::connection::{Connection, TURN_NS};
use crate::error::{Failure, Result};
use crate::messages::produce_reply;
use crate::pacing::Schedule;
use crate::ring::{Frame, PIECES};
use crate::tally::Tally;
use std::collections::VecDeque;
use std::io::IoSlice;

/// Frames passed to one sendmsg(2).
const FRAMES_MAX: usize = 16;

/// What a producing connection is to do.
#[derive(Debug)]
pub struct Plan {
    /// Frames in the order of sending.
    pub ring: Vec<Frame>,
    /// Where in the ring to begin.
    pub first: usize,
    /// Requests in flight. With a stamp the ring must be longer.
    pub in_flight: usize,
    /// Whether replies come (acks other than 0).
    pub replies: bool,
    /// Version of the requests.
    pub version: i16,
    /// What is written into each batch before it is sent.
    pub stamp: Stamp,
    /// When requests are due.
    pub schedule: Schedule,
    /// Requests due earlier belong to the warm-up.
    pub measure_from_ns: u64,
    /// Longest time without a reply.
    pub timeout_ns: u64,
}

/// What is written into each batch before it is sent; it needs frames with batches of their own.
#[derive(Debug)]
pub enum Stamp {
    /// It is sent as it is.
    Nothing,
    /// The intended send time, at this position.
    SendTime(usize),
    /// Keys of its records.
    Keys(Keys),
}

struct Sent {
    from_ns: u64,
    place: usize,
}

struct Producer<'a> {
    connection: Connection,
    plan: Plan,
    budget: &'a Budget,
    next: usize,
    /// Queued requests, oldest first; the last `unsent` have not left completely.
    window: VecDeque<Sent>,
    unsent: usize,
    /// Bytes of the first unsent request that have left.
    sent_of_first: usize,
    stopping: bool,
    progress_ns: u64,
    tally: Tally,
}

/// Runs until the budget is spent and every reply is in. Calls `each_answered` for every request
/// answered without an error, warm-up included.
///
/// # Errors
/// A lost connection, an invalid reply, no reply in time.
pub fn run(
    connection: Connection,
    plan: Plan,
    budget: &Budget,
    mut each_answered: impl FnMut(),
) -> Result<Tally> {
    let window = VecDeque::with_capacity(plan.in_flight);
    let mut producer = Producer {
        connection,
        next: plan.first,
        plan,
        budget,
        window,
        unsent: 0,
        sent_of_first: 0,
        stopping: false,
        progress_ns: now_ns(),
        tally: Tally::default(),
    };
    while !producer.is_done() {
        producer.turn(&mut each_answered)?;
    }
    Ok(producer.tally)
}

impl Producer<'_> {
    fn is_done(&self) -> bool {
        self.stopping && self.window.is_empty()
    }

    fn turn(&mut self, each_answered: &mut impl FnMut()) -> Result<()> {
        self.queue_due(now_ns())?;
        let blocked = !self.send_queued(each_answered)?;
        if self.is_done() {
            return Ok(());
        }
        let nothing_to_send = self.stopping || self.window.len() == self.plan.in_flight;
        if !blocked && nothing_to_send && self.plan.replies {
            self.connection.receive(true)?;
        } else {
            self.connection.wait(blocked, self.wake_ns(blocked))?;
            if self.plan.replies {
                self.connection.receive(false)?;
            }
        }
        self.take_replies(each_answered)?;
        self.check_progress()
    }

    /// Queues due requests, as far as the window and the budget allow.
    fn queue_due(&mut self, now: u64) -> Result<()> {
        while !self.stopping && self.window.len() < self.plan.in_flight {
            let Some(from_ns) = self.plan.schedule.take(now) else {
                self.stopping = self.budget.is_over(now);
                return Ok(());
            };
            let frame = &mut self.plan.ring[self.next];
            let measured = from_ns >= self.plan.measure_from_ns;
            let bytes = if measured {
                frame.batch_bytes() as u64
            } else {
                0
            };
            // Requests due before the end belong to the run, however late they leave.
            if !self.budget.claim(from_ns, bytes) {
                self.stopping = true;
                return Ok(());
            }
            if now
                > self
                    .budget
                    .deadline_ns()
                    .saturating_add(self.plan.timeout_ns)
            {
                return Err(Failure::TimedOut(format!(
                    "the broker cannot keep up with the rate: requests are {:.1} s late",
                    (now - from_ns) as f64 / 1e9
                )));
            }
            let shared = || Failure::Protocol("a shared batch cannot be written to".into());
            match &mut self.plan.stamp {
                Stamp::Nothing => {}
                Stamp::SendTime(value_at) => {
                    let batch = frame.batch_mut().ok_or_else(shared)?;
                    batch::write_stamp(batch, *value_at, from_ns);
                }
                Stamp::Keys(keys) => keys.write(frame.batch_mut().ok_or_else(shared)?),
            }
            if self.window.is_empty() {
                self.progress_ns = now;
            }
            self.window.push_back(Sent {
                from_ns,
                place: self.next,
            });
            self.unsent += 1;
            self.next = (self.next + 1) % self.plan.ring.len();
        }
        Ok(())
    }

    /// Sends what is queued; false when the socket takes no more now.
    fn send_queued(&mut self, each_answered: &mut impl FnMut()) -> Result<bool> {
        while self.unsent > 0 {
            let mut pieces = [IoSlice::new(&[]); FRAMES_MAX * PIECES];
            let mut count = 0;
            let first = self.window.len() - self.unsent;
            let mut offered = 0;
            let mut skip = self.sent_of_first;
            for sent in self.window.range(first..).take(FRAMES_MAX) {
                for piece in self.plan.ring[sent.place].pieces(skip) {
                    if !piece.is_empty() {
                        offered += piece.len();
                        pieces[count] = IoSlice::new(piece);
                        count += 1;
                    }
                }
                skip = 0;
            }
            let sent = self.connection.send_some(&pieces[..count])?;
            self.note_sent(sent, each_answered);
            if sent < offered {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn note_sent(&mut self, mut sent: usize, each_answered: &mut impl FnMut()) {
        if sent > 0 {
            self.progress_ns = now_ns();
        }
        while self.unsent > 0 {
            let place = self.window[self.window.len() - self.unsent].place;
            let left = self.plan.ring[place].len() - self.sent_of_first;
            if sent < left {
                self.sent_of_first += sent;
                return;
            }
            sent -= left;
            self.sent_of_first = 0;
            self.unsent -= 1;
            if !self.plan.replies {
                // acks=0: only leaving can be observed.
                self.finish_oldest(now_ns(), each_answered);
            }
        }
    }

    fn take_replies(&mut self, each_answered: &mut impl FnMut()) -> Result<()> {
        let now = now_ns();
        while let Some(reply) = self.connection.next_frame()? {
            let answered = self.window.len() - self.unsent;
            let expected = self
                .window
                .front()
                .filter(|_| answered > 0)
                .map(|sent| sent.place);
            let (correlation_id, code) = produce_reply(reply, self.plan.version)?;
            if expected != usize::try_from(correlation_id).ok() {
                return Err(Failure::Protocol(format!(
                    "a reply carries correlation id {correlation_id}, {expected:?} was expected: \
                     replies must come in the order of the requests"
                )));
            }
            self.progress_ns = now;
            if code.is_none() {
                self.finish_oldest(now, each_answered);
            } else {
                self.window.pop_front();
                self.tally.error(code);
            }
        }
        Ok(())
    }

    fn finish_oldest(&mut self, now: u64, each_answered: &mut impl FnMut()) {
        let Some(sent) = self.window.pop_front() else {
            return;
        };
        each_answered();
        if sent.from_ns >= self.plan.measure_from_ns {
            let frame = &self.plan.ring[sent.place];
            let (records, bytes) = (u64::from(frame.records()), frame.batch_bytes() as u64);
            self.budget.count(records, bytes);
            self.tally.latency.record(now.saturating_sub(sent.from_ns));
            self.tally.requests += 1;
            self.tally.records += records;
            self.tally.bytes += bytes;
            self.tally.finished_ns = now;
        }
    }

    fn wake_ns(&self, blocked: bool) -> u64 {
        let turn_ends = now_ns() + TURN_NS;
        if blocked {
            return turn_ends;
        }
        // Without a schedule the next request is due at once.
        self.plan
            .schedule
            .due_ns()
            .map_or(0, |due| due.min(turn_ends))
    }

    fn check_progress(&self) -> Result<()> {
        let waited_ns = now_ns().saturating_sub(self.progress_ns);
        if self.window.is_empty() || waited_ns < self.plan.timeout_ns {
            return Ok(());
        }
        Err(Failure::TimedOut(format!(
            "no reply for {:.1} s with {} requests in flight",
            waited_ns as f64 / 1e9,
            self.window.len()
        )))
    }
}
