//! What a broker sends to a scan: batches and messages of old formats, with transactions, from the
//! middle on, perhaps damaged.

use std::collections::HashMap;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use pyrklog_log::compression::{CompressedStream, Lz4Header, compress};
use pyrklog_scan::testing::{How, decode};
use pyrklog_scan::{Column, ErrorKind, ScanError};
use pyrklog_wire::batch::{self, Compression};
use pyrklog_wire::builder::{BatchBuilder, HeaderToWrite, transaction_marker};
use pyrklog_wire::fetch::AbortedTransaction;
use pyrklog_wire::message_set::{MAGIC_0, MAGIC_1, begin_wrapper, end_wrapper, write_message};

use crate::batches::{EXPANDED_BYTES_MAX, NOW_MS, Record, record};
use crate::script::{Damage, Script};
use crate::{Verdict, expect, memory};

/// Ignores checksums, the start of the range, its end, aborted transactions; expands without a
/// bound.
pub const PLANTED: &[&str] = &[
    "fetched-checksum-ignored",
    "start-ignored",
    "end-ignored",
    "aborted-shown",
    "fetched-expansion-unbounded",
];

/// As for produced batches: codecs need fixed memory for windows and tables.
const MEMORY_FACTOR: usize = 4096;
const CODEC_BYTES: usize = 16 << 20;

/// Offset, key, value.
type Row = (i64, Option<Vec<u8>>, Option<Vec<u8>>);

/// A batch or a message, as it was built.
#[derive(Debug)]
struct Sent {
    rows: Vec<Row>,
    next_offset: i64,
    /// The transaction's producer.
    producer: Option<i64>,
    /// Ends the producer's transaction: true commits.
    marker: Option<bool>,
    is_bomb: bool,
}

/// What is built of a script.
#[derive(Debug, Default)]
struct Log {
    bytes: Vec<u8>,
    sent: Vec<Sent>,
    next_offset: i64,
}

pub fn run(script: &mut Script<'_>, planted: Option<&str>) -> Verdict {
    let mut log = Log::default();
    for _ in 0..1 + script.below(5) {
        log.extend(script);
    }
    let start = script.below(log.next_offset as usize + 1) as i64;
    // An empty range is never fetched.
    let end = start + 1 + script.below(log.next_offset as usize + 1) as i64;
    let how = How {
        range: (start, end),
        batch_rows: 1 + script.below(5),
        batch_bytes: 1 + script.below(200),
        expanded_bytes: 64,
        large_bytes: EXPANDED_BYTES_MAX,
        is_read_committed: script.bool(),
    };
    let aborted = log.aborted(start);
    let mut bytes = log.bytes.clone();
    let damage = match script.bool() {
        true => script.damage(&mut bytes),
        false => Damage::None,
    };
    let budget = bytes.len() + CODEC_BYTES / MEMORY_FACTOR;
    let decoded = memory::bounded(budget, MEMORY_FACTOR, || {
        read(how, bytes, &aborted, planted)
    })?;
    if damage == Damage::None {
        return log.check(how, &aborted, decoded);
    }
    // Checksums leave out where a batch lies; its records are those that were sent.
    let rows = decoded.unwrap_or_default();
    let was_sent = |row: &Row| {
        let mut all = log.sent.iter().flat_map(|one| &one.rows);
        all.any(|sent| (&sent.1, &sent.2) == (&row.1, &row.2))
    };
    let foreign = rows.iter().find(|row| !was_sent(row));
    expect(foreign.is_none(), || {
        format!("{foreign:?} was not sent, but {:?}", log.sent)
    })
}

impl Log {
    /// Adds a batch, a marker or messages of an old format.
    fn extend(&mut self, script: &mut Script<'_>) {
        // What compaction removed.
        let base = self.next_offset + script.below(3) as i64;
        let (bytes, sent) = match script.below(8) {
            0 => marker(script, base),
            1 => messages(script, base),
            _ => records(script, base),
        };
        self.next_offset = sent.next_offset;
        self.bytes.extend(bytes);
        self.sent.push(sent);
    }

    /// The aborted transactions that a broker would name to a reader from `start` on.
    fn aborted(&self, start: i64) -> Vec<AbortedTransaction> {
        let mut open: HashMap<i64, i64> = HashMap::new();
        let mut aborted = Vec::new();
        let mut base = 0;
        for one in &self.sent {
            let first = one.rows.first().map_or(base, |row| row.0);
            base = one.next_offset;
            let Some(producer) = one.producer else {
                continue;
            };
            let Some(commit) = one.marker else {
                open.entry(producer).or_insert(first);
                continue;
            };
            if let Some(first_offset) = open.remove(&producer)
                && !commit
                && one.next_offset > start
            {
                aborted.push(AbortedTransaction {
                    producer_id: producer,
                    first_offset,
                });
            }
        }
        aborted
    }

    /// Whether a transaction hides this element.
    fn is_hidden(&self, number: usize) -> bool {
        let Some(producer) = self.sent[number].producer else {
            return false;
        };
        let mut later = self.sent[number..].iter();
        let end = later.find(|one| one.producer == Some(producer) && one.marker.is_some());
        end.is_some_and(|end| end.marker == Some(false))
    }

    fn check(
        &self,
        how: How,
        aborted: &[AbortedTransaction],
        decoded: Result<Vec<Row>, ScanError>,
    ) -> Verdict {
        let (start, end) = how.range;
        let mut rows = Vec::new();
        let mut has_bomb = false;
        let mut position = start;
        for (number, one) in self.sent.iter().enumerate() {
            if one.next_offset <= position {
                continue;
            }
            if position >= end {
                break;
            }
            position = one.next_offset;
            if one.marker.is_some() || (how.is_read_committed && self.is_hidden(number)) {
                continue;
            }
            has_bomb |= one.is_bomb;
            let visible = one.rows.iter().filter(|row| (start..end).contains(&row.0));
            // Uncompressed records are bounded one by one.
            has_bomb |= visible.clone().any(|row| is_large(row.2.as_deref()));
            rows.extend(visible.cloned());
        }
        match decoded {
            Ok(found) => {
                expect(!has_bomb, || {
                    "records beyond the bound were expanded".into()
                })?;
                expect(found == rows, || {
                    format!("{how:?} {aborted:?} reads {found:?} of {:?}", self.sent)
                })
            }
            Err(error) => expect(has_bomb && error.kind == ErrorKind::BatchTooLarge, || {
                format!("good records were refused: {error}")
            }),
        }
    }
}

fn records(script: &mut Script<'_>, base: i64) -> (Vec<u8>, Sent) {
    let codec = script.pick(&[
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ]);
    let mut written = vec![record(script)];
    written.extend(script.list(3, record));
    let mut builder = BatchBuilder::new().base_offset(base).leader_epoch(1);
    let producer = script.one_in(2).then(|| script.below(2) as i64);
    if let Some(id) = producer {
        builder = builder.producer(id, 0, 0).transactional();
    }
    let mut rows = Vec::new();
    let mut offset = base;
    for (key, value, headers) in &written {
        let gap = script.below(2);
        builder.skip_offsets(gap as i32);
        offset += gap as i64;
        let headers: Vec<HeaderToWrite<'_>> = headers
            .iter()
            .map(|(key, value)| (&key[..], Some(&value[..])))
            .collect();
        builder.append_with_headers(NOW_MS, key.as_deref(), value.as_deref(), &headers);
        rows.push((offset, key.clone(), value.clone()));
        offset += 1;
    }
    let behind = script.below(2);
    builder.skip_offsets(behind as i32);
    let bytes = builder.build_compressed(codec, |records| {
        let mut out = Vec::new();
        compress(codec, records, &mut out).unwrap_or_default();
        out
    });
    let sent = Sent {
        rows,
        next_offset: offset + behind as i64,
        producer,
        marker: None,
        is_bomb: codec != Compression::None && has_large(&written),
    };
    (bytes, sent)
}

fn has_large(records: &[Record]) -> bool {
    records.iter().any(|one| is_large(one.1.as_deref()))
}

fn is_large(value: Option<&[u8]>) -> bool {
    value.is_some_and(|value| value.len() > EXPANDED_BYTES_MAX)
}

fn marker(script: &mut Script<'_>, base: i64) -> (Vec<u8>, Sent) {
    let (producer, commit) = (script.below(2) as i64, script.bool());
    let mut bytes = transaction_marker(producer, 0, commit, 0, NOW_MS);
    batch::set_base_offset(&mut bytes, base);
    let sent = Sent {
        rows: Vec::new(),
        next_offset: base + 1,
        producer: Some(producer),
        marker: Some(commit),
        is_bomb: false,
    };
    (bytes, sent)
}

/// Messages of format 0 or 1 in a compressed one.
fn messages(script: &mut Script<'_>, base: i64) -> (Vec<u8>, Sent) {
    let magic = script.pick(&[MAGIC_0, MAGIC_1]);
    let codec = script.pick(&[Compression::Gzip, Compression::Snappy, Compression::Lz4]);
    let count = 1 + script.below(3) as i64;
    let (mut set, mut rows) = (Vec::new(), Vec::new());
    for number in 0..count {
        let key = script.option(|script| script.bytes(8));
        let value = script.option(|script| script.bytes(40));
        // In format 1 they count from the first one.
        let offset = match magic {
            MAGIC_0 => base + number,
            _ => number,
        };
        let (key_bytes, value_bytes) = (key.as_deref(), value.as_deref());
        write_message(&mut set, (magic, 0), offset, NOW_MS, key_bytes, value_bytes);
        rows.push((base + number, key, value));
    }
    let mut out = Vec::new();
    let wrapper = begin_wrapper(&mut out, (magic, codec as i8));
    let header = match magic {
        MAGIC_0 => Lz4Header::Format0,
        _ => Lz4Header::Standard,
    };
    let stream = CompressedStream::new(codec, header, out).and_then(|mut stream| {
        stream.write(&set)?;
        stream.finish()
    });
    let mut bytes = stream.unwrap_or_default();
    end_wrapper(&mut bytes, wrapper, base + count - 1, NOW_MS);
    let sent = Sent {
        rows,
        next_offset: base + count,
        producer: None,
        marker: None,
        is_bomb: false,
    };
    (bytes, sent)
}

fn read(
    mut how: How,
    mut bytes: Vec<u8>,
    aborted: &[AbortedTransaction],
    planted: Option<&str>,
) -> Result<Vec<Row>, ScanError> {
    let mut aborted = aborted;
    match planted {
        Some("fetched-checksum-ignored") => mend_all(&mut bytes),
        Some("start-ignored") => how.range.0 = 0,
        Some("end-ignored") => how.range.1 = i64::MAX,
        Some("aborted-shown") => aborted = &[],
        Some("fetched-expansion-unbounded") => how.large_bytes = 1 << 30,
        _ => {}
    }
    let columns = [Column::Offset, Column::Key, Column::Value, Column::Headers];
    let (batches, _) = decode(how, &columns, &bytes, aborted)?;
    Ok(batches.iter().flat_map(rows_of).collect())
}

/// Gives every whole batch the right checksum.
fn mend_all(bytes: &mut [u8]) {
    let mut rest = bytes;
    while rest.len() >= batch::HEADER_LEN {
        let length = i32::from_be_bytes([rest[8], rest[9], rest[10], rest[11]]);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let Some(len) = length.checked_add(batch::LENGTH_PREFIX_LEN) else {
            return;
        };
        if len < batch::HEADER_LEN || len > rest.len() {
            return;
        }
        let (one, others) = rest.split_at_mut(len);
        if one[16] as i8 == batch::MAGIC {
            batch::refresh_crc(one);
        }
        rest = others;
    }
}

fn rows_of(batch: &RecordBatch) -> Vec<Row> {
    let offsets = batch.column(0).as_primitive::<Int64Type>();
    let (keys, values) = (batch.column(1), batch.column(2));
    let (keys, values) = (keys.as_binary::<i32>(), values.as_binary::<i32>());
    let bytes = |array: &arrow_array::BinaryArray, row: usize| {
        array.is_valid(row).then(|| array.value(row).to_vec())
    };
    (0..batch.num_rows())
        .map(|row| (offsets.value(row), bytes(keys, row), bytes(values, row)))
        .collect()
}
