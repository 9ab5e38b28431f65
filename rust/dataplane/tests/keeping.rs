//! Old data that was read stays in memory while there is room, up to a bound (reads.md).

mod harness;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use harness::*;
use pyrklog_dataplane::seam::*;
use pyrklog_dataplane::testing::fix_kept_pages_max_bytes;
use pyrklog_log::disk::RealDisk;
use rustix::fs::Advice;

const BATCHES: usize = 40;
const BATCH_BYTES: usize = 800_000;
const ALL: u64 = (BATCHES * BATCH_BYTES) as u64;

/// The bound is the process's.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn drop_pages(path: &Path) {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
}

/// A plane whose partition holds [`ALL`] bytes in its file, none of it in memory.
fn cold_plane() -> (TestPlane, tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut options = config(vec![dir.path().join("logs")]);
    options.cache = CacheConfig::off();
    let mut test = TestPlane::start_with(options, Arc::new(RealDisk));
    assert_eq!(test.lead("t", 1, &topic_config()), [0]);
    let mut client = test.client();
    for number in 0..BATCHES {
        client.produce("t", 0, &batch(&[&vec![number as u8; BATCH_BYTES]]));
    }
    let segment = dir.path().join("logs/t-0/00000000000000000000.log");
    drop_pages(&segment);
    (test, dir, segment)
}

fn read_all(test: &TestPlane) {
    let mut client = test.client();
    let mut offset = 0;
    while offset < BATCHES as i64 {
        let reply = client.fetch(&Ask::one("t", 0, offset));
        let fetched = &reply.partitions[0];
        let bases = fetched.batches();
        assert_eq!(bases[0], offset, "{:?}", fetched.error);
        assert!(
            fetched.records[100..700_000]
                .iter()
                .all(|byte| *byte == offset as u8)
        );
        offset += bases.len() as i64;
    }
}

/// Bytes that this process has caused to be read from storage.
fn from_storage() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap();
    let line = io
        .lines()
        .find_map(|line| line.strip_prefix("read_bytes: "));
    line.unwrap().parse().unwrap()
}

/// Bytes that `work` caused to be read from storage.
fn read_by(work: impl FnOnce()) -> u64 {
    let before = from_storage();
    work();
    from_storage() - before
}

#[test]
fn the_second_reader_of_the_same_old_data_needs_no_disk() {
    let _one = ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(|gone| gone.into_inner());
    fix_kept_pages_max_bytes(1 << 30);
    // The kernel may take pages back at any time, and does where memory is short.
    let is_from_memory = (0..5).any(|_| {
        let (test, _dir, _segment) = cold_plane();
        let first = read_by(|| read_all(&test));
        assert!(first >= ALL * 9 / 10, "{first} bytes from storage");
        assert!(test.statistic("read_kept_bytes.0") >= ALL);
        let again = read_by(|| read_all(&test));
        assert_eq!(test.statistic("fetched_bytes.window"), 0);
        again <= ALL / 50
    });
    assert!(is_from_memory);
}

#[test]
fn without_room_nothing_is_kept_and_with_little_a_part() {
    let _one = ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(|gone| gone.into_inner());
    fix_kept_pages_max_bytes(0);
    let (test, _dir, segment) = cold_plane();
    read_all(&test);
    drop_pages(&segment);
    let again = read_by(|| read_all(&test));
    assert!(again >= ALL * 9 / 10, "{again} bytes from storage");
    assert_eq!(test.statistic("read_kept_bytes.0"), 0);

    // Half of it has room, and stays while the rest is read.
    let room = ALL / 2;
    fix_kept_pages_max_bytes(room);
    drop_pages(&segment);
    read_all(&test);
    let kept = test.statistic("read_kept_bytes.0");
    assert!((room / 2..=room).contains(&kept), "{kept} bytes kept");
    let is_from_memory = (0..5).any(|_| {
        let again = read_by(|| read_all(&test));
        assert!(test.statistic("read_kept_bytes.0") <= room);
        again <= ALL * 3 / 4
    });
    assert!(is_from_memory);

    // Less room: at the next read the rest is given up.
    fix_kept_pages_max_bytes(0);
    drop_pages(&segment);
    read_all(&test);
    assert_eq!(test.statistic("read_kept_bytes.0"), 0);
}

#[test]
fn kept_pages_are_right_after_further_appends() {
    let _one = ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(|gone| gone.into_inner());
    fix_kept_pages_max_bytes(1 << 30);
    let (test, _dir, _segment) = cold_plane();
    let mut client = test.client();
    for number in 0..5 {
        read_all(&test);
        let (_, offset) = client.produce("t", 0, &batch(&[&vec![number; 300_000]]));
        let fetched = client.fetch_one("t", 0, offset);
        assert_eq!(fetched.batches(), [offset]);
        assert!(
            fetched.records[100..290_000]
                .iter()
                .all(|byte| *byte == number)
        );
    }
}
