//! Prebuilt record batches (format v2, uncompressed, no producer id).

use pyrklog_wire::batch::{HEADER_LEN, refresh_crc};
use pyrklog_wire::builder::BatchBuilder;
use pyrklog_wire::records::Record;

/// Most bytes of a record beside its value.
const RECORD_OVERHEAD_MAX: usize = 20;

/// A batch that can be sent any number of times.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The whole batch.
    pub bytes: Vec<u8>,
    /// How many records it holds.
    pub records: u32,
}

/// Builds a batch of as many records with values of `record_bytes` as fit into `batch_bytes`, at
/// least one. Values are pseudo-random letters, which compress badly.
pub fn build(record_bytes: usize, batch_bytes: usize, timestamp_ms: i64) -> Batch {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut builder = BatchBuilder::new();
    let mut value = vec![0; record_bytes];
    let mut largest = record_bytes + RECORD_OVERHEAD_MAX;
    while builder.record_count() == 0 || builder.size_bytes() + largest <= batch_bytes {
        for letter in &mut value {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            *letter = b'a' + (random % 26) as u8;
        }
        let before = builder.size_bytes();
        builder.append(timestamp_ms, None, Some(&value));
        // A later record is at most one byte longer: its offset delta may take one more.
        largest = builder.size_bytes() - before + 1;
    }
    Batch {
        records: builder.record_count() as u32,
        bytes: builder.build(),
    }
}

/// Where the value of the only record of a one-record batch begins.
pub fn value_at(batch: &Batch, record_bytes: usize) -> usize {
    // One byte follows the value: the number of its headers.
    batch.bytes.len() - 1 - record_bytes
}

/// Writes `stamp` to the start of the value at `value_at`, and updates the CRC.
pub fn write_stamp(batch: &mut [u8], value_at: usize, stamp: u64) {
    batch[value_at..value_at + 8].copy_from_slice(&stamp.to_be_bytes());
    refresh_crc(batch);
}

/// The stamp of a batch's first record; `None` if [`write_stamp`] did not write it.
pub fn read_stamp(batch: &[u8]) -> Option<u64> {
    let record = Record::parse(batch.get(HEADER_LEN..)?, 0).ok()?;
    record
        .value?
        .first_chunk::<8>()
        .map(|bytes| u64::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pyrklog_wire::batch::{BatchHeader, verify_crc};
    use pyrklog_wire::records::walk_records;

    #[test]
    fn a_batch_fills_its_size_and_no_more() {
        for (record_bytes, batch_bytes) in [
            (100, 1_024),
            (100, 16_384),
            (10, 131_072),
            (1_000, 500),
            (9_000, 900_000),
        ] {
            let batch = build(record_bytes, batch_bytes, 1);
            if batch.records > 1 {
                assert!(batch.bytes.len() <= batch_bytes);
                assert!(batch.bytes.len() + record_bytes + RECORD_OVERHEAD_MAX > batch_bytes);
            }
            verify_crc(&batch.bytes).unwrap();
            let header = BatchHeader::parse(&batch.bytes).unwrap();
            assert_eq!(header.total_len(), batch.bytes.len());
            assert_eq!(header.record_count as u32, batch.records);
            walk_records(&batch.bytes[HEADER_LEN..], header.record_count).unwrap();
        }
    }

    #[test]
    fn a_stamp_is_read_where_it_was_written_and_the_crc_fits() {
        for record_bytes in [8, 63, 64, 100, 8_191, 8_192, 100_000] {
            let mut batch = build(record_bytes, 1, 1);
            assert_eq!(batch.records, 1);
            let at = value_at(&batch, record_bytes);
            write_stamp(&mut batch.bytes, at, 0x0102_0304_0506_0708);
            verify_crc(&batch.bytes).unwrap();
            assert_eq!(read_stamp(&batch.bytes), Some(0x0102_0304_0506_0708));
        }
    }

    #[test]
    fn a_foreign_batch_has_no_stamp() {
        let mut builder = BatchBuilder::new();
        builder.append(1, Some(b"key"), None);
        assert_eq!(read_stamp(&builder.build()), None);
        assert_eq!(read_stamp(b"short"), None);
    }
}
