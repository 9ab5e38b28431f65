//! Producer snapshots: the state of each producer at the offset in the file's name.
//!
//! ```text
//! 0  2  version = 1
//! 2  4  CRC-32C of bytes 6 to the end
//! 6  4  count of entries, each of 46 bytes:
//!        0  8  producer id
//!        8  2  epoch
//!       10  4  last sequence, -1 = no batch known
//!       14  8  last offset, -1 = no batch known
//!       22  4  last offset less first offset of the last batch
//!       26  8  largest timestamp of the last batch, or of the marker, in milliseconds
//!       34  4  coordinator epoch of the last marker, -1 = none
//!       38  8  first offset of the open transaction, -1 = none
//! .  8  "pyrkseq1", if any of the following is known:
//! .  4  of each entry, in the same order: the first sequence from which on all of the epoch's
//!       were written, -1 = that of the last batch
//! ```
//!
//! Kafka's format ends with the entries; Kafka includes what follows in the checksum and ignores
//! it. A snapshot holds a producer's last batch, not the last five: after a restart only a retry of
//! the last batch is recognised. Recovery rebuilds a snapshot from an older one and the batches
//! since.

use pyrklog_wire::batch::crc32c;
use thiserror::Error;

const VERSION: i16 = 1;
const HEADER_BYTES: usize = 10;
const CRC_START: usize = 6;
/// Begins the part that Kafka ignores.
const SEQUENCES_MAGIC: &[u8; 8] = b"pyrkseq1";
const UNKNOWN_SEQUENCE: i32 = -1;

/// Bytes of one entry.
pub const ENTRY_BYTES: usize = 46;

/// One producer's entry, with the fields of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerEntry {
    /// Producer id.
    pub producer_id: i64,
    /// Epoch, -1 if unknown.
    pub epoch: i16,
    /// Last sequence, -1 if no batch is known.
    pub last_sequence: i32,
    /// Last offset, -1 if no batch is known.
    pub last_offset: i64,
    /// Last offset less first offset of the last batch.
    pub offset_delta: i32,
    /// Largest timestamp of the last batch, or of the marker after it (ms).
    pub timestamp: i64,
    /// Coordinator epoch of the last marker, -1 = none.
    pub coordinator_epoch: i32,
    /// First offset of the open transaction, -1 = none.
    pub current_txn_first_offset: i64,
    /// All sequences of the epoch from this one to the last were written; -1 = that of the last
    /// batch.
    pub first_sequence: i32,
}

/// A snapshot that cannot be used: it is removed, and the state rebuilt from the previous one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)] // The messages name variants and fields.
pub enum SnapshotError {
    /// The file is shorter than its header or its entries.
    #[error("the snapshot has {len} bytes, but {needed} are needed")]
    Truncated { len: usize, needed: u64 },
    #[error("the snapshot has version {0}, only 1 is known")]
    UnknownVersion(i16),
    #[error("the snapshot's CRC is {stored:#010x}, but its content gives {computed:#010x}")]
    CrcMismatch { stored: u32, computed: u32 },
    #[error("the snapshot announces {0} entries")]
    InvalidCount(i32),
}

/// The file's bytes, of entries in any order.
pub fn encode_sorted(mut entries: Vec<ProducerEntry>) -> Vec<u8> {
    entries.sort_unstable_by_key(|entry| entry.producer_id);
    encode(&entries)
}

/// The file's bytes.
pub fn encode(entries: &[ProducerEntry]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + entries.len() * ENTRY_BYTES);
    bytes.extend_from_slice(&VERSION.to_be_bytes());
    bytes.extend_from_slice(&[0; 4]);
    // 2^31 producers would need 98 GB of entries.
    bytes.extend_from_slice(&(entries.len() as i32).to_be_bytes());
    for entry in entries {
        bytes.extend_from_slice(&entry.producer_id.to_be_bytes());
        bytes.extend_from_slice(&entry.epoch.to_be_bytes());
        bytes.extend_from_slice(&entry.last_sequence.to_be_bytes());
        bytes.extend_from_slice(&entry.last_offset.to_be_bytes());
        bytes.extend_from_slice(&entry.offset_delta.to_be_bytes());
        bytes.extend_from_slice(&entry.timestamp.to_be_bytes());
        bytes.extend_from_slice(&entry.coordinator_epoch.to_be_bytes());
        bytes.extend_from_slice(&entry.current_txn_first_offset.to_be_bytes());
    }
    encode_sequences(&mut bytes, entries);
    let crc = crc32c(&bytes[CRC_START..]);
    bytes[2..CRC_START].copy_from_slice(&crc.to_be_bytes());
    bytes
}

fn encode_sequences(bytes: &mut Vec<u8>, entries: &[ProducerEntry]) {
    let is_known = |entry: &ProducerEntry| entry.first_sequence != UNKNOWN_SEQUENCE;
    if entries.iter().any(is_known) {
        bytes.extend_from_slice(SEQUENCES_MAGIC);
        for entry in entries {
            bytes.extend_from_slice(&entry.first_sequence.to_be_bytes());
        }
    }
}

/// Parses the file. The checksum covers bytes behind the last entry; they are ignored unless they
/// look like first sequences.
///
/// # Errors
/// [`SnapshotError`].
pub fn decode(bytes: &[u8]) -> Result<Vec<ProducerEntry>, SnapshotError> {
    let truncated = |needed| SnapshotError::Truncated {
        len: bytes.len(),
        needed,
    };
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
        return Err(truncated(HEADER_BYTES as u64));
    };
    let version = i16::from_be_bytes([header[0], header[1]]);
    if version != VERSION {
        return Err(SnapshotError::UnknownVersion(version));
    }
    let stored = u32::from_be_bytes([header[2], header[3], header[4], header[5]]);
    let computed = crc32c(&bytes[CRC_START..]);
    if stored != computed {
        return Err(SnapshotError::CrcMismatch { stored, computed });
    }
    let count = i32::from_be_bytes([header[6], header[7], header[8], header[9]]);
    let Ok(wanted) = usize::try_from(count) else {
        return Err(SnapshotError::InvalidCount(count));
    };
    let entries = &bytes[HEADER_BYTES..];
    if entries.len() / ENTRY_BYTES < wanted {
        return Err(truncated(
            HEADER_BYTES as u64 + wanted as u64 * ENTRY_BYTES as u64,
        ));
    }
    let (entries, behind) = entries.split_at(wanted * ENTRY_BYTES);
    let sequences = behind.strip_prefix(SEQUENCES_MAGIC).unwrap_or_default();
    let is_whole = sequences.len() == wanted * size_of::<i32>();
    let mut sequences = sequences.chunks_exact(size_of::<i32>());
    let with_sequence = |bytes: &[u8]| {
        let mut entry = decode_entry(bytes);
        if let Some(&[a, b, c, d]) = sequences.next().filter(|_| is_whole) {
            entry.first_sequence = i32::from_be_bytes([a, b, c, d]);
        }
        entry
    };
    let entries = entries.chunks_exact(ENTRY_BYTES);
    Ok(entries.map(with_sequence).collect())
}

fn decode_entry(bytes: &[u8]) -> ProducerEntry {
    fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
        let mut field = [0; N];
        field.copy_from_slice(&bytes[at..at + N]);
        field
    }
    ProducerEntry {
        producer_id: i64::from_be_bytes(field(bytes, 0)),
        epoch: i16::from_be_bytes(field(bytes, 8)),
        last_sequence: i32::from_be_bytes(field(bytes, 10)),
        last_offset: i64::from_be_bytes(field(bytes, 14)),
        offset_delta: i32::from_be_bytes(field(bytes, 22)),
        timestamp: i64::from_be_bytes(field(bytes, 26)),
        coordinator_epoch: i32::from_be_bytes(field(bytes, 34)),
        current_txn_first_offset: i64::from_be_bytes(field(bytes, 38)),
        first_sequence: UNKNOWN_SEQUENCE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry() -> ProducerEntry {
        ProducerEntry {
            producer_id: 0x0102_0304_0506_0708,
            epoch: 0x090a,
            last_sequence: 0x0b0c_0d0e,
            last_offset: 0x0f10_1112_1314_1516,
            offset_delta: 0x1718_191a,
            timestamp: 0x1b1c_1d1e_1f20_2122,
            coordinator_epoch: 0x2324_2526,
            current_txn_first_offset: -1,
            first_sequence: UNKNOWN_SEQUENCE,
        }
    }

    #[test]
    fn first_sequences_follow_what_kafka_reads() {
        let known = ProducerEntry {
            first_sequence: 0x0102_0304,
            ..entry()
        };
        let bytes = encode(&[entry(), known]);
        let kafkas = encode(&[entry(), entry()]);
        assert_eq!(bytes[CRC_START..kafkas.len()], kafkas[CRC_START..]);
        let behind = *b"pyrkseq1\xff\xff\xff\xff\x01\x02\x03\x04";
        assert_eq!(bytes[kafkas.len()..], behind);
        assert_eq!(decode(&bytes), Ok(vec![entry(), known]));
        // A foreign suffix.
        let mut foreign = kafkas.clone();
        foreign.extend_from_slice(&behind[..behind.len() - 1]);
        let crc = crc32c(&foreign[CRC_START..]);
        foreign[2..CRC_START].copy_from_slice(&crc.to_be_bytes());
        assert_eq!(decode(&foreign), Ok(vec![entry(), entry()]));
    }

    #[test]
    fn the_bytes_are_kafkas() {
        let bytes = encode(&[entry()]);
        assert_eq!(bytes.len(), 10 + 46);
        assert_eq!(bytes[..2], [0, 1]);
        assert_eq!(bytes[6..10], [0, 0, 0, 1]);
        let counting: Vec<u8> = (1..=0x26).collect();
        assert_eq!(bytes[10..48], counting);
        assert_eq!(bytes[48..], [0xff; 8]);
        assert_eq!(bytes[2..6], crc32c(&bytes[6..]).to_be_bytes());
        assert_eq!(decode(&bytes), Ok(vec![entry()]));
    }

    #[test]
    fn an_empty_snapshot_has_a_known_checksum() {
        // CRC-32C of four zero bytes.
        assert_eq!(encode(&[]), [0, 1, 0x48, 0x67, 0x4b, 0xc7, 0, 0, 0, 0]);
        assert_eq!(decode(&encode(&[])), Ok(Vec::new()));
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let good = encode(&[entry(), entry()]);
        for i in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[i / 8] ^= 1 << (i % 8);
            assert!(decode(&bad).is_err(), "bit {i}");
        }
    }

    #[test]
    fn short_files_and_lying_counts_are_refused() {
        let good = encode(&[entry()]);
        for len in 0..good.len() {
            assert!(decode(&good[..len]).is_err(), "{len}");
        }
        let with_count = |count: i32| {
            let mut bytes = good.clone();
            bytes[6..10].copy_from_slice(&count.to_be_bytes());
            let crc = crc32c(&bytes[6..]);
            bytes[2..6].copy_from_slice(&crc.to_be_bytes());
            decode(&bytes)
        };
        assert_eq!(with_count(-1), Err(SnapshotError::InvalidCount(-1)));
        let needed = 10 + 46 * i32::MAX as u64;
        assert_eq!(
            with_count(i32::MAX),
            Err(SnapshotError::Truncated { len: 56, needed })
        );
        assert_eq!(with_count(0), Ok(Vec::new()));
    }

    proptest! {
        #[test]
        fn entries_round_trip(
            rows in proptest::collection::vec(
                (any::<i64>(), any::<i16>(), any::<i32>(), any::<i64>(), any::<i32>(), -1..2i32),
                0..20,
            ),
        ) {
            let entries: Vec<_> = rows
                .into_iter()
                .map(|(producer_id, epoch, last_sequence, last_offset, offset_delta, first_sequence)| {
                    ProducerEntry {
                        producer_id, epoch, last_sequence, last_offset, offset_delta, first_sequence,
                        ..entry()
                    }
                })
                .collect();
            prop_assert_eq!(decode(&encode(&entries)), Ok(entries));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
        }
    }
}
