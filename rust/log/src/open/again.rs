//! Opens a log after `kill -9` within the same boot.
//!
//! The page cache has everything written, and the block cache everything acknowledged before it was
//! written. So only batches behind the last index entry and unwritten ones are examined
//! (`block-cache.md`, section 4).

use std::io;
use std::sync::Arc;

use pyrklog_wire::batch;
use pyrklog_wire::error::DecodeError;

use crate::disk;
use crate::names::FileKind;
use crate::open::load::{LoadedState, Opened};
use crate::open::{Loader, OpenError, OpenReport};
use crate::scan::{ScanError, TAIL_CHUNK_BYTES};
use crate::segment::{ActiveSegment, Segment, SegmentIndexes, is_gap_intended};

impl Loader<'_> {
    /// Brings the segments from the recovery point on up to date. `None` if the files are not as a
    /// kill leaves them, so that every batch must be checked.
    pub(super) fn open_again(
        &self,
        loading: &mut LoadedState,
    ) -> Result<Option<Opened>, OpenError> {
        let after = loading
            .segments
            .partition_point(|segment| segment.base_offset() <= loading.synced_end);
        let first = after.saturating_sub(1);
        let mut tails: Vec<ActiveSegment> = Vec::new();
        let mut end_offset = loading.segments[first].base_offset();
        let count = loading.segments.len();
        for i in first..count {
            let segment = loading.segments[i].clone();
            let base_offset = segment.base_offset();
            let may_follow = base_offset == end_offset || is_gap_intended(end_offset, base_offset);
            if !self.config.cleanup_compact && !may_follow && i > first {
                return Ok(None);
            }
            let indexes = match i + 1 == count {
                true => self.cut_torn_batch(&segment, &mut loading.report)?,
                false => None,
            };
            let Some(tail) = self.load_tail(&segment, indexes, &mut loading.report)? else {
                return Ok(None);
            };
            self.check_tail(&segment, tail.walked_from, loading)?;
            end_offset = tail.end_offset;
            tails.push(tail.active);
        }
        self.load_producers_again(loading, end_offset, &tails)?;
        let active = tails.pop().expect("a log has at least one segment");
        for closed in tails {
            self.finish_closed(loading, closed)?;
        }
        if active.size > 0 {
            loading.unsynced.push(active.segment.clone());
        }
        loading
            .unwritten
            .extend(Self::unwritten(&active.segment, None));
        Ok(Some((active, end_offset)))
    }

    /// Cuts a batch whose append the kill interrupted, which was never acknowledged. Returns the
    /// segment's indexes, if they were read and nothing was cut.
    fn cut_torn_batch(
        &self,
        segment: &Arc<Segment>,
        report: &mut OpenReport,
    ) -> Result<Option<SegmentIndexes>, OpenError> {
        let size = segment.size();
        let indexes = match segment.written() {
            0 => None,
            _ => self.load_indexes(segment)?,
        };
        let entry = indexes.as_ref().and_then(|indexes| indexes.offsets.last());
        let start = entry.map_or(0, |entry| u64::from(entry.position));
        let mut scanner = segment.walk(start, TAIL_CHUNK_BYTES);
        let torn_at = loop {
            match scanner.next_header() {
                Ok(Some(_)) => {}
                Ok(None) => return Ok(indexes),
                Err(ScanError::NotABatch {
                    position,
                    reason: DecodeError::Truncated { .. },
                }) => break position,
                // A full check will tell what is wrong.
                Err(ScanError::NotABatch { .. }) => return Ok(indexes),
                Err(ScanError::Io(error)) => return Err(error.into()),
            }
        };
        let path = segment.path(FileKind::Log);
        report.truncated_bytes += size - torn_at;
        report.notes.push(format!(
            "cut {} bytes of a batch that was being appended from {}",
            size - torn_at,
            path.display()
        ));
        let is_in_file =
            self.env.disk().exists(&path)? && self.env.disk().file_len(&path)? > torn_at;
        if is_in_file {
            let file = segment.log_file_for_writing()?;
            file.set_len(torn_at)?;
            file.sync_data()?;
        }
        segment.cut(torn_at);
        Ok(None)
    }

    /// Checks the batches behind `from`: leader epochs, and checksums of those not wholly in the
    /// file.
    fn check_tail(
        &self,
        segment: &Arc<Segment>,
        from: u64,
        loading: &mut LoadedState,
    ) -> Result<(), OpenError> {
        let written = segment.written();
        let mut scanner = segment.walk(from, TAIL_CHUNK_BYTES);
        while let Some(met) = scanner.next_header().map_err(io::Error::from)? {
            let epoch = met.header.partition_leader_epoch;
            loading.note_epoch(epoch, met.header.base_offset);
            if met.end() > written {
                let whole = scanner.whole(&met).map_err(io::Error::from)?;
                batch::verify_crc(whole).map_err(|error| {
                    let path = segment.path(FileKind::Log);
                    let (path, at) = (path.display(), met.position);
                    OpenError::Corrupt(format!(
                        "the block cache is damaged at position {at} of {path}: {error}"
                    ))
                })?;
            }
        }
        Ok(())
    }

    /// Completes the indexes of a closed segment: at once, or after its unwritten bytes.
    fn finish_closed(
        &self,
        loading: &mut LoadedState,
        mut closed: ActiveSegment,
    ) -> Result<(), OpenError> {
        let segment = closed.segment.clone();
        loading.unsynced.push(segment.clone());
        closed.indexes.add_largest(true);
        if segment
            .cached()
            .is_some_and(|cached| cached.unwritten_from().is_some())
        {
            loading
                .unwritten
                .extend(Self::unwritten(&segment, Some(closed)));
            return Ok(());
        }
        segment.set_largest(closed.indexes.largest);
        if closed.indexes.untaken_bytes() > 0 {
            segment.replace_indexes(&closed.indexes, disk::replace_file_unsynced)?;
        }
        Ok(())
    }
}
