//! Recovery after an unclean end: checks every batch from the recovery point's segment on.

use std::sync::Arc;

use pyrklog_wire::batch;

use crate::batch_info::BatchInfo;
use crate::disk::{self, missing_is_fine};
use crate::names::{FileKind, cut_path};
use crate::open::load::LoadedState;
use crate::open::old_formats::sound_message;
use crate::open::{Loader, OpenError};
use crate::position::SegmentPosition;
use crate::scan::{Met, ScanError, WALK_CHUNK_BYTES};
use crate::segment::{Segment, SegmentIndexes, is_gap_intended};
use crate::transaction_index::TransactionIndex;

/// A segment whose batches are sound up to `size`.
pub(super) struct Recovered {
    pub indexes: SegmentIndexes,
    pub transactions: TransactionIndex,
    pub size: u64,
    /// The offset after its last batch.
    pub end_offset: i64,
    /// The offset after its last batch of records.
    pub data_end: i64,
    /// Offsets are missing between or in its batches.
    pub is_thinned: bool,
    pub first_timestamp: Option<i64>,
    /// Why the walk ended before the end of the file.
    pub cut: Option<String>,
}

impl Loader<'_> {
    /// Walks the segments from `first` on, rebuilds derived files, and cuts the log where it is not
    /// sound. Returns the content of the last remaining one.
    ///
    /// Without compaction segments follow one another without a gap; a gap means that written data
    /// was lost before its sync. What was compacted, perhaps before the topic's policy changed, lies
    /// below the recovery point, in directories of Kafka's below the cleaner's checkpoint. Gaps within
    /// segments tell nothing: copies that keep their source's offsets have these, too. Except in logs
    /// that another broker has left: Kafka's followers of compacted topics have gaps between segments
    /// that no checkpoint knows.
    pub(super) fn recover(
        &self,
        state: &mut LoadedState,
        first: usize,
    ) -> Result<Recovered, OpenError> {
        let mut end_offset = state.segments[first].base_offset();
        let mut may_have_holes = self.config.cleanup_compact;
        let intended_end = state.synced_end.max(state.cleaned_end);
        let mut i = first;
        loop {
            let segment = state.segments[i].clone();
            if i > first {
                self.save_snapshot(state, segment.base_offset())?;
            }
            let mut recovered = self.recover_segment(&segment, end_offset, state)?;
            end_offset = recovered.end_offset;
            state.report.recovered_segments += usize::from(segment.size() > 0);
            state.report.scanned_bytes += recovered.size;
            let next_base = state.segments.get(i + 1).map(|next| next.base_offset());
            may_have_holes |= self.is_unseen && recovered.is_thinned;
            let is_lost = |base| {
                let is_unsynced = base > end_offset && base > intended_end;
                is_unsynced && !may_have_holes && !is_gap_intended(end_offset, base)
            };
            if recovered.cut.is_none() && next_base.is_some_and(is_lost) {
                recovered.cut = Some(format!("the next segment does not begin at {end_offset}"));
            }
            let becomes_active = next_base.is_none() || recovered.cut.is_some();
            if !becomes_active {
                // A closed segment's time index ends with its largest timestamp.
                recovered.indexes.add_largest(true);
                segment.set_largest(recovered.indexes.largest);
            }
            self.write_recovered(&segment, &recovered, state)?;
            if becomes_active {
                self.drop_segments(state, i + 1)?;
                segment.reopen();
                return Ok(recovered);
            }
            i += 1;
        }
    }

    fn recover_segment(
        &self,
        segment: &Arc<Segment>,
        expected: i64,
        state: &mut LoadedState,
    ) -> Result<Recovered, OpenError> {
        let base_offset = segment.base_offset();
        let mut recovered = Recovered {
            indexes: SegmentIndexes::new(base_offset, self.config.segment_index_bytes),
            transactions: TransactionIndex::new(base_offset),
            size: 0,
            end_offset: expected.max(base_offset),
            data_end: base_offset,
            first_timestamp: None,
            is_thinned: false,
            cut: None,
        };
        let size = segment.size();
        if size == 0 {
            // Even its files may not exist yet.
            return Ok(recovered);
        }
        let mut scanner = segment.walk(0, WALK_CHUNK_BYTES);
        loop {
            let (met, bytes) = match scanner.next_whole() {
                Ok(Some(whole)) => whole,
                Ok(None) => break,
                Err(ScanError::Io(error)) => return Err(error.into()),
                Err(ScanError::NotABatch { position, reason }) => {
                    if let Some(magic) = sound_message(segment.bytes(), position, size)? {
                        let path = segment.path(FileKind::Log).display().to_string();
                        return Err(OpenError::OldFormat {
                            path,
                            magic,
                            position,
                        });
                    }
                    recovered.cut = Some(reason.to_string());
                    break;
                }
            };
            match check(bytes, base_offset, recovered.end_offset) {
                Ok(info) => {
                    let begins = match met.position {
                        0 => expected,
                        _ => recovered.end_offset,
                    };
                    let start = self.config.epoch_start(info.base_offset, begins);
                    state.note_epoch(info.partition_leader_epoch, start);
                    self.apply(&mut recovered, state, &info, &met, base_offset);
                }
                Err(reason) => {
                    recovered.cut = Some(reason);
                    break;
                }
            }
        }
        Ok(recovered)
    }

    fn apply(
        &self,
        recovered: &mut Recovered,
        state: &mut LoadedState,
        info: &BatchInfo,
        met: &Met,
        segment_base: i64,
    ) {
        let (facts, position) = (met.facts(), met.position);
        if position == 0 {
            recovered.first_timestamp = Some(facts.max_timestamp);
        }
        let at = position as u32;
        recovered
            .indexes
            .add(facts, at, self.config.index_interval_bytes);
        recovered.is_thinned |= info.base_offset > recovered.end_offset
            || i64::from(info.record_count) <= i64::from(info.last_offset_delta);
        let place = SegmentPosition {
            segment_base,
            position: at,
        };
        if let Some(aborted) = state.producers.update(info, info.base_offset, Some(place)) {
            // An entry that does not rise above the last one is in the index already.
            let _known = recovered.transactions.append(aborted);
        }
        recovered.size = position + u64::from(facts.size);
        recovered.end_offset = facts.last_offset + 1;
        if !info.is_control() {
            recovered.data_end = recovered.end_offset;
        }
    }

    fn write_recovered(
        &self,
        segment: &Arc<Segment>,
        recovered: &Recovered,
        state: &mut LoadedState,
    ) -> Result<(), OpenError> {
        if let Some(reason) = &recovered.cut {
            let cut_bytes = segment.written() - recovered.size;
            state.report.truncated_bytes += cut_bytes;
            state.report.notes.push(format!(
                "cut {cut_bytes} bytes from {} at {}: {reason}",
                segment.path(FileKind::Log).display(),
                recovered.size,
            ));
            if cut_bytes > 0 {
                // Durable at once: new batches must never precede the cut ones.
                let file = segment.log_file_for_writing()?;
                file.set_len(recovered.size)?;
                file.sync_data()?;
                segment.cut(recovered.size);
            }
        }
        if recovered.size > 0 {
            segment.replace_indexes(&recovered.indexes, disk::replace_file_unsynced)?;
            state.unsynced.push(segment.clone());
        }
        let path = segment.path(FileKind::TransactionIndex);
        if recovered.transactions.is_empty() {
            state.aborted.remove(&segment.base_offset());
            missing_is_fine(self.env.disk().remove_file(&path))?;
        } else {
            let bytes = recovered.transactions.to_bytes();
            disk::replace_file_unsynced(self.env.disk(), &path, &bytes)?;
            state
                .aborted
                .insert(segment.base_offset(), recovered.transactions.clone());
        }
        Ok(())
    }

    /// Renames segments behind a cut: keeping them would leave a hole, or an old tail behind new
    /// data. The operator can still examine their batches.
    fn drop_segments(&self, state: &mut LoadedState, first: usize) -> Result<(), OpenError> {
        let dropped = state.segments.split_off(first);
        for segment in &dropped {
            state.report.truncated_bytes += segment.written();
            let path = segment.path(FileKind::Log);
            let aside = cut_path(&path);
            state.report.notes.push(format!(
                "removed {} from the log, because it lies behind the cut; its content is in {}",
                path.display(),
                aside.display()
            ));
            self.env.disk().rename(&path, &aside)?;
            segment.remove_files()?;
            state.aborted.remove(&segment.base_offset());
        }
        if !dropped.is_empty() {
            // Durable at once: they must not come back behind later appends.
            self.env.disk().sync_dir(&self.folder.path())?;
        }
        Ok(())
    }
}

/// Checks a batch that should follow `expected` in a segment.
fn check(bytes: &[u8], base_offset: i64, expected: i64) -> Result<BatchInfo, String> {
    batch::verify_crc(bytes).map_err(|error| error.to_string())?;
    let info = BatchInfo::parse(bytes).map_err(|error| error.to_string())?;
    if info.base_offset < expected {
        return Err(format!(
            "offset {} where at least {expected} was expected",
            info.base_offset
        ));
    }
    let last_offset = info
        .base_offset
        .checked_add(i64::from(info.last_offset_delta));
    let fits = last_offset.is_some_and(|last| i32::try_from(last - base_offset).is_ok());
    if info.last_offset_delta < 0 || !fits {
        return Err(format!(
            "last offset delta {} is out of range",
            info.last_offset_delta
        ));
    }
    Ok(info)
}
