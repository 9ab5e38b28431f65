//! A whole run: looks the topic up, opens connections, starts a thread for each, adds up.

use crate::batch::{self, Batch};
use crate::budget::Budget;
use crate::clock::{now_ns, process_cpu_ns, wall_clock_ms};
use crate::connection::Connection;
use crate::error::{Failure, Result};
use crate::messages::{
    FetchLimits, Topic, list_offsets_reply, list_offsets_request, metadata_reply, metadata_request,
};
use crate::options::{Mode, Options};
use crate::pacing::Schedule;
use crate::tally::{Outcome, Tally};
use crate::{end_to_end, fetch, produce, ring};
use std::io;
use std::num::NonZeroU64;
use std::thread;
use std::time::Duration;

/// ListOffsets' timestamp of the first record.
pub const EARLIEST: i64 = -2;
/// ListOffsets' timestamp of the end.
pub const LATEST: i64 = -1;
/// Printed by `--announce`.
const STARTED: &str = "started";
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Times that all connections of a run share (monotonic).
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Requests are due from here on.
    pub start_ns: u64,
    /// Requests due earlier belong to the warm-up.
    pub measure_from_ns: u64,
    /// Longest time without a reply.
    pub timeout_ns: u64,
}

/// Partitions of one leader, for one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// The leader's address.
    pub address: String,
    /// Partition indexes.
    pub partitions: Vec<i32>,
}

/// Measures as `options` say.
///
/// # Errors
/// A missing topic, an unreachable broker, a lost connection, no reply in time.
pub fn run(options: &Options) -> Result<Outcome> {
    let timeout_ns = nanoseconds(options.timeout_seconds);
    let mut bootstrap = Connection::open(&options.bootstrap)?;
    let request = metadata_request(&options.topic);
    let topic = retry(timeout_ns, || {
        metadata_reply(&bootstrap.round_trip(&request, timeout_ns)?)
    })?;
    // Timers of this thread's children must not be late by the usual 50 us.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    match options.mode {
        Mode::Produce => run_produce(options, &topic),
        Mode::Fetch => run_fetch(options, &topic),
        Mode::EndToEnd => end_to_end::run(options, &topic),
        Mode::Probe => Err(Failure::Refused("probe is no measurement of load".into())),
    }
}

/// Begin, start of the measurement and budget of a run that is ready now.
pub fn begin(options: &Options) -> (Times, Budget) {
    let start_ns = now_ns();
    let measure_from_ns = start_ns + nanoseconds(options.warmup_seconds);
    let times = Times {
        start_ns,
        measure_from_ns,
        timeout_ns: nanoseconds(options.timeout_seconds),
    };
    let deadline_ns = measure_from_ns + nanoseconds(options.seconds);
    let budget = Budget::new(deadline_ns, options.bytes_max);
    if options.until_eof {
        let ending = budget.ending();
        // Not joined: it may wait for the end of standard input long after the run.
        thread::spawn(move || {
            let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
            ending.end_at(now_ns());
        });
    }
    if options.announce {
        eprintln!("{STARTED}");
    }
    (times, budget)
}

/// Deals connections out to leaders. A producer's connection gets all partitions of its leader, a
/// reader's (`split`) its share of them.
///
/// # Errors
/// More leaders than connections.
pub fn shares(topic: &Topic, connections: usize, split: bool) -> Result<Vec<Share>> {
    let mut leaders: Vec<&String> = topic.partitions.iter().map(|(_, leader)| leader).collect();
    leaders.sort();
    leaders.dedup();
    if leaders.is_empty() {
        return Err(Failure::Refused(format!(
            "topic {:?} has no partitions",
            topic.name
        )));
    }
    if leaders.len() > connections {
        return Err(Failure::Refused(format!(
            "the partitions are led by {} brokers: use --connections {} or more",
            leaders.len(),
            leaders.len()
        )));
    }
    let mut shares = Vec::new();
    for (rank, leader) in leaders.iter().enumerate() {
        let own: Vec<i32> = topic
            .partitions
            .iter()
            .filter(|(_, address)| address == *leader)
            .map(|(index, _)| *index)
            .collect();
        let count = (connections - rank).div_ceil(leaders.len());
        for part in 0..count {
            let partitions: Vec<i32> = match split {
                true => own.iter().skip(part).step_by(count).copied().collect(),
                false => own.clone(),
            };
            if !partitions.is_empty() {
                shares.push(Share {
                    address: (*leader).clone(),
                    partitions,
                });
            }
        }
    }
    Ok(shares)
}

fn run_produce(options: &Options, topic: &Topic) -> Result<Outcome> {
    let shares = shares(topic, options.connections, false)?;
    let batch = batch::build(options.record_bytes, options.batch_bytes, wall_clock_ms());
    let timeout_ms = (options.timeout_seconds * 1e3) as i32;
    let mut ready = Vec::new();
    for share in &shares {
        let (connection, _) = open_share(options, topic, share, EARLIEST)?;
        let acks = (options.acks, timeout_ms);
        let ring = ring::build(&topic.name, &share.partitions, acks, &batch)?;
        ready.push((connection, ring));
    }
    let requests_per_second = options
        .records_per_second
        .map(|rate| rate / f64::from(batch.records) / ready.len() as f64);
    let (times, budget) = begin(options);
    let jobs: Vec<_> = ready
        .into_iter()
        .enumerate()
        .map(|(i, (connection, ring))| {
            // Paced connections take turns instead of sending all at once.
            let phase_ns =
                requests_per_second.map_or(0.0, |rate| 1e9 / rate * i as f64 / shares.len() as f64);
            let plan = produce::Plan {
                first: i % ring.len(),
                ring,
                in_flight: options.in_flight,
                replies: options.acks != 0,
                stamp_value_at: None,
                schedule: Schedule::new(times.start_ns + phase_ns as u64, requests_per_second),
                measure_from_ns: times.measure_from_ns,
                timeout_ns: times.timeout_ns,
            };
            let budget = &budget;
            move || produce::run(connection, plan, budget, || ())
        })
        .collect();
    measure(&times, &budget, jobs, Some(&batch))
}

fn run_fetch(options: &Options, topic: &Topic) -> Result<Outcome> {
    let mut ready = Vec::new();
    for share in shares(topic, options.connections, true)? {
        let (mut connection, mut positions) = open_share(options, topic, &share, EARLIEST)?;
        if let Some(records) = options.last_records {
            let ends = offsets(options, topic, &share, LATEST, &mut connection)?;
            let each = records.div_ceil(topic.partitions.len() as u64);
            positions = begin_before_ends(&positions, &ends, each);
        }
        ready.push((connection, positions));
    }
    let (times, budget) = begin(options);
    let jobs: Vec<_> = ready
        .into_iter()
        .map(|(connection, positions)| {
            let plan = reading_plan(options, topic, positions, &times, options.follow);
            let budget = &budget;
            move || fetch::run(connection, plan, budget, &|| false, &mut |_| ())
        })
        .collect();
    measure(&times, &budget, jobs, None)
}

/// Connects to the leader of a share and looks up where its partitions begin (or end, by
/// `timestamp`). Waits for partitions that are being created.
///
/// # Errors
/// As [`run`].
pub fn open_share(
    options: &Options,
    topic: &Topic,
    share: &Share,
    timestamp: i64,
) -> Result<(Connection, Vec<(i32, i64)>)> {
    let mut connection = Connection::open(&share.address)?;
    let positions = offsets(options, topic, share, timestamp, &mut connection)?;
    Ok((connection, positions))
}

fn offsets(
    options: &Options,
    topic: &Topic,
    share: &Share,
    timestamp: i64,
    connection: &mut Connection,
) -> Result<Vec<(i32, i64)>> {
    let timeout_ns = nanoseconds(options.timeout_seconds);
    let request = list_offsets_request(&topic.name, &share.partitions, timestamp);
    retry(timeout_ns, || {
        list_offsets_reply(&connection.round_trip(&request, timeout_ns)?)
    })
}

/// Where to begin so that `records` of each partition are read, or all if it has fewer.
fn begin_before_ends(begins: &[(i32, i64)], ends: &[(i32, i64)], records: u64) -> Vec<(i32, i64)> {
    let records = i64::try_from(records).unwrap_or(i64::MAX);
    let of_partition = |index| ends.iter().find(|(other, _)| *other == index);
    begins
        .iter()
        .map(|&(index, begin)| {
            let end = of_partition(index).map_or(begin, |&(_, end)| end);
            (index, begin.max(end.saturating_sub(records)))
        })
        .collect()
}

/// Repeats `attempt` after passing errors, for at most `timeout_ns`.
fn retry<T>(timeout_ns: u64, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let deadline_ns = now_ns() + timeout_ns;
    loop {
        match attempt() {
            Err(Failure::NotYet(_)) if now_ns() < deadline_ns => thread::sleep(RETRY_INTERVAL),
            done => return done,
        }
    }
}

/// The plan of a reader.
pub fn reading_plan(
    options: &Options,
    topic: &Topic,
    positions: Vec<(i32, i64)>,
    times: &Times,
    follow: bool,
) -> fetch::Plan {
    fetch::Plan {
        topic: topic.clone(),
        positions,
        in_flight: if follow { 1 } else { options.in_flight },
        limits: FetchLimits {
            max_wait_ms: options.max_wait_ms,
            partition_bytes: options.partition_bytes,
        },
        repeat: options.repeat,
        follow,
        measure_from_ns: times.measure_from_ns,
        timeout_ns: times.timeout_ns,
    }
}

/// Runs each job on its own thread, and adds up their counts.
///
/// # Errors
/// The first failure of a job; the others are then stopped.
pub fn measure<J>(
    times: &Times,
    budget: &Budget,
    jobs: Vec<J>,
    batch: Option<&Batch>,
) -> Result<Outcome>
where
    J: FnOnce() -> Result<Tally> + Send,
{
    let connections = jobs.len();
    let mut tally = Tally::default();
    let mut failure = None;
    let cpu_before_ns = thread::scope(|scope| {
        let threads: Vec<_> = jobs
            .into_iter()
            .map(|job| {
                scope.spawn(move || {
                    let result = job();
                    if result.is_err() {
                        budget.stop();
                    }
                    result
                })
            })
            .collect();
        thread::sleep(Duration::from_nanos(
            times.measure_from_ns.saturating_sub(now_ns()),
        ));
        let cpu_before_ns = process_cpu_ns();
        for thread in threads {
            match thread.join() {
                Ok(Ok(counted)) => tally.merge(&counted),
                Ok(Err(error)) => failure = failure.take().or(Some(error)),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        cpu_before_ns
    });
    if let Some(error) = failure {
        return Err(error);
    }
    Ok(Outcome {
        tally,
        connections,
        started_ns: times.measure_from_ns,
        client_cpu_ns: process_cpu_ns() - cpu_before_ns,
        batch_bytes: batch.map_or(0, |batch| batch.bytes.len()),
        batch_records: batch.map_or(0, |batch| batch.records),
    })
}

fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(leaders: &[&str]) -> Topic {
        let partitions = leaders
            .iter()
            .enumerate()
            .map(|(i, leader)| (i as i32, (*leader).to_owned()));
        Topic {
            name: "t".into(),
            id: [1; 16],
            partitions: partitions.collect(),
        }
    }

    fn partitions_of(shares: &[Share]) -> Vec<Vec<i32>> {
        shares
            .iter()
            .map(|share| share.partitions.clone())
            .collect()
    }

    #[test]
    fn producers_share_all_partitions_of_a_leader() {
        let shares = shares(&topic(&["a", "a", "a"]), 2, false).unwrap();
        assert_eq!(partitions_of(&shares), [vec![0, 1, 2], vec![0, 1, 2]]);
    }

    #[test]
    fn readers_divide_all_partitions() {
        let shares = shares(&topic(&["a", "a", "a", "b"]), 3, true).unwrap();
        assert_eq!(partitions_of(&shares), [vec![0, 2], vec![1], vec![3]]);
        assert_eq!(shares[2].address, "b");
    }

    #[test]
    fn a_reader_too_many_gets_no_connection() {
        assert_eq!(shares(&topic(&["a"]), 4, true).unwrap().len(), 1);
    }

    #[test]
    fn the_last_records_begin_where_the_log_does_at_the_earliest() {
        let ends = [(0, 1_000), (1, 50), (2, 7)];
        let begins = [(0, 10), (1, 40), (2, 7)];
        let found = begin_before_ends(&begins, &ends, 100);
        assert_eq!(found, [(0, 900), (1, 40), (2, 7)]);
    }

    #[test]
    fn every_leader_needs_a_connection() {
        let error = shares(&topic(&["a", "b"]), 1, false)
            .unwrap_err()
            .to_string();
        assert!(error.contains("--connections 2"), "{error}");
    }
}
