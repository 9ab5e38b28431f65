//! Prebuilt record batches (format v2, uncompressed).

use pyrklog_wire::batch::{HEADER_LEN, refresh_crc, set_producer};
use pyrklog_wire::builder::BatchBuilder;
use pyrklog_wire::message_set::{message_len, write_message};
use pyrklog_wire::records::Record;
use pyrklog_wire::varint::varint_len;
use std::sync::Arc;

/// Most bytes of a record beside its value.
const RECORD_OVERHEAD_MAX: usize = 20;
const KEY_BYTES: usize = 8;
const OLD_MAGIC: i8 = 1;
/// Odd, so that its odd multiples are not 0.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

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
    fill(BatchBuilder::new(), record_bytes, batch_bytes, timestamp_ms)
}

/// The same for a transaction; [`write_producer`] must follow.
pub fn build_transactional(record_bytes: usize, batch_bytes: usize, timestamp_ms: i64) -> Batch {
    let builder = BatchBuilder::new().transactional();
    fill(builder, record_bytes, batch_bytes, timestamp_ms)
}

fn fill(
    mut builder: BatchBuilder,
    record_bytes: usize,
    batch_bytes: usize,
    timestamp_ms: i64,
) -> Batch {
    let mut random = Random(SEED);
    let mut value = vec![0; record_bytes];
    let mut largest = record_bytes + RECORD_OVERHEAD_MAX;
    while builder.record_count() == 0 || builder.size_bytes() + largest <= batch_bytes {
        random.fill(&mut value);
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

/// The same as [`build`] with a key of eight bytes in each record; [`Keys::write`] gives it one of
/// `count` values.
pub fn build_keyed(
    record_bytes: usize,
    batch_bytes: usize,
    timestamp_ms: i64,
    count: u64,
) -> (Batch, Keys) {
    let mut random = Random(SEED);
    let mut builder = BatchBuilder::new();
    let mut value = vec![0; record_bytes];
    let mut largest = record_bytes + KEY_BYTES + RECORD_OVERHEAD_MAX;
    let mut places = Vec::new();
    while builder.record_count() == 0 || builder.size_bytes() + largest <= batch_bytes {
        random.fill(&mut value);
        let before = builder.size_bytes();
        builder.append(timestamp_ms, Some(&[0; KEY_BYTES]), Some(&value));
        // The value with its length and the number of headers follow the key.
        let behind = varint_len(record_bytes as i32) + record_bytes + 1;
        places.push(builder.size_bytes() - behind - KEY_BYTES);
        largest = builder.size_bytes() - before + 1;
    }
    let batch = Batch {
        records: builder.record_count() as u32,
        bytes: builder.build(),
    };
    let keys = Keys {
        places: places.into(),
        count,
        random: Random(SEED),
    };
    (batch, keys)
}

/// A message set of format 1, as Kafka 0.10's clients send it.
pub fn build_old(record_bytes: usize, batch_bytes: usize, timestamp_ms: i64) -> Batch {
    let mut random = Random(SEED);
    let mut value = vec![0; record_bytes];
    let mut bytes = Vec::new();
    let mut records = 0;
    while records == 0 || bytes.len() + message_len(OLD_MAGIC, None, Some(&value)) <= batch_bytes {
        random.fill(&mut value);
        let offset = i64::from(records);
        write_message(
            &mut bytes,
            (OLD_MAGIC, 0),
            offset,
            timestamp_ms,
            None,
            Some(&value),
        );
        records += 1;
    }
    Batch { bytes, records }
}

/// Keys of a batch's records, pseudo-random among `count` of them.
#[derive(Clone, Debug)]
pub struct Keys {
    /// Where each key begins.
    places: Arc<[usize]>,
    count: u64,
    random: Random,
}

impl Keys {
    /// Another sequence for each connection.
    pub fn for_connection(&self, number: usize) -> Self {
        let seed = SEED.wrapping_mul(2 * number as u64 + 1);
        Keys {
            random: Random(seed),
            ..self.clone()
        }
    }

    /// Writes the next keys, and updates the CRC.
    pub fn write(&mut self, batch: &mut [u8]) {
        for &at in self.places.iter() {
            let key = self.random.next() % self.count;
            batch[at..at + KEY_BYTES].copy_from_slice(&key.to_be_bytes());
        }
        refresh_crc(batch);
    }
}

/// Marsaglia's xorshift generator; never 0.
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn fill(&mut self, value: &mut [u8]) {
        for letter in value {
            *letter = b'a' + (self.next() % 26) as u8;
        }
    }
}

/// Writes producer id, epoch and first sequence number, and updates the CRC.
pub fn write_producer(batch: &mut [u8], (id, epoch): (i64, i16), base_sequence: i32) {
    set_producer(batch, id, epoch, base_sequence);
    refresh_crc(batch);
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
    use pyrklog_wire::message_set::Messages;
    use pyrklog_wire::records::walk_records;
    use std::collections::BTreeSet;

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
    fn a_producer_is_written_anew_and_the_crc_fits() {
        let mut batch = build_transactional(100, 1_024, 1);
        for (producer, sequence) in [((7, 3), 0), ((7, 4), 16), ((i64::MAX, i16::MAX), i32::MAX)] {
            write_producer(&mut batch.bytes, producer, sequence);
            verify_crc(&batch.bytes).unwrap();
            let header = BatchHeader::parse(&batch.bytes).unwrap();
            assert!(header.is_transactional());
            assert_eq!((header.producer_id, header.producer_epoch), producer);
            assert_eq!(header.base_sequence, sequence);
        }
        assert!(
            !BatchHeader::parse(&build(100, 1_024, 1).bytes)
                .unwrap()
                .is_transactional()
        );
    }

    #[test]
    fn keys_are_written_into_every_record_and_none_is_left_out() {
        for (record_bytes, batch_bytes) in [(100, 16_384), (10, 200_000), (1_000, 16_384)] {
            let (mut batch, mut keys) = build_keyed(record_bytes, batch_bytes, 1, 10);
            assert!(batch.bytes.len() <= batch_bytes);
            let mut seen = [0_u32; 10];
            for _ in 0..50 {
                keys.write(&mut batch.bytes);
                verify_crc(&batch.bytes).unwrap();
                let mut body = &batch.bytes[HEADER_LEN..];
                while !body.is_empty() {
                    let record = Record::parse(body, 0).unwrap();
                    let key = record.key.unwrap().try_into().unwrap();
                    seen[u64::from_be_bytes(key) as usize] += 1;
                    assert_eq!(record.value.unwrap().len(), record_bytes);
                    body = &body[record.size_bytes..];
                }
            }
            assert_eq!(seen.iter().sum::<u32>(), 50 * batch.records);
            assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
        }
    }

    #[test]
    fn each_connection_has_keys_of_its_own() {
        let (batch, keys) = build_keyed(100, 1_024, 1, 1 << 60);
        let written = |number| {
            let mut bytes = batch.bytes.clone();
            keys.for_connection(number).write(&mut bytes);
            bytes
        };
        let all: BTreeSet<_> = (0..100).map(written).collect();
        assert_eq!(all.len(), 100);
    }

    #[test]
    fn an_old_set_fills_its_size_and_no_more() {
        let batch = build_old(100, 16_384, 7);
        assert!(batch.bytes.len() <= 16_384);
        let messages: Vec<_> = Messages::new(&batch.bytes)
            .map(|one| one.unwrap())
            .collect();
        assert_eq!(messages.len(), batch.records as usize);
        for (number, message) in messages.iter().enumerate() {
            message.verify_crc().unwrap();
            assert_eq!((message.magic, message.timestamp), (1, 7));
            assert_eq!(message.offset, number as i64);
            assert_eq!(message.value.unwrap().len(), 100);
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
