//! A whole run: looks the topic up, opens connections, starts a thread for each, adds up.

use crate::batch::{self, Batch, Keys};
use crate::clock::wall_clock_ms;
use crate::connection::Connection;
use crate::error::{Failure, Result};
use crate::measurement::{Times, begin, measure, nanoseconds, retry};
use crate::messages::{
    FetchLimits, PRODUCE, PRODUCE_OLD, ProduceTerms, Topic, list_offsets_reply,
    list_offsets_request, metadata_reply, metadata_request,
};
use crate::options::{Mode, Options};
use crate::pacing::Schedule;
use crate::produce::Stamp;
use crate::tally::Outcome;
use crate::{end_to_end, fetch, produce, ring, transactions};
use std::num::NonZeroU64;

/// ListOffsets' timestamp of the first record.
pub const EARLIEST: i64 = -2;
/// ListOffsets' timestamp of the end.
pub const LATEST: i64 = -1;

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
        Mode::Idempotent | Mode::Transactions => transactions::run(options, &topic),
        Mode::Probe => Err(Failure::Refused("probe is no measurement of load".into())),
    }
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
    let (batch, keys) = batch_to_produce(options);
    let version = if options.is_old { PRODUCE_OLD } else { PRODUCE };
    let timeout_ms = (options.timeout_seconds * 1e3) as i32;
    let mut ready = Vec::new();
    for share in &shares {
        let (connection, _) = open_share(options, topic, share, EARLIEST)?;
        let terms = ProduceTerms {
            version,
            ..ProduceTerms::plain(options.acks, timeout_ms)
        };
        let (name, partitions) = (&topic.name, &share.partitions);
        let ring = match &keys {
            None => ring::build(name, partitions, &terms, &batch)?,
            // No frame may be written to while it is in flight.
            Some(_) => {
                let rounds = options.in_flight.div_ceil(partitions.len()) + 1;
                ring::build_own(name, partitions, rounds, &terms, &batch)?
            }
        };
        ready.push((connection, ring));
    }
    let requests_per_second = options
        .records_per_second
        .map(|rate| rate / f64::from(batch.records) / ready.len() as f64);
    let (times, budget) = begin(options);
    if let Some(records) = options.records_max {
        let batches = records.div_ceil(u64::from(batch.records));
        budget.bound_bytes(batches.saturating_mul(batch.bytes.len() as u64));
    }
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
                version,
                stamp: match &keys {
                    None => Stamp::Nothing,
                    Some(keys) => Stamp::Keys(keys.for_connection(i)),
                },
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

fn batch_to_produce(options: &Options) -> (Batch, Option<Keys>) {
    let (record_bytes, batch_bytes) = (options.record_bytes, options.batch_bytes);
    let now_ms = wall_clock_ms();
    match options.keys {
        _ if options.is_old => (batch::build_old(record_bytes, batch_bytes, now_ms), None),
        None => (batch::build(record_bytes, batch_bytes, now_ms), None),
        Some(count) => {
            let (batch, keys) = batch::build_keyed(record_bytes, batch_bytes, now_ms, count);
            (batch, Some(keys))
        }
    }
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
            read_committed: options.read_committed,
            is_old: options.is_old,
        },
        repeat: options.repeat,
        follow,
        measure_from_ns: times.measure_from_ns,
        timeout_ns: times.timeout_ns,
    }
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
