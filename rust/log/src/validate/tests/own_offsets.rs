//! Batches that bring their offsets.

use super::super::own_offsets::OFFSET_MAX;
use super::*;

fn keeping() -> Rules {
    Rules {
        keeps_offsets: true,
        ..rules()
    }
}

/// Records at these offsets, from the first one on.
fn at(offsets: &[i64]) -> BatchBuilder {
    let mut builder = BatchBuilder::new().base_offset(offsets[0]);
    for offset in offsets {
        builder.skip_offsets((offset - builder.end_offset()) as i32);
        builder.append(NOW, Some(b"k"), Some(b"v"));
    }
    builder
}

#[test]
fn offsets_stay_as_they_are_with_every_codec() {
    for offsets in [
        &[0_i64, 1, 2][..],
        &[7, 8, 20, 21],
        &[1 << 40],
        &[5, 1 << 20],
    ] {
        for codec in CODECS {
            let bytes = at(offsets).build_compressed(codec, |records| match codec {
                Compression::None => records.to_vec(),
                codec => compressed(codec, records),
            });
            let (validated, stored) = accept(&bytes, &keeping());
            assert_eq!(validated.info.base_offset, offsets[0]);
            assert_eq!(stored, bytes);
            let recoded = Rules {
                compression: Some(Compression::Lz4),
                ..keeping()
            };
            let (validated, _) = accept(&bytes, &recoded);
            let last = validated.info.base_offset + i64::from(validated.info.last_offset_delta);
            assert_eq!(Some(&last), offsets.last());
        }
    }
}

#[test]
fn an_ordinary_producer_brings_no_offsets() {
    refuse(&at(&[7]).build(), &rules());
    refuse(&at(&[0, 2]).build(), &rules());
}

#[test]
fn offsets_rise_and_end_where_the_batch_says() {
    let gaps = at(&[0, 2, 9]).build();
    accept(&gaps, &keeping());
    for delta in [-1_i32, 0, 1, 8, 10, i32::MAX] {
        let lies = patched(gaps.clone(), LAST_OFFSET_DELTA, &delta.to_be_bytes());
        assert_eq!(
            refuse(&lies, &keeping()).code,
            ErrorCode::INVALID_RECORD,
            "{delta}"
        );
    }
    // The first record has to be at the base offset.
    let mut behind = BatchBuilder::new();
    behind.skip_offsets(1);
    behind.append(NOW, None, Some(b"v"));
    refuse(&behind.build(), &keeping());
    // The second of two records goes back to the first one's place.
    let twice = at(&[0, 1]).build();
    let delta_of_second = twice.len() - 6;
    assert_eq!(twice[delta_of_second], 2, "the delta 1, zigzag");
    for zigzag in [0_u8, 1, 3] {
        refuse(
            &patched(twice.clone(), delta_of_second, &[zigzag]),
            &keeping(),
        );
    }
}

#[test]
fn offsets_are_bounded() {
    accept(&at(&[OFFSET_MAX]).build(), &keeping());
    accept(&at(&[OFFSET_MAX - 1, OFFSET_MAX]).build(), &keeping());
    let batch = at(&[0, 1]).build();
    for base in [-1, i64::MIN, OFFSET_MAX, i64::MAX, i64::MAX - 1] {
        // Outside of the checksum.
        let mut bytes = batch.clone();
        bytes[..8].copy_from_slice(&base.to_be_bytes());
        assert_eq!(
            refuse(&bytes, &keeping()).code,
            ErrorCode::INVALID_RECORD,
            "{base}"
        );
    }
}

#[test]
fn a_copy_has_no_producer_and_no_markers() {
    refuse(&builder().build(), &keeping());
    let with = |change: fn(BatchBuilder) -> BatchBuilder| {
        let mut batch = change(BatchBuilder::new());
        batch.append(NOW, None, Some(b"v"));
        refuse(&batch.build(), &keeping());
    };
    with(BatchBuilder::transactional);
    with(BatchBuilder::control);
    with(|batch| batch.producer(1, 0, -1));
    with(|batch| batch.producer(-2, 0, 0));
}
