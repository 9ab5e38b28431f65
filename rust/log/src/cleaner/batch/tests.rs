use super::*;
use pyrklog_wire::builder::BatchBuilder;

const NOW_MS: i64 = 1_800_000_000_000;
const NO_LIMITS: GrowthLimits = GrowthLimits {
    expanded_bytes: usize::MAX,
    more_bytes: u64::MAX,
};

/// Many tombstones with one time: their deltas take a byte each, and more with a horizon.
fn tombstones(codec: Compression) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for key in 0..50_u8 {
        builder.append(NOW_MS, Some(&[key]), None);
    }
    builder.build_compressed(codec, |records| {
        let mut out = Vec::new();
        compress(codec, records, &mut out).expect("in memory");
        out
    })
}

fn map() -> OffsetMap {
    let mut map = OffsetMap::new(1024, 0.9, 1);
    map.note(1_000);
    map
}

fn cleaned(map: &OffsetMap, batch: &[u8], limits: GrowthLimits) -> (Outcome, Vec<u8>) {
    let rules = RecordRules {
        map,
        now_ms: NOW_MS,
        delete_retention_ms: 86_400_000,
        limits,
    };
    let header = BatchHeader::parse(batch).unwrap();
    let mut out = Vec::new();
    let outcome = clean(&rules, &header, batch, Findings::default(), &mut out).unwrap();
    (outcome, out)
}

fn expanded_bytes(batch: &[u8]) -> usize {
    let codec = BatchHeader::parse(batch).unwrap().compression().unwrap();
    with_decompressed(codec, &batch[HEADER_LEN..], usize::MAX, <[u8]>::len).unwrap()
}

#[test]
fn a_batch_without_room_gets_no_horizon() {
    let map = map();
    let batch = tombstones(Compression::None);
    let (outcome, marked) = cleaned(&map, &batch, NO_LIMITS);
    assert_eq!(outcome, Outcome::Changed);
    let header = BatchHeader::parse(&marked).unwrap();
    assert_eq!(header.delete_horizon(), Some(NOW_MS + 86_400_000));
    let just = GrowthLimits {
        expanded_bytes: 0,
        more_bytes: (marked.len() - batch.len()) as u64,
    };
    assert_eq!(cleaned(&map, &batch, just), (Outcome::Changed, marked));
    let too_small = GrowthLimits {
        more_bytes: just.more_bytes - 1,
        ..just
    };
    assert_eq!(cleaned(&map, &batch, too_small).0, Outcome::Same);
}

#[test]
fn a_batch_stays_within_what_readers_expand() {
    let map = map();
    let batch = tombstones(Compression::Lz4);
    let (outcome, marked) = cleaned(&map, &batch, NO_LIMITS);
    assert_eq!(outcome, Outcome::Changed);
    let grown_bytes = expanded_bytes(&marked);
    assert!(grown_bytes > expanded_bytes(&batch));
    for (expanded_bytes, expected) in [
        (grown_bytes, Outcome::Changed),
        (grown_bytes - 1, Outcome::Same),
    ] {
        let limits = GrowthLimits {
            expanded_bytes,
            ..NO_LIMITS
        };
        assert_eq!(cleaned(&map, &batch, limits).0, expected);
    }
}

#[test]
fn without_a_horizon_replaced_records_still_go() {
    let mut map = map();
    map.put(map.hash(&[7]), 900);
    let none = GrowthLimits {
        expanded_bytes: 0,
        more_bytes: 0,
    };
    let batch = tombstones(Compression::Lz4);
    let (outcome, less) = cleaned(&map, &batch, none);
    assert_eq!(outcome, Outcome::Changed);
    let header = BatchHeader::parse(&less).unwrap();
    assert_eq!((header.record_count, header.delete_horizon()), (49, None));
    batch::verify_crc(&less).unwrap();
}
