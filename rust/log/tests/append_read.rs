//! Appending, rolling and reading by offset.

use crate::common::{Rig, batch, bytes, records_in, small};
use pyrklog_log::disk::testing::{Fault, Operation};
use pyrklog_log::{AppendError, Isolation, LogConfig, ReadError, Wait};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::batch::{BatchHeader, Batches};

#[test]
fn an_append_assigns_offsets_and_epoch_and_is_visible_once_written() {
    let mut rig = Rig::new(LogConfig::default());
    rig.epoch = 5;
    let mut sent = batch(1_000, &["a", "b", "c"]);
    let appended = rig.append(&mut sent).unwrap();
    assert_eq!((appended.base_offset, appended.last_offset), (0, 2));
    assert!(appended.wake_writer && !appended.duplicate);
    assert_eq!(appended.appended_bytes, sent.len());
    let header = BatchHeader::parse(&sent).unwrap();
    assert_eq!((header.base_offset, header.partition_leader_epoch), (0, 5));
    assert_eq!(rig.log.log_end_offset(), 3);
    assert_eq!(
        rig.log.durable_end_offset(),
        0,
        "nothing is promised before the write"
    );
    assert_eq!(rig.log.unwritten().bytes, sent.len());
    assert!(rig.read(0, 1 << 20).unwrap().is_empty());

    let second = rig.append(&mut batch(1_000, &["d"])).unwrap();
    assert!(!second.wake_writer, "the writer was woken already");
    assert_eq!(second.base_offset, 3);
    rig.write();
    assert_eq!(
        (rig.log.durable_end_offset(), rig.log.high_watermark()),
        (4, 0)
    );
    assert!(
        rig.read(0, 1 << 20).unwrap().is_empty(),
        "consumers wait for the high watermark"
    );
    let replica = rig.read_as(0, 1 << 20, Isolation::DurableEnd).unwrap();
    assert_eq!(records_in(&replica).len(), 4);
    assert!(
        rig.log.advance_high_watermark(9),
        "it is held at the durable end"
    );
    assert_eq!(rig.log.high_watermark(), 4);
    assert!(!rig.log.advance_high_watermark(2), "it never moves back");
    assert_eq!(rig.contents().len(), 4);
    assert_eq!(rig.log.latest_epoch(), Some(5));
    assert!(!rig.log.has_unwritten());
}

#[test]
fn every_offset_is_read_with_the_batch_that_holds_it_across_segments() {
    let mut rig = Rig::new(small());
    for i in 0..60 {
        rig.put(&[&format!("{i}-0"), &format!("{i}-1"), &format!("{i}-2")]);
    }
    assert!(rig.log.segment_count() > 5);
    for offset in 0..180 {
        let found = records_in(&rig.read(offset, 1 << 20).unwrap());
        assert_eq!(
            found[0].0,
            offset / 3 * 3,
            "the whole batch of offset {offset}"
        );
        for (offset, value) in found {
            assert_eq!(value, format!("{}-{}", offset / 3, offset % 3));
        }
    }
    assert!(rig.read(180, 1 << 20).unwrap().is_empty());
    assert_eq!(rig.contents().len(), 180);
    for outside in [-1, 181] {
        let error = rig.read(outside, 1 << 20).unwrap_err();
        assert!(
            matches!(
                error,
                ReadError::OffsetOutOfRange {
                    start: 0,
                    end: 180,
                    ..
                }
            ),
            "{error}"
        );
    }
}

#[test]
fn a_read_is_cut_at_its_limit_but_the_first_batch_is_whole() {
    let mut rig = Rig::new(LogConfig::default());
    let one = batch(1_000, &["0123456789"]).len();
    for _ in 0..4 {
        rig.put(&["0123456789"]);
    }
    let read = |max_bytes, min_one| {
        let location = rig.log.locate(1, Isolation::HighWatermark).unwrap();
        location
            .resolve(max_bytes, min_one, Wait::Blocking)
            .unwrap()
    };
    assert_eq!(
        read(1, true).len(),
        one,
        "larger than the limit, still returned"
    );
    assert_eq!(read(0, true).len(), one);
    assert_eq!(
        read(one - 1, false).len(),
        0,
        "left out where another partition had its turn"
    );
    assert_eq!(read(0, false).len(), 0);
    assert_eq!(read(one, false).len(), one);
    let partial = read(2 * one + 10, true);
    assert_eq!(
        partial.len(),
        2 * one + 10,
        "a cut last batch is the consumer's to ignore"
    );
    let bytes = bytes(&partial);
    let mut batches = Batches::new(&bytes);
    assert_eq!(batches.by_ref().filter(Result::is_ok).count(), 2);
    assert_eq!(batches.trailing().len(), 10);
    assert_eq!(read(1 << 20, true).len(), 3 * one);
}

#[test]
fn read_bound_without_a_known_position_is_searched() {
    let mut rig = Rig::new(small());
    for i in 0..60 {
        rig.append(&mut batch(1_000, &[&format!("{i}"), "x"]))
            .unwrap();
    }
    rig.write();
    // A follower reports an offset at which no write ended.
    for mark in [14, 62, 100] {
        assert!(rig.log.advance_high_watermark(mark));
        assert_eq!(rig.contents().len() as i64, mark);
        let last = records_in(&rig.read(mark - 2, 1 << 20).unwrap());
        assert_eq!(last.last().unwrap().0, mark - 1);
        assert!(rig.read(mark, 1 << 20).unwrap().is_empty());
        assert!(rig.read(mark + 1, 1 << 20).unwrap().is_empty());
    }
}

#[test]
fn a_consumer_at_the_tail_is_served_without_looking_into_files() {
    let mut rig = Rig::new(LogConfig::default());
    rig.put(&["first"]);
    let reads = rig.disk.count(Operation::Read);
    for i in 0..50 {
        let next = rig.log.high_watermark();
        rig.put(&[&format!("{i}")]);
        let location = rig.log.locate(next, Isolation::HighWatermark).unwrap();
        assert_eq!(
            location.available_bytes() as usize,
            batch(0, &[&format!("{i}")]).len()
        );
        let slice = location.resolve(1 << 20, true, Wait::Nowait).unwrap();
        assert_eq!(slice.len() as u64, location.available_bytes());
    }
    assert_eq!(rig.disk.count(Operation::Read), reads);
}

#[test]
fn a_read_that_would_wait_says_so_and_succeeds_when_it_may_wait() {
    let mut rig = Rig::new(small());
    for i in 0..40 {
        rig.put(&[&format!("{i}")]);
    }
    rig.restart_clean();
    let location = rig.log.locate(17, Isolation::HighWatermark).unwrap();
    let refused = location.resolve(1 << 20, true, Wait::Nowait);
    assert!(
        matches!(refused, Err(ReadError::WouldBlock)),
        "the file is not even open"
    );
    let slice = location.resolve(1 << 20, true, Wait::Blocking).unwrap();
    assert_eq!(records_in(&bytes(&slice))[0].0, 17);
    location.resolve(1 << 20, true, Wait::Nowait).unwrap();
    rig.disk
        .fail(Operation::Read, ".log", 0, 1, Fault::WouldBlock);
    let refused = location.resolve(1 << 20, true, Wait::Nowait);
    assert!(
        matches!(refused, Err(ReadError::WouldBlock)),
        "its pages are not in memory"
    );
}

#[test]
fn segments_roll_by_size_time_index_and_offset_range() {
    let mut rig = Rig::new(LogConfig {
        segment_bytes: 300,
        ..LogConfig::default()
    });
    let one = batch(1_000, &["x"]).len();
    for _ in 0..(300 / one) {
        rig.put(&["x"]);
    }
    assert_eq!(rig.log.segment_count(), 1);
    rig.put(&["x"]);
    assert_eq!(rig.log.segment_count(), 2);

    let mut rig = Rig::new(LogConfig {
        segment_ms: 100,
        ..LogConfig::default()
    });
    rig.append(&mut batch(5_000, &["x"])).unwrap();
    rig.append(&mut batch(5_100, &["x"])).unwrap();
    assert_eq!(
        rig.log.segment_count(),
        1,
        "by the records' time, not the clock"
    );
    rig.append(&mut batch(5_101, &["x"])).unwrap();
    assert_eq!(rig.log.segment_count(), 2);

    let full = LogConfig {
        segment_index_bytes: 24,
        index_interval_bytes: 1,
        ..small()
    };
    let mut rig = Rig::new(LogConfig {
        segment_bytes: 1 << 20,
        ..full
    });
    for timestamp in 0..8 {
        rig.append(&mut batch(timestamp, &["x"])).unwrap();
    }
    assert!(
        rig.log.segment_count() > 2,
        "two entries of 12 bytes fill the time index"
    );
    rig.drain();
    assert_eq!(rig.contents().len(), 8);
}

#[test]
fn jitter_rolls_segments_of_different_partitions_at_different_times() {
    let config = LogConfig {
        segment_ms: 1_000,
        segment_jitter_ms: 900,
        ..LogConfig::default()
    };
    let mut rig = Rig::new(config);
    let mut lengths = Vec::new();
    let mut started = 0;
    for timestamp in 0..8_000 {
        let before = rig.log.segment_count();
        rig.append(&mut batch(timestamp, &["x"])).unwrap();
        if rig.log.segment_count() > before {
            lengths.push(timestamp - started);
            started = timestamp;
        }
    }
    assert!(
        lengths.iter().all(|length| (100..=1_001).contains(length)),
        "{lengths:?}"
    );
    lengths.dedup();
    assert!(lengths.len() > 1, "{lengths:?}");
}

#[test]
fn a_roll_leaves_complete_files_behind() {
    let mut rig = Rig::new(small());
    while rig.log.segment_count() < 3 {
        rig.now_ms += 1;
        rig.put(&["0123456789"]);
    }
    let files = rig.files();
    let bases: Vec<_> = files
        .iter()
        .filter_map(|name| name.strip_suffix(".log"))
        .collect();
    assert_eq!(bases.len(), 3);
    for base in &bases {
        for extension in ["index", "timeindex"] {
            assert!(files.contains(&format!("{base}.{extension}")), "{files:?}");
        }
    }
    for base in &bases[1..] {
        assert!(files.contains(&format!("{base}.snapshot")), "{files:?}");
    }
    let log_len = rig.file(&format!("{}.log", bases[0])).len();
    let index = rig.file(&format!("{}.index", bases[0]));
    assert!(index.len() >= 16 && index.len().is_multiple_of(8));
    let position = u32::from_be_bytes(index[index.len() - 4..].try_into().unwrap());
    assert!((position as usize) < log_len);
    // The last time entry of a closed segment is its largest timestamp, with the last offset.
    let times = rig.file(&format!("{}.timeindex", bases[0]));
    let (last_time, last_offset) = times[times.len() - 12..].split_at(8);
    let end: i64 = bases[1].parse().unwrap();
    assert_eq!(
        i64::from_be_bytes(last_time.try_into().unwrap()),
        1_000 + end
    );
    assert_eq!(
        i64::from(u32::from_be_bytes(last_offset.try_into().unwrap())),
        end - 1
    );
}

#[test]
fn a_failed_write_poisons_the_log_and_nothing_is_promised() {
    for fault in [Fault::InputOutput, Fault::NoSpaceAfter(30)] {
        let mut rig = Rig::new(LogConfig::default());
        rig.put(&["before"]);
        rig.append(&mut batch(1_000, &["lost"])).unwrap();
        rig.disk.fail(Operation::Write, ".log", 0, 1, fault);
        rig.write();
        assert_eq!(
            (rig.log.durable_end_offset(), rig.log.log_end_offset()),
            (1, 2)
        );
        let error = rig.append(&mut batch(1_000, &["refused"])).unwrap_err();
        assert_eq!(error.code(), ErrorCode::KAFKA_STORAGE_ERROR);
        assert!(matches!(rig.read(0, 100), Err(ReadError::Poisoned(_))));
        assert!(rig.log.take_writes().is_none(), "nothing is tried again");
        assert!(rig.log.close_cleanly().is_err());
        rig.restart_killed();
        assert_eq!(rig.contents(), [(0, "before".to_owned())]);
        assert_eq!(
            rig.report.truncated_bytes,
            if fault == Fault::InputOutput { 0 } else { 30 }
        );
    }
}

#[test]
fn a_poisoned_directory_stops_all_its_logs() {
    let mut rig = Rig::new(LogConfig::default());
    rig.put(&["a"]);
    rig.log.env().poison("the disk is gone");
    rig.log.env().poison("a second reason is not kept");
    let error = rig.append(&mut batch(1_000, &["b"])).unwrap_err();
    assert_eq!(error, AppendError::Poisoned("the disk is gone".to_owned()));
    assert!(rig.log.take_writes().is_none());
    assert!(rig.log.take_sync(pyrklog_log::SyncScope::Written).is_none());
}

#[test]
fn full_disk_stops_the_log_and_keeps_written_records() {
    let mut rig = Rig::new(small());
    rig.disk.set_free_bytes(Some(3_000));
    let mut acknowledged = 0;
    while rig.log.poisoned().is_none() {
        if rig.append(&mut batch(1_000, &["0123456789"])).is_ok() {
            rig.drain();
            acknowledged = rig.log.durable_end_offset();
        }
    }
    assert!(acknowledged > 10);
    rig.disk.heal();
    rig.restart_killed();
    rig.drain();
    assert!(rig.contents().len() as i64 >= acknowledged);
}
