//! Records that lie.

use proptest::prelude::*;
use pyrklog_wire::batch::{CONTROL_BIT, Compression, HEADER_LEN, refresh_crc};
use pyrklog_wire::builder::BatchBuilder;

use super::{How, all_columns, compressed, decode};
use crate::error::ErrorKind;

fn batch(codec: Compression) -> Vec<u8> {
    let mut builder = BatchBuilder::new().leader_epoch(1);
    for number in 0..20_u8 {
        let headers: [(&[u8], Option<&[u8]>); 1] = [(b"h", Some(&[number]))];
        let value = [number; 40];
        builder.append_with_headers(5, Some(&[number]), Some(&value), &headers);
    }
    compressed(builder, codec)
}

fn failure(records: &[u8]) -> (ErrorKind, String) {
    let error = decode(How::default(), &all_columns(), records, &[]).unwrap_err();
    (error.kind, error.text)
}

#[test]
fn a_flipped_bit_is_noticed() {
    let mut records = batch(Compression::Lz4);
    let at = records.len() - 5;
    records[at] ^= 4;
    let (kind, text) = failure(&records);
    assert_eq!(kind, ErrorKind::CorruptBatch);
    assert!(text.starts_with("partition topic-3 at offset 0: record batch CRC is"));
}

#[test]
fn counts_that_lie_are_refused() {
    for (at, bytes, reason) in [
        (
            57,
            21_i32.to_be_bytes(),
            "says 21 records, the body holds 20",
        ),
        (
            57,
            19_i32.to_be_bytes(),
            "says 19 records, the body holds 20",
        ),
        (57, i32::MAX.to_be_bytes(), "says 2147483647 records"),
        (57, (-1_i32).to_be_bytes(), "says -1 records"),
        (23, 7_i32.to_be_bytes(), "offsets of a batch do not rise"),
    ] {
        let mut records = batch(Compression::None);
        records[at..at + 4].copy_from_slice(&bytes);
        refresh_crc(&mut records);
        let (kind, text) = failure(&records);
        assert_eq!(kind, ErrorKind::CorruptBatch);
        assert!(text.contains(reason), "{text}");
    }
}

#[test]
fn unknown_codecs_and_formats_are_refused() {
    let mut records = batch(Compression::None);
    records[22] |= 7;
    refresh_crc(&mut records);
    assert!(
        failure(&records)
            .1
            .ends_with("compression codec 7 does not exist")
    );
    let mut records = batch(Compression::None);
    records[16] = 3;
    assert!(failure(&records).1.contains("message format 3"));
}

#[test]
fn a_bomb_of_headers_is_refused() {
    // A record of nothing but empty headers, two bytes each, with null values.
    let headers: Vec<(&[u8], Option<&[u8]>)> = vec![(b"", None); (1 << 20) + 1];
    let mut builder = BatchBuilder::new();
    builder.append_with_headers(1, None, None, &headers);
    let records = compressed(builder, Compression::Zstd);
    assert!(records.len() < 10_000);
    let (kind, text) = failure(&records);
    assert_eq!(kind, ErrorKind::CorruptBatch);
    assert!(
        text.ends_with("a record has more than a million headers"),
        "{text}"
    );
}

#[test]
fn a_control_batch_without_a_record_is_passed_over() {
    let mut records = batch(Compression::None)[..HEADER_LEN].to_vec();
    records[8..12].copy_from_slice(&49_i32.to_be_bytes());
    records[22] |= CONTROL_BIT as u8;
    refresh_crc(&mut records);
    let (found, position) = decode(How::default(), &all_columns(), &records, &[]).unwrap();
    assert_eq!((found.len(), position), (0, 20));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Neither a panic nor a row that was not written, whatever is changed behind the CRC.
    #[test]
    fn changed_bytes_are_refused_or_read(
        codec in 0..5_u8,
        at in 0..1_000_000_usize,
        with in any::<u8>(),
        mends_crc in any::<bool>(),
    ) {
        let codec = Compression::from_bits(codec).unwrap();
        let mut records = batch(codec);
        let at = at % records.len();
        records[at] = with;
        if mends_crc {
            refresh_crc(&mut records);
        }
        if let Ok((found, _)) = decode(How::default(), &all_columns(), &records, &[]) {
            let rows: usize = found.iter().map(|batch| batch.num_rows()).sum();
            prop_assert!(rows <= 20);
        }
    }

    /// The same for bytes that were never a batch.
    #[test]
    fn noise_is_refused_or_ignored(records in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok((found, _)) = decode(How::default(), &all_columns(), &records, &[]) {
            prop_assert_eq!(found.len(), 0);
        }
    }
}
