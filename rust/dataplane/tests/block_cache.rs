//! The block cache under a whole plane: after a kill, a reboot and without its arena.

mod harness;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use harness::*;
use pyrklog_arena::{Arena, read_header};
use pyrklog_dataplane::arena_tools;
use pyrklog_dataplane::seam::{CacheConfig, Event, PlaneConfig};
use pyrklog_log::disk::RealDisk;
use pyrklog_wire::ErrorCode;

const MIB: u64 = 1 << 20;

fn cached(dir: &Path) -> PlaneConfig {
    let mut config = config(vec![dir.join("logs")]);
    config.cache = cache(&config.log_dirs);
    config
}

/// A plane whose writer waits long enough for a test to kill it first.
fn behind(dir: &Path) -> PlaneConfig {
    let mut config = cached(dir);
    config.cache.flush_ms = 3_600_000;
    config.cache.flush_bytes = usize::MAX;
    config
}

fn start(config: &PlaneConfig) -> TestPlane {
    TestPlane::start_with(config.clone(), Arc::new(RealDisk))
}

fn marker(dir: &Path) -> PathBuf {
    dir.join("logs/.pyrklog-arena")
}

fn arenas(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .filter(|path| path.extension().is_some_and(|kind| kind == "arena"))
        .collect()
}

fn segment(dir: &Path, topic: &str, base_offset: i64) -> PathBuf {
    dir.join(format!("logs/{topic}-0/{base_offset:020}.log"))
}

/// Produces until records are acknowledged out of the cache, then `count` more; returns the
/// batches.
fn fill(test: &TestPlane, topic: &str, count: usize) -> Vec<Vec<u8>> {
    let mut sent = Vec::new();
    fill_from(test, topic, &mut sent, count);
    sent
}

fn fetch_all(test: &TestPlane, topic: &str, count: usize) -> Vec<u8> {
    let mut client = test.client();
    let mut all = Vec::new();
    let mut offset = 0;
    while offset < count as i64 {
        let fetched = client.fetch_one(topic, 0, offset);
        assert_eq!(fetched.error, ErrorCode::NONE);
        let (mut at, records) = (0, &fetched.records);
        while at + 12 <= records.len() {
            let size = i32::from_be_bytes(records[at + 8..at + 12].try_into().unwrap());
            let end = at + 12 + size as usize;
            if end > records.len() {
                break;
            }
            offset = i64::from_be_bytes(records[at..at + 8].try_into().unwrap()) + 1;
            all.extend_from_slice(&records[at..end]);
            at = end;
        }
        assert!(at > 0, "no progress at {offset}");
    }
    all
}

/// The batches as stored: the broker sets the leader epoch.
fn expected(sent: &[Vec<u8>]) -> Vec<u8> {
    let mut all = Vec::new();
    for batch in sent {
        let mut batch = batch.clone();
        batch[12..16].copy_from_slice(&0i32.to_be_bytes());
        all.extend(batch);
    }
    all
}

fn without_epochs(mut stored: Vec<u8>) -> Vec<u8> {
    let mut at = 0;
    while at < stored.len() {
        let size = i32::from_be_bytes(stored[at + 8..at + 12].try_into().unwrap());
        stored[at + 12..at + 16].copy_from_slice(&0i32.to_be_bytes());
        at += 12 + size as usize;
    }
    stored
}

#[test]
fn a_kill_loses_nothing_that_was_acknowledged_out_of_the_cache() {
    let dir = tempfile::tempdir().unwrap();
    let config = behind(dir.path());
    let mut sent = Vec::new();
    for life in 0..4 {
        let mut test = start(&config);
        if life == 0 {
            test.create("t", 1);
        } else {
            assert_eq!(test.lead("t", 1, &topic_config()), [0]);
            let found = fetch_all(&test, "t", sent.len());
            assert_eq!(without_epochs(found), expected(&sent));
        }
        let in_file = fs::metadata(segment(dir.path(), "t", 0)).map_or(0, |file| file.len());
        let mut client = test.client();
        let offset = sent.len() as i64;
        let mut record = large_batch(5000);
        assert_eq!(client.produce("t", 0, &record), (ErrorCode::NONE, offset));
        record[..8].copy_from_slice(&offset.to_be_bytes());
        sent.push(record);
        let more = fill_from(&test, "t", &mut sent, 50);
        assert!(more >= 50);
        // The first write creates the file.
        let after = fs::metadata(segment(dir.path(), "t", 0)).map_or(0, |file| file.len());
        let total: usize = sent.iter().map(Vec::len).sum();
        assert!(
            after < total as u64,
            "life {life}: {in_file}, {after} of {total} are in the file"
        );
        drop(client);
        drop(test);
    }
    let mut test = start(&config);
    assert_eq!(test.lead("t", 1, &topic_config()), [0]);
    assert!(test.shutdown());
    let stored = fs::read(segment(dir.path(), "t", 0)).unwrap();
    assert_eq!(without_epochs(stored), expected(&sent));
    assert!(arenas(dir.path()).is_empty() && !marker(dir.path()).exists());
}

/// Like `fill`, after earlier batches.
fn fill_from(test: &TestPlane, topic: &str, sent: &mut Vec<Vec<u8>>, count: usize) -> usize {
    let mut client = test.client();
    let mut cached = 0;
    let mut all = 0;
    while cached < count {
        let before = test.statistic("cache_appended_bytes");
        let mut record = large_batch(100 + 37 * (sent.len() % 400));
        let offset = sent.len() as i64;
        assert_eq!(client.produce(topic, 0, &record), (ErrorCode::NONE, offset));
        record[..8].copy_from_slice(&offset.to_be_bytes());
        sent.push(record);
        cached += usize::from(test.statistic("cache_appended_bytes") > before);
        all += 1;
        assert!(all < 100_000, "nothing goes to the cache");
    }
    all
}

#[test]
fn records_in_the_cache_are_written_after_a_while() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = start(&cached(dir.path()));
    test.create("t", 1);
    let sent = fill(&test, "t", 20);
    let total: usize = sent.iter().map(Vec::len).sum();
    eventually("writing them", || {
        // The writer creates the file.
        let len = fs::metadata(segment(dir.path(), "t", 0)).map_or(0, |file| file.len());
        (len == total as u64).then_some(())
    });
    eventually("counting them", || {
        (test.statistic("unwritten_bytes") == 0).then_some(())
    });
    let found = fetch_all(&test, "t", sent.len());
    assert_eq!(without_epochs(found), expected(&sent));
}

#[test]
fn a_reboot_is_recorded_and_its_arena_is_not_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let config = behind(dir.path());
    let mut test = start(&config);
    test.create("t", 1);
    let sent = fill(&test, "t", 20);
    drop(test);
    let text = fs::read_to_string(marker(dir.path())).unwrap();
    let (head, rest) = text.split_once("boot=").unwrap();
    let other = format!("{head}boot={}{}", "0".repeat(32), &rest[32..]);
    fs::write(marker(dir.path()), other).unwrap();

    let mut test = start(&config);
    let notice = test.wait_for_notice("block_cache");
    assert!(
        notice.iter().any(|(_, text)| text.contains("may be lost")),
        "{notice:?}"
    );
    assert_eq!(test.lead("t", 1, &topic_config()), [0]);
    let left = test.client().list_offset("t", 0, -1).offset;
    assert!(left < sent.len() as i64, "{left} of {}", sent.len());
    let unclean = fs::read_to_string(dir.path().join("logs/.pyrklog-unclean")).unwrap();
    assert!(
        unclean.contains("the machine crashed or was rebooted"),
        "{unclean}"
    );
}

#[test]
fn a_missing_arena_is_an_alarm() {
    let dir = tempfile::tempdir().unwrap();
    let config = behind(dir.path());
    let mut test = start(&config);
    test.create("t", 1);
    fill(&test, "t", 20);
    drop(test);
    for arena in arenas(dir.path()) {
        fs::remove_file(arena).unwrap();
    }
    let mut test = start(&config);
    let notice = test.wait_for_notice("block_cache");
    assert!(
        notice.iter().any(|(_, text)| text.contains("may be lost")),
        "{notice:?}"
    );
    assert!(dir.path().join("logs/.pyrklog-unclean").exists());
    assert_eq!(test.lead("t", 1, &topic_config()), [0]);
    assert_eq!(fill_error(&test), ErrorCode::NONE, "it goes on");
}

fn fill_error(test: &TestPlane) -> ErrorCode {
    test.client().produce("t", 0, &large_batch(100)).0
}

#[test]
fn files_that_another_broker_changed_take_the_partition_offline_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let config = behind(dir.path());
    let mut test = start(&config);
    test.create("t", 1);
    test.create("u", 1);
    let sent = fill(&test, "t", 20);
    let others = fill(&test, "u", 20);
    drop(test);
    let path = segment(dir.path(), "t", 0);
    // The first write creates the file; there may be none yet.
    let mut content = fs::read(&path).unwrap_or_default();
    content.extend(large_batch(500));
    fs::write(&path, &content).unwrap();

    let mut test = start(&config);
    let storage = ErrorCode::KAFKA_STORAGE_ERROR.0;
    assert_eq!(test.lead("t", 1, &topic_config()), [storage]);
    let notice = test.wait_for_notice("partition_offline");
    assert!(
        notice
            .iter()
            .any(|(_, text)| text.contains("another broker")),
        "{notice:?}"
    );
    assert_eq!(test.lead("u", 1, &topic_config()), [0]);
    let found = fetch_all(&test, "u", others.len());
    assert_eq!(without_epochs(found), expected(&others));
    assert_eq!(fs::read(&path).unwrap(), content, "not touched");
    test.shutdown();
    assert_eq!(arenas(dir.path()).len(), 1, "the arena is kept");

    // Once the file is as it was, everything is there.
    let was = content.len() - large_batch(500).len();
    fs::write(&path, &content[..was]).unwrap();
    let mut test = start(&config);
    assert_eq!(test.lead("t", 1, &topic_config()), [0]);
    let found = fetch_all(&test, "t", sent.len());
    assert_eq!(without_epochs(found), expected(&sent));
}

#[test]
fn records_evicted_from_a_small_cache_are_read_from_files() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = cached(dir.path());
    config.cache.max_bytes = Some(4 * MIB);
    config.cache.flush_bytes = 64 * 1024;
    let mut test = start(&config);
    test.create("t", 1);
    let mut sent = Vec::new();
    let mut client = test.client();
    // While nothing can be reclaimed in time, records go to the files without the cache.
    let mut is_read_from_cache = false;
    while sent.len() < 300 || test.statistic("cache_chunks_reclaimed") <= 5 || !is_read_from_cache {
        let number = sent.len() as i64;
        let cached_bytes = test.statistic("cache_appended_bytes");
        assert!(number < 5_000, "nothing falls out of the cache");
        let mut record = large_batch(100_000);
        assert_eq!(client.produce("t", 0, &record), (ErrorCode::NONE, number));
        record[..8].copy_from_slice(&number.to_be_bytes());
        sent.push(record);
        if test.statistic("cache_appended_bytes") > cached_bytes {
            client.fetch_one("t", 0, number);
            is_read_from_cache = test.statistic("fetched_bytes.cached") > 0;
        }
    }
    let found = fetch_all(&test, "t", sent.len());
    assert_eq!(without_epochs(found), expected(&sent));
    assert!(test.statistic("cache_populated_bytes") <= 4 * MIB);
    assert!(test.shutdown());
    let stored = fs::read(segment(dir.path(), "t", 0)).unwrap();
    assert_eq!(without_epochs(stored), expected(&sent));
}

#[test]
fn segments_roll_in_the_cache_and_come_back_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let config = behind(dir.path());
    let mut options = topic_config();
    options.log.segment_bytes = 20_000;
    let mut test = start(&config);
    assert_eq!(test.lead("t", 1, &options), [0]);
    let sent = fill(&test, "t", 60);
    drop(test);
    let mut test = start(&config);
    assert_eq!(test.lead("t", 1, &options), [0]);
    let found = fetch_all(&test, "t", sent.len());
    assert_eq!(without_epochs(found), expected(&sent));
    assert!(test.shutdown());
    let mut test = start(&config);
    assert_eq!(test.lead("t", 1, &options), [0]);
    let found = fetch_all(&test, "t", sent.len());
    assert_eq!(without_epochs(found), expected(&sent));
}

#[test]
fn an_arena_that_is_removed_under_a_broker_is_noticed_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let config = behind(dir.path());
    let mut test = start(&config);
    test.create("t", 1);
    let mut sent = fill(&test, "t", 20);
    for arena in arenas(dir.path()) {
        fs::remove_file(arena).unwrap();
    }
    let notice = test.wait_for_notice("block_cache");
    assert!(
        notice.iter().any(|(_, text)| text.contains("was removed")),
        "{notice:?}"
    );
    let mut client = test.client();
    let mut record = large_batch(700);
    let offset = sent.len() as i64;
    assert_eq!(client.produce("t", 0, &record), (ErrorCode::NONE, offset));
    record[..8].copy_from_slice(&offset.to_be_bytes());
    sent.push(record);
    // Acknowledged now means written.
    let stored = fs::read(segment(dir.path(), "t", 0)).unwrap();
    assert_eq!(without_epochs(stored), expected(&sent));
    // A kill from now on loses nothing, and the next start reports no loss.
    eventually("the marker is removed", || {
        (!marker(dir.path()).exists()).then_some(())
    });
    drop(client);
    drop(test);
    has_all(&config, &sent);
    assert!(!dir.path().join("logs/.pyrklog-unclean").exists());
}

#[test]
fn without_a_cache_a_kill_loses_nothing_either_and_an_old_arena_is_still_reattached() {
    let dir = tempfile::tempdir().unwrap();
    let with = behind(dir.path());
    let mut test = start(&with);
    test.create("t", 1);
    let mut sent = fill(&test, "t", 20);
    drop(test);
    let mut without = with.clone();
    without.cache = CacheConfig::off();
    let mut test = start(&without);
    assert_eq!(test.lead("t", 1, &topic_config()), [0]);
    let offset = sent.len() as i64;
    let mut record = large_batch(700);
    assert_eq!(
        test.client().produce("t", 0, &record),
        (ErrorCode::NONE, offset)
    );
    record[..8].copy_from_slice(&offset.to_be_bytes());
    sent.push(record);
    let stored = fs::read(segment(dir.path(), "t", 0)).unwrap();
    assert_eq!(without_epochs(stored), expected(&sent));
    assert!(test.shutdown());
    assert!(arenas(dir.path()).is_empty() && !marker(dir.path()).exists());
}

#[test]
fn a_deleted_topic_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let config = behind(dir.path());
    let mut test = start(&config);
    test.create("t", 1);
    fill(&test, "t", 20);
    assert_eq!(test.delete("t", 1), [0]);
    drop(test);
    let mut test = start(&config);
    test.create("t", 1);
    let mut client = test.client();
    assert_eq!(
        client.produce("t", 0, &large_batch(100)),
        (ErrorCode::NONE, 0)
    );
    let fetched = client.fetch_one("t", 0, 0);
    assert_eq!(
        (fetched.error, fetched.high_watermark),
        (ErrorCode::NONE, 1)
    );
}

#[test]
fn a_topic_that_is_deleted_before_its_log_is_opened_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let config = behind(dir.path());
    let mut test = start(&config);
    test.create("t", 1);
    fill(&test, "t", 20);
    drop(test);
    let mut test = start(&config);
    assert_eq!(test.delete("t", 1), [0]);
    test.create("t", 1);
    let produced = test.client().produce("t", 0, &large_batch(100));
    assert_eq!(produced, (ErrorCode::NONE, 0));
    assert!(test.shutdown());
    assert!(arenas(dir.path()).is_empty() && !marker(dir.path()).exists());
}

#[test]
fn blocks_of_a_topic_that_was_made_anew_are_not_kept_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let config = behind(dir.path());
    let mut test = start(&config);
    test.create("t", 1);
    fill(&test, "t", 20);
    drop(test);
    let metadata = "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n";
    fs::write(dir.path().join("logs/t-0/partition.metadata"), metadata).unwrap();
    assert!(start(&config).shutdown());
    assert!(arenas(dir.path()).is_empty() && !marker(dir.path()).exists());
}

#[test]
fn draining_brings_no_deleted_topic_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = start(&behind(dir.path()));
    test.create("t", 1);
    fill(&test, "t", 20);
    drop(test);
    let folder = dir.path().join("logs/t-0");
    fs::remove_dir_all(&folder).unwrap();
    let drained = arena_tools::drain(&dir.path().join("logs")).unwrap();
    assert_eq!((drained.partitions, drained.bytes), (0, 0));
    assert!(!folder.exists() && arenas(dir.path()).is_empty());
}

/// A broker that was killed with records only in its cache: (its arena, what it acknowledged).
fn killed(config: &PlaneConfig, dir: &Path) -> (PathBuf, Vec<Vec<u8>>) {
    let mut test = start(config);
    test.create("t", 1);
    let sent = fill(&test, "t", 20);
    drop(test);
    (arenas(dir).remove(0), sent)
}

fn has_all(config: &PlaneConfig, sent: &[Vec<u8>]) {
    let mut test = start(config);
    assert_eq!(test.lead("t", 1, &topic_config()), [0]);
    let found = fetch_all(&test, "t", sent.len());
    assert_eq!(without_epochs(found), expected(sent));
}

fn open_count(path: &Path) -> usize {
    let links = fs::read_dir("/proc/self/fd").unwrap();
    let targets = links.filter_map(|link| fs::read_link(link.unwrap().path()).ok());
    targets.filter(|target| target == path).count()
}

#[test]
fn start_waits_for_an_arena_locked_by_a_tool() {
    let dir = tempfile::tempdir().unwrap();
    let config = behind(dir.path());
    let (path, sent) = killed(&config, dir.path());
    let header = read_header(&fs::File::open(&path).unwrap()).unwrap();
    let (held, _) = Arena::attach(&path, header.identity, MIB).unwrap();
    let lock = dir.path().join("logs/.lock");
    let looker = std::thread::spawn(move || {
        // The plane has its log directory; the arena is next.
        eventually("the start", || (open_count(&lock) > 0).then_some(()));
        drop(held);
    });
    has_all(&config, &sent);
    looker.join().unwrap();
}

#[test]
fn an_arena_that_cannot_be_opened_now_is_not_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let config = behind(dir.path());
    let (path, sent) = killed(&config, dir.path());
    let aside = dir.path().join("aside");
    fs::rename(&path, &aside).unwrap();
    fs::create_dir(&path).unwrap();
    let refused = TestPlane::try_start(config.clone(), Arc::new(RealDisk)).err();
    assert!(refused.is_some());
    fs::remove_dir(&path).unwrap();
    fs::rename(&aside, &path).unwrap();
    has_all(&config, &sent);
}

#[test]
fn notices_name_only_what_happened() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = start(&behind(dir.path()));
    test.create("t", 1);
    fill(&test, "t", 1);
    assert!(test.shutdown());
    let test = start(&behind(dir.path()));
    let events = test.plane.drain_events(100);
    let is_about_the_cache = |event: &Event| {
        matches!(
            event,
            Event::Notice {
                event: "block_cache",
                ..
            }
        )
    };
    assert!(!events.iter().any(is_about_the_cache), "{events:?}");
}
