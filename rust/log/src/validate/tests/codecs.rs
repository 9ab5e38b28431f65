use super::*;
use pyrklog_wire::records::Records;

#[test]
fn a_topics_own_codec_replaces_the_producers() {
    let plain = builder().build();
    for sent in CODECS {
        for stored_as in CODECS {
            let rules = Rules {
                compression: Some(stored_as),
                ..rules()
            };
            let (validated, stored) = accept(&with_codec(sent), &rules);
            assert_eq!(validated.rewritten.is_some(), sent != stored_as);
            let header = BatchHeader::parse(&stored).expect("valid");
            assert_eq!(header.compression(), Ok(stored_as));
            let mut records = Vec::new();
            decompress(stored_as, &stored[HEADER_LEN..], &mut records, 1 << 20).expect("valid");
            assert_eq!(records, plain[HEADER_LEN..]);
            assert_eq!((header.producer_id, header.max_timestamp), (7, NOW + 20));
        }
    }
}

#[test]
fn a_topics_level_is_that_of_the_stored_batch() {
    let mut builder = BatchBuilder::new();
    for number in 0..500 {
        let value = format!("{number} {} {}", number * 7 % 97, number * 31 % 89);
        builder.append(NOW, None, Some(value.repeat(3).as_bytes()));
    }
    let sent = builder.build();
    for codec in [Compression::Gzip, Compression::Lz4, Compression::Zstd] {
        let stored = |level| {
            let rules = Rules {
                compression: Some(codec),
                compression_levels: CompressionLevels {
                    gzip: level,
                    lz4: level,
                    zstd: level,
                },
                ..rules()
            };
            accept(&sent, &rules).1.len()
        };
        assert!(stored(8) < stored(1), "{codec:?}");
    }
}

#[test]
fn a_batch_that_grows_too_large_is_refused() {
    let mut builder = BatchBuilder::new();
    builder.append(NOW, None, Some(&[0; 10_000]));
    let batch = builder.build_compressed(Compression::Zstd, |r| compressed(Compression::Zstd, r));
    let base = Rules {
        compression: Some(Compression::None),
        ..rules()
    };
    accept(&batch, &base);
    let error = refuse(
        &batch,
        &Rules {
            max_message_bytes: 5000,
            ..base
        },
    );
    assert_eq!(error.code, ErrorCode::MESSAGE_TOO_LARGE);
    let error = refuse(
        &batch,
        &Rules {
            segment_bytes: 5000,
            ..base
        },
    );
    assert_eq!(error.code, ErrorCode::RECORD_LIST_TOO_LARGE);
}

#[test]
fn append_time_and_a_new_codec_go_together() {
    let rules = Rules {
        timestamp_type: TimestampType::LogAppendTime,
        compression: Some(Compression::Lz4),
        ..rules()
    };
    let (validated, stored) = accept(&builder().build(), &rules);
    let header = BatchHeader::parse(&stored).expect("valid");
    assert_eq!(header.compression(), Ok(Compression::Lz4));
    assert_eq!(validated.info.max_timestamp, NOW);
    let mut records = Vec::new();
    decompress(
        Compression::Lz4,
        &stored[HEADER_LEN..],
        &mut records,
        1 << 20,
    )
    .expect("valid");
    assert_eq!(
        Records::new(&records)
            .filter_map(std::result::Result::ok)
            .count(),
        3
    );
}
