//! A broker's threads on one log at once: each sees ordered and whole data.

mod common;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use common::{Rig, batch, read, records_in};
use parking_lot::Mutex;
use pyrklog_log::{
    BatchInfo, Isolation, Log, LogConfig, Origin, ReadError, SyncScope, TimeSpec, Wait,
};

const BATCHES: i64 = 3_000;

/// Appends numbered records, each its own batch, timestamped with its offset.
fn produce(log: &Mutex<Log>) {
    for offset in 0..BATCHES {
        let mut sent = batch(offset, &[&format!("{offset}"), ""]);
        let info = BatchInfo::parse(&sent).unwrap();
        let appended = log
            .lock()
            .append(&mut sent, &info, Origin::Client, 0, offset)
            .unwrap();
        assert_eq!(appended.base_offset, 2 * offset);
        if offset % 64 == 0 {
            thread::yield_now();
        }
    }
}

fn write(log: &Mutex<Log>, done: &AtomicBool) {
    loop {
        let finished = done.load(Ordering::Acquire);
        let Some(mut job) = ({ log.lock().take_writes() }) else {
            if finished {
                return;
            }
            thread::yield_now();
            continue;
        };
        let result = job.execute();
        let mut log = log.lock();
        log.complete_writes(job, result);
        let durable_end = log.durable_end_offset();
        log.advance_high_watermark(durable_end);
    }
}

/// Syncs, and deletes what exceeds the retention size.
fn keep_up(log: &Mutex<Log>, done: &AtomicBool) {
    while !done.load(Ordering::Acquire) {
        let job = log.lock().take_sync(SyncScope::ClosedSegments);
        if let Some(mut job) = job {
            let result = job.execute();
            log.lock().complete_sync(job, result);
        }
        let candidates = log.lock().retention_candidates(0);
        candidates.load().unwrap();
        let removed = log.lock().plan_retention(0).removed;
        if let Some(mut removed) = removed {
            removed.rename().unwrap();
            removed.delete().unwrap();
        }
        thread::yield_now();
    }
}

/// Reads from start to end repeatedly, with time look-ups.
fn consume(log: &Mutex<Log>, done: &AtomicBool) -> i64 {
    let mut next = 0;
    loop {
        let finished = done.load(Ordering::Acquire);
        let located = log.lock().locate(next, Isolation::HighWatermark);
        let slice = located.and_then(|location| match location.resolve(900, true, Wait::Nowait) {
            Err(ReadError::WouldBlock) => location.resolve(900, true, Wait::Blocking),
            result => result,
        });
        match slice {
            Ok(slice) if slice.is_empty() => {
                if finished {
                    return next;
                }
                thread::yield_now();
            }
            Ok(slice) => {
                let bytes = match read(&slice) {
                    // Here files are deleted at once; a broker waits `file.delete.delay.ms`.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        next = log.lock().log_start_offset().max(next);
                        continue;
                    }
                    read => read.unwrap(),
                };
                for (offset, value) in records_in(&bytes) {
                    if offset % 2 == 0 {
                        assert_eq!(value, format!("{}", offset / 2));
                        assert!(offset >= next, "a record was seen twice");
                    }
                    next = offset + 1;
                }
                let query = log
                    .lock()
                    .offset_for_time(TimeSpec::At(next / 2), Isolation::DurableEnd);
                if let Some(found) = query.resolve(Wait::Blocking).unwrap() {
                    assert!(found.offset >= next / 2 * 2);
                }
            }
            // Retention has removed it.
            Err(ReadError::OffsetOutOfRange { start, .. }) => next = start.max(next),
            Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                next = log.lock().log_start_offset().max(next);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn threads_do_not_disturb_one_another() {
    let config = LogConfig {
        segment_bytes: 2_000,
        index_interval_bytes: 300,
        retention_bytes: 60_000,
        retention_ms: -1,
        ..LogConfig::default()
    };
    let rig = Rig::new(config);
    let log = Arc::new(Mutex::new(rig.log));
    let (produced, written) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let consumers: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| consume(&log, &written)))
            .collect();
        let syncer = scope.spawn(|| keep_up(&log, &written));
        let writer = scope.spawn(|| write(&log, &produced));
        produce(&log);
        produced.store(true, Ordering::Release);
        writer.join().unwrap();
        written.store(true, Ordering::Release);
        syncer.join().unwrap();
        for consumer in consumers {
            assert_eq!(consumer.join().unwrap(), 2 * BATCHES);
        }
    });
    let log = log.lock();
    assert_eq!(log.poisoned(), None);
    assert!(log.log_start_offset() > 0, "retention had its share");
}
