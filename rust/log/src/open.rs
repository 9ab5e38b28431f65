//! Opening a log: from a clean folder little is read; after an unclean end the segments from the
//! recovery point on are walked.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::config::LogConfig;
use crate::disk;
use crate::env::LogEnv;
use crate::folder::Folder;
use crate::leader_epochs::LeaderEpochs;
use crate::log::{Log, SyncState};
use crate::names::{self, FileKind};
use crate::partition_metadata::{self, PartitionMetadata};
use crate::position::{LogPosition, RecentPositions};
use crate::producer_state::ProducerStates;
use crate::segment::{ActiveSegment, Segment};
use crate::transaction_index::TransactionIndex;
use crate::write_behind::Tail;

mod active;
mod epochs;
mod files;
mod producers;
mod recovery;

pub(crate) use producers::Expiry;

/// Small text files of a folder.
const SMALL_FILE_BYTES_MAX: u64 = 64 << 20;

/// 16 bytes of a topic id (KIP-516).
pub type TopicId = [u8; 16];

/// Which log to open, and how.
#[derive(Clone, Debug)]
pub struct OpenRequest<'a> {
    /// What the logs of the directory share.
    pub env: Arc<LogEnv>,
    /// The log directory, in which the partition's folder lies.
    pub log_dir: &'a Path,
    /// Topic name.
    pub topic: &'a str,
    /// Partition index.
    pub partition: i32,
    /// Topic id; checked against the folder's, or stored there.
    pub topic_id: Option<TopicId>,
    /// The log's options.
    pub config: Arc<LogConfig>,
    /// What the checkpoints say.
    pub state: OpenState,
    /// Now.
    pub now_ms: i64,
    /// `producer.id.expiration.ms`.
    pub producer_id_expiration_ms: i64,
}

/// What the log directory's checkpoints say of a log; [`crate::LogDir::open_state`] gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenState {
    /// The directory was shut down in order, so the files are complete.
    pub clean: bool,
    /// Everything below was synced.
    pub recovery_point: i64,
    /// Records below were deleted.
    pub log_start_offset: i64,
    /// The last known high watermark.
    pub high_watermark: i64,
}

impl Default for OpenState {
    /// A log of which no checkpoint speaks.
    fn default() -> Self {
        Self {
            clean: false,
            recovery_point: 0,
            log_start_offset: 0,
            high_watermark: 0,
        }
    }
}

/// What opening a log took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// The folder was not there.
    pub created: bool,
    /// Segments that were walked and checked.
    pub recovered_segments: usize,
    /// Bytes of sound batches in them.
    pub scanned_bytes: u64,
    /// Bytes that were cut off or removed because they were not sound.
    pub truncated_bytes: u64,
    /// Indexes of the active segment that had to be built anew.
    pub rebuilt_indexes: usize,
    /// What else an operator may want to read, one sentence each.
    pub notes: Vec<String>,
}

/// Why a log could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The disk: the directory should be taken as failed. All other errors concern this log alone.
    #[error(transparent)]
    Io(io::Error),
    /// The folder belongs to another topic of the same name.
    #[error(
        "{path} belongs to topic id {found}, not {expected}; move it away, or restore the metadata it belongs to"
    )]
    TopicIdMismatch {
        /// The folder.
        path: String,
        /// The id in its `partition.metadata`.
        found: String,
        /// The id asked for.
        expected: String,
    },
    /// Message format 0 or 1.
    #[error(
        "message format {magic} at position {position} is older than any that is served; convert the log with Kafka 3.x first"
    )]
    Unsupported {
        /// The format.
        magic: i8,
        /// Byte position in the segment.
        position: u64,
    },
    /// A file of the folder makes no sense, and only an operator can say what to do.
    #[error("{0}")]
    Corrupt(String),
    /// The log directory failed earlier.
    #[error("{0}")]
    Poisoned(String),
}

impl From<io::Error> for OpenError {
    /// Content that makes no sense says nothing about the disk under it.
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::InvalidData => Self::Corrupt(error.to_string()),
            _ => Self::Io(error),
        }
    }
}

/// Loads what a folder holds; shared by opening and truncating.
pub(crate) struct Loader<'a> {
    pub env: &'a Arc<LogEnv>,
    pub folder: &'a Arc<Folder>,
    pub config: &'a LogConfig,
    pub expiry: Expiry,
    pub jitter_seed: u64,
}

/// A log's content while it is being loaded.
struct LoadedState {
    segments: Vec<Arc<Segment>>,
    epochs: LeaderEpochs,
    epochs_changed: bool,
    producers: ProducerStates,
    snapshots: BTreeSet<i64>,
    aborted: BTreeMap<i64, TransactionIndex>,
    unsynced: Vec<Arc<Segment>>,
    index_interval_bytes: u32,
}

/// A log's content once it is loaded.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub segments: Vec<Arc<Segment>>,
    pub active: ActiveSegment,
    pub end_offset: i64,
    pub log_start: i64,
    pub epochs: LeaderEpochs,
    pub producers: ProducerStates,
    pub snapshots: BTreeSet<i64>,
    pub aborted: BTreeMap<i64, TransactionIndex>,
    pub unsynced: Vec<Arc<Segment>>,
    pub recovery_point: i64,
}

impl Log {
    /// Opens a partition's log, making its folder when it is missing. Does input and output, for as
    /// long as a recovery takes; loader threads only.
    ///
    /// # Errors
    /// [`OpenError`]; nothing but what an interrupted life left behind was changed then.
    pub fn open(request: OpenRequest<'_>) -> Result<(Self, OpenReport), OpenError> {
        if let Some(reason) = request.env.poisoned() {
            return Err(OpenError::Poisoned(reason.to_owned()));
        }
        let name = names::folder_name(request.topic, request.partition);
        let folder = Folder::new(request.log_dir.join(name));
        let mut report = OpenReport::default();
        let path = folder.path();
        if !request.env.disk().exists(&path)? {
            request.env.disk().create_dir_all(&path)?;
            report.created = true;
        }
        check_topic_id(&request, &folder)?;
        let loader = Loader {
            env: &request.env,
            folder: &folder,
            config: &request.config,
            expiry: Expiry {
                now_ms: request.now_ms,
                expiration_ms: request.producer_id_expiration_ms,
            },
            jitter_seed: jitter_seed(request.topic, request.partition),
        };
        let loaded = loader.load(request.state, &mut report)?;
        let log = Self::from_loaded(
            &request,
            folder.clone(),
            loader.jitter_seed,
            loaded,
            report.created,
        );
        Ok((log, report))
    }

    fn from_loaded(
        request: &OpenRequest<'_>,
        folder: Arc<Folder>,
        jitter_seed: u64,
        loaded: Loaded,
        created: bool,
    ) -> Self {
        let Loaded {
            segments,
            active,
            end_offset,
            log_start,
            ..
        } = loaded;
        let end = LogPosition::at(end_offset, active.base_offset(), active.size);
        let high_watermark = request.state.high_watermark.clamp(log_start, end_offset);
        let mut producers = loaded.producers;
        producers.on_high_watermark(high_watermark);
        Self {
            env: request.env.clone(),
            folder,
            config: request.config.clone(),
            segments: Arc::new(segments),
            active,
            tail: Tail::default(),
            in_flight: None,
            end,
            gated: end,
            high_watermark: if high_watermark == end_offset {
                end
            } else {
                LogPosition::unplaced(high_watermark)
            },
            log_start,
            recent: RecentPositions::default(),
            epochs: loaded.epochs,
            producers,
            snapshots: loaded.snapshots,
            aborted: loaded.aborted,
            sync: SyncState {
                recovery_point: loaded.recovery_point,
                segments: loaded.unsynced,
                new_folder: created,
                ..SyncState::default()
            },
            truncating: false,
            poison: None,
            jitter_seed,
        }
    }
}

impl Loader<'_> {
    /// Loads the folder as `state` says it was left.
    pub fn load(&self, state: OpenState, report: &mut OpenReport) -> Result<Loaded, OpenError> {
        let mut files = files::settle(self.env, self.folder, &mut report.notes)?;
        let segments = self.segments(&files, state.log_start_offset)?;
        let first_offset = segments[0].base_offset();
        let log_start = state.log_start_offset.max(first_offset);
        let mut loading = LoadedState {
            epochs: LeaderEpochs::new(),
            epochs_changed: false,
            producers: ProducerStates::new(),
            snapshots: std::mem::take(&mut files.snapshots),
            aborted: BTreeMap::new(),
            unsynced: Vec::new(),
            index_interval_bytes: self.config.index_interval_bytes,
            segments,
        };
        let damaged = self.load_transaction_indexes(&files, &mut loading, report)?;
        let recover_from = match (state.clean, damaged) {
            (true, None) => None,
            (true, Some(base_offset)) => Some(base_offset),
            (false, damaged) => Some(state.recovery_point.min(damaged.unwrap_or(i64::MAX))),
        };
        self.load_epochs(&files, &mut loading, report)?;
        let opened = match recover_from {
            None => self.open_clean(&mut loading, log_start, report)?,
            Some(offset) => self.open_unclean(&mut loading, offset, log_start, report)?,
        };
        let (active, end_offset) = opened;
        self.finish(loading, active, end_offset, log_start, state, report)
    }

    /// The segments of the folder, by base offset; one that is still without files if it has none.
    fn segments(
        &self,
        files: &files::FolderFiles,
        log_start_offset: i64,
    ) -> Result<Vec<Arc<Segment>>, OpenError> {
        let mut segments = Vec::with_capacity(files.logs.len().max(1));
        let last = files.logs.last().copied();
        for &base_offset in &files.logs {
            let path = self.folder.segment_file(base_offset, FileKind::Log);
            let size = self.env.disk().file_len(&path)?;
            if i32::try_from(size).is_err() {
                let message = format!(
                    "{} has {size} bytes, more than a segment can",
                    path.display()
                );
                return Err(OpenError::Corrupt(message));
            }
            let closed = Some(base_offset) != last;
            segments.push(Segment::new(
                self.env,
                self.folder,
                base_offset,
                size,
                closed,
            ));
        }
        if segments.is_empty() {
            segments.push(Segment::new(
                self.env,
                self.folder,
                log_start_offset.max(0),
                0,
                false,
            ));
        }
        Ok(segments)
    }

    /// Reads all transaction indexes: they exist only where transactions were aborted. Returns the
    /// first segment whose index cannot be right.
    fn load_transaction_indexes(
        &self,
        files: &files::FolderFiles,
        loading: &mut LoadedState,
        report: &mut OpenReport,
    ) -> Result<Option<i64>, OpenError> {
        for &base_offset in &files.transaction_indexes {
            let path = self
                .folder
                .segment_file(base_offset, FileKind::TransactionIndex);
            let content = disk::read_file(self.env.disk(), &path, i32::MAX as u64)?;
            match TransactionIndex::load(base_offset, &content) {
                Ok(index) if index.is_empty() => {}
                Ok(index) => {
                    loading.aborted.insert(base_offset, index);
                }
                Err(error) => {
                    report
                        .notes
                        .push(format!("rebuilding {}: {error}", path.display()));
                    return Ok(Some(base_offset));
                }
            }
        }
        Ok(None)
    }

    fn open_clean(
        &self,
        loading: &mut LoadedState,
        log_start: i64,
        report: &mut OpenReport,
    ) -> Result<(ActiveSegment, i64), OpenError> {
        let Some((active, end_offset)) = self.load_active(&loading.segments, report)? else {
            // The active segment does not end with a whole batch, so the shutdown was not as clean
            // as the marker says.
            let offset = loading
                .segments
                .last()
                .map_or(0, |segment| segment.base_offset());
            return self.open_unclean(loading, offset, log_start, report);
        };
        let end = end_offset;
        self.load_producers(loading, log_start.min(end)..end, report)?;
        Ok((active, end_offset))
    }

    fn open_unclean(
        &self,
        loading: &mut LoadedState,
        offset: i64,
        log_start: i64,
        report: &mut OpenReport,
    ) -> Result<(ActiveSegment, i64), OpenError> {
        let after = loading
            .segments
            .partition_point(|segment| segment.base_offset() <= offset);
        let first = after.saturating_sub(1);
        let base_offset = loading.segments[first].base_offset();
        // Later snapshots describe batches that may not be there any more.
        for offset in loading.snapshots.split_off(&(base_offset + 1)) {
            let path = self.folder.segment_file(offset, FileKind::Snapshot);
            self.env.disk().remove_file(&path)?;
        }
        self.load_producers(loading, log_start.min(base_offset)..base_offset, report)?;
        loading.epochs_changed |= loading.epochs.truncate_from_end(base_offset);
        let recovered = self.recover(loading, first, report)?;
        let end_offset = recovered.end_offset;
        let active = self.active_from_recovered(loading, recovered);
        Ok((active, end_offset))
    }

    fn load_producers(
        &self,
        loading: &mut LoadedState,
        range: std::ops::Range<i64>,
        report: &mut OpenReport,
    ) -> Result<(), OpenError> {
        let source = producers::Source {
            env: self.env,
            folder: self.folder,
            segments: &loading.segments,
            expiry: self.expiry,
        };
        loading.producers = source.state_at(&mut loading.snapshots, range, &mut report.notes)?;
        Ok(())
    }

    fn finish(
        &self,
        mut loading: LoadedState,
        mut active: ActiveSegment,
        end_offset: i64,
        log_start: i64,
        state: OpenState,
        report: &mut OpenReport,
    ) -> Result<Loaded, OpenError> {
        let mut end_offset = end_offset;
        if log_start > end_offset {
            // What lay between was lost, and what is left was deleted before.
            report.notes.push(format!(
                "starting over at {log_start}: the log ended at {end_offset}"
            ));
            for segment in std::mem::take(&mut loading.segments) {
                self.remove_segment_files(&segment)?;
            }
            self.env.disk().sync_dir(&self.folder.path())?;
            let segment = Segment::new(self.env, self.folder, log_start, 0, false);
            active = ActiveSegment::new(
                segment.clone(),
                self.config,
                self.jitter_seed,
                self.expiry.now_ms,
            );
            loading.segments.push(segment);
            loading.unsynced.clear();
            loading.aborted.clear();
            loading.producers = ProducerStates::new();
            end_offset = log_start;
        }
        loading.epochs_changed |= loading.epochs.truncate_from_end(end_offset);
        loading.epochs_changed |= loading.epochs.truncate_from_start(log_start);
        if loading.epochs_changed {
            self.write_epochs(&loading.epochs)?;
        }
        self.remove_stray_snapshots(&mut loading, end_offset)?;
        loading.producers.on_log_start(log_start);
        let recovery_point = if loading.unsynced.is_empty() {
            end_offset
        } else {
            state.recovery_point.clamp(0, end_offset)
        };
        Ok(Loaded {
            segments: loading.segments,
            active,
            end_offset,
            log_start,
            epochs: loading.epochs,
            producers: loading.producers,
            snapshots: loading.snapshots,
            aborted: loading.aborted,
            unsynced: loading.unsynced,
            recovery_point,
        })
    }

    /// Snapshots that neither start a segment nor are the newest serve nobody; those behind the
    /// end would be wrong one day.
    fn remove_stray_snapshots(&self, loading: &mut LoadedState, end: i64) -> Result<(), OpenError> {
        let bases: BTreeSet<i64> = loading.segments.iter().map(|s| s.base_offset()).collect();
        let newest = loading.snapshots.range(..=end).next_back().copied();
        let is_stray =
            |offset: &i64| *offset > end || (!bases.contains(offset) && Some(*offset) != newest);
        for offset in loading
            .snapshots
            .iter()
            .copied()
            .filter(is_stray)
            .collect::<Vec<_>>()
        {
            let path = self.folder.segment_file(offset, FileKind::Snapshot);
            self.env.disk().remove_file(&path)?;
            loading.snapshots.remove(&offset);
        }
        Ok(())
    }

    fn save_snapshot(&self, loading: &mut LoadedState, offset: i64) -> Result<(), OpenError> {
        let content = crate::snapshot::encode(&loading.producers.snapshot_entries());
        let path = self.folder.segment_file(offset, FileKind::Snapshot);
        disk::replace_file_unsynced(self.env.disk(), &path, &content)?;
        loading.snapshots.insert(offset);
        Ok(())
    }

    /// The `.log` goes first: without it the others are orphans, which the next opening removes.
    fn remove_segment_files(&self, segment: &Arc<Segment>) -> Result<(), OpenError> {
        let kinds = [
            FileKind::Log,
            FileKind::OffsetIndex,
            FileKind::TimeIndex,
            FileKind::TransactionIndex,
        ];
        for kind in kinds {
            disk::missing_is_fine(self.env.disk().remove_file(&segment.path(kind)))?;
        }
        segment.set_removed();
        Ok(())
    }
}

/// Compares or stores the folder's topic id.
fn check_topic_id(request: &OpenRequest<'_>, folder: &Folder) -> Result<(), OpenError> {
    let Some(expected) = request.topic_id.filter(|id| *id != [0; 16]) else {
        return Ok(());
    };
    let disk = request.env.disk();
    let path = folder.file(names::PARTITION_METADATA);
    let stored = match disk::read_file(disk, &path, SMALL_FILE_BYTES_MAX) {
        Ok(content) => PartitionMetadata::parse(&path.to_string_lossy(), &content).ok(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error.into()),
    };
    match stored {
        Some(metadata) if metadata.topic_id == expected => Ok(()),
        Some(metadata) if metadata.topic_id != [0; 16] => Err(OpenError::TopicIdMismatch {
            path: folder.path().display().to_string(),
            found: partition_metadata::encode_uuid(&metadata.topic_id),
            expected: partition_metadata::encode_uuid(&expected),
        }),
        _ => {
            let content = PartitionMetadata {
                version: 0,
                topic_id: expected,
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

/// Distinguishes partitions for the jitter of `segment.ms` (FNV-1a).
fn jitter_seed(topic: &str, partition: i32) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ partition as u64;
    topic.bytes().fold(start, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
