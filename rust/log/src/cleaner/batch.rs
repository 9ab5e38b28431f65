//! One batch: which of its records stay, and its bytes then.
//!
//! Base offset, last offset delta, leader epoch and producer fields stay as they are, so offsets and
//! sequences keep their meaning. A batch of which everything stays is not touched.

use std::ops::Range;

use pyrklog_wire::batch::{
    self, BatchHeader, COMPRESSION_MASK, Compression, DELETE_HORIZON_BIT, HEADER_LEN,
    LENGTH_PREFIX_LEN, NO_TIMESTAMP,
};
use pyrklog_wire::builder::{HeaderToWrite, encode_record};
use pyrklog_wire::records::{Record, Records};

use crate::cleaner::offset_map::KeyHash;
use crate::cleaner::{CleanError, OffsetMap};
use crate::compression::{EXPANDED_BYTES_MAX_DEFAULT, compress, with_decompressed};

/// What a batch in the log may expand to. Brokers before this bound was kept, and Kafka, have
/// cleaned batches that were as large as clients may send: times that count from a horizon take more
/// bytes, of the shortest record 16 instead of 7.
const OWN_BYTES_MAX: usize = 4 * EXPANDED_BYTES_MAX_DEFAULT;

/// Records whose keys are looked up together ([`OffsetMap::touch`]).
const TOGETHER: usize = 32;

/// What a batch may take after its cleaning.
#[derive(Clone, Copy, Debug)]
pub(super) struct GrowthLimits {
    /// Expanded, if it is compressed: readers have this bound.
    pub expanded_bytes: usize,
    /// Beyond what it takes in the log now.
    pub more_bytes: u64,
}

impl GrowthLimits {
    pub fn new(more_bytes: u64) -> Self {
        Self {
            expanded_bytes: EXPANDED_BYTES_MAX_DEFAULT,
            more_bytes,
        }
    }
}

/// What decides about records.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordRules<'a> {
    pub map: &'a OffsetMap,
    /// When the cleaning began.
    pub now_ms: i64,
    /// `delete.retention.ms`.
    pub delete_retention_ms: i64,
    /// Without room for a horizon the batch gets none: its tombstones stay until a later cleaning
    /// has made it smaller.
    pub limits: GrowthLimits,
}

/// What was found out about a batch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Findings {
    /// None of its records stays: it was aborted, or is a marker past its horizon.
    pub discards: bool,
    /// It stays without records: its producer's last one.
    pub stays_empty: bool,
    /// A marker of a transaction that has no batches left: its horizon is set.
    pub ends_nothing: bool,
}

/// What becomes of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It stays as it is.
    Same,
    /// It is replaced by the bytes in the buffer.
    Changed,
    /// It goes.
    Gone,
}

/// A record, its bytes, and the hash of the key that decides about it.
type Waiting<'a> = (Record<'a>, &'a [u8], Option<KeyHash>);

/// The records that stay.
#[derive(Debug)]
struct Kept {
    /// In the form of a body.
    bytes: Vec<u8>,
    count: i32,
    /// Some went.
    is_less: bool,
    has_tombstone: bool,
    max_timestamp: i64,
}

/// Decides about a whole batch with a verified checksum. `out` gets its new bytes.
pub(super) fn clean(
    rules: &RecordRules<'_>,
    header: &BatchHeader,
    bytes: &[u8],
    findings: Findings,
    out: &mut Vec<u8>,
) -> Result<Outcome, CleanError> {
    let kept = match findings.discards || header.record_count == 0 {
        true => None,
        false => Some(kept_records(rules, header, bytes)?).filter(|kept| kept.count > 0),
    };
    let Some(kept) = kept else {
        return Ok(match findings.stays_empty {
            true if header.record_count == 0 => Outcome::Same,
            true => {
                empty(header, out);
                Outcome::Changed
            }
            false => Outcome::Gone,
        });
    };
    let is_marked = header.delete_horizon().is_some();
    let horizon = (!is_marked && (kept.has_tombstone || findings.ends_nothing))
        .then(|| rules.now_ms.saturating_add(rules.delete_retention_ms));
    if let Some(horizon) = horizon
        && set_horizon(&rules.limits, header, bytes.len(), &kept, horizon, out)?
    {
        return Ok(Outcome::Changed);
    }
    if !kept.is_less {
        return Ok(Outcome::Same);
    }
    rewrite(header, &kept, out)?;
    Ok(Outcome::Changed)
}

fn kept_records(
    rules: &RecordRules<'_>,
    header: &BatchHeader,
    bytes: &[u8],
) -> Result<Kept, CleanError> {
    let codec = header
        .compression()
        .map_err(|error| damaged(header, error))?;
    let body = &bytes[HEADER_LEN..];
    let mut kept = Kept {
        bytes: Vec::new(),
        count: 0,
        is_less: false,
        has_tombstone: false,
        max_timestamp: NO_TIMESTAMP,
    };
    let walked = with_decompressed(codec, body, OWN_BYTES_MAX, |records| {
        let (mut at, mut count) = (0, 0);
        let mut waiting = Vec::with_capacity(TOGETHER);
        for record in Records::new(records) {
            let record = record.map_err(|error| damaged(header, error))?;
            let bytes = &records[at..at + record.size_bytes];
            at += record.size_bytes;
            count += 1;
            let hash = key_to_ask(rules, header, &record).map(|key| rules.map.hash(key));
            waiting.push((record, bytes, hash));
            if waiting.len() == TOGETHER {
                kept.take_those_that_stay(rules, header, &mut waiting);
            }
        }
        kept.take_those_that_stay(rules, header, &mut waiting);
        match count == header.record_count {
            true => Ok(()),
            false => Err(damaged(header, format!("it has {count} records"))),
        }
    });
    walked.map_err(|error| damaged(header, error))??;
    Ok(kept)
}

/// The key that decides whether a record stays, if one does.
fn key_to_ask<'a>(
    rules: &RecordRules<'_>,
    header: &BatchHeader,
    record: &Record<'a>,
) -> Option<&'a [u8]> {
    let is_asked = !header.is_control() && offset(header, record) <= rules.map.latest();
    record.key.filter(|_| is_asked)
}

/// Kafka: `Cleaner.shouldRetainRecord`. `hash` is that of [`key_to_ask`].
fn stays(
    rules: &RecordRules<'_>,
    header: &BatchHeader,
    record: &Record<'_>,
    hash: Option<KeyHash>,
) -> bool {
    let offset = offset(header, record);
    if header.is_control() || offset > rules.map.latest() {
        return true;
    }
    let Some(hash) = hash else {
        return false;
    };
    let is_last = rules.map.get(hash).is_none_or(|last| offset >= last);
    let is_due = |horizon| rules.now_ms >= horizon;
    is_last && (record.value.is_some() || !header.delete_horizon().is_some_and(is_due))
}

fn offset(header: &BatchHeader, record: &Record<'_>) -> i64 {
    header.base_offset + i64::from(record.offset_delta)
}

impl Kept {
    /// Decides about some records, in order, and forgets them.
    fn take_those_that_stay(
        &mut self,
        rules: &RecordRules<'_>,
        header: &BatchHeader,
        waiting: &mut Vec<Waiting<'_>>,
    ) {
        rules
            .map
            .touch(waiting.iter().filter_map(|(_, _, hash)| *hash));
        for (record, bytes, hash) in waiting.drain(..) {
            match stays(rules, header, &record, hash) {
                true => self.take(header, &record, bytes),
                false => self.is_less = true,
            }
        }
    }

    fn take(&mut self, header: &BatchHeader, record: &Record<'_>, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.count += 1;
        self.has_tombstone |= record.value.is_none();
        self.max_timestamp = self.max_timestamp.max(timestamp(header, record));
    }
}

fn timestamp(header: &BatchHeader, record: &Record<'_>) -> i64 {
    match header.is_log_append_time() {
        true => header.max_timestamp,
        false => header.base_timestamp.wrapping_add(record.timestamp_delta),
    }
}

/// The batch without records, and therefore without codec, horizon and first timestamp.
fn empty(header: &BatchHeader, out: &mut Vec<u8>) {
    let mut emptied = *header;
    emptied.attributes &= !(COMPRESSION_MASK | DELETE_HORIZON_BIT);
    emptied.base_timestamp = NO_TIMESTAMP;
    emptied.record_count = 0;
    emptied.batch_length = (HEADER_LEN - LENGTH_PREFIX_LEN) as i32;
    out.clear();
    out.extend_from_slice(&emptied.to_bytes());
    batch::refresh_crc(out);
}

fn rewrite(header: &BatchHeader, kept: &Kept, out: &mut Vec<u8>) -> Result<(), CleanError> {
    encode(with_kept(header, kept), &kept.bytes, out)
}

/// False if the batch would grow beyond the limits; `out` is then void.
fn set_horizon(
    limits: &GrowthLimits,
    header: &BatchHeader,
    size_bytes: usize,
    kept: &Kept,
    horizon: i64,
    out: &mut Vec<u8>,
) -> Result<bool, CleanError> {
    let codec = header
        .compression()
        .map_err(|error| damaged(header, error))?;
    let records = rebased(header, &kept.bytes, horizon)?;
    let has_grown = records.len() > kept.bytes.len();
    if codec != Compression::None && has_grown && records.len() > limits.expanded_bytes {
        return Ok(false);
    }
    let mut changed = with_kept(header, kept);
    changed.attributes |= DELETE_HORIZON_BIT;
    changed.base_timestamp = horizon;
    if codec == Compression::None && !limits.fit(size_bytes, HEADER_LEN + records.len()) {
        return Ok(false);
    }
    encode(changed, &records, out)?;
    Ok(limits.fit(size_bytes, out.len()))
}

impl GrowthLimits {
    fn fit(&self, before_bytes: usize, after_bytes: usize) -> bool {
        after_bytes.saturating_sub(before_bytes) as u64 <= self.more_bytes
    }
}

fn with_kept(header: &BatchHeader, kept: &Kept) -> BatchHeader {
    let mut changed = *header;
    changed.record_count = kept.count;
    if !header.is_log_append_time() {
        changed.max_timestamp = kept.max_timestamp;
    }
    changed
}

/// Writes the batch with these expanded records.
fn encode(mut header: BatchHeader, records: &[u8], out: &mut Vec<u8>) -> Result<(), CleanError> {
    out.clear();
    out.resize(HEADER_LEN, 0);
    let codec = header
        .compression()
        .map_err(|error| damaged(&header, error))?;
    compress(codec, records, out)?;
    let length = i32::try_from(out.len() - LENGTH_PREFIX_LEN);
    header.batch_length = length.map_err(|_| damaged(&header, "it grew beyond 2 GiB"))?;
    out[..HEADER_LEN].copy_from_slice(&header.to_bytes());
    batch::refresh_crc(out);
    Ok(())
}

/// The records with times that count from `base`.
fn rebased(header: &BatchHeader, records: &[u8], base: i64) -> Result<Vec<u8>, CleanError> {
    let mut out = Vec::with_capacity(records.len() + records.len() / 8);
    for record in Records::new(records) {
        let record = record.map_err(|error| damaged(header, error))?;
        let headers: Vec<HeaderToWrite<'_>> = record.headers().map(|h| (h.key, h.value)).collect();
        encode_record(
            &mut out,
            timestamp(header, &record).wrapping_sub(base),
            record.offset_delta,
            record.key,
            record.value,
            &headers,
        );
    }
    Ok(out)
}

/// Learns the keys of a batch's records at `offsets`, in order. False if the map is full.
pub(super) fn learn(
    map: &mut OffsetMap,
    header: &BatchHeader,
    bytes: &[u8],
    offsets: Range<i64>,
) -> Result<bool, CleanError> {
    let codec = header
        .compression()
        .map_err(|error| damaged(header, error))?;
    let body = &bytes[HEADER_LEN..];
    with_decompressed(codec, body, OWN_BYTES_MAX, |records| {
        let mut waiting = Vec::with_capacity(TOGETHER);
        for record in Records::new(records) {
            let record = record.map_err(|error| damaged(header, error))?;
            let offset = offset(header, &record);
            let Some(key) = record.key.filter(|_| offsets.contains(&offset)) else {
                continue;
            };
            waiting.push((map.hash(key), offset));
            if waiting.len() == TOGETHER && !put_all(map, &mut waiting) {
                return Ok(false);
            }
        }
        Ok(put_all(map, &mut waiting))
    })
    .map_err(|error| damaged(header, error))?
}

/// False if the map is full.
fn put_all(map: &mut OffsetMap, waiting: &mut Vec<(KeyHash, i64)>) -> bool {
    map.touch(waiting.iter().map(|(hash, _)| *hash));
    waiting
        .drain(..)
        .all(|(hash, offset)| map.put(hash, offset))
}

pub(super) fn damaged(header: &BatchHeader, reason: impl std::fmt::Display) -> CleanError {
    CleanError::Corrupt(format!(
        "the batch at offset {} cannot be cleaned: {reason}",
        header.base_offset
    ))
}

#[cfg(test)]
mod tests;
