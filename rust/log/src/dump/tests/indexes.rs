//! Rows of indexes, snapshots, checkpoints and properties.

use super::*;

/// Positions of the batches of [`segment`].
fn positions() -> Vec<u32> {
    let bytes = segment();
    Batches::new(&bytes)
        .map(|batch| batch.expect("good").position as u32)
        .collect()
}

fn beside_log() -> Beside {
    Beside {
        log: Some(MemDisk::file(segment())),
        ..Beside::default()
    }
}

fn offset_index(entries: &[(i64, u32)]) -> Vec<u8> {
    let mut index = OffsetIndex::new(100, 1024);
    for (offset, position) in entries {
        index.append(*offset, *position).expect("rises");
    }
    index.as_bytes().to_vec()
}

fn time_index(entries: &[(i64, i64)]) -> Vec<u8> {
    let mut index = TimeIndex::new(100, 1024);
    for (timestamp, offset) in entries {
        index
            .maybe_append(*timestamp, *offset, true)
            .expect("rises");
    }
    index.as_bytes().to_vec()
}

fn check(name: &str, bytes: &[u8], beside: Beside) -> (usize, Vec<(i64, String)>) {
    let rows = rows_of(name, bytes, beside, VERIFY);
    let found = damages(&rows);
    (rows.len() - found.len(), found)
}

#[test]
fn an_offset_index_is_held_against_its_segment() {
    const NAME: &str = "00000000000000000100.index";
    let at = positions();
    let good = offset_index(&[(103, at[1]), (106, at[3])]);
    assert_eq!(check(NAME, &good, beside_log()), (2, Vec::new()));
    let preallocated = [&good[..], &[0; 800]].concat();
    assert_eq!(check(NAME, &preallocated, beside_log()), (2, Vec::new()));
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let (_, found) = check(NAME, &bad, beside_log());
        let entry = (bit / 64 * 8) as i64;
        assert!(
            found.iter().any(|(position, _)| *position == entry),
            "bit {bit}: {found:?}"
        );
    }
    let (entries, found) = check(NAME, &good[..13], beside_log());
    assert_eq!((entries, found.len(), found[0].0), (1, 1, 8));
    let (_, found) = check(NAME, &good, Beside::default());
    assert!(
        found.len() == 1 && found[0].1.contains("missing"),
        "{found:?}"
    );
    // Without verify nothing is compared, but order still counts.
    let falling = [&good[8..], &good[..8]].concat();
    let rows = rows_of(NAME, &falling, Beside::default(), PLAIN);
    assert_eq!(kinds(&rows), ["index_entry", "index_entry", "damage"]);
    assert_eq!(
        (int(&rows[0], "offset"), int(&rows[0], "position")),
        (106, at[3].into())
    );
}

#[test]
fn a_time_index_is_held_against_its_segment() {
    const NAME: &str = "00000000000000000100.timeindex";
    // Largest timestamps: 1100, 1102, 1104, and 2000 of the marker.
    let good = time_index(&[(1102, 103), (2000, 106)]);
    assert_eq!(check(NAME, &good, beside_log()), (2, Vec::new()));
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let (_, found) = check(NAME, &bad, beside_log());
        let entry = (bit / 96 * 12) as i64;
        // 102 instead of 103 is as Kafka up to 3.6 wrote it: of the same batch.
        let is_sound = bit == 11 * 8;
        assert_eq!(
            found.iter().any(|(position, _)| *position >= entry),
            !is_sound,
            "bit {bit}: {found:?}"
        );
    }
    let (_, found) = check(NAME, &time_index(&[(1100, 103)]), beside_log());
    assert!(found.len() == 1 && found[0].1.contains("1102"), "{found:?}");
    let rows = rows_of(NAME, &good, Beside::default(), PLAIN);
    assert_eq!(kinds(&rows), ["time_index_entry"; 2]);
    assert_eq!(
        (int(&rows[1], "timestamp_ms"), int(&rows[1], "offset")),
        (2000, 106)
    );
}

/// Kafka's follower appends a whole fetch answer at once, its cleaner a whole buffer.
#[test]
fn an_entry_can_stand_for_several_batches() {
    const NAME: &str = "00000000000000000100.index";
    let at = positions();
    for (entries, is_sound) in [
        (&[(105, at[1])][..], true),
        (&[(106, at[1])], true),
        (&[(105, at[1]), (106, at[3])], true),
        // No batch ends there.
        (&[(104, at[1])], false),
        (&[(107, at[1])], false),
        // It ends behind the next entry's position.
        (&[(105, at[1]), (106, at[2])], false),
        // It ends before the entry's position.
        (&[(101, at[1])], false),
    ] {
        let (_, found) = check(NAME, &offset_index(entries), beside_log());
        assert_eq!(found.is_empty(), is_sound, "{entries:?}: {found:?}");
    }
}

/// A batch of offsets 100 to 102 whose last record was removed.
fn cleaned() -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    builder.append(1_000, Some(b"a"), None);
    builder.append(1_001, Some(b"b"), None);
    builder.skip_offsets(1);
    let mut batch = builder.build();
    set_base_offset(&mut batch, 100);
    batch
}

/// Kafka's cleaner gives an entry the offset of the last record that it kept.
#[test]
fn an_entry_can_end_inside_of_a_cleaned_batch() {
    const NAME: &str = "00000000000000000098.index";
    let batches = [
        batch(98, 3, Compression::None),
        cleaned(),
        batch(103, 3, Compression::None),
    ];
    let second = batches[0].len() as u32;
    let third = second + batches[1].len() as u32;
    for (offset, position, is_sound) in [
        (101, second, true),
        (102, second, true),
        // It ends before the entry's position.
        (99, second, false),
        // Nothing is missing in the batch of 103 and 104.
        (103, third, false),
        (104, third, true),
    ] {
        let mut index = OffsetIndex::new(98, 1024);
        index.append(offset, position).expect("rises");
        let beside = Beside {
            log: Some(MemDisk::file(batches.concat())),
            ..Beside::default()
        };
        let (_, found) = check(NAME, index.as_bytes(), beside);
        assert_eq!(found.is_empty(), is_sound, "{offset}: {found:?}");
    }
}

/// Leaders up to Kafka 3.6 name the first record with the timestamp.
#[test]
fn a_time_entry_can_name_any_record_of_its_batch() {
    const NAME: &str = "00000000000000000100.timeindex";
    for (entries, is_sound) in [
        (&[(1100, 100)][..], true),
        (&[(1100, 101)], true),
        (&[(1100, 100), (1102, 102), (1104, 104), (2000, 106)], true),
        (&[(1102, 101)], false),
        (&[(1100, 102)], false),
        (&[(2000, 107)], false),
    ] {
        let (_, found) = check(NAME, &time_index(entries), beside_log());
        assert_eq!(found.is_empty(), is_sound, "{entries:?}: {found:?}");
    }
}

#[test]
fn a_transaction_index_is_held_against_its_markers() {
    const NAME: &str = "00000000000000000100.txnindex";
    let txn = |producer_id, first_offset, last_offset| AbortedTxn {
        producer_id,
        first_offset,
        last_offset,
        last_stable_offset: last_offset + 1,
    };
    let good = txn(7, 100, 106).encode();
    assert_eq!(check(NAME, &good, beside_log()), (1, Vec::new()));
    for (bad, reason) in [
        (txn(8, 100, 106), "no marker of producer 8"),
        (txn(7, 100, 104), "no marker of producer 7"),
        (txn(7, 100, 105), "no batch begins"),
        (txn(7, 107, 106), "behind its marker"),
        (txn(7, 90, 99), "does not rise"),
    ] {
        let (_, found) = check(NAME, &bad.encode(), beside_log());
        assert!(
            found.iter().any(|(_, message)| message.contains(reason)),
            "{reason}: {found:?}"
        );
    }
    let (entries, found) = check(NAME, &good[..33], beside_log());
    assert_eq!((entries, found.len()), (0, 1));
    let mut index = TransactionIndex::new(100);
    index.append(txn(7, 100, 106)).expect("rises");
    let rows = rows_of(NAME, &index.to_bytes(), Beside::default(), PLAIN);
    assert_eq!(
        (text(&rows[0], "kind"), int(&rows[0], "last_offset")),
        ("aborted_txn".into(), 106)
    );
}

#[test]
fn a_snapshot_lists_its_producers_or_its_damage() {
    const NAME: &str = "00000000000000000107.snapshot";
    let mut states = ProducerStates::new();
    for view in Batches::new(&segment()) {
        let bytes = view.expect("good").bytes;
        let info = BatchInfo::parse(bytes).expect("good");
        states.update(&info, info.base_offset, None);
    }
    let good = snapshot::encode(&states.snapshot_entries());
    let rows = rows_of(NAME, &good, Beside::default(), PLAIN);
    assert_eq!(kinds(&rows), ["producer"]);
    assert_eq!(
        (int(&rows[0], "producer_id"), int(&rows[0], "last_offset")),
        (7, 105)
    );
    assert_eq!(field(&rows[0], "current_txn_first_offset"), Value::Null);
    for bit in 16..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let found = damages(&rows_of(NAME, &bad, Beside::default(), PLAIN));
        let place = format!("bit {} of the byte at {}", bit % 8, bit / 8);
        assert!(
            found.len() == 1 && found[0].1.ends_with(&place),
            "{place}: {found:?}"
        );
    }
    let mut newer = good;
    newer[1] = 9;
    let found = damages(&rows_of(NAME, &newer, Beside::default(), PLAIN));
    assert!(found[0].1.contains("version 9"), "{found:?}");
}

#[test]
fn leader_epochs_rise() {
    const NAME: &str = "leader-epoch-checkpoint";
    let rows = rows_of(NAME, b"0\n2\n0 0\n3 100\n", Beside::default(), PLAIN);
    assert_eq!(kinds(&rows), ["epoch", "epoch"]);
    assert_eq!(
        (int(&rows[1], "epoch"), int(&rows[1], "start_offset")),
        (3, 100)
    );
    let rows = rows_of(NAME, b"0\n2\n3 100\n2 200\n", Beside::default(), PLAIN);
    assert_eq!(kinds(&rows), ["epoch", "epoch", "damage"]);
    assert_eq!(damages(&rows)[0].0, 10);
    let rows = rows_of(NAME, b"0\n1\nx 1\n", Beside::default(), PLAIN);
    assert_eq!(damages(&rows)[0].0, 4);
}

#[test]
fn checkpoints_and_properties() {
    let all = |name: &str, bytes: &[u8]| rows_of(name, bytes, Beside::default(), PLAIN);
    let rows = all("recovery-point-offset-checkpoint", b"0\n1\norders 2 77\n");
    assert_eq!(text(&rows[0], "kind"), "checkpoint_entry");
    assert_eq!(
        (int(&rows[0], "partition"), int(&rows[0], "offset")),
        (2, 77)
    );
    let rows = all("replication-offset-checkpoint", b"0\n2\norders 2 77\n");
    assert_eq!(kinds(&rows), ["damage"]);
    let rows = all("meta.properties", b"#\nversion=0\nbroker.id=3\n");
    assert_eq!(kinds(&rows), ["property", "property"]);
    assert_eq!(
        (text(&rows[1], "key"), text(&rows[1], "value")),
        ("broker.id".into(), "3".into())
    );
    let rows = all("meta.properties", b"version=7\n");
    assert_eq!(kinds(&rows), ["property", "damage"]);
    let rows = all(
        "partition.metadata",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ",
    );
    assert_eq!(text(&rows[1], "value"), "AAAAAAAAAAAAAAAAAAAAAQ");
    let rows = all("partition.metadata", b"version: 0\ntopic_id: A");
    assert_eq!(damages(&rows)[0].0, 11);
    let rows = all(".kafka_cleanshutdown", b"{\"version\":0,\"brokerEpoch\":5}");
    assert_eq!(int(&rows[0], "value"), 5);
    let rows = all(".kafka_cleanshutdown", b"");
    assert_eq!(field(&rows[0], "value"), Value::Null);
}
