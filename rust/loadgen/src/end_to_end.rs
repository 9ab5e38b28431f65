//! From the intended send time of a record to its reader, paced and open-loop.
//!
//! One sender and one reader per leader. A record has its intended send time in the first eight
//! bytes of its value. Both ends use the same monotonic clock, so they run on one machine.

use crate::batch::{self, Batch};
use crate::budget::Budget;
use crate::clock::{now_ns, wall_clock_ms};
use crate::connection::Connection;
use crate::error::Result;
use crate::measurement::{Times, begin, measure};
use crate::messages::{PRODUCE, ProduceTerms, Topic};
use crate::options::Options;
use crate::pacing::Schedule;
use crate::produce::Stamp;
use crate::ring::Frame;
use crate::run::{LATEST, Share, open_share, reading_plan, shares};
use crate::tally::{Outcome, Tally};
use crate::{fetch, produce, ring};
use pyrklog_wire::batch::BatchView;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How far the two ends of a pair are.
#[derive(Debug, Default)]
struct Progress {
    answered: AtomicU64,
    seen: AtomicU64,
    sender_done: AtomicBool,
    sender_done_ns: AtomicU64,
}

impl Progress {
    fn reader_is_done(&self, linger_ns: u64) -> bool {
        if !self.sender_done.load(Ordering::Acquire) {
            return false;
        }
        let all = self.answered.load(Ordering::Relaxed);
        let since = self.sender_done_ns.load(Ordering::Relaxed);
        self.seen.load(Ordering::Relaxed) >= all || now_ns() > since + linger_ns
    }

    fn finish_sender(&self) {
        self.sender_done_ns.store(now_ns(), Ordering::Relaxed);
        self.sender_done.store(true, Ordering::Release);
    }
}

struct Pair {
    sender: Connection,
    ring: Vec<Frame>,
    records_per_second: f64,
    reader: Connection,
    positions: Vec<(i32, i64)>,
}

/// Measures as `options` say.
///
/// # Errors
/// As [`crate::run::run`].
pub fn run(options: &Options, topic: &Topic) -> Result<Outcome> {
    let batch = batch::build(options.record_bytes, 1, wall_clock_ms());
    let mut pairs = Vec::new();
    for share in shares(topic, topic.partitions.len(), false)?
        .iter()
        .filter(first_of_leader())
    {
        pairs.push(open_pair(options, topic, share, &batch)?);
    }
    let progress: Vec<Progress> = pairs.iter().map(|_| Progress::default()).collect();
    let linger_ns = (options.linger_seconds * 1e9) as u64;
    let (times, budget) = begin(options);
    let mut jobs: Vec<Box<dyn FnOnce() -> Result<Tally> + Send + '_>> = Vec::new();
    for (pair, progress) in pairs.into_iter().zip(&progress) {
        let Pair {
            sender,
            ring,
            records_per_second,
            reader,
            positions,
        } = pair;
        let plan = produce::Plan {
            first: 0,
            ring,
            in_flight: options.in_flight,
            replies: options.acks != 0,
            version: PRODUCE,
            stamp: Stamp::SendTime(batch::value_at(&batch, options.record_bytes)),
            schedule: Schedule::new(times.start_ns, Some(records_per_second)),
            measure_from_ns: times.measure_from_ns,
            timeout_ns: times.timeout_ns,
        };
        let budget = &budget;
        jobs.push(Box::new(move || send(sender, plan, budget, progress)));
        let plan = reading_plan(options, topic, positions, &times, true);
        jobs.push(Box::new(move || {
            receive(reader, plan, &times, progress, linger_ns)
        }));
    }
    measure(&times, &budget, jobs, Some(&batch))
}

fn first_of_leader() -> impl FnMut(&&Share) -> bool {
    let mut seen = Vec::new();
    move |share| {
        let is_new = !seen.contains(&share.address);
        seen.push(share.address.clone());
        is_new
    }
}

fn open_pair(options: &Options, topic: &Topic, share: &Share, batch: &Batch) -> Result<Pair> {
    let terms = ProduceTerms::plain(options.acks, (options.timeout_seconds * 1e3) as i32);
    // Each record is written into a frame anew, so no frame may be reused while it is in flight.
    let rounds = options.in_flight.div_ceil(share.partitions.len()) + 1;
    let ring = ring::build_own(&topic.name, &share.partitions, rounds, &terms, batch)?;
    let (reader, positions) = open_share(options, topic, share, LATEST)?;
    let part = share.partitions.len() as f64 / topic.partitions.len() as f64;
    let records_per_second = options.records_per_second.unwrap_or(1_000.0) * part;
    let sender = Connection::open(&share.address)?;
    Ok(Pair {
        sender,
        ring,
        records_per_second,
        reader,
        positions,
    })
}

fn send(
    connection: Connection,
    plan: produce::Plan,
    budget: &Budget,
    progress: &Progress,
) -> Result<Tally> {
    let sent = produce::run(connection, plan, budget, || {
        progress.answered.fetch_add(1, Ordering::Relaxed);
    });
    progress.finish_sender();
    // The reader counts records and latency; from the sender come only requests and errors.
    sent.map(|tally| Tally {
        requests: tally.requests,
        errors: tally.errors,
        ..Tally::default()
    })
}

fn receive(
    connection: Connection,
    plan: fetch::Plan,
    times: &Times,
    progress: &Progress,
    linger_ns: u64,
) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut each_batch = |view: BatchView<'_>| {
        let Some(from_ns) = batch::read_stamp(view.bytes) else {
            return;
        };
        let now = now_ns();
        progress.seen.fetch_add(1, Ordering::Relaxed);
        // Records of other programs carry no plausible time.
        if (times.measure_from_ns..=now).contains(&from_ns) {
            tally.latency.record(now - from_ns);
            tally.records += 1;
            tally.bytes += view.bytes.len() as u64;
            tally.finished_ns = now;
        }
    };
    let endless = Budget::new(u64::MAX, u64::MAX);
    let read = fetch::run(
        connection,
        plan,
        &endless,
        &|| progress.reader_is_done(linger_ns),
        &mut each_batch,
    )?;
    tally.errors = read.errors;
    let answered = progress.answered.load(Ordering::Relaxed);
    tally.lost = answered.saturating_sub(progress.seen.load(Ordering::Relaxed));
    Ok(tally)
}
