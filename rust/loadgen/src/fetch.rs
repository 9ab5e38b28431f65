//! One connection that reads: several fetches in flight, each for its own partitions.

use crate::budget::Budget;
use crate::clock::now_ns;
use crate::connection::Connection;
use crate::error::{Failure, Result};
use crate::messages::{FetchLimits, Topic, fetch_partition, fetch_reply, fetch_request};
use crate::tally::Tally;
use pyrklog_wire::ErrorCode;
use pyrklog_wire::batch::{BatchView, Batches};
use pyrklog_wire::fetch::{FetchPartition, FetchPartitionHead};
use pyrklog_wire::message_set::Messages;
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

/// Called with every complete batch.
pub type EachBatch<'a> = dyn FnMut(BatchView<'_>) + 'a;

/// Where one partition's reading began, and whether it is over.
#[derive(Clone, Copy)]
struct Reading {
    begin: i64,
    ended: bool,
}

/// One fetch that is sent over and over; its correlation id is its index.
struct Slot {
    frame: Vec<u8>,
    partitions: Vec<FetchPartition>,
    readings: Vec<Reading>,
}

struct Reader<'a, 'b> {
    connection: Connection,
    slots: Vec<Slot>,
    /// Sent and unanswered, oldest first.
    window: VecDeque<(u64, usize)>,
    plan: Plan,
    budget: &'a Budget,
    each_batch: &'a mut EachBatch<'b>,
    tally: Tally,
}

/// Runs until the budget is spent, `is_over` says so, or every partition was read to its end.
///
/// # Errors
/// A lost connection, an invalid reply, no reply in time.
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
        let (answered, slot) = reader.receive_oldest(is_over)?;
        let Some((from_ns, bytes)) = answered else {
            break;
        };
        // At the end of the log a reply may be empty.
        if bytes > 0 || !reader.plan.follow {
            reader.tally_reply(from_ns);
        }
        let ended = reader.slots[slot]
            .readings
            .iter()
            .all(|reading| reading.ended);
        if !ended && !is_over() && !budget.is_over(now_ns()) {
            reader.send(slot)?;
        }
    }
    Ok(reader.tally)
}

fn build_slots(plan: &Plan) -> Vec<Slot> {
    let count = plan.in_flight.min(plan.positions.len());
    let mine = |slot| plan.positions.iter().skip(slot).step_by(count);
    (0..count)
        .map(|slot| Slot {
            frame: Vec::new(),
            partitions: mine(slot)
                .map(|&(index, begin)| fetch_partition(index, begin, plan.limits))
                .collect(),
            readings: mine(slot)
                .map(|&(_, begin)| Reading {
                    begin,
                    ended: false,
                })
                .collect(),
        })
        .collect()
}

impl Reader<'_, '_> {
    fn send(&mut self, index: usize) -> Result<()> {
        let from_ns = now_ns();
        let Slot {
            frame, partitions, ..
        } = &mut self.slots[index];
        let Plan { topic, limits, .. } = &self.plan;
        fetch_request(frame, index as i32, topic, partitions, *limits);
        let mut rest = frame.as_slice();
        while !rest.is_empty() {
            let sent = self.connection.send_some(&[IoSlice::new(rest)])?;
            rest = &rest[sent..];
            if sent == 0 {
                self.connection.wait(true, u64::MAX)?;
                check_time(from_ns, self.plan.timeout_ns)?;
            }
        }
        self.window.push_back((from_ns, index));
        Ok(())
    }

    /// The send time of the oldest fetch, its reply's bytes once read, and its slot; `None` when
    /// the run ended while waiting.
    fn receive_oldest(
        &mut self,
        is_over: &dyn Fn() -> bool,
    ) -> Result<(Option<(u64, u64)>, usize)> {
        let (from_ns, index) = self.window[0];
        loop {
            if let Some(frame) = self.connection.next_frame()? {
                let (correlation_id, reply) = fetch_reply(frame, self.plan.limits)?;
                if usize::try_from(correlation_id).ok() != Some(index) {
                    return Err(Failure::Protocol(format!(
                        "a reply carries correlation id {correlation_id}, {index} was expected: \
                         replies must come in the order of the requests"
                    )));
                }
                let measured = from_ns >= self.plan.measure_from_ns;
                let records_before = self.tally.records;
                let mut take = Take {
                    slot: &mut self.slots[index],
                    plan: &self.plan,
                    tally: &mut self.tally,
                    measured,
                    each_batch: self.each_batch,
                    bytes: 0,
                };
                for part in reply.topics.iter().flat_map(|topic| &topic.partitions) {
                    take.partition(&part.head, part.records.unwrap_or_default())?;
                }
                let bytes = take.bytes;
                if measured {
                    self.budget.claim(from_ns, bytes);
                    let records = self.tally.records - records_before;
                    self.budget.count(records, bytes);
                }
                self.window.pop_front();
                return Ok((Some((from_ns, bytes)), index));
            }
            if is_over() {
                return Ok((None, index));
            }
            self.connection.receive(true)?;
            check_time(from_ns, self.plan.timeout_ns)?;
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
}

fn check_time(from_ns: u64, timeout_ns: u64) -> Result<()> {
    if now_ns().saturating_sub(from_ns) < timeout_ns {
        return Ok(());
    }
    Err(Failure::TimedOut(format!(
        "no reply to a fetch within {:.1} s",
        timeout_ns as f64 / 1e9
    )))
}

/// Reads one reply.
struct Take<'a, 'b> {
    slot: &'a mut Slot,
    plan: &'a Plan,
    tally: &'a mut Tally,
    measured: bool,
    each_batch: &'a mut EachBatch<'b>,
    bytes: u64,
}

impl Take<'_, '_> {
    fn partition(&mut self, head: &FetchPartitionHead<'_>, records: &[u8]) -> Result<()> {
        let mut asked = self.slot.partitions.iter_mut().zip(&mut self.slot.readings);
        let found = asked.find(|(partition, _)| partition.index == head.index);
        let Some((partition, reading)) = found else {
            let text = format!("partition {} was not asked", head.index);
            return Err(Failure::Protocol(text));
        };
        if !head.error_code.is_none() {
            // Out of range is permanent; other errors may pass.
            reading.ended |= head.error_code == ErrorCode::OFFSET_OUT_OF_RANGE;
            self.tally.error(head.error_code);
            return Ok(());
        }
        let (messages, records_of_batches) = match self.plan.limits.is_old {
            true => (records, &[][..]),
            false => (&[][..], records),
        };
        let mut batches = 0;
        for message in Messages::new(messages) {
            let message = message?;
            batches += 1;
            partition.fetch_offset = message.offset + 1;
            self.bytes += message.bytes.len() as u64;
            if self.measured {
                self.tally.bytes += message.bytes.len() as u64;
                self.tally.records += 1;
            }
        }
        for view in Batches::new(records_of_batches) {
            let view = view?;
            batches += 1;
            partition.fetch_offset = view.header.next_offset();
            self.bytes += view.bytes.len() as u64;
            if self.measured {
                self.tally.bytes += view.bytes.len() as u64;
                self.tally.records += u64::try_from(view.header.record_count).unwrap_or(0);
            }
            (self.each_batch)(view);
        }
        if batches == 0 && !records.is_empty() {
            return Err(Failure::Protocol(format!(
                "a fetch of partition {} at {} brought {} bytes without a whole batch",
                head.index,
                partition.fetch_offset,
                records.len()
            )));
        }
        let end = match self.plan.limits.read_committed {
            true => head.last_stable_offset,
            false => head.high_watermark,
        };
        if partition.fetch_offset >= end && !self.plan.follow {
            if self.plan.repeat && reading.begin < end {
                partition.fetch_offset = reading.begin;
            } else {
                reading.ended = true;
            }
        }
        Ok(())
    }
}
