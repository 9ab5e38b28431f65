//! Network threads may only make system calls that cannot wait for a disk (seccomp), while one of
//! two log directories hangs.
//!
//! A forbidden call ends the process, so each trial runs in a child. Planted calls show that the
//! trial would notice.

mod harness;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use harness::*;
use pyrklog_dataplane::seam::PlaneConfig;
use pyrklog_dataplane::testing::{Moment, NetworkHook};
use pyrklog_log::disk::testing::StallingDisk;
use pyrklog_log::disk::{Disk, RealDisk};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;

/// Names what is planted; set in the child.
const PLANT: &str = "PYRKLOG_TEST_PLANT";

const FREEZE: Duration = Duration::from_secs(5);

/// Clients of the healthy directory, several to each network thread.
const CLIENTS: usize = 8;

/// Least rounds of each in that time, one after another.
const ROUNDS_MIN: u64 = 50;

/// A child's exit code for a network thread that waited for a disk.
const WAITED: i32 = 3;

const NETWORK_THREADS: usize = 2;

/// Calls that may wait for a disk, each made on a network thread.
const PLANTS: &[&str] = &[
    "open",
    "read",
    "pread",
    "write",
    "pwrite",
    "fsync",
    "fdatasync",
    "ftruncate",
    "unlink",
    "rename",
    "sendfile",
    "mkdir",
    "stat",
];

/// Runs this test again in a child, with something planted.
fn in_child(test: &str, plant: &str) -> (ExitStatus, String) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(PLANT, plant)
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status, String::from_utf8_lossy(&said).into_owned())
}

/// What a test does in its child; `None` in the parent.
fn planted() -> Option<String> {
    std::env::var(PLANT).ok()
}

#[test]
fn network_threads_never_call_the_disk_while_one_hangs() {
    let name = "network_threads_never_call_the_disk_while_one_hangs";
    if let Some(plant) = planted() {
        return freeze_one_of_two(FREEZE, plant == "a cache", |_| {});
    }
    for plant in ["nothing", "a cache"] {
        let (status, said) = in_child(name, plant);
        assert!(
            status.success(),
            "{plant}: {status}; signal {} is a system call outside of the list\n{said}",
            libc::SIGSYS
        );
    }
}

#[test]
fn a_call_that_can_wait_for_a_disk_is_noticed() {
    let name = "a_call_that_can_wait_for_a_disk_is_noticed";
    if let Some(plant) = planted() {
        return plant_in_a_turn(&plant);
    }
    let (status, said) = in_child(name, "nothing");
    assert!(status.success(), "{status}\n{said}");
    for plant in PLANTS {
        let (status, said) = in_child(name, plant);
        assert_eq!(
            status.signal(),
            Some(libc::SIGSYS),
            "{plant}: {status}\n{said}"
        );
    }
}

#[test]
fn a_network_thread_that_waits_for_the_frozen_disk_is_noticed() {
    let name = "a_network_thread_that_waits_for_the_frozen_disk_is_noticed";
    if planted().is_some() {
        return freeze_one_of_two(FREEZE, false, |disk| {
            let _exists = disk.exists(Path::new("/one/planted"));
        });
    }
    let (status, said) = in_child(name, "a wait");
    assert_eq!(status.code(), Some(WAITED), "{status}\n{said}");
    assert!(said.contains("network-"), "{said}");
}

/// Waits for a disk on a network thread, in the middle of the freeze.
type Wait = fn(&StallingDisk);

/// A plane whose network threads are held to the list.
fn start(
    config: PlaneConfig,
    disk: &StallingDisk,
    in_turn: impl Fn(usize) + Send + Sync + 'static,
) -> TestPlane {
    let program = allow_list::program();
    let hook: NetworkHook = Box::new(move |thread, moment| match moment {
        Moment::Begin => allow_list::apply(&program),
        Moment::Clock => {}
        Moment::Turn => in_turn(thread),
    });
    TestPlane::start_hooked(config, Arc::new(disk.clone()), hook)
}

fn plant_in_a_turn(plant: &str) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("planted");
    std::fs::write(&path, b"something").unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let socket = std::os::unix::net::UnixDatagram::unbound().unwrap();
    let is_due = Arc::new(AtomicBool::new(false));
    let (due, plant, planted) = (Arc::clone(&is_due), plant.to_owned(), path.clone());
    let in_turn = move |_| {
        if due.swap(false, Ordering::Relaxed) {
            call(&plant, &planted, &file, &socket);
        }
    };
    let disk = StallingDisk::new(Arc::new(RealDisk));
    let mut test = start(config(vec![dir.path().join("logs")]), &disk, in_turn);
    test.create("t", 1);
    is_due.store(true, Ordering::Relaxed);
    let produced = test.client().produce("t", 0, &batch(&[b"v"]));
    assert_eq!(produced, (ErrorCode::NONE, 0));
}

fn call(plant: &str, path: &Path, mut file: &File, socket: &std::os::unix::net::UnixDatagram) {
    use std::io::{Read, Write};
    let mut buffer = [0; 5];
    let done = match plant {
        "nothing" => Ok(()),
        "open" => File::open(path).map(drop),
        "read" => file.read(&mut buffer).map(drop),
        "pread" => file.read_at(&mut buffer, 0).map(drop),
        "write" => file.write_all(b"plant"),
        "pwrite" => file.write_all_at(b"plant", 0),
        "fsync" => file.sync_all(),
        "fdatasync" => file.sync_data(),
        "ftruncate" => file.set_len(3),
        "unlink" => std::fs::remove_file(path),
        "rename" => std::fs::rename(path, path.with_extension("new")),
        "sendfile" => match rustix::fs::sendfile(socket, file, None, 5) {
            Ok(_) => Ok(()),
            Err(error) => Err(error.into()),
        },
        "mkdir" => std::fs::create_dir(path.with_extension("dir")),
        "stat" => std::fs::metadata(path).map(drop),
        other => panic!("{other} is not known"),
    };
    done.unwrap();
}

/// Two directories with a topic each; that of `a` is "one".
struct Two {
    test: TestPlane,
    disk: Stalling,
    turns: Arc<[AtomicU64; NETWORK_THREADS]>,
    _dir: tempfile::TempDir,
}

fn two_directories(has_cache: bool, planted_wait: Wait) -> Two {
    let dir = tempfile::tempdir().unwrap();
    let dirs: Vec<PathBuf> = ["one", "two"].map(|name| dir.path().join(name)).to_vec();
    let mut config = config(dirs.clone());
    config.network_threads = NETWORK_THREADS;
    config.unwritten_max_bytes = Some(300_000);
    if has_cache {
        config.cache = cache(&config.log_dirs);
    }
    let disk = Stalling::new();
    disk.watch_threads("network-");
    let turns: Arc<[AtomicU64; NETWORK_THREADS]> = Arc::default();
    let (counts, hooked) = (Arc::clone(&turns), disk.0.clone());
    let mut test = start(config, &disk, move |thread| {
        counts[thread].fetch_add(1, Ordering::Relaxed);
        if hooked.waiting() > 0 {
            planted_wait(&hooked);
        }
    });
    let mut topic = topic_config();
    // Many segments.
    topic.log.segment_bytes = 500_000;
    for name in ["a", "b"] {
        assert_eq!(test.lead(name, 1, &topic), [0]);
    }
    assert!(dirs[0].join("a-0").exists() && dirs[1].join("b-0").exists());
    Two {
        test,
        disk,
        turns,
        _dir: dir,
    }
}

/// Produces to `b` and reads back, sometimes old records and by time, until told to stop; counts
/// the rounds.
fn go_round(mut client: Client, rounds: &AtomicU64, is_over: &AtomicBool) {
    let record = large_batch(2_000);
    while !is_over.load(Ordering::Relaxed) {
        let (error, offset) = client.produce("b", 0, &record);
        assert_eq!(error, ErrorCode::NONE);
        let fetched = client.fetch_one("b", 0, offset);
        assert_eq!(
            (fetched.error, fetched.batches()[0]),
            (ErrorCode::NONE, offset)
        );
        if rounds.fetch_add(1, Ordering::Relaxed).is_multiple_of(16) {
            let old = client.fetch_one("b", 0, offset / 2);
            assert_eq!((old.error, old.batches()[0]), (ErrorCode::NONE, offset / 2));
            let listed = client.list_offset("b", 0, 1_700_000_000_000);
            assert_eq!((listed.error_code, listed.offset), (ErrorCode::NONE, 0));
        }
    }
}

/// Reads `a` and `b` in one request: `b` must come even if `a` hangs.
fn read_both(mut client: Client, rounds: &AtomicU64, is_over: &AtomicBool) {
    let mut ask = Ask::one("a", 0, 0).wait(100, 1);
    ask.partitions.push(("b".into(), partition(0, 0)));
    while !is_over.load(Ordering::Relaxed) {
        let reply = client.fetch(&ask);
        assert_eq!(reply.partitions[0].error, ErrorCode::NONE);
        assert_eq!(reply.partitions[1].batches()[0], 0);
        rounds.fetch_add(1, Ordering::Relaxed);
    }
}

/// Ends the process when a network thread waits for a disk, since its clients would wait forever.
fn end_if_waited_for(disk: StallingDisk) {
    std::thread::spawn(move || {
        loop {
            let waited_for = disk.waited_for();
            if !waited_for.is_empty() {
                println!("waited for by network threads: {waited_for:?}");
                std::process::exit(WAITED);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    });
}

/// Produces batches until the last one is in the cache, if it should be; returns its offset.
fn produce_one(test: &TestPlane, topic: &str, into_cache: bool) -> i64 {
    loop {
        let before = test.statistic("cache_appended_bytes");
        let (error, offset) = test.client().produce(topic, 0, &large_batch(100_000));
        assert_eq!(error, ErrorCode::NONE);
        if !into_cache || test.statistic("cache_appended_bytes") > before {
            return offset;
        }
    }
}

fn freeze_one_of_two(freeze: Duration, has_cache: bool, planted_wait: Wait) {
    let Two {
        test,
        disk,
        turns,
        _dir,
    } = two_directories(has_cache, planted_wait);
    end_if_waited_for(disk.0.clone());
    produce_one(&test, "b", false);
    let last_offset = produce_one(&test, "a", has_cache);
    let rounds: [AtomicU64; CLIENTS] = Default::default();
    let (both, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        disk.stall("/one/");
        disk.set_cold(Some("/one/"));
        let mut stuck = Stuck::begin(&test, last_offset);
        for rounds in &rounds {
            let client = test.client();
            scope.spawn(|| go_round(client, rounds, &is_over));
        }
        let client = test.client();
        scope.spawn(|| read_both(client, &both, &is_over));
        let read = |counts: &[AtomicU64]| -> Vec<u64> {
            counts
                .iter()
                .map(|count| count.load(Ordering::Relaxed))
                .collect()
        };
        // Nothing may go wrong in this time, however well the rounds go.
        std::thread::sleep(freeze);
        let all = || rounds.iter().chain(turns.iter()).chain([&both]);
        let is_enough = |count: &AtomicU64| count.load(Ordering::Relaxed) >= ROUNDS_MIN;
        // A slow machine gets longer; missing rounds are reported below.
        let _in_time = within(Duration::from_secs(15), || {
            all().all(is_enough).then_some(())
        });
        let (rounds, turns) = (read(&rounds), read(&*turns));
        let both = both.load(Ordering::Relaxed);
        let still_stuck = disk.waiting();
        disk.resume();
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(disk.waited_for(), Vec::<String>::new());
        assert!(still_stuck > 0, "nothing met the frozen disk");
        assert!(
            rounds.iter().all(|count| *count >= ROUNDS_MIN),
            "{rounds:?}"
        );
        assert!(both >= ROUNDS_MIN, "{both} fetches of both");
        assert!(turns.iter().all(|count| *count >= ROUNDS_MIN), "{turns:?}");
        println!("rounds {rounds:?}, fetches of both {both}, turns {turns:?}");
        stuck.end(has_cache);
    });
    let ticket = test.plane.describe_log_dirs().unwrap();
    let mut test = test;
    test.ticket(ticket);
    assert!(test.shutdown());
}

struct Stuck {
    producers: Vec<Client>,
    impatient: Client,
    reader: Client,
    last_offset: i64,
}

const STUCK_PRODUCERS: usize = 6;

impl Stuck {
    /// More than the directory takes, a producer that waits only a second, a read, a look-up.
    fn begin(test: &TestPlane, last_offset: i64) -> Stuck {
        let send = |client: &mut Client, acks: i16, timeout_ms: i32| {
            let record = large_batch(100_000);
            let partitions = [(0, Some(&record[..]))];
            let body = produce_body(PRODUCE_VERSION, acks, timeout_ms, "a", &partitions);
            client.send(key::PRODUCE, PRODUCE_VERSION, &body);
        };
        let mut producers: Vec<Client> = (0..STUCK_PRODUCERS).map(|_| test.client()).collect();
        for client in &mut producers {
            send(client, 1, 30_000);
        }
        eventually("a full park", || {
            (test.statistic("produce_muted_waiting.0") > 0).then_some(())
        });
        let mut impatient = test.client();
        send(&mut impatient, -1, 10);
        let mut reader = test.client();
        let ask = Ask::one("a", 0, last_offset).wait(500, 1);
        reader.send(key::FETCH, ask.version, &ask.encode());
        Stuck {
            producers,
            impatient,
            reader,
            last_offset,
        }
    }

    /// With a cache, produced records are readable without the disk.
    fn end(&mut self, has_cache: bool) {
        let (_, body) = self.impatient.receive(key::PRODUCE, PRODUCE_VERSION);
        let refused = (ErrorCode::REQUEST_TIMED_OUT, -1);
        assert_eq!(produced(&body, PRODUCE_VERSION), refused);
        let ask = Ask::one("a", 0, 0);
        let (_, body) = self.reader.receive(key::FETCH, ask.version);
        let reply = fetched(&body, &ask).partitions.remove(0);
        assert_eq!(reply.error, ErrorCode::NONE);
        assert_eq!(!reply.records.is_empty(), has_cache);
        let mut offsets: Vec<i64> = Vec::new();
        for client in &mut self.producers {
            let (_, body) = client.receive(key::PRODUCE, PRODUCE_VERSION);
            let (error, offset) = produced(&body, PRODUCE_VERSION);
            assert_eq!(error, ErrorCode::NONE);
            offsets.push(offset);
        }
        offsets.sort_unstable();
        let first = self.last_offset + 1;
        let expected: Vec<i64> = (first..first + STUCK_PRODUCERS as i64).collect();
        assert_eq!(offsets, expected, "each once, none lost");
    }
}
