//! Producer state as it was at an offset: the newest usable snapshot below, and the batches since.

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
use crate::read::Wait;
use crate::scan::{BatchScanner, WALK_CHUNK_BYTES};
use crate::segment::Segment;
use crate::snapshot;

/// A snapshot of more producers than anybody has is not read into memory.
const SNAPSHOT_BYTES_MAX: u64 = 1 << 30;

/// When a producer that was loaded has expired.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expiry {
    /// Now.
    pub now_ms: i64,
    /// `producer.id.expiration.ms`.
    pub expiration_ms: i64,
}

/// Where producer state is loaded from.
pub(super) struct Source<'a> {
    pub env: &'a LogEnv,
    pub folder: &'a Folder,
    pub segments: &'a [Arc<Segment>],
    pub expiry: Expiry,
}

impl Source<'_> {
    /// The state at the end of `range`, from the newest snapshot in it that can be read, or from
    /// its start. Snapshots that cannot be read are removed. A log that was closed in order has one
    /// at its end, so nothing is walked then.
    pub fn state_at(
        &self,
        snapshots: &mut BTreeSet<i64>,
        range: Range<i64>,
        notes: &mut Vec<String>,
    ) -> io::Result<ProducerStates> {
        let mut states = ProducerStates::new();
        let mut from = range.start;
        while let Some(&offset) = snapshots.range(range.start..=range.end).next_back() {
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
        replay(self.segments, from, range.end, &mut states)?;
        Ok(states)
    }
}

/// Applies the batches from `from` up to `end`.
fn replay(
    segments: &[Arc<Segment>],
    from: i64,
    end: i64,
    states: &mut ProducerStates,
) -> io::Result<()> {
    if from >= end {
        return Ok(());
    }
    let first = segments
        .partition_point(|segment| segment.base_offset() <= from)
        .saturating_sub(1);
    for segment in &segments[first..] {
        if segment.base_offset() >= end || segment.written() == 0 {
            continue;
        }
        let file = segment.log_file(Wait::Blocking)?;
        let start = if segment.base_offset() < from && segment.is_closed() {
            u64::from(segment.search_offset(from, Wait::Blocking)?)
        } else {
            0
        };
        let mut scanner = BatchScanner::new(
            &*file,
            start,
            segment.written(),
            WALK_CHUNK_BYTES,
            Wait::Blocking,
        );
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
            let position = met.position as u32;
            let place = Place {
                segment_base: segment.base_offset(),
                position,
            };
            // The batches are in the log: whatever the rules say of them now, they happened.
            states.update(&info, met.header.base_offset, Some(place));
        }
    }
    Ok(())
}
