//! Consumers that read old data get all of it, and the page cache stays as it was (reads.md).

mod harness;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use harness::*;
use pyrklog_dataplane::seam::*;
use pyrklog_dataplane::testing::fix_kept_pages_max_bytes;
use pyrklog_log::disk::RealDisk;
use pyrklog_wire::ErrorCode;
use rustix::fs::Advice;

const BATCHES: usize = 24;
const BATCH_BYTES: usize = 700_000;

/// A plane whose one partition holds [`BATCHES`] batches in its file, none of it in memory, on a
/// machine without memory for old data. On the disk of the build: a file in shared memory could not
/// leave memory.
fn cold_plane(path: ReadPath) -> (TestPlane, tempfile::TempDir, PathBuf) {
    fix_kept_pages_max_bytes(0);
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut options = config(vec![dir.path().join("logs")]);
    options.cache = CacheConfig::off();
    options.fetch_read_path = path;
    let mut test = TestPlane::start_with(options, Arc::new(RealDisk));
    assert_eq!(test.lead("t", 1, &topic_config()), [0]);
    let mut client = test.client();
    for offset in 0..BATCHES {
        let (error, base_offset) = client.produce("t", 0, &record(offset));
        assert_eq!((error, base_offset), (ErrorCode::NONE, offset as i64));
    }
    let segment = dir.path().join("logs/t-0/00000000000000000000.log");
    drop_pages(&segment);
    (test, dir, segment)
}

fn record(number: usize) -> Vec<u8> {
    batch(&[&vec![number as u8; BATCH_BYTES]])
}

fn drop_pages(path: &Path) {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
}

/// Bytes of a file in the page cache.
fn resident_bytes(path: &Path) -> u64 {
    let file = File::open(path).unwrap();
    let len = usize::try_from(file.metadata().unwrap().len()).unwrap();
    (pyrklog_arena::resident_pages(&file, len).unwrap() * rustix::param::page_size()) as u64
}

/// The kernel's largest read-ahead of any device, and the first pages asked for; half of a file at
/// most.
fn left_at_most() -> u64 {
    let devices = std::fs::read_dir("/sys/class/bdi").unwrap();
    let ahead_kb = devices.map(|device| {
        let ahead = device.unwrap().path().join("read_ahead_kb");
        let ahead = std::fs::read_to_string(ahead).unwrap();
        ahead.trim().parse::<u64>().unwrap()
    });
    let all = (BATCHES * BATCH_BYTES) as u64;
    (ahead_kb.max().unwrap() * 1024 + 64 * 1024).min(all / 2)
}

/// Reads everything from the beginning, up to `partition_bytes` at a time.
fn read_all(test: &TestPlane, partition_bytes: i32) {
    let mut client = test.client();
    let mut offset = 0;
    while offset < BATCHES as i64 {
        let mut ask = Ask::one("t", 0, offset);
        ask.partitions[0].1.max_bytes = partition_bytes;
        let reply = client.fetch(&ask);
        let fetched = &reply.partitions[0];
        let bases = fetched.batches();
        assert_eq!(bases[0], offset, "{:?}", fetched.error);
        let first = record(offset as usize);
        assert_eq!(fetched.records[61..first.len()], first[61..]);
        offset += bases.len() as i64;
    }
}

#[test]
fn lagging_consumer_leaves_the_page_cache_unchanged() {
    for path in [ReadPath::Auto, ReadPath::Copy] {
        for partition_bytes in [1_000, 3 << 20] {
            // The kernel reads ahead while the disk is ahead of its reader; then windows take over,
            // and what was read ahead is left. On a busy machine the disk may stay ahead to the
            // end. Little in one of a few tries tells windows from sendfile, which fills it always.
            let leaves_little = (0..10).any(|_| {
                let (test, _dir, segment) = cold_plane(path);
                read_all(&test, partition_bytes);
                resident_bytes(&segment) <= left_at_most()
            });
            assert!(
                leaves_little,
                "{path:?}, {partition_bytes} bytes of a partition"
            );
        }
    }
}

#[test]
fn sendfile_fills_the_page_cache_with_old_data() {
    // The kernel may take any page back at any time, and does where memory is short. Most pages
    // once, in a few tries, tells sendfile from windows, which leave none.
    let most = (BATCHES * BATCH_BYTES) as u64 * 3 / 4;
    let holds_most = (0..10).any(|_| {
        let (test, _dir, segment) = cold_plane(ReadPath::Sendfile);
        read_all(&test, 3 << 20);
        assert_eq!(test.statistic("read_window_bytes.0"), 0);
        resident_bytes(&segment) >= most
    });
    assert!(holds_most);
}

#[test]
fn old_data_is_sent_from_windows_and_resident_data_by_sendfile() {
    let (test, _dir, segment) = cold_plane(ReadPath::Auto);
    read_all(&test, 3 << 20);
    let all = (BATCHES * BATCH_BYTES) as u64;
    // The reader counts after it has sent.
    eventually("windows are counted", || {
        (test.statistic("fetched_bytes.window") > all / 2).then_some(())
    });
    let held = test.statistic("read_window_bytes.0");
    assert!((1 << 20..=16 << 20).contains(&held), "{held}");
    let by_sendfile = test.statistic("fetched_bytes.sendfile");
    drop(test);
    // The same data for another consumer, which finds it in the page cache.
    let logs = segment.parent().unwrap().parent().unwrap();
    std::fs::read(&segment).unwrap();
    let mut options = config(vec![logs.to_owned()]);
    options.cache = CacheConfig::off();
    let mut test = TestPlane::start_with(options, Arc::new(RealDisk));
    assert_eq!(test.lead("t", 1, &topic_config()), [0]);
    read_all(&test, 3 << 20);
    eventually("sendfile is counted", || {
        (test.statistic("fetched_bytes.sendfile") > by_sendfile + all / 2).then_some(())
    });
    assert_eq!(test.statistic("fetched_bytes.window"), 0);
}

#[test]
fn two_consumers_of_the_same_old_data_are_served_side_by_side() {
    let (test, _dir, segment) = cold_plane(ReadPath::Auto);
    std::thread::scope(|scope| {
        for partition_bytes in [1 << 20, 3 << 20] {
            let test = &test;
            scope.spawn(move || read_all(test, partition_bytes));
        }
    });
    // If both ask for the same at once, some of the kernel's read-ahead is left.
    let resident = resident_bytes(&segment);
    assert!(resident <= 8 << 20, "{resident} bytes");
}
