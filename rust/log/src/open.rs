//! Opens a log. A clean folder needs few reads; after an unclean end the segments from the recovery
//! point on are scanned.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::disk;
use crate::folder::Folder;
use crate::leave::Leave;
use crate::log::Log;
use crate::log_dir::{recovering, unseen};
use crate::names;
use crate::opening::next_opening;
use crate::partition_metadata::{self, PartitionMetadata};
use crate::position::{LogPosition, RecentPositions};
use crate::segment::Segment;
use crate::sync_state::{Ages, SyncState};
use crate::syncing::SyncScope;
use crate::tail::Tail;
use crate::transaction_index::kept;

mod aborted;
mod active;
mod again;
mod blocks;
mod epochs;
mod files;
mod load;
mod old_formats;
mod producers;
mod recovery;
mod request;
mod unwritten;

use blocks::Claim;
pub(crate) use load::{Loaded, Loader};
pub(crate) use producers::Expiry;
pub use request::{OpenError, OpenReport, OpenRequest, OpenState, TopicId};

impl Log {
    /// Opens a partition's log; creates its folder if missing. Does I/O for as long as a recovery
    /// takes; loader threads only.
    ///
    /// # Errors
    /// [`OpenError`]; at most leftovers of an interrupted run were changed then.
    pub fn open(request: OpenRequest<'_>) -> Result<(Self, OpenReport), OpenError> {
        let name = names::folder_name(request.topic, request.partition);
        Self::open_in(&name, request, Claim::new, true)
    }

    /// Opens a copy that moves here from another log directory, in a folder of this name. All of it
    /// is in its files: the block cache knows the partition's log only, if any. The checkpoints'
    /// rows are the copy's.
    ///
    /// # Errors
    /// As [`Log::open`]. `Outdated` if it has segments of old formats: those of its log were
    /// converted, each into other batches than these would be.
    pub fn open_future(
        folder: &str,
        request: OpenRequest<'_>,
    ) -> Result<(Self, OpenReport), OpenError> {
        let claim = |request: &OpenRequest<'_>| Ok(Claim::nothing(request));
        Self::open_in(folder, request, claim, false)
    }

    fn open_in(
        folder: &str,
        request: OpenRequest<'_>,
        claim: impl FnOnce(&OpenRequest<'_>) -> Result<Claim, OpenError>,
        converts: bool,
    ) -> Result<(Self, OpenReport), OpenError> {
        if let Some(reason) = request.env.poisoned() {
            return Err(OpenError::Poisoned(reason.to_owned()));
        }
        let folder = Folder::new(request.log_dir.join(folder));
        let mut report = OpenReport::default();
        let path = folder.path();
        if !request.env.disk().exists(&path)? {
            request.env.disk().create_dir_all(&path)?;
            report.created = true;
        }
        check_topic_id(&request, &folder)?;
        let claim = claim(&request)?;
        let loader = Loader {
            env: &request.env,
            folder: &folder,
            config: &request.config,
            expiry: Expiry {
                now_ms: request.now_ms,
                expiration_ms: request.producer_id_expiration_ms,
            },
            jitter_seed: jitter_seed(request.topic, request.partition),
            blocks: claim.segments(),
            is_same_boot: claim.is_same_boot(),
            had_no_producers: claim.has_no_producers(),
            is_unseen: request.env.is_unseen(request.topic, request.partition),
            converts,
        };
        let state = state_of(&request, report.created);
        let mut loaded = match loader.load(state, report) {
            Ok(loaded) => loaded,
            Err(error) => {
                claim.end(&request.env, &error);
                return Err(error);
            }
        };
        let mut report = std::mem::take(&mut loaded.state.report);
        let jitter_seed = loader.jitter_seed;
        let mut log = Self::from_loaded(
            &request,
            folder.clone(),
            jitter_seed,
            loaded,
            report.created,
        );
        if request.config.flush_messages < i64::MAX
            && let Err(error) = log.settle_what_was_found()
        {
            drop(log);
            claim.end(&request.env, &error);
            return Err(error);
        }
        report.checkpoint_is_stale |= state != request.state;
        log.put_away_aborted();
        let has_producers = !log.producers.is_empty();
        log.cache = claim.into_cache(&log.segments, has_producers);
        let (topic, partition) = (request.topic, request.partition);
        recovering::settled(&request.env, request.log_dir, topic, partition);
        if !loader.has_unwritten() {
            unseen::seen(&request.env, request.log_dir, topic, partition);
        }
        Ok((log, report))
    }

    /// With `flush.messages` an acknowledgement means "synced". Cached blocks beyond the files were
    /// acknowledged before the option was set, and must not stay behind what is synced later.
    /// Batches that an earlier run wrote without syncing were never acknowledged, but become
    /// readable, and a producer's retry is answered as a duplicate. So everything is written and
    /// synced first. After a passing error this can be repeated.
    fn settle_what_was_found(&mut self) -> Result<(), OpenError> {
        while let Some(mut job) = self.take_writes() {
            job.execute()?;
            self.complete_writes(job, Ok(()));
        }
        if let Some(mut job) = self.take_sync(SyncScope::Written) {
            job.execute()?;
            self.complete_sync(job, Ok(()));
        }
        Ok(())
    }

    fn from_loaded(
        request: &OpenRequest<'_>,
        folder: Arc<Folder>,
        jitter_seed: u64,
        loaded: Loaded,
        created: bool,
    ) -> Self {
        let (state, active, end_offset) = (loaded.state, loaded.active, loaded.end_offset);
        let log_start = state.log_start;
        let end = LogPosition::at(end_offset, active.base_offset(), active.size);
        let spare_snapshot = spare(&state.snapshots, &state.segments);
        let mut tail = Tail::default();
        if loaded.epochs_due {
            let content = state.epochs.encode().into_bytes();
            tail.push_file(names::LEADER_EPOCH_CHECKPOINT.to_owned(), content);
        }
        let written = unwritten::queue_all(state.unwritten, end, &mut tail);
        let high_watermark = request.state.high_watermark.clamp(log_start, end_offset);
        let mut producers = state.producers;
        producers.on_high_watermark(high_watermark);
        Self {
            env: request.env.clone(),
            folder,
            config: request.config.clone(),
            segments: Arc::new(state.segments),
            active,
            tail,
            in_flight: None,
            cache: None,
            end,
            written,
            durable_end: end,
            high_watermark: place_before(high_watermark, end),
            log_start,
            recent: RecentPositions::default(),
            epochs: state.epochs,
            epochs_unwritten: loaded.epochs_unwritten,
            producers,
            spare_snapshot,
            snapshots: state.snapshots,
            unsaved_bytes: 0,
            aborted: kept(state.aborted),
            sync: SyncState {
                recovery_point: loaded.recovery_point,
                ages: Ages::left_unsynced(loaded.recovery_point.max(log_start), end_offset),
                segments: state.unsynced,
                new_folder: created,
                ..SyncState::default()
            },
            truncating: false,
            restart: None,
            leave: Leave::default(),
            is_swapping: false,
            swapped_end: -1,
            cleaned_at_open: within(request.state.cleaned_end, end_offset),
            opening: next_opening(),
            is_reshaped: true,
            partial: state.partial,
            filling: Arc::default(),
            retiring: Arc::default(),
            poison: None,
            is_sealed: false,
            jitter_seed,
        }
    }
}

/// A checkpoint's row beyond the log's end says nothing, also once the log has come there.
fn within(cleaned_end: i64, end_offset: i64) -> i64 {
    match cleaned_end <= end_offset {
        true => cleaned_end,
        false => 0,
    }
}

/// The position of an offset up to the log's end, which alone has a known place.
fn place_before(offset: i64, end: LogPosition) -> LogPosition {
    match offset == end.offset {
        true => end,
        false => LogPosition::unplaced(offset),
    }
}

/// The checkpoints of a new folder describe an earlier log of its name, which was removed.
fn state_of(request: &OpenRequest<'_>, is_new: bool) -> OpenState {
    match is_new {
        true => OpenState {
            clean: request.state.clean,
            ..OpenState::default()
        },
        false => request.state,
    }
}

/// The newest snapshot, unless a segment starts at it.
pub(crate) fn spare(snapshots: &BTreeSet<i64>, segments: &[Arc<Segment>]) -> Option<i64> {
    let newest = *snapshots.last()?;
    let starts_one = segments
        .iter()
        .any(|segment| segment.base_offset() == newest);
    (!starts_one).then_some(newest)
}

fn check_topic_id(request: &OpenRequest<'_>, folder: &Folder) -> Result<(), OpenError> {
    let Some(expected) = request.topic_id.filter(|id| *id != [0; 16]) else {
        return Ok(());
    };
    let disk = request.env.disk();
    let path = folder.file(names::PARTITION_METADATA);
    match PartitionMetadata::stored(disk, &path)? {
        Some(metadata) if metadata.topic_id == expected => {
            // A kill came between both files.
            let is_whole = metadata.is_partial && !disk.exists(&folder.file(names::PARTIAL))?;
            match is_whole {
                true => Ok(PartitionMetadata::mark(disk, &path, false)?),
                false => Ok(()),
            }
        }
        Some(metadata) if metadata.topic_id != [0; 16] => Err(OpenError::TopicIdMismatch {
            path: folder.path().display().to_string(),
            found: partition_metadata::encode_uuid(&metadata.topic_id),
            expected: partition_metadata::encode_uuid(&expected),
        }),
        _ => {
            let content = PartitionMetadata {
                version: 0,
                topic_id: expected,
                is_partial: false,
            }
            .encode();
            Ok(disk::replace_file_unsynced(
                disk,
                &path,
                content.as_bytes(),
            )?)
        }
    }
}

/// Distinguishes partitions for the jitter of `segment.ms`.
fn jitter_seed(topic: &str, partition: i32) -> u64 {
    let mut hasher = DefaultHasher::new();
    (topic, partition).hash(&mut hasher);
    hasher.finish()
}
