//! A log after its process or machine died, or its files were damaged.

use std::path::Path;

use crate::common::{FOLDER, Rig, batch, open, produced, records_in, small, transactional};
use pyrklog_log::disk::Disk;
use pyrklog_log::disk::testing::Operation;
use pyrklog_log::{
    BatchInfo, Isolation, LogConfig, OpenError, OpenState, Origin, SyncScope, TimeSpec, Wait,
};
use pyrklog_wire::builder::transaction_marker;

/// Three segments of numbered records, everything written, nothing synced.
fn filled() -> Rig {
    let mut rig = Rig::new(small());
    let mut i = 0;
    while rig.log.segment_count() < 3 || i % 4 != 0 {
        rig.now_ms += 1;
        rig.put(&[&format!("{i}"), "0123456789"]);
        i += 1;
    }
    rig
}

fn last_log(rig: &Rig) -> String {
    rig.files()
        .into_iter()
        .rfind(|name| name.ends_with(".log"))
        .unwrap()
}

#[test]
fn a_killed_process_loses_nothing_that_was_written() {
    let mut rig = filled();
    rig.append(&mut batch(1_000, &["only in memory"])).unwrap();
    let before = rig.contents();
    let report = rig.restart_killed();
    assert_eq!((report.recovered_segments, report.truncated_bytes), (3, 0));
    assert_eq!(rig.contents(), before);
    assert_eq!(rig.log.log_end_offset(), before.len() as i64);
    rig.put(&["and it goes on"]);
    assert_eq!(rig.contents().len(), before.len() + 1);
}

#[test]
fn recovery_begins_at_the_recovery_point() {
    let mut rig = filled();
    rig.sync(SyncScope::ClosedSegments);
    let point = rig.log.recovery_point();
    assert!(point > 0 && point < rig.log.log_end_offset());
    let before = rig.contents();
    assert_eq!(
        rig.restart_killed().recovered_segments,
        1,
        "only the active segment"
    );
    assert_eq!(rig.contents(), before);
    assert_eq!(
        rig.log.recovery_point(),
        point,
        "what was walked is not synced by that"
    );
    rig.sync(SyncScope::Written);
    assert_eq!(rig.log.synced_end(), rig.log.log_end_offset());
    assert_eq!(
        rig.log.recovery_point(),
        rig.log.log_end_offset() - 1,
        "in the active segment"
    );
}

#[test]
fn a_clean_start_reads_only_the_tail() {
    let mut rig = Rig::new(LogConfig::default());
    for i in 0..400 {
        rig.append(&mut batch(i, &["0123456789012345678901234567890123456789"]))
            .unwrap();
    }
    rig.drain();
    let before = rig.contents();
    let report = rig.restart_clean();
    assert_eq!(*report, Default::default());
    let reads = rig.disk.count(Operation::Read);
    assert_eq!(rig.log.log_end_offset(), 400);
    assert_eq!(rig.log.synced_end(), 400);
    assert_eq!(rig.contents(), before);
    assert!(reads < 20, "{reads} reads");
    rig.put(&["next"]);
    assert_eq!(rig.contents().last().unwrap(), &(400, "next".to_owned()));
}

#[test]
fn clean_restarts_keep_the_indexes_complete() {
    let mut rig = Rig::new(small());
    let mut expected = Vec::new();
    for i in 0..60 {
        rig.now_ms += 1;
        rig.put(&[&format!("{i}")]);
        expected.push((i64::from(i), format!("{i}")));
        if i % 3 == 0 {
            assert_eq!(*rig.restart_clean(), Default::default());
        }
    }
    for offset in 0..60 {
        let found = records_in(&rig.read(offset, 1).unwrap());
        assert_eq!(found, expected[offset as usize..=offset as usize]);
        let query = rig
            .log
            .offset_for_time(TimeSpec::At(1_001 + offset), Isolation::HighWatermark);
        assert_eq!(
            query.resolve(Wait::Blocking).unwrap().unwrap().offset,
            offset
        );
    }
}

#[test]
fn a_torn_tail_is_cut_at_every_byte() {
    let rig = filled();
    let name = last_log(&rig);
    let content = rig.file(&name);
    let last = batch(0, &["0", "0123456789"]).len();
    let whole = content.len() - (content.len() / 2).min(2 * last);
    let before = rig.contents();
    for end in whole..content.len() {
        let mut torn = filled();
        torn.put_file(&name, &content[..end]);
        torn.restart_killed();
        torn.drain();
        let after = torn.contents();
        assert!(before.starts_with(&after), "cut at {end}");
        assert!(before.len() - after.len() <= 4);
        assert!(torn.report.truncated_bytes < last as u64 + 2);
        let next = torn.put(&["goes on"]);
        assert_eq!(next.base_offset, after.len() as i64);
        torn.restart_clean();
        assert_eq!(torn.contents().len(), after.len() + 1);
    }
}

#[test]
fn a_flipped_bit_cuts_there_and_drops_later_segments() {
    let mut rig = filled();
    let name = "00000000000000000000.log";
    let mut content = rig.file(name);
    let at = content.len() - 3;
    content[at] ^= 0x10;
    rig.put_file(name, &content);
    let before = rig.log.log_end_offset() as usize;
    let report = rig.restart_killed().clone();
    rig.drain();
    assert_eq!(rig.log.segment_count(), 1);
    assert!(report.truncated_bytes > 1_000);
    assert!(
        report
            .notes
            .iter()
            .any(|note| note.contains("crc") || note.contains("CRC")),
        "{report:?}"
    );
    let after = rig.contents();
    assert!(!after.is_empty() && before > after.len());
    let names = rig.files();
    let count = |end| names.iter().filter(|name| name.ends_with(end)).count();
    assert_eq!((count(".log"), count(".log.cut")), (1, 2), "{names:?}");
    rig.put(&["goes on"]);
    rig.restart_killed();
    assert_eq!(rig.log.log_end_offset(), after.len() as i64 + 1);
}

#[test]
fn a_marker_that_lies_is_found_out_at_the_tail() {
    let mut rig = filled();
    rig.log.close_cleanly().unwrap();
    let name = last_log(&rig);
    let content = rig.file(&name);
    rig.put_file(&name, &content[..content.len() - 5]);
    let state = rig.state(true);
    let report = rig.reopen(state);
    assert!(report.truncated_bytes > 0);
    rig.put(&["goes on"]);
    rig.contents();
}

#[test]
fn missing_and_damaged_indexes_are_built_anew() {
    let damage: [fn(&Rig, &str); 5] = [
        |rig, name| rig.remove_file(name),
        |rig, name| rig.put_file(name, b"abc"),
        |rig, name| rig.put_file(name, &[]),
        |rig, name| rig.put_file(name, &[0xff; 48]),
        |rig, name| {
            let mut content = rig.file(name);
            let end = content.len().saturating_sub(2).max(4);
            content.get_mut(4..end).unwrap_or_default().reverse();
            rig.put_file(name, &content);
        },
    ];
    for (i, damage) in damage.iter().enumerate() {
        for extension in [".index", ".timeindex"] {
            for clean in [true, false] {
                let mut rig = filled();
                let before = rig.contents();
                if clean {
                    rig.log.close_cleanly().unwrap();
                }
                for name in rig.files().iter().filter(|name| name.ends_with(extension)) {
                    damage(&rig, name);
                }
                let state = rig.state(clean);
                rig.reopen(state);
                rig.drain();
                assert_eq!(rig.contents(), before, "damage {i} of {extension}");
                for offset in 0..before.len() as i64 {
                    let found = records_in(&rig.read(offset, 1).unwrap());
                    assert_eq!(found[0].0, offset / 2 * 2, "damage {i} of {extension}");
                }
                rig.put(&["goes on"]);
            }
        }
    }
}

#[test]
fn damaged_snapshots_are_skipped_and_the_log_walked() {
    for clean in [true, false] {
        let mut rig = Rig::new(small());
        let mut sequence = 0;
        while rig.log.segment_count() < 3 {
            rig.append(&mut produced(7, sequence, &["0123456789"]))
                .unwrap();
            rig.drain();
            sequence += 1;
        }
        if clean {
            rig.log.close_cleanly().unwrap();
        }
        let snapshots: Vec<_> = rig
            .files()
            .into_iter()
            .filter(|name| name.ends_with(".snapshot"))
            .collect();
        assert!(snapshots.len() >= 2);
        for name in &snapshots {
            let mut content = rig.file(name);
            content[3] ^= 1;
            rig.put_file(name, &content);
        }
        let state = rig.state(clean);
        let report = rig.reopen(state);
        assert_eq!(
            report.notes.iter().any(|note| note.contains("snapshot")),
            clean
        );
        let duplicate = rig
            .append(&mut produced(7, sequence - 1, &["0123456789"]))
            .unwrap();
        assert!(duplicate.duplicate);
        assert_eq!(duplicate.base_offset, i64::from(sequence) - 1);
        assert!(
            rig.append(&mut produced(7, sequence + 1, &["gap"]))
                .is_err()
        );
        assert!(
            !rig.append(&mut produced(7, sequence, &["next"]))
                .unwrap()
                .duplicate
        );
    }
}

#[test]
fn producers_survive_every_kind_of_restart() {
    let mut rig = Rig::new(small());
    for sequence in 0..40 {
        let mut sent = produced(7, sequence, &["0123456789"]);
        assert!(!rig.append(&mut sent.clone()).unwrap().duplicate);
        rig.drain();
        match sequence % 4 {
            0 => drop(rig.restart_clean()),
            1 => drop(rig.restart_killed()),
            2 => {
                rig.sync(SyncScope::ClosedSegments);
                rig.restart_killed();
            }
            _ => {}
        }
        let again = rig.append(&mut sent).unwrap();
        assert_eq!(
            (again.duplicate, again.base_offset),
            (true, i64::from(sequence))
        );
    }
}

#[test]
fn damaged_epochs_are_found_again_in_the_batches() {
    for clean in [true, false] {
        for content in [None, Some(&b"0\n7\nnonsense"[..]), Some(&[][..])] {
            let mut rig = Rig::new(small());
            for epoch in [0, 3, 9] {
                rig.epoch = epoch;
                for _ in 0..10 {
                    rig.put(&["0123456789"]);
                }
            }
            if clean {
                rig.log.close_cleanly().unwrap();
            }
            match content {
                Some(content) => rig.put_file("leader-epoch-checkpoint", content),
                None => rig.remove_file("leader-epoch-checkpoint"),
            }
            let state = rig.state(clean);
            rig.reopen(state);
            assert_eq!(rig.log.latest_epoch(), Some(9));
            assert_eq!(rig.log.end_offset_for_epoch(0), (0, 10));
            assert_eq!(rig.log.end_offset_for_epoch(5), (3, 20));
            assert_eq!(rig.log.end_offset_for_epoch(9), (9, 30));
            assert_eq!(rig.log.end_offset_for_epoch(10), (-1, -1));
        }
    }
}

#[test]
fn a_damaged_transaction_index_is_built_anew() {
    for clean in [true, false] {
        let mut rig = Rig::new(LogConfig::default());
        rig.append(&mut transactional(7, 0, &["aborted"])).unwrap();
        let mut marker = transaction_marker(7, 0, false, 0, 1_000);
        let info = BatchInfo::parse(&marker).unwrap();
        rig.log
            .append(&mut marker, &info, Origin::Coordinator, 0, 1_000)
            .unwrap();
        rig.put(&["after"]);
        if clean {
            rig.log.close_cleanly().unwrap();
        }
        let name = "00000000000000000000.txnindex";
        let content = rig.file(name);
        assert_eq!(content.len(), 34);
        rig.put_file(name, &content[..20]);
        let state = rig.state(clean);
        rig.reopen(state);
        rig.drain();
        assert_eq!(rig.file(name), content);
        let location = rig.log.locate(0, Isolation::Committed).unwrap();
        let slice = location.resolve(1 << 20, true, Wait::Blocking).unwrap();
        assert_eq!(
            rig.log.aborted_transactions(&slice).unwrap().unwrap().len(),
            1
        );
    }
}

#[test]
fn leftovers_of_deletion_and_compaction_are_settled() {
    let mut rig = filled();
    let before = rig.contents();
    rig.log.close_cleanly().unwrap();
    let first = rig.file("00000000000000000000.log");
    rig.put_file("00000000000000000500.log.deleted", b"gone");
    rig.put_file("00000000000000000500.index.deleted", b"gone");
    rig.put_file("00000000000000000400.timeindex", b"without a log");
    rig.put_file("00000000000000000000.index.tmp", b"half");
    // A complete compaction: the swap file replaces its sources.
    rig.put_file("00000000000000000000.log.swap", &first);
    let state = rig.state(true);
    let notes = rig.reopen(state).notes.clone();
    assert!(
        notes.iter().any(|note| note.contains("interrupted swap")),
        "{notes:?}"
    );
    assert_eq!(rig.contents(), before);
    let left: Vec<_> = rig.files();
    let odd = [".swap", ".deleted", ".tmp", "400.timeindex"];
    assert!(
        !left
            .iter()
            .any(|name| odd.iter().any(|odd| name.contains(odd))),
        "{left:?}"
    );

    // An incomplete one: its files are worthless.
    rig.log.close_cleanly().unwrap();
    rig.put_file("00000000000000000000.log.swap", b"not whole");
    rig.put_file("00000000000000000000.log.cleaned", b"not whole");
    let state = rig.state(true);
    rig.reopen(state);
    assert_eq!(rig.contents(), before);
    assert!(
        !rig.files()
            .iter()
            .any(|name| name.contains("swap") || name.contains("cleaned"))
    );
}

#[test]
fn a_swap_file_of_garbage_replaces_nothing() {
    let mut rig = filled();
    let before = rig.contents();
    rig.put_file(
        "00000000000000000000.log.swap",
        b"garbage that is long enough to be a batch header, but is none at all",
    );
    let notes = rig.restart_clean().notes.clone();
    assert!(
        notes[0].contains("00000000000000000000.log.swap"),
        "{notes:?}"
    );
    assert_eq!(rig.contents(), before);
    assert!(!rig.files().iter().any(|name| name.contains("swap")));
}

#[test]
fn producers_are_found_again_without_any_snapshot() {
    for clean in [true, false] {
        let mut rig = Rig::new(small());
        for sequence in 0..30 {
            rig.append(&mut produced(7, sequence, &["0123456789"]))
                .unwrap();
        }
        rig.drain();
        if clean {
            rig.log.close_cleanly().unwrap();
        }
        for name in rig.files().iter().filter(|name| name.ends_with("snapshot")) {
            rig.remove_file(name);
        }
        let state = rig.state(clean);
        rig.reopen(state);
        let again = rig.append(&mut produced(7, 29, &["0123456789"])).unwrap();
        assert_eq!((again.duplicate, again.base_offset), (true, 29));
    }
}

#[test]
fn a_lost_log_starts_over_at_its_log_start() {
    let mut rig = filled();
    rig.log.advance_log_start(15).unwrap();
    let state = OpenState {
        log_start_offset: 500,
        ..rig.state(false)
    };
    let notes = rig.reopen(state).notes.clone();
    assert!(
        notes
            .iter()
            .any(|note| note.contains("starting over at 500")),
        "{notes:?}"
    );
    assert_eq!(
        (rig.log.log_start_offset(), rig.log.log_end_offset()),
        (500, 500)
    );
    assert_eq!(rig.put(&["new"]).base_offset, 500);
    assert_eq!(
        rig.files()
            .iter()
            .filter(|name| name.ends_with(".log"))
            .count(),
        1
    );
}

#[test]
fn zeros_behind_the_data_are_cut() {
    let mut rig = filled();
    let before = rig.contents();
    let name = last_log(&rig);
    let mut content = rig.file(&name);
    content.resize(content.len() + 777, 0);
    rig.put_file(&name, &content);
    assert_eq!(rig.restart_killed().truncated_bytes, 777);
    assert_eq!(rig.contents(), before);
}

#[test]
fn a_folder_of_another_topic_is_refused() {
    let rig = filled();
    rig.put_file(
        "partition.metadata",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ",
    );
    let error = open(&rig.disk, &rig.config, OpenState::default(), 0).unwrap_err();
    assert!(
        matches!(error, OpenError::TopicIdMismatch { .. }),
        "{error}"
    );
    assert!(error.to_string().contains(FOLDER));
}

#[test]
fn a_new_folder_carries_its_topic_id() {
    let rig = Rig::new(LogConfig::default());
    assert!(rig.report.created);
    let metadata = String::from_utf8(rig.file("partition.metadata")).unwrap();
    assert_eq!(metadata, "version: 0\ntopic_id: BwcHBwcHBwcHBwcHBwcHBw");
    assert!(
        !rig.files().iter().any(|name| name.ends_with(".log")),
        "the first write makes them"
    );
}

/// The entries are in order, but one points into a batch.
#[test]
fn an_index_of_the_active_segment_that_leads_astray_is_not_followed() {
    let mut rig = Rig::new(LogConfig {
        index_interval_bytes: 100,
        ..LogConfig::default()
    });
    for i in 0..30 {
        rig.now_ms += 1;
        rig.put(&[&format!("{i:040}")]);
    }
    let before = rig.contents();
    rig.log.close_cleanly().unwrap();
    let name = "00000000000000000000.index";
    let mut content = rig.file(name);
    assert!(content.len() >= 24, "several entries");
    content[7] += 5;
    rig.put_file(name, &content);
    let state = rig.state(true);
    rig.reopen(state);
    for offset in 0..30 {
        let found = records_in(&rig.read(offset, 1).unwrap());
        assert_eq!(found, before[offset as usize..=offset as usize]);
        let at = TimeSpec::At(1_001 + offset);
        let query = rig.log.offset_for_time(at, Isolation::HighWatermark);
        let found = query.resolve(Wait::Blocking).unwrap().unwrap();
        assert_eq!(found.offset, offset);
    }
    assert_eq!(rig.contents(), before);
}

/// The folder was removed while the broker was stopped: the checkpoints describe the old log.
#[test]
fn a_folder_that_is_made_anew_takes_over_no_row_of_the_old_log() {
    let mut rig = filled();
    let rows = OpenState {
        recovery_point: 20,
        log_start_offset: 15,
        high_watermark: 18,
        ..rig.state(true)
    };
    rig.memory.remove_dir_all(Path::new(FOLDER)).unwrap();
    let report = rig.reopen(rows);
    assert!(report.created && report.checkpoint_is_stale);
    assert_eq!(
        (rig.log.log_start_offset(), rig.log.log_end_offset()),
        (0, 0)
    );
    assert_eq!((rig.log.recovery_point(), rig.log.high_watermark()), (0, 0));
    let state = rig.state(true);
    assert!(!rig.reopen(state).checkpoint_is_stale);
}
