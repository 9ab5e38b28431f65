//! Produced record batches: built, perhaps damaged, given a right checksum (it protects against
//! accidents, not peers), and validated.

use pyrklog_log::compression::{compress, with_decompressed};
use pyrklog_log::validate::{Rules, Validated, validate_produce, validate_replica};
use pyrklog_log::{BatchInfo, LogConfig, TimestampType};
use pyrklog_wire::batch::{self, BatchHeader, Compression, HEADER_LEN};
use pyrklog_wire::builder::{BatchBuilder, HeaderToWrite};
use pyrklog_wire::records::Records;

use crate::script::{Damage, Script};
use crate::{Verdict, expect, memory};

/// Believes a header; ignores a checksum; expands without a bound; leaves the producer's largest
/// timestamp.
pub const PLANTED: &[&str] = &[
    "header-believed",
    "checksum-ignored",
    "expansion-unbounded",
    "timestamp-left",
];

pub const NOW_MS: i64 = 1_700_000_000_000;
const PRODUCE_VERSION: i16 = 11;

/// Decompression needs fixed memory for windows and tables, and little per byte.
/// `EXPANDED_BYTES_MAX` bounds the records.
const MEMORY_FACTOR: usize = 4096;
pub const EXPANDED_BYTES_MAX: usize = 1 << 14;
/// What was sent uncompressed may be larger.
const STORED_BYTES_MAX: usize = 1 << 20;
const CODEC_BYTES: usize = 12 << 20;

const CRC_AT: usize = 17;
const CRC_FROM: usize = 21;

/// Key, value, headers.
pub type Record = (Option<Vec<u8>>, Option<Vec<u8>>, Vec<(Vec<u8>, Vec<u8>)>);

pub fn run(script: &mut Script<'_>, planted: Option<&str>) -> Verdict {
    let records = script.list(6, record);
    let codec = script.pick(&[
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ]);
    let mut bytes = build(script, &records, codec);
    let built = bytes.clone();
    let damage = if script.bool() {
        script.damage(&mut bytes)
    } else {
        Damage::None
    };
    let is_mended = script.bool() && mend(&mut bytes);
    let rules = rules(script);
    let is_too_large = codec != Compression::None && expanded_bytes(&records) > EXPANDED_BYTES_MAX;
    let covered = |bytes: &[u8]| bytes.get(CRC_FROM..built.len()).map(<[u8]>::to_vec);
    let is_intact = covered(&bytes) == covered(&built);
    let budget = bytes.len() + CODEC_BYTES / MEMORY_FACTOR;
    let result = memory::bounded(budget, MEMORY_FACTOR, || {
        validate(&mut bytes, &rules, planted)
    })?;
    match result {
        Ok(validated) => {
            let stored = match &validated.rewritten {
                Some(rewritten) => rewritten,
                None => &bytes[..validated.info.total_len()],
            };
            expect(!is_too_large || damage != Damage::None, || {
                "records beyond the bound were accepted".into()
            })?;
            check_stored(stored, &rules)?;
            if damage == Damage::None {
                return check_same(stored, &records);
            }
            expect(is_mended || is_intact, || {
                "changed bytes with an old checksum were accepted".into()
            })
        }
        Err(problem) if damage == Damage::None && !records.is_empty() && !is_too_large => {
            Err(format!("a good batch was refused: {problem}"))
        }
        Err(_) => Ok(()),
    }
}

pub fn record(script: &mut Script<'_>) -> Record {
    let key = script.bool().then(|| script.bytes(8));
    let value = match script.below(16) {
        0..4 => None,
        // A bomb, once it is compressed.
        15 => Some(vec![7; EXPANDED_BYTES_MAX + 1]),
        _ => Some(script.bytes(40)),
    };
    let headers = script.list(2, |script| (script.text().into_bytes(), script.bytes(5)));
    (key, value, headers)
}

/// The values alone: a lower bound of the records' size.
fn expanded_bytes(records: &[Record]) -> usize {
    let values = records.iter().filter_map(|(_, value, _)| value.as_ref());
    values.map(Vec::len).sum()
}

fn build(script: &mut Script<'_>, records: &[Record], codec: Compression) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    if script.one_in(3) {
        builder = builder.producer(script.below(50) as i64, 0, script.below(9) as i32);
        if script.bool() {
            builder = builder.transactional();
        }
    }
    for (key, value, headers) in records {
        let headers: Vec<HeaderToWrite<'_>> = headers
            .iter()
            .map(|(key, value)| (&key[..], Some(&value[..])))
            .collect();
        let timestamp = NOW_MS - script.below(1000) as i64;
        builder.append_with_headers(timestamp, key.as_deref(), value.as_deref(), &headers);
    }
    let mut bytes = builder.build_compressed(codec, |records| {
        let mut out = Vec::new();
        compress(codec, records, &mut out).unwrap_or_default();
        out
    });
    if script.one_in(4) {
        // Some clients leave it out.
        batch::set_max_timestamp(&mut bytes, batch::NO_TIMESTAMP);
        batch::refresh_crc(&mut bytes);
    }
    bytes
}

/// Sets length and checksum right, if there is room.
fn mend(bytes: &mut [u8]) -> bool {
    if bytes.len() < HEADER_LEN {
        return false;
    }
    let length = (bytes.len() - batch::LENGTH_PREFIX_LEN) as i32;
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    let crc = batch::crc32c(&bytes[CRC_FROM..]);
    bytes[CRC_AT..CRC_FROM].copy_from_slice(&crc.to_be_bytes());
    true
}

pub fn rules(script: &mut Script<'_>) -> Rules {
    let compression_type = script.pick(&[
        None,
        None,
        Some(Compression::None),
        Some(Compression::Gzip),
        Some(Compression::Snappy),
        Some(Compression::Lz4),
        Some(Compression::Zstd),
    ]);
    let message_timestamp_type = match script.one_in(4) {
        true => TimestampType::LogAppendTime,
        false => TimestampType::CreateTime,
    };
    let config = LogConfig {
        compression_type,
        message_timestamp_type,
        ..LogConfig::default()
    };
    let mut rules = Rules::new(&config, PRODUCE_VERSION);
    rules.expanded_bytes_max = EXPANDED_BYTES_MAX;
    rules
}

fn validate(bytes: &mut [u8], rules: &Rules, planted: Option<&str>) -> Result<Validated, String> {
    match planted {
        Some("header-believed") => {
            batch::verify_crc(bytes).map_err(|error| error.to_string())?;
            let info = BatchInfo::parse(bytes).map_err(|error| error.to_string())?;
            let rewritten = Some(bytes.to_vec());
            return Ok(Validated {
                info,
                rewritten,
                expanded_bytes: 0,
            });
        }
        Some("checksum-ignored") => {
            mend(bytes);
        }
        Some("expansion-unbounded") => {
            let rules = Rules {
                expanded_bytes_max: usize::MAX,
                ..*rules
            };
            return validate(bytes, &rules, None);
        }
        Some("timestamp-left") => {
            let sent = bytes.to_vec();
            let validated = validate(bytes, rules, None)?;
            bytes.copy_from_slice(&sent);
            return Ok(validated);
        }
        _ => {}
    }
    validate_produce(bytes, rules, NOW_MS).map_err(|error| error.to_string())
}

/// The stored bytes are one whole batch that a follower accepts, with records 0, 1, 2 ... to the
/// last.
pub fn check_stored(stored: &[u8], rules: &Rules) -> Verdict {
    validate_replica(stored).map_err(|error| format!("a follower refuses it: {error}"))?;
    let header = BatchHeader::parse(stored).map_err(|error| error.to_string())?;
    let largest = largest_timestamp(&header, stored)?;
    let wanted = match rules.timestamp_type {
        TimestampType::CreateTime => largest.max(batch::NO_TIMESTAMP),
        TimestampType::LogAppendTime => NOW_MS,
    };
    let told = (header.timestamp_type(), header.max_timestamp);
    expect(told == (rules.timestamp_type, wanted), || {
        format!("the largest timestamp is {wanted}, the header says {told:?}")
    })?;
    let found = records_of(stored)?;
    expect(found.len() as i64 == i64::from(header.record_count), || {
        format!(
            "{} records, the header says {}",
            found.len(),
            header.record_count
        )
    })?;
    expect(header.last_offset_delta == header.record_count - 1, || {
        format!("the last offset is {}", header.last_offset_delta)
    })
}

fn largest_timestamp(header: &BatchHeader, stored: &[u8]) -> Result<i64, String> {
    let codec = header.compression().map_err(|error| error.to_string())?;
    let largest = with_decompressed(codec, &stored[HEADER_LEN..], STORED_BYTES_MAX, |records| {
        let records = Records::new(records).flatten();
        let timestamps = records.map(|one| header.base_timestamp.wrapping_add(one.timestamp_delta));
        timestamps.max()
    });
    let largest = largest.map_err(|error| error.to_string())?;
    Ok(largest.unwrap_or(batch::NO_TIMESTAMP))
}

fn check_same(stored: &[u8], records: &[Record]) -> Verdict {
    let found = records_of(stored)?;
    expect(found == records, || {
        format!("sent {records:?}, stored {found:?}")
    })
}

pub fn records_of(stored: &[u8]) -> Result<Vec<Record>, String> {
    let header = BatchHeader::parse(stored).map_err(|error| error.to_string())?;
    let codec = header.compression().map_err(|error| error.to_string())?;
    let body = &stored[HEADER_LEN..];
    with_decompressed(codec, body, STORED_BYTES_MAX, |records| {
        Records::new(records)
            .map(|record| {
                let record = record.map_err(|error| error.to_string())?;
                let mut headers = Vec::new();
                for header in record.headers() {
                    let value = header.value.unwrap_or_default();
                    headers.push((header.key.to_vec(), value.to_vec()));
                }
                let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
                Ok((owned(record.key), owned(record.value), headers))
            })
            .collect()
    })
    .map_err(|error| error.to_string())?
}
