//! The producer state at an offset: from the newest usable snapshot below, and the batches since.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::batch_info::BatchInfo;
use crate::disk;
use crate::names::FileKind;
use crate::open::Loader;
use crate::open::load::LoadedState;
use crate::position::SegmentPosition;
use crate::scan::WALK_CHUNK_BYTES;
use crate::segment::{ActiveSegment, Segment};
use crate::snapshot;
use crate::transaction_index::AbortedTxn;
use crate::wait::Wait;

/// A larger snapshot is not read.
const SNAPSHOT_BYTES_MAX: u64 = 1 << 30;

/// When a loaded producer has expired.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expiry {
    pub now_ms: i64,
    /// `producer.id.expiration.ms`.
    pub expiration_ms: i64,
}

/// Aborted transactions found, with the base offset of their marker's segment.
pub(super) type Aborted = Vec<(i64, AbortedTxn)>;

impl Loader<'_> {
    /// The state at `end`, from the newest readable snapshot up to `newest`, or from the log's
    /// start; returns the aborted transactions found. Removes unreadable snapshots. An orderly
    /// closed log has a snapshot at its end, so nothing is walked. `tails` are segments with
    /// indexes in memory.
    pub fn load_producers(
        &self,
        loading: &mut LoadedState,
        end: i64,
        newest: i64,
        tails: &[ActiveSegment],
    ) -> io::Result<Aborted> {
        loading.producers.clear();
        let start = loading.log_start.min(end);
        let mut from = start;
        while let Some(&offset) = loading.snapshots.range(start..=newest).next_back() {
            let path = self.folder.segment_file(offset, FileKind::Snapshot);
            let decoded = match disk::read_file(self.env.disk(), &path, SNAPSHOT_BYTES_MAX) {
                Ok(content) => snapshot::decode(&content).map_err(|error| error.to_string()),
                // It is too large. The log itself says the same, in longer time.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(error.to_string()),
                Err(error) => return Err(error),
            };
            match decoded {
                Ok(entries) => {
                    let Expiry {
                        now_ms,
                        expiration_ms,
                    } = self.expiry;
                    loading.producers.load(&entries, now_ms, expiration_ms);
                    from = offset;
                    break;
                }
                Err(error) => {
                    let notes = &mut loading.report.notes;
                    notes.push(format!("removed {}: {error}", path.display()));
                    self.env.disk().remove_file(&path)?;
                    loading.snapshots.remove(&offset);
                }
            }
        }
        replay(loading, from..end, tails)
    }
}

/// Applies the batches of a range.
fn replay(
    loading: &mut LoadedState,
    range: Range<i64>,
    tails: &[ActiveSegment],
) -> io::Result<Aborted> {
    let mut aborted = Aborted::new();
    if range.is_empty() {
        return Ok(aborted);
    }
    let Range { start: from, end } = range;
    let first = loading
        .segments
        .partition_point(|segment| segment.base_offset() <= from)
        .saturating_sub(1);
    for segment in &loading.segments[first..] {
        if segment.base_offset() >= end || segment.size() == 0 {
            continue;
        }
        let start = start_in(segment, from, tails)?;
        let mut scanner = segment.walk(start, WALK_CHUNK_BYTES);
        while let Some(met) = scanner.next_header()? {
            if met.header.base_offset >= end {
                break;
            }
            if met.header.base_offset < from || !met.header.has_producer() {
                continue;
            }
            let info = if met.header.is_control() {
                BatchInfo::parse(scanner.whole(&met)?).map_err(io::Error::other)?
            } else {
                BatchInfo::from_header(met.header)
            };
            let place = SegmentPosition {
                segment_base: segment.base_offset(),
                position: met.position as u32,
            };
            // The batches are in the log, whatever the rules say now.
            let txn = loading
                .producers
                .update(&info, met.header.base_offset, Some(place));
            aborted.extend(txn.map(|txn| (segment.base_offset(), txn)));
        }
    }
    Ok(aborted)
}

/// A position at or before the batch that holds `from`.
fn start_in(segment: &Arc<Segment>, from: i64, tails: &[ActiveSegment]) -> io::Result<u64> {
    if segment.base_offset() >= from {
        return Ok(0);
    }
    let tail = tails
        .iter()
        .find(|tail| Arc::ptr_eq(&tail.segment, segment));
    let position = match tail {
        Some(tail) => tail.indexes.offsets.lookup(from).position,
        None if segment.is_closed() => segment.search_offset(from, Wait::Blocking)?,
        None => 0,
    };
    Ok(u64::from(position))
}
