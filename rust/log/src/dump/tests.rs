use super::*;
use crate::compression::compress;
use crate::disk::testing::MemDisk;
use crate::offset_index::OffsetIndex;
use crate::producer_state::ProducerStates;
use crate::snapshot;
use crate::time_index::TimeIndex;
use crate::transaction_index::TransactionIndex;
use crate::{batch_info::BatchInfo, transaction_index::AbortedTxn};
use pyrklog_wire::batch::{
    Batches, Compression, TimestampType, refresh_crc, set_base_offset, set_partition_leader_epoch,
};
use pyrklog_wire::builder::{BatchBuilder, transaction_marker};

mod indexes;
mod messages;

const PLAIN: Options = Options {
    records: false,
    verify: false,
};
const RECORDS: Options = Options {
    records: true,
    verify: false,
};
const VERIFY: Options = Options {
    records: false,
    verify: true,
};

fn rows_of(name: &str, bytes: &[u8], beside: Beside, options: Options) -> Vec<Row> {
    let file = MemDisk::file(bytes.to_vec());
    let dump = dump(Path::new(name), file, beside, options).expect("a known file");
    dump.map(|row| row.expect("in memory")).collect()
}

fn log_rows(bytes: &[u8], options: Options) -> Vec<Row> {
    rows_of(
        "00000000000000000100.log",
        bytes,
        Beside::default(),
        options,
    )
}

fn field(row: &Row, name: &str) -> Value {
    let found = row.iter().find(|(key, _)| *key == name);
    found
        .unwrap_or_else(|| panic!("{name} is not in {row:?}"))
        .1
        .clone()
}

fn int(row: &Row, name: &str) -> i64 {
    match field(row, name) {
        Value::Int(value) => value,
        other => panic!("{name} is {other:?}"),
    }
}

fn text(row: &Row, name: &str) -> String {
    match field(row, name) {
        Value::Text(value) => value,
        other => panic!("{name} is {other:?}"),
    }
}

fn kinds(rows: &[Row]) -> Vec<String> {
    rows.iter()
        .map(|row| {
            assert_eq!(row[0].0, "kind");
            text(row, "kind")
        })
        .collect()
}

fn damages(rows: &[Row]) -> Vec<(i64, String)> {
    let damaged = rows.iter().filter(|row| text(row, "kind") == "damage");
    damaged
        .map(|row| (int(row, "position"), text(row, "message")))
        .collect()
}

fn batch(base_offset: i64, epoch: i32, codec: Compression) -> Vec<u8> {
    let mut builder = BatchBuilder::new().producer(7, 1, 40);
    builder.append(1000 + base_offset, Some(b"key"), Some(b"value one"));
    builder.append_with_headers(999, None, None, &[(b"h", Some(b"x")), (b"n", None)]);
    let mut batch = builder.build_compressed(codec, |records| {
        let mut out = Vec::new();
        compress(codec, records, &mut out).expect("in memory");
        out
    });
    set_base_offset(&mut batch, base_offset);
    set_partition_leader_epoch(&mut batch, epoch);
    batch
}

fn marker(base_offset: i64, commit: bool) -> Vec<u8> {
    let mut batch = transaction_marker(7, 1, commit, 5, 2000);
    set_base_offset(&mut batch, base_offset);
    set_partition_leader_epoch(&mut batch, 3);
    batch
}

/// Offsets 100-101, 102-103, 104-105 and a marker at 106.
fn segment() -> Vec<u8> {
    [
        batch(100, 3, Compression::None),
        batch(102, 3, Compression::Zstd),
        batch(104, 3, Compression::Snappy),
        marker(106, false),
    ]
    .concat()
}

#[test]
fn a_segment_has_a_row_a_batch() {
    let bytes = segment();
    let rows = log_rows(&bytes, PLAIN);
    assert_eq!(kinds(&rows), ["batch"; 4]);
    let row = &rows[1];
    assert_eq!(
        int(row, "position"),
        batch(100, 3, Compression::None).len() as i64
    );
    assert_eq!(
        (int(row, "base_offset"), int(row, "last_offset")),
        (102, 103)
    );
    assert_eq!((int(row, "count"), int(row, "leader_epoch")), (2, 3));
    assert_eq!(
        (text(row, "compression"), text(row, "timestamp_type")),
        ("zstd".into(), "CreateTime".into())
    );
    assert_eq!(
        (int(row, "max_timestamp_ms"), int(row, "producer_id")),
        (1102, 7)
    );
    assert_eq!(
        (int(row, "base_sequence"), int(row, "last_sequence")),
        (40, 41)
    );
    assert_eq!(field(row, "valid"), Value::Bool(true));
    assert_eq!(field(&rows[3], "control"), Value::Bool(true));
    assert_eq!(log_rows(&bytes, VERIFY), rows);
    assert_eq!(log_rows(&[], VERIFY), Vec::<Row>::new());
}

#[test]
fn records_follow_their_batch() {
    let rows = log_rows(&segment(), RECORDS);
    let expected = ["batch", "record", "record"].repeat(3);
    assert_eq!(kinds(&rows), [expected, vec!["batch", "record"]].concat());
    let record = &rows[4];
    assert_eq!(
        (int(record, "offset"), int(record, "timestamp_ms")),
        (102, 1102)
    );
    assert_eq!(field(record, "key"), Value::Bytes(b"key".to_vec()));
    assert_eq!(field(record, "value"), Value::Bytes(b"value one".to_vec()));
    let record = &rows[5];
    assert_eq!(
        (int(record, "offset"), int(record, "timestamp_ms")),
        (103, 999)
    );
    assert_eq!(
        (field(record, "key"), field(record, "value")),
        (Value::Null, Value::Null)
    );
    let header = |key: &str, value| Value::List(vec![Value::text(key), value]);
    let expected = vec![
        header("h", Value::Bytes(b"x".to_vec())),
        header("n", Value::Null),
    ];
    assert_eq!(field(record, "headers"), Value::List(expected));
    let control = &rows[10];
    assert_eq!(
        (
            text(control, "control_type"),
            int(control, "coordinator_epoch")
        ),
        ("abort".into(), 5)
    );
}

/// The numbers of rows that are made at a time, and all rows.
fn made(bytes: &[u8], options: Options) -> (Vec<usize>, Vec<Row>) {
    let mut source =
        log_rows::open(MemDisk::file(bytes.to_vec()), 100, None, options).expect("in memory");
    let (mut counts, mut all) = (Vec::new(), Vec::new());
    let mut goes_on = true;
    while goes_on {
        let mut rows = VecDeque::new();
        goes_on = source.next_rows(&mut rows).expect("in memory");
        counts.push(rows.len());
        all.extend(rows);
    }
    (counts, all)
}

fn offsets_of_records(rows: &[Row]) -> Vec<i64> {
    let records = rows.iter().filter(|row| text(row, "kind") == "record");
    records.map(|row| int(row, "offset")).collect()
}

/// A small batch may expand to millions of records: their rows are never all in memory.
#[test]
fn the_rows_of_records_are_made_some_at_a_time() {
    const COUNT: usize = 2 * RECORDS_MAX + 500;
    for codec in [Compression::None, Compression::Zstd] {
        let mut builder = BatchBuilder::new();
        for _ in 0..COUNT {
            builder.append(1000, None, Some(b"v"));
        }
        let mut large = builder.build_compressed(codec, |records| {
            let mut out = Vec::new();
            compress(codec, records, &mut out).expect("in memory");
            out
        });
        set_base_offset(&mut large, 100);
        set_partition_leader_epoch(&mut large, 3);
        let after = batch(100 + COUNT as i64, 3, codec);
        let bytes = [large, after].concat();
        let (counts, rows) = made(&bytes, RECORDS);
        assert_eq!(counts, [1, 1000, 1000, 500, 1, 2, 0]);
        let expected: Vec<i64> = (100..100 + COUNT as i64 + 2).collect();
        assert_eq!(offsets_of_records(&rows), expected);
        assert!(damages(&made(&bytes, VERIFY).1).is_empty());
    }
}

#[test]
fn large_records_are_shown_fewer_at_a_time() {
    let mut builder = BatchBuilder::new();
    for _ in 0..5 {
        builder.append(1000, None, Some(&[7; RECORD_BYTES_MAX / 2]));
    }
    let mut large = builder.build();
    set_base_offset(&mut large, 100);
    let (counts, _) = made(&large, RECORDS);
    assert_eq!(counts, [1, 2, 2, 1, 0]);
}

/// What the checks find comes behind the last record.
#[test]
fn a_wrong_count_is_told_of_a_batch_in_pieces() {
    let mut builder = BatchBuilder::new();
    for _ in 0..RECORDS_MAX + 1 {
        builder.append(1000, None, None);
    }
    let mut large = builder.build();
    set_base_offset(&mut large, 100);
    let count_at = 57;
    large[count_at..count_at + 4].copy_from_slice(&7_i32.to_be_bytes());
    refresh_crc(&mut large);
    let both = Options {
        records: true,
        verify: true,
    };
    let (counts, rows) = made(&large, both);
    assert_eq!(counts, [1, 1000, 2, 0]);
    assert_eq!(
        damages(&rows),
        [(
            0,
            "the header says 7 records, the batch holds 1001".to_owned()
        )]
    );
    assert_eq!(text(rows.last().expect("damage"), "kind"), "damage");
}

fn with_epochs(bytes: &[u8]) -> Vec<Row> {
    let epochs = Some(b"0\n2\n0 0\n3 100\n".to_vec());
    let beside = Beside {
        leader_epochs: epochs,
        ..Beside::default()
    };
    rows_of("00000000000000000100.log", bytes, beside, VERIFY)
}

/// Flips every bit of every batch but the last: the damage is found, and located where the checksum
/// covers it.
#[test]
fn a_flipped_bit_is_found_wherever_it_is() {
    let good = segment();
    assert!(damages(&with_epochs(&good)).is_empty());
    let starts: Vec<usize> = Batches::new(&good)
        .map(|batch| batch.expect("good").position)
        .collect();
    for bit in 0..starts[3] * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let found = damages(&with_epochs(&bad));
        assert!(!found.is_empty(), "bit {} of byte {}", bit % 8, bit / 8);
        let start = starts
            .iter()
            .rev()
            .find(|start| **start <= bit / 8)
            .expect("in a batch");
        if bit / 8 - start >= 17 {
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(found[0].0, *start as i64);
            let place = format!("bit {} of the byte at {}", bit % 8, bit / 8);
            assert!(found[0].1.ends_with(&place), "{}: {place}", found[0].1);
        }
    }
}

#[test]
fn the_last_batchs_epoch_is_held_against_the_checkpoint() {
    let mut bad = segment();
    let last = bad.len() - marker(106, false).len();
    set_partition_leader_epoch(&mut bad[last..], 7);
    assert!(damages(&log_rows(&bad, VERIFY)).is_empty());
    let rows = with_epochs(&bad);
    let found = damages(&rows);
    assert_eq!((found.len(), found[0].0), (1, last as i64));
    assert!(found[0].1.contains("leader epoch is 7"), "{}", found[0].1);
}

#[test]
fn missing_offsets_are_shown_but_are_no_damage() {
    let bytes = [
        batch(100, 3, Compression::None),
        batch(110, 3, Compression::None),
    ]
    .concat();
    let rows = log_rows(&bytes, VERIFY);
    assert_eq!(kinds(&rows), ["batch", "gap", "batch"]);
    assert_eq!(
        (int(&rows[1], "first_offset"), int(&rows[1], "last_offset")),
        (102, 109)
    );
    assert_eq!(kinds(&log_rows(&bytes, PLAIN)), ["batch", "batch"]);
}

#[test]
fn torn_and_preallocated_tails_are_damage() {
    let good = segment();
    for cut in [1, 30, marker(106, false).len() - 1] {
        let rows = log_rows(&good[..good.len() - cut], PLAIN);
        assert_eq!(kinds(&rows), ["batch", "batch", "batch", "damage"], "{cut}");
        let position = good.len() - marker(106, false).len();
        assert_eq!(damages(&rows)[0].0, position as i64);
    }
    let zeros = [&good[..], &[0; 5000]].concat();
    let found = damages(&log_rows(&zeros, PLAIN));
    assert_eq!((found.len(), found[0].0), (1, good.len() as i64));
    assert!(found[0].1.contains("zeros"), "{}", found[0].1);
}

#[test]
fn reading_goes_on_behind_damage() {
    let (first, last) = (
        batch(100, 3, Compression::None),
        batch(104, 3, Compression::Gzip),
    );
    let bytes = [&first[..], &[0xab; 700_000], &last[..]].concat();
    let rows = log_rows(&bytes, PLAIN);
    assert_eq!(kinds(&rows), ["batch", "damage", "batch"]);
    assert!(
        damages(&rows)[0]
            .1
            .ends_with(&format!("begins at {}", first.len() + 700_000))
    );
    assert_eq!(int(&rows[2], "base_offset"), 104);
}

#[test]
fn headers_that_contradict_their_records() {
    let good = batch(100, 3, Compression::None);
    for (at, bytes, reason) in [
        (57, &3_i32.to_be_bytes()[..], "says 3 records"),
        (23, &0_i32.to_be_bytes(), "do not rise"),
        (35, &5_i64.to_be_bytes(), "largest timestamp is 5"),
    ] {
        let mut bad = good.clone();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        refresh_crc(&mut bad);
        assert!(damages(&log_rows(&bad, PLAIN)).is_empty());
        let found = damages(&log_rows(&bad, VERIFY));
        assert!(found.len() == 1 && found[0].1.contains(reason), "{found:?}");
    }
    let mut builder = BatchBuilder::new();
    builder.append(0, None, None);
    let garbage = builder.build_compressed(Compression::Lz4, |_| b"garbage".to_vec());
    let rows = rows_of(
        "00000000000000000000.log",
        &garbage,
        Beside::default(),
        VERIFY,
    );
    assert_eq!(kinds(&rows), ["batch", "damage"]);
}

#[test]
fn batches_that_compaction_emptied_are_fine() {
    let mut builder = BatchBuilder::new().timestamp_type(TimestampType::CreateTime);
    builder.skip_offsets(5);
    let mut emptied = builder.build();
    set_base_offset(&mut emptied, 100);
    emptied[35..43].copy_from_slice(&777_i64.to_be_bytes());
    refresh_crc(&mut emptied);
    assert_eq!(kinds(&log_rows(&emptied, VERIFY)), ["batch"]);
}

#[test]
fn unknown_files_are_refused() {
    let open = |name: &str| {
        let file = MemDisk::file(Vec::new());
        dump(Path::new(name), file, Beside::default(), PLAIN).map(|_| ())
    };
    for name in [
        "notes.txt",
        ".lock",
        "",
        "/",
        "0.log",
        "00000000000000000000.log.x.deleted",
    ] {
        assert!(
            matches!(open(name), Err(DumpError::UnknownFile(_))),
            "{name}"
        );
    }
    for suffix in ["deleted", "7.deleted"] {
        let name = format!("00000000000000000000.log.{suffix}");
        assert!(open(&name).is_ok(), "{name}");
    }
}

#[test]
fn real_files_are_opened_with_their_neighbours() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("00000000000000000100.log");
    let index = dir.path().join("00000000000000000100.index");
    std::fs::write(&log, segment()).expect("written");
    std::fs::write(&index, [0, 0, 0, 9, 0, 0, 0, 1]).expect("written");
    let rows: Result<Vec<Row>, _> = open(&log, VERIFY).expect("opens").collect();
    assert_eq!(kinds(&rows.expect("readable")).len(), 4);
    let rows: Result<Vec<Row>, _> = open(&index, VERIFY).expect("opens").collect();
    assert_eq!(kinds(&rows.expect("readable")), ["index_entry", "damage"]);
    let missing = open(&dir.path().join("00000000000000000000.log"), PLAIN);
    assert!(matches!(missing, Err(DumpError::Io { .. })));
    assert!(matches!(
        open(dir.path(), PLAIN),
        Err(DumpError::UnknownFile(_))
    ));
}

#[test]
fn dumps_can_be_handed_to_another_thread() {
    fn is_send<T: Send + 'static>() {}
    is_send::<Dump>();
}
