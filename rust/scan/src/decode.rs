//! Fetched records become rows.

use std::sync::Arc;

use pyrklog_client::Cancel;
use pyrklog_compression::{DecompressError, Lz4Header, decompress_with};
use pyrklog_wire::DecodeError;
use pyrklog_wire::batch::{BatchHeader, BatchView, Compression, verify_crc};
use pyrklog_wire::fetch::AbortedTransaction;
use pyrklog_wire::records::Record;

use crate::aborted::AbortedTransactions;
use crate::builder::Row;
use crate::entries::{Entries, Entry};
use crate::error::{ErrorKind, Result, ScanError};
use crate::large::LargeGate;
use crate::old_formats;
use crate::rows::Rows;
use crate::split::Cursor;

/// Headers of one record: more is no use, and would take much more memory than their bytes.
const HEADERS_MAX: u32 = 1 << 20;

/// How records are decoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecodeLimits {
    /// A batch that expands to more waits for [`LargeGate`].
    pub expanded_bytes: usize,
    /// The most that a batch expands to.
    pub large_bytes: usize,
    pub check_crcs: bool,
    pub is_read_committed: bool,
}

/// Why a batch cannot become rows.
pub(crate) enum Bad {
    Scan(ScanError),
    Decode(DecodeError),
    Expand(DecompressError),
    Other(&'static str),
}

impl From<ScanError> for Bad {
    fn from(error: ScanError) -> Self {
        Bad::Scan(error)
    }
}

impl From<DecodeError> for Bad {
    fn from(error: DecodeError) -> Self {
        Bad::Decode(error)
    }
}

impl From<DecompressError> for Bad {
    fn from(error: DecompressError) -> Self {
        Bad::Expand(error)
    }
}

impl Bad {
    /// With the place of the batch.
    fn at(self, cursor: &Cursor, position: i64) -> ScanError {
        let place = format!("partition {} at offset {position}", cursor.name());
        let (kind, reason) = match self {
            Bad::Scan(error)
                if matches!(
                    error.kind,
                    ErrorKind::Cancelled | ErrorKind::BadValue | ErrorKind::Registry
                ) =>
            {
                return error;
            }
            Bad::Scan(error) => (error.kind, error.text),
            Bad::Decode(error) => (ErrorKind::CorruptBatch, error.to_string()),
            Bad::Expand(error @ DecompressError::TooLarge { .. }) => {
                (ErrorKind::BatchTooLarge, format!("{error} (large_bytes)"))
            }
            Bad::Expand(error) => (ErrorKind::CorruptBatch, error.to_string()),
            Bad::Other(text) => (ErrorKind::CorruptBatch, text.to_owned()),
        };
        ScanError::new(kind, format!("{place}: {reason}"))
    }
}

/// A worker's decoder, with the rows that it fills.
#[derive(Debug)]
pub(crate) struct Decoder {
    pub rows: Rows,
    limits: DecodeLimits,
    worker: usize,
    /// For expansions above a worker's share.
    expansions: Arc<LargeGate>,
    cancel: Cancel,
    expanded: Vec<u8>,
}

impl Decoder {
    pub fn new(
        rows: Rows,
        limits: DecodeLimits,
        worker: usize,
        expansions: Arc<LargeGate>,
        cancel: Cancel,
    ) -> Decoder {
        Decoder {
            rows,
            limits,
            worker,
            expansions,
            cancel,
            expanded: Vec::new(),
        }
    }

    /// Appends the records of `cursor`'s range, which was fetched from its position on.
    ///
    /// # Errors
    /// The scan was closed; records that do not hold together or are too large.
    pub fn decode(
        &mut self,
        cursor: &Cursor,
        records: &[u8],
        aborted: &[AbortedTransaction],
    ) -> Result<()> {
        self.rows.begin(cursor, cursor.position)?;
        let mut aborted = AbortedTransactions::new(aborted);
        let (mut position, mut epoch) = (cursor.position, cursor.known_epoch());
        for entry in Entries::new(records) {
            let entry = entry.map_err(|error| Bad::from(error).at(cursor, position))?;
            let next = entry.next_offset();
            // A broker may begin with what was read before.
            if next <= position {
                continue;
            }
            let range = position..cursor.end;
            if let Entry::Batch(batch) = &entry
                && batch.header.base_offset < cursor.end
            {
                epoch = epoch.max(batch.header.partition_leader_epoch);
            }
            self.rows.begin_entry(epoch);
            let (appended, bytes) = match entry {
                Entry::Batch(batch) => (self.batch(&batch, range, &mut aborted), batch.bytes.len()),
                Entry::Message(message) => (
                    old_formats::append(self, &message, range),
                    message.bytes.len(),
                ),
            };
            appended.map_err(|bad| bad.at(cursor, position))?;
            position = next;
            self.rows.reached(position.min(cursor.end), epoch, bytes);
            if position >= cursor.end {
                break;
            }
        }
        Ok(())
    }

    fn batch(
        &mut self,
        batch: &BatchView<'_>,
        range: std::ops::Range<i64>,
        aborted: &mut AbortedTransactions,
    ) -> Result<(), Bad> {
        let header = &batch.header;
        if self.limits.check_crcs {
            verify_crc(batch.bytes)?;
        }
        let codec = header.compression()?;
        if header.is_control() {
            let first = Record::parse(batch.body(), 0).ok();
            aborted.hides(header, first.and_then(|record| record.key));
            return Ok(());
        }
        if self.limits.is_read_committed && aborted.hides(header, None) {
            return Ok(());
        }
        // Compaction may leave a batch without a record.
        if header.record_count == 0 {
            return Ok(());
        }
        self.with_expanded(codec, Lz4Header::Standard, batch.body(), |decoder, body| {
            append_records(&mut decoder.rows, header, body, range)
        })
    }

    pub fn check_crcs(&self) -> bool {
        self.limits.check_crcs
    }

    /// Calls `use_it` with the expansion of `body`.
    pub fn with_expanded(
        &mut self,
        codec: Compression,
        lz4_header: Lz4Header,
        body: &[u8],
        use_it: impl FnOnce(&mut Self, &[u8]) -> Result<(), Bad>,
    ) -> Result<(), Bad> {
        if codec == Compression::None {
            return use_it(self, body);
        }
        let mut expanded = std::mem::take(&mut self.expanded);
        let small = self.limits.expanded_bytes.min(self.limits.large_bytes);
        let done = match decompress_with(codec, lz4_header, body, &mut expanded, small) {
            Ok(()) => {
                let used = use_it(self, &expanded);
                self.expanded = expanded;
                used
            }
            Err(DecompressError::TooLarge { .. }) if small < self.limits.large_bytes => {
                drop(expanded);
                self.with_large(codec, lz4_header, body, use_it)
            }
            Err(error) => Err(error.into()),
        };
        // A decompressor may have doubled it beyond what is kept.
        self.expanded.shrink_to(2 * small);
        done
    }

    /// The same for an expansion that one worker at a time may hold.
    fn with_large(
        &mut self,
        codec: Compression,
        lz4_header: Lz4Header,
        body: &[u8],
        use_it: impl FnOnce(&mut Self, &[u8]) -> Result<(), Bad>,
    ) -> Result<(), Bad> {
        self.expansions.take(self.worker, &self.cancel)?;
        let mut expanded = Vec::new();
        let limit = self.limits.large_bytes;
        let done = decompress_with(codec, lz4_header, body, &mut expanded, limit);
        let done = done.map_err(Bad::from);
        let done = done.and_then(|()| use_it(self, &expanded));
        self.expansions.give_back();
        done
    }
}

/// Appends those records of an uncompressed body whose offsets are in `range`.
fn append_records(
    rows: &mut Rows,
    header: &BatchHeader,
    body: &[u8],
    range: std::ops::Range<i64>,
) -> Result<(), Bad> {
    let wrong_count = |found| DecodeError::RecordCount {
        expected: header.record_count,
        found,
    };
    let (base, last) = (header.base_offset, header.last_offset());
    let is_append_time = header.is_log_append_time();
    let timestamp_type = i32::from(is_append_time);
    let mut before = base.saturating_sub(1);
    let mut rest = body;
    for index in 0..header.record_count {
        if rest.is_empty() {
            return Err(wrong_count(index).into());
        }
        let record = Record::parse_fast(rest, index)?;
        rest = &rest[record.size_bytes..];
        let offset = base.saturating_add(i64::from(record.offset_delta));
        if offset <= before || offset > last {
            return Err(Bad::Other("the offsets of a batch do not rise"));
        }
        before = offset;
        if offset < range.start {
            continue;
        }
        if offset >= range.end {
            return Ok(());
        }
        if record.header_count > HEADERS_MAX {
            return Err(Bad::Other("a record has more than a million headers"));
        }
        let timestamp = match is_append_time {
            true => header.max_timestamp,
            false => header.base_timestamp.saturating_add(record.timestamp_delta),
        };
        let row = Row {
            offset,
            timestamp,
            timestamp_type,
        };
        rows.push(row, &record)?;
    }
    match rest.is_empty() && header.record_count > 0 {
        true => Ok(()),
        false => Err(wrong_count(header.record_count.saturating_add(1)).into()),
    }
}
