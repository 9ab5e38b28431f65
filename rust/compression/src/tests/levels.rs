//! Levels of compression.

use super::*;

/// Every level of each codec that a topic may ask for, of zstd's negative ones a few.
fn all_levels() -> Vec<(Compression, CompressionLevels)> {
    let default = CompressionLevels::default();
    let gzip = [-1].into_iter().chain(1..=9);
    let gzip = gzip.map(|gzip| (Compression::Gzip, CompressionLevels { gzip, ..default }));
    let lz4 = (1..=17).map(|lz4| (Compression::Lz4, CompressionLevels { lz4, ..default }));
    let zstd = [-131_072, -50, -1].into_iter().chain(1..=22);
    let zstd = zstd.map(|zstd| (Compression::Zstd, CompressionLevels { zstd, ..default }));
    gzip.chain(lz4).chain(zstd).collect()
}

fn compressed_at(levels: CompressionLevels, codec: Compression, records: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    compress_at(levels, codec, records, &mut out).expect("in memory");
    out
}

/// Lines in which words come again at changing distances.
fn prose(len: usize) -> Vec<u8> {
    let words = [
        "offset",
        "partition",
        "leader",
        "follower",
        "epoch",
        "segment",
    ];
    let mut state = 1_u32;
    let mut text = Vec::with_capacity(len + 16);
    while text.len() < len {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        text.extend_from_slice(words[(state >> 16) as usize % words.len()].as_bytes());
        text.push(b' ' + (state >> 28) as u8 % 2);
    }
    text.truncate(len);
    text
}

fn noise(len: usize) -> Vec<u8> {
    let mut state = 7_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn every_level_round_trips() {
    for (codec, levels) in all_levels() {
        for records in [
            text(300),
            prose(70_000),
            noise(5_000),
            vec![0; 66_000],
            vec![],
        ] {
            let body = compressed_at(levels, codec, &records);
            let len = records.len();
            assert_eq!(expanded(codec, &body), Ok(records), "{levels:?} {len}");
        }
    }
}

#[test]
fn higher_levels_take_less_space() {
    let records = prose(60_000);
    let size = |codec, levels| compressed_at(levels, codec, &records).len();
    let default = CompressionLevels::default();
    let gzip = |gzip| size(Compression::Gzip, CompressionLevels { gzip, ..default });
    assert!(gzip(9) < gzip(1));
    assert_eq!(gzip(-1), gzip(6));
    let lz4 = |lz4| size(Compression::Lz4, CompressionLevels { lz4, ..default });
    let fast = lz4(9);
    assert!(lz4(17) <= lz4(8) && lz4(8) < lz4(1) && lz4(3) < fast);
    let zstd = |zstd| size(Compression::Zstd, CompressionLevels { zstd, ..default });
    assert!(zstd(19) < zstd(1) && zstd(1) < zstd(-50));
    assert_eq!(zstd(3), compressed(Compression::Zstd, &records).len());
}

#[test]
fn searched_lz4_frames_are_read_by_another_library() {
    for records in [prose(200_000), noise(100), text(13), vec![1; 65_536]] {
        for lz4 in [1, 8, 10, 17] {
            let levels = CompressionLevels {
                lz4,
                ..CompressionLevels::default()
            };
            let frame = compressed_at(levels, Compression::Lz4, &records);
            let mut read = Vec::new();
            let mut decoder = lz4_flex::frame::FrameDecoder::new(frame.as_slice());
            decoder.read_to_end(&mut read).expect("a valid frame");
            assert_eq!(read, records);
        }
    }
}

#[test]
fn large_batches_at_zstds_highest_level_are_read_by_clients() {
    // Java's library refuses windows above 2^27 bytes; ours are far smaller.
    let records = prose(600_000);
    let levels = CompressionLevels {
        zstd: 22,
        ..CompressionLevels::default()
    };
    let body = compressed_at(levels, Compression::Zstd, &records);
    assert_eq!(expanded(Compression::Zstd, &body), Ok(records));
}

#[test]
fn slow_levels_are_those_far_above_the_default() {
    let default = CompressionLevels::default();
    for codec in CODECS {
        assert!(!default.is_slow(codec), "{codec:?}");
    }
    for (codec, levels) in all_levels() {
        let expected = match codec {
            Compression::Gzip => levels.gzip >= 7,
            Compression::Lz4 => levels.lz4 != 9,
            _ => levels.zstd >= 7,
        };
        assert_eq!(levels.is_slow(codec), expected, "{levels:?}");
    }
}

proptest! {
    #[test]
    fn arbitrary_records_round_trip_at_any_level(
        // Few letters make matches of all lengths and distances.
        records in proptest::collection::vec(0_u8..3, 0..3000),
        lz4 in 1_i32..=17,
    ) {
        let levels = CompressionLevels { lz4, ..CompressionLevels::default() };
        let frame = compressed_at(levels, Compression::Lz4, &records);
        prop_assert_eq!(expanded(Compression::Lz4, &frame), Ok(records));
    }
}
