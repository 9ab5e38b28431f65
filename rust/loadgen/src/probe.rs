//! When a broker that was just started serves a topic again. Only waiting, no load.
//!
//! Two connections, so that neither waits for the other. One tries to produce a record to each
//! partition in turn until one is acknowledged; one asks for every partition's end and reads the
//! last record of each. Failures are retried: refused connections and partitions without a leader.

use crate::batch;
use crate::clock::{now_ns, wall_clock_ms};
use crate::connection::Connection;
use crate::error::{Failure, Result};
use crate::messages::{
    FetchLimits, ProduceTerms, Topic, fetch_partition, fetch_reply, fetch_request,
    list_offsets_each, list_offsets_request, metadata_reply, metadata_request, produce_reply,
    produce_request,
};
use crate::options::Options;
use crate::run::LATEST;
use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

const RETRY_INTERVAL: Duration = Duration::from_millis(5);
/// Partitions asked for in one request.
const PARTITIONS_AT_A_TIME: usize = 200;

/// When each stage was reached (monotonic).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// Partitions of the topic.
    pub partitions: usize,
    /// A record was acknowledged.
    pub produced_ns: u64,
    /// Every partition has given its end, so it has a leader.
    pub led_ns: u64,
    /// The last record of every partition was read.
    pub read_ns: u64,
}

impl Served {
    /// One line of JSON.
    pub fn to_json(&self) -> String {
        format!(
            "{{\"mode\": \"probe\", \"partitions\": {}, \"produced_ns\": {}, \"led_ns\": {}, \
             \"read_ns\": {}}}",
            self.partitions, self.produced_ns, self.led_ns, self.read_ns
        )
    }
}

/// Waits as the module says, for `--timeout-seconds` at most.
///
/// # Errors
/// A stage was not reached in time; the text says why the last attempt failed.
pub fn run(options: &Options) -> Result<Served> {
    let deadline_ns = now_ns() + (options.timeout_seconds * 1e9) as u64;
    thread::scope(|scope| {
        let producing = scope.spawn(|| produce_one(options, deadline_ns));
        let reading = read_all(options, deadline_ns);
        let produced = producing.join();
        let produced_ns = produced.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let (partitions, led_ns, read_ns) = reading?;
        Ok(Served {
            partitions,
            produced_ns,
            led_ns,
            read_ns,
        })
    })
}

/// Repeats `attempt` until it succeeds, after any error.
fn retry<T>(deadline_ns: u64, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    loop {
        match attempt() {
            Ok(done) => return Ok(done),
            Err(error) if now_ns() >= deadline_ns => {
                return Err(Failure::TimedOut(format!("not in time: {error}")));
            }
            Err(_) => thread::sleep(RETRY_INTERVAL),
        }
    }
}

fn open(options: &Options, deadline_ns: u64) -> Result<(Connection, Topic)> {
    let mut connection = Connection::open(&options.bootstrap)?;
    let request = metadata_request(&options.topic);
    let reply = connection.round_trip(&request, deadline_ns.saturating_sub(now_ns()))?;
    let topic = metadata_reply(&reply)?;
    if topic.partitions.is_empty() {
        return Err(Failure::NotYet("the topic has no partitions".into()));
    }
    Ok((connection, topic))
}

fn produce_one(options: &Options, deadline_ns: u64) -> Result<u64> {
    let batch = batch::build(options.record_bytes, 1, wall_clock_ms());
    let terms = ProduceTerms::plain(1, 30_000);
    let mut turn = 0;
    retry(deadline_ns, || {
        let (mut connection, topic) = open(options, deadline_ns)?;
        loop {
            let (partition, _) = topic.partitions[turn % topic.partitions.len()];
            turn += 1;
            let target = (topic.name.as_str(), partition);
            let (frame, _) = produce_request(0, target, &terms, &batch.bytes)?;
            let left_ns = deadline_ns.saturating_sub(now_ns());
            let (_, code) = produce_reply(&connection.round_trip(&frame, left_ns)?, terms.version)?;
            if code.is_none() {
                return Ok(now_ns());
            }
            if turn % topic.partitions.len() == 0 {
                return Err(Failure::NotYet(format!("partition {partition}: {code}")));
            }
        }
    })
}

fn read_all(options: &Options, deadline_ns: u64) -> Result<(usize, u64, u64)> {
    let mut ends = BTreeMap::new();
    let mut led_ns = None;
    let mut unread: Option<Vec<i32>> = None;
    retry(deadline_ns, || {
        let (mut connection, topic) = open(options, deadline_ns)?;
        let all = || topic.partitions.iter().map(|(index, _)| *index);
        let missing: Vec<i32> = all().filter(|index| !ends.contains_key(index)).collect();
        for some in missing.chunks(PARTITIONS_AT_A_TIME) {
            let request = list_offsets_request(&topic.name, some, LATEST);
            let left_ns = deadline_ns.saturating_sub(now_ns());
            for (index, offset, code) in
                list_offsets_each(&connection.round_trip(&request, left_ns)?)?
            {
                if code.is_none() {
                    ends.insert(index, offset);
                }
            }
        }
        if ends.len() < topic.partitions.len() {
            let (led, of) = (ends.len(), topic.partitions.len());
            return Err(Failure::NotYet(format!("{led} of {of} partitions are led")));
        }
        let led_ns = *led_ns.get_or_insert_with(now_ns);
        let left = unread.get_or_insert_with(|| all().collect());
        read_each(&mut connection, &topic, &ends, left, deadline_ns)?;
        match left.len() {
            0 => Ok((topic.partitions.len(), led_ns, now_ns())),
            count => Err(Failure::NotYet(format!(
                "{count} partitions cannot be read"
            ))),
        }
    })
}

/// Fetches the last record of each of `left` and removes those that were read.
fn read_each(
    connection: &mut Connection,
    topic: &Topic,
    ends: &BTreeMap<i32, i64>,
    left: &mut Vec<i32>,
    deadline_ns: u64,
) -> Result<()> {
    let limits = FetchLimits {
        max_wait_ms: 0,
        partition_bytes: 1,
        read_committed: false,
        is_old: false,
    };
    let mut done = Vec::new();
    let mut frame = Vec::new();
    for some in left.chunks(PARTITIONS_AT_A_TIME) {
        let last = |index: &i32| (ends.get(index).copied().unwrap_or(0) - 1).max(0);
        let asked: Vec<_> = some
            .iter()
            .map(|index| fetch_partition(*index, last(index), limits))
            .collect();
        fetch_request(&mut frame, 0, topic, &asked, limits);
        let reply = connection.round_trip(&frame, deadline_ns.saturating_sub(now_ns()))?;
        let (_, reply) = fetch_reply(&reply, limits)?;
        let partitions = reply.topics.iter().flat_map(|topic| &topic.partitions);
        // With a limit of one byte per partition, only the first comes with a record; the others
        // were checked.
        done.extend(
            partitions
                .filter(|partition| partition.head.error_code.is_none())
                .map(|partition| partition.head.index),
        );
    }
    left.retain(|index| !done.contains(index));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Command, parse};
    use std::net::TcpListener;

    fn options(port: u16) -> Options {
        let line = format!("probe --topic t --bootstrap 127.0.0.1:{port} --timeout-seconds 0.1");
        match parse(line.split_whitespace().map(str::to_owned)) {
            Ok(Command::Run(options)) => *options,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_broker_that_never_comes_is_an_error_that_says_why() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let error = run(&options(port)).unwrap_err().to_string();
        assert!(error.starts_with("not in time: cannot connect"), "{error}");
    }

    #[test]
    fn the_times_are_one_line() {
        let served = Served {
            partitions: 3,
            produced_ns: 1,
            led_ns: 2,
            read_ns: 4,
        };
        assert_eq!(
            served.to_json(),
            "{\"mode\": \"probe\", \"partitions\": 3, \"produced_ns\": 1, \"led_ns\": 2, \
             \"read_ns\": 4}"
        );
    }
}
