use super::*;

fn timed(timestamps: &[i64]) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for timestamp in timestamps {
        builder.append(*timestamp, None, Some(b"v"));
    }
    builder.build()
}

#[test]
fn timestamps_stay_within_the_topics_range() {
    let rules = Rules {
        timestamp_before_max_ms: 1000,
        timestamp_after_max_ms: 500,
        ..rules()
    };
    accept(&timed(&[NOW - 1000, NOW, NOW + 500]), &rules);
    // Records without a timestamp are exempt from the range.
    let (validated, _) = accept(&timed(&[-1, NOW, -1]), &rules);
    assert_eq!(validated.info.max_timestamp, NOW);
    for (timestamps, faulty) in [
        (vec![NOW, NOW - 1001], vec![1]),
        (vec![NOW + 501, NOW], vec![0]),
        (vec![0, NOW, i64::MAX], vec![0, 2]),
        (vec![NOW, i64::MIN, -2], vec![1, 2]),
    ] {
        let error = refuse(&timed(&timestamps), &rules);
        assert_eq!(error.code, ErrorCode::INVALID_TIMESTAMP);
        let indexes: Vec<_> = error
            .record_errors
            .iter()
            .map(|(index, _)| *index)
            .collect();
        assert_eq!(indexes, faulty, "{timestamps:?}");
        assert!(error.record_errors[0].1.contains(&(NOW - 1000).to_string()));
    }
    // Append time has no range.
    let append_time = Rules {
        timestamp_type: TimestampType::LogAppendTime,
        ..rules
    };
    accept(&timed(&[0, i64::MAX]), &append_time);
}

#[test]
fn one_bad_timestamp_decides_over_missing_keys() {
    let rules = Rules {
        compacted: true,
        timestamp_before_max_ms: 1000,
        ..rules()
    };
    let mut builder = BatchBuilder::new();
    builder.append(NOW, None, None);
    builder.append(0, Some(b"k"), None);
    builder.append(0, None, None);
    let error = refuse(&builder.build(), &rules);
    assert_eq!(error.code, ErrorCode::INVALID_TIMESTAMP);
    let kinds: Vec<_> = error
        .record_errors
        .iter()
        .map(|(index, reason)| (*index, reason.contains("key")))
        .collect();
    assert_eq!(kinds, [(0, true), (1, false), (2, true)]);
}

/// Some clients leave the largest timestamp unset, others leave it wrong.
#[test]
fn the_largest_timestamp_is_recomputed() {
    for codec in CODECS {
        for claimed in [-1, 0, i64::MAX] {
            let mut batch = with_codec(codec);
            set_max_timestamp(&mut batch, claimed);
            refresh_crc(&mut batch);
            let (validated, stored) = accept(&batch, &rules());
            assert_eq!(validated.info.max_timestamp, NOW + 20, "{codec:?}");
            assert_eq!(stored, with_codec(codec));
        }
    }
    let (validated, _) = accept(&timed(&[-1, -1]), &rules());
    assert_eq!(validated.info.max_timestamp, -1);
    let (validated, _) = accept(&timed(&[-5, -7]), &rules());
    assert_eq!(validated.info.max_timestamp, -1);
}

#[test]
fn timestamps_beyond_64_bits_wrap_as_in_java() {
    // The largest base timestamp, with differences 0, 20 and 10.
    let batch = patched(builder().build(), BASE_TIMESTAMP, &i64::MAX.to_be_bytes());
    let (validated, _) = accept(&batch, &rules());
    assert_eq!(validated.info.max_timestamp, i64::MAX);
}

#[test]
fn append_time_sets_the_type_and_the_brokers_clock() {
    let rules = Rules {
        timestamp_type: TimestampType::LogAppendTime,
        ..rules()
    };
    for codec in CODECS {
        let (validated, stored) = accept(&with_codec(codec), &rules);
        let header = BatchHeader::parse(&stored).expect("valid");
        assert_eq!(header.timestamp_type(), TimestampType::LogAppendTime);
        assert_eq!(header.base_timestamp, NOW);
        assert_eq!(
            (
                validated.info.max_timestamp,
                validated.info.is_log_append_time()
            ),
            (NOW, true)
        );
        assert_eq!(stored[HEADER_LEN..], with_codec(codec)[HEADER_LEN..]);
    }
}

#[test]
fn producers_do_not_set_append_time() {
    let mut batch = builder().build();
    set_timestamp_type(&mut batch, TimestampType::LogAppendTime);
    refresh_crc(&mut batch);
    let append_time = Rules {
        timestamp_type: TimestampType::LogAppendTime,
        ..rules()
    };
    let error = refuse(&batch, &append_time);
    assert_eq!(
        (error.code, error.record_errors.len()),
        (ErrorCode::INVALID_TIMESTAMP, 3)
    );
    // Kafka accepts it if the topic has create time and the header a timestamp; the type becomes
    // the topic's.
    let (validated, stored) = accept(&batch, &rules());
    assert_eq!(validated.info.max_timestamp, NOW + 20);
    assert_eq!(stored, builder().build());
    set_max_timestamp(&mut batch, -1);
    refresh_crc(&mut batch);
    assert_eq!(refuse(&batch, &rules()).code, ErrorCode::INVALID_TIMESTAMP);
}
