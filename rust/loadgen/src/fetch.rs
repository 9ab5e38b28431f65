//! One connection that reads: several fetches in flight, each for its own partitions.

use crate::budget::Budget;
use crate::clock::now_ns;
use crate::connection::Connection;
use crate::error::{Failure, Result};
use crate::messages::{FetchLimits, FetchedPartition, Topic, fetch_reply, fetch_request};
use crate::tally::Tally;
use pyrklog_wire::ErrorCode;
use pyrklog_wire::batch::{BatchView, Batches};
use std::collections::VecDeque;
use std::io::IoSlice;

/// What a reading connection is to do.
#[derive(Debug)]
pub struct Plan {
    /// Topic with its id.
    pub topic: Topic,
    /// (partition, offset) to begin at.
    pub positions: Vec<(i32, i64)>,
    /// Fetches in flight; the partitions are dealt out to them.
    pub in_flight: usize,
    /// Sizes and waits.
    pub limits: FetchLimits,
    /// Begin again at the end of a partition.
    pub repeat: bool,
    /// Stay at the end of a partition and wait for more.
    pub follow: bool,
    /// Requests sent earlier belong to the warm-up.
    pub measure_from_ns: u64,
    /// Longest time without a reply.
    pub timeout_ns: u64,
}

/// Told of every complete batch.
pub type EachBatch<'a> = dyn FnMut(BatchView<'_>) + 'a;

struct Position {
    partition: i32,
    begin: i64,
    next: i64,
    at: usize,
    ended: bool,
}

/// One fetch that is sent over and over; its correlation id is its index.
struct Slot {
    frame: Vec<u8>,
    positions: Vec<Position>,
}

struct Reader<'a, 'b> {
    connection: Connection,
    slots: Vec<Slot>,
    /// Sent and not yet answered, oldest first.
    window: VecDeque<(u64, usize)>,
    plan: Plan,
    budget: &'a Budget,
    each_batch: &'a mut EachBatch<'b>,
    tally: Tally,
}

/// Runs until the budget is spent, `is_over` says so, or every partition was read to its end.
///
/// # Errors
/// A lost connection, a reply that is none, no reply in time.
pub fn run(
    connection: Connection,
    plan: Plan,
    budget: &Budget,
    is_over: &dyn Fn() -> bool,
    each_batch: &mut EachBatch<'_>,
) -> Result<Tally> {
    let slots = build_slots(&plan);
    let mut reader = Reader {
        connection,
        window: VecDeque::with_capacity(slots.len()),
        slots,
        plan,
        budget,
        each_batch,
        tally: Tally::default(),
    };
    for slot in 0..reader.slots.len() {
        reader.send(slot)?;
    }
    while !reader.window.is_empty() {
        let (from_ns, slot) = reader.receive_oldest(is_over)?;
        let Some(from_ns) = from_ns else { break };
        reader.tally_reply(from_ns);
        let ended = reader.slots[slot]
            .positions
            .iter()
            .all(|position| position.ended);
        if !ended && !is_over() && !budget.is_over(now_ns()) {
            reader.send(slot)?;
        }
    }
    Ok(reader.tally)
}

fn build_slots(plan: &Plan) -> Vec<Slot> {
    let count = plan.in_flight.min(plan.positions.len());
    (0..count)
        .map(|slot| {
            let mine: Vec<_> = plan
                .positions
                .iter()
                .skip(slot)
                .step_by(count)
                .copied()
                .collect();
            let (frame, offsets_at) = fetch_request(slot as i32, &plan.topic, &mine, plan.limits);
            let positions = mine
                .iter()
                .zip(offsets_at)
                .map(|(&(partition, begin), at)| Position {
                    partition,
                    begin,
                    next: begin,
                    at,
                    ended: false,
                })
                .collect();
            Slot { frame, positions }
        })
        .collect()
}

impl Reader<'_, '_> {
    fn send(&mut self, slot: usize) -> Result<()> {
        let from_ns = now_ns();
        let mut rest = self.slots[slot].frame.as_slice();
        while !rest.is_empty() {
            let sent = self.connection.send_some(&[IoSlice::new(rest)])?;
            rest = &rest[sent..];
            if sent == 0 {
                self.connection.wait(true, u64::MAX)?;
                self.check_time(from_ns)?;
            }
        }
        self.window.push_back((from_ns, slot));
        Ok(())
    }

    /// The send time and slot of the oldest fetch, once its reply was read; `None` as the time when
    /// the run ended while waiting.
    fn receive_oldest(&mut self, is_over: &dyn Fn() -> bool) -> Result<(Option<u64>, usize)> {
        let (from_ns, slot) = self.window[0];
        loop {
            if let Some(frame) = self.connection.next_frame()? {
                let correlation_id = i32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]);
                if usize::try_from(correlation_id).ok() != Some(slot) {
                    return Err(Failure::Protocol(format!(
                        "a reply carries correlation id {correlation_id}, {slot} was expected: \
                         replies must come in the order of the requests"
                    )));
                }
                let measured = from_ns >= self.plan.measure_from_ns;
                let mut take = Take {
                    positions: &mut self.slots[slot].positions,
                    plan: &self.plan,
                    tally: &mut self.tally,
                    measured,
                    each_batch: self.each_batch,
                    bytes: 0,
                };
                fetch_reply(frame, |part| take.partition(part))?;
                let bytes = take.bytes;
                self.patch_offsets(slot);
                if measured {
                    self.budget.claim(from_ns, bytes);
                }
                self.window.pop_front();
                return Ok((Some(from_ns), slot));
            }
            if is_over() {
                return Ok((None, slot));
            }
            self.connection.receive(true)?;
            self.check_time(from_ns)?;
        }
    }

    fn patch_offsets(&mut self, slot: usize) {
        let Slot { frame, positions } = &mut self.slots[slot];
        for position in positions {
            frame[position.at..position.at + 8].copy_from_slice(&position.next.to_be_bytes());
        }
    }

    fn tally_reply(&mut self, from_ns: u64) {
        if from_ns >= self.plan.measure_from_ns {
            let now = now_ns();
            self.tally.latency.record(now - from_ns);
            self.tally.requests += 1;
            self.tally.finished_ns = now;
        }
    }

    fn check_time(&self, from_ns: u64) -> Result<()> {
        if now_ns().saturating_sub(from_ns) < self.plan.timeout_ns {
            return Ok(());
        }
        Err(Failure::TimedOut(format!(
            "no reply to a fetch within {:.1} s",
            self.plan.timeout_ns as f64 / 1e9
        )))
    }
}

struct Take<'a, 'b> {
    positions: &'a mut [Position],
    plan: &'a Plan,
    tally: &'a mut Tally,
    measured: bool,
    each_batch: &'a mut EachBatch<'b>,
    bytes: u64,
}

impl Take<'_, '_> {
    fn partition(&mut self, part: FetchedPartition<'_>) -> Result<()> {
        let found = self
            .positions
            .iter_mut()
            .find(|own| own.partition == part.partition);
        let Some(position) = found else {
            return Err(Failure::Protocol(format!(
                "partition {} was not asked",
                part.partition
            )));
        };
        if !part.error.is_none() {
            // Out of range will not mend itself; anything else may be a passing state.
            position.ended |= part.error == ErrorCode::OFFSET_OUT_OF_RANGE;
            self.tally.error(part.error);
            return Ok(());
        }
        let mut batches = 0;
        for view in Batches::new(part.records) {
            let view = view?;
            batches += 1;
            position.next = view.header.next_offset();
            self.bytes += view.bytes.len() as u64;
            if self.measured {
                self.tally.bytes += view.bytes.len() as u64;
                self.tally.records += u64::try_from(view.header.record_count).unwrap_or(0);
            }
            (self.each_batch)(view);
        }
        if batches == 0 && !part.records.is_empty() {
            return Err(Failure::Protocol(format!(
                "a fetch of partition {} at {} brought {} bytes without a whole batch",
                part.partition,
                position.next,
                part.records.len()
            )));
        }
        if position.next >= part.high_watermark && !self.plan.follow {
            if self.plan.repeat && position.begin < part.high_watermark {
                position.next = position.begin;
            } else {
                position.ended = true;
            }
        }
        Ok(())
    }
}
