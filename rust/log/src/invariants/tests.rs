//! Each invariant is seen to fail on a log that breaks it.

use std::path::Path;
use std::sync::Arc;

use pyrklog_wire::builder::BatchBuilder;

use crate::batch_info::BatchInfo;
use crate::config::LogConfig;
use crate::disk::Disk;
use crate::disk::testing::MemDisk;
use crate::env::LogEnv;
use crate::log::Log;
use crate::open::{OpenRequest, OpenState};
use crate::position::LogPosition;
use crate::producer_state::Origin;
use crate::read::Isolation;
use crate::transaction_index::{SegmentAborted, TransactionIndex};

/// Five segments of one batch each, 0 to 4, in leader epochs 1 and 2; two batches are not written.
fn log() -> Log {
    let memory = MemDisk::default();
    memory.create_dir_all(Path::new("/data")).unwrap();
    let opened = Log::open(OpenRequest {
        env: LogEnv::new(Arc::new(memory), 16),
        log_dir: Path::new("/data"),
        topic: "t",
        partition: 0,
        topic_id: None,
        config: Arc::new(LogConfig {
            segment_bytes: 100,
            ..LogConfig::default()
        }),
        state: OpenState::default(),
        now_ms: 0,
        producer_id_expiration_ms: i64::MAX,
    });
    let (mut log, _) = opened.unwrap();
    for epoch in [1, 1, 2] {
        append(&mut log, epoch);
    }
    write(&mut log);
    log.advance_high_watermark(2);
    append(&mut log, 2);
    append(&mut log, 2);
    assert_eq!(log.segment_count(), 5);
    assert_eq!(log.check_invariants(), Ok(()));
    log
}

fn append(log: &mut Log, epoch: i32) {
    let sequence = log.log_end_offset() as i32;
    let mut builder = BatchBuilder::new().producer(7, 0, sequence);
    builder.append(0, None, Some(&[b'x'; 40]));
    let mut batch = builder.build();
    let info = BatchInfo::parse(&batch).unwrap();
    let appended = log.append(&mut batch, &info, Origin::Client, epoch, 0);
    appended.unwrap();
}

fn write(log: &mut Log) {
    let mut job = log.take_writes().unwrap();
    let result = job.execute();
    log.complete_writes(job, result);
}

/// What is said of a log that was broken so.
fn broken(damage: impl FnOnce(&mut Log)) -> String {
    let mut log = log();
    damage(&mut log);
    log.check_invariants().unwrap_err()
}

#[test]
fn offsets_out_of_order() {
    let told = broken(|log| log.log_start = 3);
    assert_eq!(told, "the log start is behind the last stable offset");
    let told = broken(|log| log.high_watermark = LogPosition::unplaced(4));
    assert_eq!(told, "the high watermark is behind the durable end");
    let told = broken(|log| log.durable_end = LogPosition::unplaced(6));
    assert_eq!(told, "the durable end is behind the log end");
    let told = broken(|log| log.written = LogPosition::unplaced(6));
    assert_eq!(told, "more is written than there is");
    let told = broken(|log| log.sync.recovery_point = 6);
    assert_eq!(told, "more is synced than there is");
}

#[test]
fn segments_that_do_not_follow_each_other() {
    let last = |log: &mut Log| Arc::make_mut(&mut log.segments).pop().unwrap();
    let told = broken(|log| drop(last(log)));
    assert_eq!(told, "the active segment 4 is not the last one");
    let told = broken(|log| {
        let last = last(log);
        let segments = Arc::make_mut(&mut log.segments);
        segments.push(Arc::clone(&last));
        segments.push(last);
    });
    assert_eq!(told, "segment 4 follows segment 4");
    let told = broken(|log| Arc::make_mut(&mut log.segments).swap(1, 2));
    assert_eq!(told, "segment 1 follows segment 2");
    let told = broken(|log| log.segments[1].set_removed());
    assert_eq!(told, "segment 1 was removed and is in use");
    let told = broken(|log| log.sync.segments.swap(0, 1));
    assert_eq!(told, "segment 0 is to be synced behind segment 1");
    let told = broken(|log| drop(Arc::make_mut(&mut log.segments).remove(0)));
    assert_eq!(told, "the first segment starts at 1");
}

#[test]
fn sizes_that_do_not_agree() {
    let told = broken(|log| log.active.size += 1);
    assert!(told.starts_with("the log ends at"), "{told}");
    let told = broken(|log| {
        write(log);
        log.active.segment.set_written(1);
    });
    assert!(told.ends_with("bytes 1 are"), "{told}");
    let told = broken(|log| {
        write(log);
        log.written = LogPosition::unplaced(4);
    });
    assert_eq!(told, "nothing waits to be written, but not all is");
    let told = broken(|log| log.segments[0].set_size(5));
    assert!(
        told.starts_with("segment 0 has 5 bytes, of which"),
        "{told}"
    );
}

#[test]
fn epochs_producers_and_snapshots_that_lie_elsewhere() {
    let told = broken(|log| assert!(log.epochs.assign(9, 6)));
    assert_eq!(told, "leader epoch 9 starts at 6");
    let told = broken(|log| {
        log.snapshots.insert(6);
    });
    assert_eq!(told, "a producer snapshot is of 6");
    let told = broken(|log| {
        let kept = SegmentAborted::Kept(TransactionIndex::new(9));
        log.aborted.insert(9, kept);
    });
    assert_eq!(
        told,
        "aborted transactions are kept of segment 9, which is gone"
    );
    let batch = |builder: BatchBuilder| {
        let mut builder = builder;
        builder.append(0, None, Some(b"x"));
        BatchInfo::parse(&builder.build()).unwrap()
    };
    let told = broken(|log| {
        let info = batch(BatchBuilder::new().producer(8, 0, 0).transactional());
        log.producers.update(&info, 5, None);
    });
    assert_eq!(told, "a transaction of producer 8 starts at 5");
    let told = broken(|log| {
        let info = batch(BatchBuilder::new().producer(8, 0, 0));
        log.producers.update(&info, 5, None);
    });
    assert_eq!(told, "a producer's last record is at 5");
}

#[test]
fn poisoned_log_is_not_checked() {
    let mut log = log();
    log.log_start = 3;
    log.poison("a write failed");
    assert_eq!(log.check_invariants(), Ok(()));
    assert!(
        log.describe_offsets()
            .starts_with("log start 3, last stable 2, ")
    );
}

#[test]
fn a_log_that_is_sealed_refuses_everything_and_is_written() {
    let mut log = log();
    log.seal("its owner broke an invariant");
    let mut builder = BatchBuilder::new();
    builder.append(0, None, Some(b"x"));
    let mut batch = builder.build();
    let info = BatchInfo::parse(&batch).unwrap();
    let refused = log.append(&mut batch, &info, Origin::Client, 2, 0);
    assert!(refused.is_err() && log.locate(0, Isolation::DurableEnd).is_err());
    assert!(log.close_cleanly().is_err(), "recovery must look at it");
    assert_eq!((log.written.offset, log.has_unwritten()), (5, false));
    log.poison("a write failed");
    assert!(!log.writes());
}
