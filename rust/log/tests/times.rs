//! Offsets by time.

use crate::common::{Rig, batch, small};
use pyrklog_log::{Isolation, LogConfig, ReadError, TimeOffset, TimeSpec, Wait};
use pyrklog_wire::batch::{Compression, TimestampType};
use pyrklog_wire::builder::BatchBuilder;

fn ask(rig: &Rig, spec: TimeSpec) -> Option<TimeOffset> {
    let query = rig.log.offset_for_time(spec, Isolation::HighWatermark);
    query.resolve(Wait::Blocking).unwrap()
}

fn at(rig: &Rig, timestamp: i64) -> Option<(i64, i64)> {
    ask(rig, TimeSpec::At(timestamp)).map(|found| (found.offset, found.timestamp))
}

fn stamped(timestamps: &[i64]) -> BatchBuilder {
    let mut builder = BatchBuilder::new();
    for timestamp in timestamps {
        builder.append(*timestamp, None, Some(b"0123456789"));
    }
    builder
}

#[test]
fn special_timestamps_are_known() {
    assert_eq!(TimeSpec::from_wire(-1), Some(TimeSpec::Latest));
    assert_eq!(TimeSpec::from_wire(-2), Some(TimeSpec::Earliest));
    assert_eq!(TimeSpec::from_wire(-3), Some(TimeSpec::MaxTimestamp));
    assert_eq!(TimeSpec::from_wire(-4), Some(TimeSpec::Earliest));
    assert_eq!(TimeSpec::from_wire(0), Some(TimeSpec::At(0)));
    assert_eq!(
        (TimeSpec::from_wire(-5), TimeSpec::from_wire(-6)),
        (None, None)
    );
}

#[test]
fn the_first_record_at_or_after_is_found_inside_its_batch() {
    let mut rig = Rig::new(LogConfig::default());
    rig.append(&mut stamped(&[100, 300, 200]).build()).unwrap();
    rig.append(&mut stamped(&[250, 500, 400, 500]).build())
        .unwrap();
    rig.drain();
    assert_eq!(at(&rig, 0), Some((0, 100)));
    assert_eq!(at(&rig, 100), Some((0, 100)));
    assert_eq!(
        at(&rig, 101),
        Some((1, 300)),
        "the first by offset, not by time"
    );
    assert_eq!(at(&rig, 301), Some((4, 500)));
    assert_eq!(at(&rig, 500), Some((4, 500)));
    assert_eq!(at(&rig, 501), None);
    assert_eq!(
        ask(&rig, TimeSpec::MaxTimestamp),
        Some(TimeOffset {
            timestamp: 500,
            offset: 4,
            leader_epoch: 0
        }),
        "the first record that has the largest timestamp"
    );
}

#[test]
fn compressed_batches_are_opened() {
    let mut rig = Rig::new(LogConfig::default());
    let compress = |body: &[u8]| {
        use std::io::Write;
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        out.write_all(body).unwrap();
        out.finish().unwrap()
    };
    let mut sent = stamped(&[100, 300, 200]).build_compressed(Compression::Gzip, compress);
    rig.append(&mut sent).unwrap();
    rig.drain();
    assert_eq!(at(&rig, 150), Some((1, 300)));
    assert_eq!(ask(&rig, TimeSpec::MaxTimestamp).unwrap().offset, 1);
}

#[test]
fn under_log_append_time_the_batch_has_one_time() {
    let mut rig = Rig::new(LogConfig::default());
    for now_ms in [100, 200] {
        let mut sent = stamped(&[now_ms, now_ms, now_ms])
            .timestamp_type(TimestampType::LogAppendTime)
            .build();
        let appended = rig.append(&mut sent).unwrap();
        assert_eq!(appended.log_append_time_ms, now_ms);
    }
    rig.drain();
    assert_eq!(at(&rig, 150), Some((3, 200)));
    assert_eq!(ask(&rig, TimeSpec::MaxTimestamp).unwrap().offset, 3);
}

#[test]
fn segments_are_searched_in_memory_and_in_files() {
    let mut rig = Rig::new(small());
    let timestamps: Vec<i64> = (0..90).map(|i| 1_000 + (i * 37) % 61 + i * 2).collect();
    for (i, pair) in timestamps.chunks(2).enumerate() {
        rig.epoch = i as i32 / 10;
        rig.append(&mut stamped(pair).build()).unwrap();
        rig.drain();
    }
    assert!(rig.log.segment_count() > 4);
    let largest = *timestamps.iter().max().unwrap();
    for restart in 0..3 {
        for timestamp in 990..=largest + 1 {
            let expected = timestamps.iter().position(|t| *t >= timestamp);
            let found = ask(&rig, TimeSpec::At(timestamp));
            assert_eq!(found.map(|found| found.offset), expected.map(|i| i as i64));
            if let (Some(found), Some(i)) = (found, expected) {
                assert_eq!(
                    (found.timestamp, found.leader_epoch),
                    (timestamps[i], i as i32 / 20)
                );
            }
        }
        let found = ask(&rig, TimeSpec::MaxTimestamp).unwrap();
        assert_eq!(
            timestamps.iter().position(|t| *t == largest).unwrap() as i64,
            found.offset
        );
        if restart == 0 {
            rig.restart_clean();
        } else {
            rig.restart_killed();
        }
        rig.drain();
    }
}

#[test]
fn time_lookup_ignores_records_above_the_high_watermark() {
    let mut rig = Rig::new(LogConfig::default());
    rig.append(&mut batch(100, &["a"])).unwrap();
    rig.drain();
    rig.append(&mut batch(200, &["b"])).unwrap();
    rig.write();
    assert_eq!(at(&rig, 150), None, "above the high watermark");
    let replica = rig
        .log
        .offset_for_time(TimeSpec::At(150), Isolation::DurableEnd);
    assert_eq!(replica.resolve(Wait::Blocking).unwrap().unwrap().offset, 1);
    assert_eq!(ask(&rig, TimeSpec::Latest).unwrap().offset, 1);
    assert_eq!(ask(&rig, TimeSpec::MaxTimestamp), None);
    rig.log.advance_high_watermark(2);
    assert_eq!(at(&rig, 150), Some((1, 200)));
    rig.append(&mut crate::common::transactional(7, 0, &["open"]))
        .unwrap();
    rig.drain();
    let latest = |isolation| {
        let query = rig.log.offset_for_time(TimeSpec::Latest, isolation);
        query.resolve(Wait::Nowait).unwrap().unwrap().offset
    };
    assert_eq!(latest(Isolation::HighWatermark), 3);
    assert_eq!(latest(Isolation::Committed), 2);
}

#[test]
fn deleted_records_are_not_found() {
    let mut rig = Rig::new(small());
    for timestamp in [900, 100, 300, 200, 250] {
        rig.append(&mut batch(timestamp, &["x", "y"])).unwrap();
    }
    rig.drain();
    assert_eq!(at(&rig, 0), Some((0, 900)));
    rig.log.advance_log_start(2).unwrap();
    assert_eq!(at(&rig, 0), Some((2, 100)));
    assert_eq!(at(&rig, 400), None);
    assert_eq!(ask(&rig, TimeSpec::Earliest).unwrap().offset, 2);
    assert_eq!(ask(&rig, TimeSpec::MaxTimestamp).unwrap().offset, 4);
    rig.log.advance_log_start(3).unwrap();
    assert_eq!(at(&rig, 0), Some((3, 100)), "in mid-batch");
}

#[test]
fn an_empty_log_has_ends_but_no_times() {
    let rig = Rig::new(LogConfig::default());
    let none = TimeOffset {
        timestamp: -1,
        offset: 0,
        leader_epoch: -1,
    };
    assert_eq!(ask(&rig, TimeSpec::Earliest), Some(none));
    assert_eq!(ask(&rig, TimeSpec::Latest), Some(none));
    assert_eq!(ask(&rig, TimeSpec::MaxTimestamp), None);
    assert_eq!(at(&rig, 0), None);
}

#[test]
fn the_ends_carry_their_epochs() {
    let mut rig = Rig::new(LogConfig::default());
    for epoch in [2, 5] {
        rig.epoch = epoch;
        rig.put(&["x"]);
    }
    assert_eq!(ask(&rig, TimeSpec::Earliest).unwrap().leader_epoch, 2);
    assert_eq!(ask(&rig, TimeSpec::Latest).unwrap().leader_epoch, 5);
    rig.log.advance_log_start(1).unwrap();
    assert_eq!(ask(&rig, TimeSpec::Earliest).unwrap().leader_epoch, 5);
}

#[test]
fn records_without_timestamps_are_not_found_by_time() {
    let mut rig = Rig::new(LogConfig::default());
    rig.put(&["x"]);
    rig.append(&mut batch(-1, &["none"])).unwrap();
    rig.drain();
    assert_eq!(at(&rig, 1_001), None);
    assert_eq!(ask(&rig, TimeSpec::MaxTimestamp).unwrap().offset, 0);
}

#[test]
fn a_look_up_that_would_wait_says_so() {
    let mut rig = Rig::new(small());
    for i in 0..40 {
        rig.append(&mut batch(1_000 + i, &["0123456789"])).unwrap();
    }
    rig.drain();
    rig.restart_clean();
    let query = rig
        .log
        .offset_for_time(TimeSpec::At(1_010), Isolation::DurableEnd);
    assert!(matches!(
        query.resolve(Wait::Nowait),
        Err(ReadError::WouldBlock)
    ));
    assert_eq!(query.resolve(Wait::Blocking).unwrap().unwrap().offset, 10);
    assert_eq!(query.resolve(Wait::Nowait).unwrap().unwrap().offset, 10);
}
