//! The record batch, format v2 ("magic 2"), and buffers of concatenated batches.
//!
//! ```text
//!  0  base offset            i64   outside the CRC
//!  8  batch length           i32   bytes after this field
//! 12  partition leader epoch i32   outside the CRC
//! 16  magic                  i8    2
//! 17  CRC-32C                u32   of everything from byte 21 to the end
//! 21  attributes             i16   0-2 codec, 3 timestamp type, 4 transactional, 5 control,
//!                                  6 delete horizon in base timestamp
//! 23  last offset delta      i32
//! 27  base timestamp         i64   ms
//! 35  max timestamp          i64   ms
//! 43  producer id            i64   -1 = none
//! 51  producer epoch         i16
//! 53  base sequence          i32
//! 57  record count           i32
//! 61  records, compressed as one block if a codec is set
//! ```
//!
//! Parsing a header promises that its length holds a header and that the format is v2, nothing
//! about the CRC or the records.

use crate::error::{DecodeError, Result, first_chunk};

/// Bytes of a batch before its records.
pub const HEADER_LEN: usize = 61;
/// Bytes before the part that the batch length counts.
pub const LENGTH_PREFIX_LEN: usize = 12;
/// First byte under the CRC.
pub const CRC_START: usize = 21;
/// The only format served.
pub const MAGIC: i8 = 2;
/// "No producer" in [`BatchHeader::producer_id`].
pub const NO_PRODUCER_ID: i64 = -1;
/// "No timestamp" in batches and replies.
pub const NO_TIMESTAMP: i64 = -1;

const MAGIC_AT: usize = 16;

/// Attribute bits of the compression codec.
pub const COMPRESSION_MASK: i16 = 0x07;
/// Attribute bit: timestamps are the broker's (LogAppendTime).
pub const TIMESTAMP_TYPE_BIT: i16 = 0x08;
/// Attribute bit: part of a transaction.
pub const TRANSACTIONAL_BIT: i16 = 0x10;
/// Attribute bit: a control batch (transaction marker).
pub const CONTROL_BIT: i16 = 0x20;
/// Attribute bit: the base timestamp is the delete horizon (set by the cleaner).
pub const DELETE_HORIZON_BIT: i16 = 0x40;

/// Compression codec of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Compression {
    /// Records as they are.
    None = 0,
    /// RFC 1952.
    Gzip = 1,
    /// Snappy, in snappy-java's framing or as one raw block.
    Snappy = 2,
    /// LZ4 frame format.
    Lz4 = 3,
    /// Zstandard.
    Zstd = 4,
}

impl Compression {
    /// By their bits, with the names used in configurations.
    const NAMES: [(Compression, &str); 5] = [
        (Compression::None, "none"),
        (Compression::Gzip, "gzip"),
        (Compression::Snappy, "snappy"),
        (Compression::Lz4, "lz4"),
        (Compression::Zstd, "zstd"),
    ];

    /// From the codec bits of the attributes.
    pub fn from_bits(bits: u8) -> Result<Self> {
        let codec = Self::NAMES.get(usize::from(bits)).map(|row| row.0);
        codec.ok_or(DecodeError::BadCompression(bits))
    }

    /// From the name used in configurations.
    pub fn from_name(name: &str) -> Option<Self> {
        let row = Self::NAMES.iter().find(|row| row.1 == name);
        row.map(|row| row.0)
    }

    /// The name used in configurations.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize].1
    }
}

/// Who set a batch's timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimestampType {
    /// The producer.
    CreateTime,
    /// The broker, at the append: the max timestamp holds for all records.
    LogAppendTime,
}

/// The fields of a header besides the format: type and position of each.
macro_rules! header {
    ($($(#[$attribute:meta])* $field:ident: $type:ident at $position:ident = $at:literal;)*) => {
        $(const $position: usize = $at;)*

        /// All fields of a batch header.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct BatchHeader {
            $($(#[$attribute])* pub $field: $type,)*
        }

        impl BatchHeader {
            #[inline(always)]
            fn read(header: &[u8; HEADER_LEN]) -> BatchHeader {
                BatchHeader {
                    $($field: $type::from_be_bytes(field(header, $position)),)*
                }
            }

            /// The header as bytes, CRC as it stands in [`BatchHeader::crc`].
            pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
                let mut header = [0; HEADER_LEN];
                header[MAGIC_AT] = MAGIC as u8;
                $(put(&mut header, $position, self.$field.to_be_bytes());)*
                header
            }
        }
    };
}

header! {
    /// Offset of the first record, even if compaction removed that.
    base_offset: i64 at BASE_OFFSET = 0;
    /// Bytes after the length field.
    batch_length: i32 at BATCH_LENGTH = 8;
    /// Epoch of the appending leader; -1 from producers.
    partition_leader_epoch: i32 at LEADER_EPOCH = 12;
    /// CRC-32C as stored.
    crc: u32 at CRC = 17;
    /// See the bits of this module.
    attributes: i16 at ATTRIBUTES = 21;
    /// Last offset minus base offset.
    last_offset_delta: i32 at LAST_OFFSET_DELTA = 23;
    /// Milliseconds since the epoch; records hold differences to it.
    base_timestamp: i64 at BASE_TIMESTAMP = 27;
    /// The greatest timestamp of the records, -1 unknown.
    max_timestamp: i64 at MAX_TIMESTAMP = 35;
    /// Producer id, -1 none.
    producer_id: i64 at PRODUCER_ID = 43;
    /// Producer epoch, -1 none.
    producer_epoch: i16 at PRODUCER_EPOCH = 51;
    /// Sequence number of the first record, -1 none.
    base_sequence: i32 at BASE_SEQUENCE = 53;
    /// Records in the batch.
    record_count: i32 at RECORD_COUNT = 57;
}

#[inline(always)]
fn field<const N: usize>(header: &[u8; HEADER_LEN], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&header[at..at + N]);
    bytes
}

#[inline(always)]
fn put<const N: usize>(batch: &mut [u8], at: usize, value: [u8; N]) {
    batch[at..at + N].copy_from_slice(&value);
}

impl BatchHeader {
    /// Parses the header at the start of `bytes`, which may end before the batch.
    ///
    /// # Errors
    /// `Truncated` below [`HEADER_LEN`] bytes, `BadMagic` and `BadBatchLength`.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<BatchHeader> {
        let h = first_chunk::<HEADER_LEN>(bytes)?;
        let magic = h[MAGIC_AT] as i8;
        if magic != MAGIC {
            return Err(DecodeError::BadMagic(magic));
        }
        let header = BatchHeader::read(h);
        if header.batch_length < (HEADER_LEN - LENGTH_PREFIX_LEN) as i32 {
            return Err(DecodeError::BadBatchLength(header.batch_length));
        }
        Ok(header)
    }

    /// Bytes of the whole batch, header included.
    #[inline]
    pub fn total_len(&self) -> usize {
        LENGTH_PREFIX_LEN + self.batch_length as usize
    }

    /// Offset of the last record, saturating since both parts are unchecked.
    #[inline]
    pub fn last_offset(&self) -> i64 {
        self.base_offset
            .saturating_add(i64::from(self.last_offset_delta))
    }

    /// The offset after the batch.
    #[inline]
    pub fn next_offset(&self) -> i64 {
        self.last_offset().saturating_add(1)
    }

    /// Sequence number of the last record; wraps after 2^31-1 to 0.
    pub fn last_sequence(&self) -> i32 {
        if self.base_sequence < 0 {
            return self.base_sequence;
        }
        self.base_sequence.wrapping_add(self.last_offset_delta) & i32::MAX
    }

    /// The codec of the records.
    #[inline]
    pub fn compression(&self) -> Result<Compression> {
        Compression::from_bits((self.attributes & COMPRESSION_MASK) as u8)
    }

    /// Who set the timestamps.
    #[inline]
    pub fn timestamp_type(&self) -> TimestampType {
        if self.attributes & TIMESTAMP_TYPE_BIT == 0 {
            TimestampType::CreateTime
        } else {
            TimestampType::LogAppendTime
        }
    }

    /// Are the timestamps the broker's?
    #[inline]
    pub fn is_log_append_time(&self) -> bool {
        self.timestamp_type() == TimestampType::LogAppendTime
    }

    /// Part of a transaction?
    #[inline]
    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL_BIT != 0
    }

    /// A transaction marker or other control batch?
    #[inline]
    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL_BIT != 0
    }

    /// When tombstones may be removed, if set.
    pub fn delete_horizon(&self) -> Option<i64> {
        (self.attributes & DELETE_HORIZON_BIT != 0).then_some(self.base_timestamp)
    }

    /// Written by an idempotent or transactional producer?
    #[inline]
    pub fn has_producer(&self) -> bool {
        self.producer_id > NO_PRODUCER_ID
    }
}

/// CRC-32C (Castagnoli) of `bytes`.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// The CRC of a whole batch. Panics below [`HEADER_LEN`] bytes.
#[inline]
pub fn compute_crc(batch: &[u8]) -> u32 {
    crc32c(&batch[CRC_START..])
}

/// Checks the CRC of exactly one batch.
///
/// # Errors
/// `Truncated` below [`HEADER_LEN`] bytes, `BadCrc`.
#[inline]
pub fn verify_crc(batch: &[u8]) -> Result<()> {
    let header = first_chunk::<HEADER_LEN>(batch)?;
    let stored = u32::from_be_bytes(field(header, CRC));
    let computed = compute_crc(batch);
    if stored == computed {
        Ok(())
    } else {
        Err(DecodeError::BadCrc { stored, computed })
    }
}

/// Sets the base offset of the batch at the start of `batch`; the CRC stays valid. All setters
/// panic below [`HEADER_LEN`] bytes.
#[inline]
pub fn set_base_offset(batch: &mut [u8], offset: i64) {
    put(batch, BASE_OFFSET, offset.to_be_bytes());
}

/// Patches the partition leader epoch; the CRC stays valid.
#[inline]
pub fn set_partition_leader_epoch(batch: &mut [u8], epoch: i32) {
    put(batch, LEADER_EPOCH, epoch.to_be_bytes());
}

/// Patches the max timestamp; [`refresh_crc`] must follow.
pub fn set_max_timestamp(batch: &mut [u8], timestamp_ms: i64) {
    put(batch, MAX_TIMESTAMP, timestamp_ms.to_be_bytes());
}

/// Patches the timestamp type bit; [`refresh_crc`] must follow.
pub fn set_timestamp_type(batch: &mut [u8], kind: TimestampType) {
    let old = i16::from_be_bytes([batch[ATTRIBUTES], batch[ATTRIBUTES + 1]]);
    let new = match kind {
        TimestampType::CreateTime => old & !TIMESTAMP_TYPE_BIT,
        TimestampType::LogAppendTime => old | TIMESTAMP_TYPE_BIT,
    };
    put(batch, ATTRIBUTES, new.to_be_bytes());
}

/// Sets producer id, epoch and base sequence (for tests); [`refresh_crc`] must follow.
pub fn set_producer(batch: &mut [u8], id: i64, epoch: i16, base_sequence: i32) {
    put(batch, PRODUCER_ID, id.to_be_bytes());
    put(batch, PRODUCER_EPOCH, epoch.to_be_bytes());
    put(batch, BASE_SEQUENCE, base_sequence.to_be_bytes());
}

/// Updates the CRC of exactly one batch, and returns it.
pub fn refresh_crc(batch: &mut [u8]) -> u32 {
    let crc = compute_crc(batch);
    put(batch, CRC, crc.to_be_bytes());
    crc
}

/// One batch in a buffer.
#[derive(Clone, Copy, Debug)]
pub struct BatchView<'a> {
    /// Its header.
    pub header: BatchHeader,
    /// Where it starts in the buffer.
    pub position: usize,
    /// Exactly its bytes, header included.
    pub bytes: &'a [u8],
}

impl<'a> BatchView<'a> {
    /// The bytes of its records, compressed or not.
    pub fn body(&self) -> &'a [u8] {
        &self.bytes[HEADER_LEN..]
    }
}

/// Iterates over a buffer of concatenated batches.
///
/// Ends with the buffer or at an incomplete batch, which is normal in a fetch reply:
/// [`Batches::trailing`] is the rest. Bytes that cannot be a batch give one error. CRCs and records
/// are not checked.
#[derive(Clone, Debug)]
pub struct Batches<'a> {
    buffer: &'a [u8],
    position: usize,
    failed: bool,
}

impl<'a> Batches<'a> {
    /// From the start of `buffer`.
    pub fn new(buffer: &'a [u8]) -> Self {
        Batches {
            buffer,
            position: 0,
            failed: false,
        }
    }

    /// Where the next batch starts.
    pub fn position(&self) -> usize {
        self.position
    }

    /// The unconsumed bytes: after an end without an error, the incomplete batch.
    pub fn trailing(&self) -> &'a [u8] {
        &self.buffer[self.position..]
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<BatchView<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.trailing();
        if self.failed || rest.len() < HEADER_LEN {
            return None;
        }
        let header = match BatchHeader::parse(rest) {
            Ok(header) => header,
            Err(error) => {
                self.failed = true;
                return Some(Err(error));
            }
        };
        let bytes = rest.get(..header.total_len())?;
        let position = self.position;
        self.position += bytes.len();
        Some(Ok(BatchView {
            header,
            position,
            bytes,
        }))
    }
}
