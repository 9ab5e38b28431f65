//! Cost of fetch sessions: `cargo bench -p pyrklog-dataplane --bench fetch_sessions [-- CASE ...]`.
//!
//! A plane and its clients in one process. CPU is that of the network threads. Each case prints one
//! line: requests a second, microseconds of CPU a request, latency in microseconds (median and
//! p99). The requests are fetches, in the `append` cases produces.

#[path = "../tests/harness/mod.rs"]
mod harness;

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use harness::*;
use pyrklog_dataplane::seam::LeaderSpec;
use pyrklog_log::disk::RealDisk;
use pyrklog_wire::api::key;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Partitions of the large session.
const LARGE: i32 = 10_000;

/// Rounds with the large session.
const ROUNDS: usize = 2_000;

/// Sessions at once, the partitions of each, and the threads that their clients share.
const SESSIONS: usize = 1_000;
const EACH: i32 = 4;
const CLIENT_THREADS: usize = 2;

/// Rounds in which each of them fetches once.
const CROWD_ROUNDS: usize = 60;

/// Fetches of one partition.
const SINGLES: usize = 40_000;

/// Appends to one partition.
const APPENDS: usize = 40_000;

/// Runs the case of a name.
type Case = fn(&str);

fn main() {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with("--"))
        .collect();
    let cases: [(&str, Case); 8] = [
        ("large_consumer", |name| large(name, -1)),
        ("large_follower", |name| large(name, 2)),
        ("crowd", crowd),
        ("single_empty", |name| single(name, true, false)),
        ("single_records", |name| single(name, true, true)),
        ("single_sessionless", |name| single(name, false, true)),
        ("append_alone", |name| append(name, 0)),
        ("append_idle_sessions", |name| append(name, SESSIONS)),
    ];
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|one| one == name);
    for (name, run) in cases.into_iter().filter(|(name, _)| is_wanted(name)) {
        run(name);
    }
}

/// Nanoseconds of CPU that the network threads have used.
fn network_cpu_ns() -> u64 {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let of_network = tasks.filter(|task| {
        let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        name.starts_with("network")
    });
    let used_ns = of_network.map(|task| {
        let stat = fs::read_to_string(task.path().join("schedstat")).unwrap();
        stat.split(' ').next().unwrap().parse::<u64>().unwrap()
    });
    used_ns.sum()
}

/// What a case came to, while it runs.
struct Meter {
    began: Instant,
    cpu_ns: u64,
    latencies_ns: Vec<u64>,
}

impl Meter {
    fn begin() -> Meter {
        Meter {
            began: Instant::now(),
            cpu_ns: network_cpu_ns(),
            latencies_ns: Vec::new(),
        }
    }

    fn add(&mut self, since: Instant) {
        self.latencies_ns.push(since.elapsed().as_nanos() as u64);
    }

    fn tell(mut self, name: &str) {
        let cpu_ns = network_cpu_ns() - self.cpu_ns;
        let elapsed_s = self.began.elapsed().as_secs_f64();
        self.latencies_ns.sort_unstable();
        let count = self.latencies_ns.len();
        let at = |part: f64| self.latencies_ns[(count as f64 * part) as usize] as f64 / 1e3;
        println!(
            "{name:<20} requests_per_s {:>9.0}  cpu_us {:>8.2}  p50_us {:>8.1}  p99_us {:>8.1}",
            count as f64 / elapsed_s,
            cpu_ns as f64 / count as f64 / 1e3,
            at(0.5),
            at(0.99),
        );
    }
}

fn start(dir: &std::path::Path, partitions: i32) -> TestPlane {
    let mut config = cluster_config(dir, 1);
    config.fetch_session_slots = 2 * SESSIONS;
    config.max_connections = 4 * SESSIONS;
    config.max_connections_per_ip = 4 * SESSIONS;
    let mut test = TestPlane::start_with(config, Arc::new(RealDisk));
    let mut options = topic_config();
    // The records' timestamps are old.
    options.log.retention_ms = -1;
    test.describe_topic("t", partitions, &options);
    let spec = |index| LeaderSpec {
        replicas: BOTH.to_vec(),
        ..TestPlane::leader_spec("t", index, 0)
    };
    let codes = test.become_leaders((0..partitions).map(spec).collect());
    assert!(codes.iter().all(|code| *code == 0));
    test
}

/// A session of these partitions, from their beginning; the request that goes on with it.
fn open_session(client: &mut Client, partitions: std::ops::Range<i32>, replica_id: i32) -> Ask {
    let mut ask = Ask::one("t", 0, 0).session(0, 0);
    ask.replica_id = replica_id;
    ask.partitions = partitions
        .map(|index| ("t".to_owned(), partition(index, 0)))
        .collect();
    let reply = client.fetch(&ask);
    assert!(reply.session_id > 0);
    ask.partitions.clear();
    ask.session(reply.session_id, 1)
}

/// One partition of many gets a record in each round, while the session's fetch waits.
fn large(name: &str, replica_id: i32) {
    let dir = tempfile::tempdir().unwrap();
    let test = start(dir.path(), LARGE);
    let (mut reader, mut producer) = (test.client(), test.client());
    let mut ask = open_session(&mut reader, 0..LARGE, replica_id).wait(60_000, 1);
    let record = batch(&[b"record"]);
    let mut meter = Meter::begin();
    for round in 0..ROUNDS {
        reader.send(key::FETCH, ask.version, &ask.encode());
        if round % 2 == 0 {
            // Every other fetch waits, the others find their records.
            std::thread::sleep(Duration::from_micros(500));
        }
        let since = Instant::now();
        producer.produce("t", 17, &record);
        let (_, body) = reader.receive(key::FETCH, ask.version);
        meter.add(since);
        let reply = fetched(&body, &ask);
        let part = &reply.partitions[0];
        assert_eq!((part.index, part.batches().len()), (17, 1), "{reply:?}");
        ask.session.1 += 1;
        ask.partitions = vec![("t".to_owned(), partition(17, round as i64 + 1))];
    }
    meter.tell(name);
}

/// A thousand sessions of a few partitions each fetch at once, and find nothing.
fn crowd(name: &str) {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, raised).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let test = start(dir.path(), SESSIONS as i32 * EACH);
    let mut shares: Vec<Vec<(Client, Ask)>> = (0..CLIENT_THREADS).map(|_| Vec::new()).collect();
    for session in 0..SESSIONS {
        let mut client = test.client();
        let first = session as i32 * EACH;
        let ask = open_session(&mut client, first..first + EACH, -1);
        shares[session % CLIENT_THREADS].push((client, ask));
    }
    let mut meter = Meter::begin();
    let latencies_ns = std::thread::scope(|scope| {
        let threads: Vec<_> = shares
            .iter_mut()
            .map(|share| scope.spawn(move || fetch_in_turn(share)))
            .collect();
        let joined = threads.into_iter().flat_map(|one| one.join().unwrap());
        joined.collect::<Vec<u64>>()
    });
    meter.latencies_ns = latencies_ns;
    meter.tell(name);
}

/// Each client sends, then each takes its reply; the latencies.
fn fetch_in_turn(share: &mut [(Client, Ask)]) -> Vec<u64> {
    let mut latencies_ns = Vec::new();
    for _ in 0..CROWD_ROUNDS {
        let mut sent = Vec::with_capacity(share.len());
        for (client, ask) in share.iter_mut() {
            sent.push(Instant::now());
            client.send(key::FETCH, ask.version, &ask.encode());
        }
        for ((client, ask), since) in share.iter_mut().zip(sent) {
            let (_, body) = client.receive(key::FETCH, ask.version);
            latencies_ns.push(since.elapsed().as_nanos() as u64);
            assert!(fetched(&body, ask).partitions.is_empty());
            ask.session.1 += 1;
        }
    }
    latencies_ns
}

/// One partition, asked again and again: for nothing, or for the same record.
fn single(name: &str, in_session: bool, has_record: bool) {
    let dir = tempfile::tempdir().unwrap();
    let test = start(dir.path(), 1);
    let mut client = test.client();
    let mut ask = match in_session {
        true => open_session(&mut client, 0..1, -1),
        false => Ask::one("t", 0, 0),
    };
    if has_record {
        client.produce("t", 0, &batch(&[b"record"]));
        ask.partitions = vec![("t".to_owned(), partition(0, 0))];
    }
    let mut meter = Meter::begin();
    for _ in 0..SINGLES {
        let since = Instant::now();
        let reply = client.fetch(&ask);
        meter.add(since);
        assert_eq!(reply.partitions.len(), usize::from(has_record));
        ask.session.1 += i32::from(in_session);
    }
    meter.tell(name);
}

/// Appends to a partition that is in idle sessions.
fn append(name: &str, sessions: usize) {
    let dir = tempfile::tempdir().unwrap();
    let test = start(dir.path(), 1);
    let mut client = test.client();
    for _ in 0..sessions {
        open_session(&mut client, 0..1, -1);
    }
    let record = batch(&[b"record"]);
    let mut meter = Meter::begin();
    for _ in 0..APPENDS {
        let since = Instant::now();
        client.produce("t", 0, &record);
        meter.add(since);
    }
    meter.tell(name);
}
