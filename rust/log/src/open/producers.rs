//! The producer state at an offset: from the newest usable snapshot below, and the batches since.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::batch_info::BatchInfo;
use crate::disk;
use crate::env::LogEnv;
use crate::folder::Folder;
use crate::names::FileKind;
use crate::position::Place;
use crate::producer_state::ProducerStates;
use crate::scan::{BatchScanner, WALK_CHUNK_BYTES};
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

pub(super) struct Source<'a> {
    pub env: &'a LogEnv,
    pub folder: &'a Folder,
    pub segments: &'a [Arc<Segment>],
    /// Segments with indexes in memory.
    pub tails: &'a [ActiveSegment],
    pub expiry: Expiry,
}

/// Aborted transactions found, with the base offset of their marker's segment.
pub(super) type Aborted = Vec<(i64, AbortedTxn)>;

impl Source<'_> {
    /// The state at the end of `range`, from the newest readable snapshot up to `newest`, or from
    /// the range's start. Removes unreadable snapshots. An orderly closed log has a snapshot at its
    /// end, so nothing is walked.
    pub fn state_at(
        &self,
        snapshots: &mut BTreeSet<i64>,
        range: Range<i64>,
        newest: i64,
        notes: &mut Vec<String>,
    ) -> io::Result<(ProducerStates, Aborted)> {
        let mut states = ProducerStates::new();
        let mut from = range.start;
        while let Some(&offset) = snapshots.range(range.start..=newest).next_back() {
            let path = self.folder.segment_file(offset, FileKind::Snapshot);
            let content = disk::read_file(self.env.disk(), &path, SNAPSHOT_BYTES_MAX)?;
            match snapshot::decode(&content) {
                Ok(entries) => {
                    states.load(&entries, self.expiry.now_ms, self.expiry.expiration_ms);
                    from = offset;
                    break;
                }
                Err(error) => {
                    notes.push(format!("removed {}: {error}", path.display()));
                    self.env.disk().remove_file(&path)?;
                    snapshots.remove(&offset);
                }
            }
        }
        let aborted = self.replay(from, range.end, &mut states)?;
        Ok((states, aborted))
    }

    /// Applies the batches from `from` up to `end`.
    fn replay(&self, from: i64, end: i64, states: &mut ProducerStates) -> io::Result<Aborted> {
        let mut aborted = Aborted::new();
        if from >= end {
            return Ok(aborted);
        }
        let first = self
            .segments
            .partition_point(|segment| segment.base_offset() <= from)
            .saturating_sub(1);
        for segment in &self.segments[first..] {
            if segment.base_offset() >= end || segment.size() == 0 {
                continue;
            }
            let (bytes, size) = (segment.bytes(), segment.size());
            let start = self.start(segment, from)?;
            let chunk = WALK_CHUNK_BYTES;
            let mut scanner = BatchScanner::new(&bytes, start, size, chunk, Wait::Blocking);
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
                    BatchInfo::from_header(&met.header)
                };
                let place = Place {
                    segment_base: segment.base_offset(),
                    position: met.position as u32,
                };
                // The batches are in the log, whatever the rules say now.
                let completed = states.update(&info, met.header.base_offset, Some(place));
                let txn = completed.and_then(|completed| completed.aborted_txn());
                aborted.extend(txn.map(|txn| (segment.base_offset(), txn)));
            }
        }
        Ok(aborted)
    }

    /// A position at or before the batch that holds `from`.
    fn start(&self, segment: &Arc<Segment>, from: i64) -> io::Result<u64> {
        if segment.base_offset() >= from {
            return Ok(0);
        }
        let tail = self
            .tails
            .iter()
            .find(|tail| Arc::ptr_eq(&tail.segment, segment));
        let position = match tail {
            Some(tail) => tail.indexes.offsets.lookup(from).position,
            None if segment.is_closed() => segment.search_offset(from, Wait::Blocking)?,
            None => 0,
        };
        Ok(u64::from(position))
    }
}
