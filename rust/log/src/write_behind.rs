//! The tail in memory, and the writer's job of bringing it to the files.
//!
//! An append copies its batch to the [`Tail`]; the directory's writer takes the whole tail as a
//! [`WriteJob`], executes it without the log's lock, and gives it back. At most one job of a log is
//! on its way, so steps reach the files in the order in which they were queued.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::cache::LogCache;
use crate::cached_write::{page_to_hold_back, write_cached};
use crate::disk::{self, OpenMode};
use crate::env::LogEnv;
use crate::folder::Folder;
use crate::log::Unwritten;
use crate::names::{self, FileKind};
use crate::position::LogPosition;
use crate::segment::{ActiveSegment, Segment, SegmentIndexes};
use crate::snapshot::{self, ProducerEntry};

/// Index entries are handed to the writer when there are this many bytes of them, and always when
/// a segment is closed. Recovery rebuilds the indexes of whatever was not synced, so an index file
/// may lag behind its `.log`.
pub(crate) const INDEX_BATCH_BYTES: usize = 2048;
/// They are also handed to the writer where the last one in the file is so far behind: after a kill
/// all batches behind it are looked for.
pub(crate) const INDEX_BEHIND_BYTES: u32 = 256 << 10;

/// Appended bytes that no file holds yet, and what else the writer has to do, in order. Emptied and
/// reused, so that appending allocates nothing in the long run.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    /// Batches, back to back.
    bytes: Vec<u8>,
    /// Bytes of index files.
    entries: Vec<u8>,
    steps: Vec<Step>,
    /// Bytes of batches that lie here, and those that lie in the block cache instead.
    heap_bytes: usize,
    cached_bytes: usize,
    /// What producer snapshots take, on the heap.
    snapshot_bytes: usize,
}

#[derive(Debug)]
enum Step {
    /// Bytes of the `.log`; at position 0 the segment's files are created.
    Batches {
        segment: Arc<Segment>,
        position: u32,
        range: Range<usize>,
    },
    /// Bytes of the `.log` that lie in the block cache, up to a position; likewise.
    Cached {
        segment: Arc<Segment>,
        position: u32,
        end: u32,
    },
    /// Bytes of an index file.
    Entries {
        segment: Arc<Segment>,
        kind: FileKind,
        position: usize,
        range: Range<usize>,
    },
    /// Creates the files of a segment that has no batch yet.
    Create { segment: Arc<Segment> },
    /// Completes the files of a segment that takes no more batches.
    Close { segment: Arc<Segment> },
    /// A whole small file of the folder: leader epochs.
    File { name: String, content: Vec<u8> },
    /// A producer snapshot, in no order as yet: of a hundred thousand producers sorting and encoding
    /// take far longer than the copy, and nobody should wait for that at the log's lock.
    Snapshot {
        name: String,
        entries: Vec<ProducerEntry>,
    },
    /// A small file of the folder that another one stands for by now.
    Remove { name: String },
}

impl Tail {
    /// Nothing to do.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Bytes of batches.
    pub fn batch_bytes(&self) -> usize {
        self.heap_bytes + self.cached_bytes
    }

    /// What of it is not in files.
    pub fn unwritten(&self) -> Unwritten {
        Unwritten {
            bytes: self.batch_bytes(),
            heap_bytes: self.heap_bytes,
            snapshot_bytes: self.snapshot_bytes,
        }
    }

    /// Bytes of batches that are nowhere else: a kill would lose them.
    pub fn heap_bytes(&self) -> usize {
        self.heap_bytes
    }

    /// Whether anything but bytes of the block cache waits.
    pub fn has_other_steps(&self) -> bool {
        self.steps
            .iter()
            .any(|step| !matches!(step, Step::Cached { .. }))
    }

    /// Memory held.
    pub fn capacity_bytes(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity()
    }

    /// Forgets the content and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.steps.clear();
        self.heap_bytes = 0;
        self.cached_bytes = 0;
        self.snapshot_bytes = 0;
    }

    /// A batch at the end of `segment`, at `position`.
    #[inline]
    pub fn push_batch(&mut self, segment: &Arc<Segment>, position: u32, batch: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(batch);
        self.heap_bytes += batch.len();
        let end = self.bytes.len();
        if let Some(Step::Batches {
            segment: last,
            range,
            ..
        }) = self.steps.last_mut()
            && Arc::ptr_eq(last, segment)
        {
            range.end = end;
            return;
        }
        let segment = segment.clone();
        self.steps.push(Step::Batches {
            segment,
            position,
            range: start..end,
        });
    }

    /// Bytes that the block cache holds, from `position` of `segment` to `end`.
    #[inline]
    pub fn push_cached(&mut self, segment: &Arc<Segment>, position: u32, end: u32) {
        self.cached_bytes += (end - position) as usize;
        if let Some(Step::Cached {
            segment: last,
            end: last_end,
            ..
        }) = self.steps.last_mut()
            && Arc::ptr_eq(last, segment)
        {
            *last_end = end;
            return;
        }
        let segment = segment.clone();
        self.steps.push(Step::Cached {
            segment,
            position,
            end,
        });
    }

    /// Takes the last page of what lies in the block cache away if it is better written later, and
    /// gives it as a tail of its own. Before anything that stands behind it is queued.
    pub fn hold_back_page(&mut self, direct_min_bytes: u32) -> Option<Tail> {
        let Some(Step::Cached {
            segment,
            position,
            end,
        }) = self.steps.last_mut()
        else {
            return None;
        };
        let page = page_to_hold_back(*position, *end, direct_min_bytes)?;
        let mut held = Tail::default();
        held.push_cached(segment, page, *end);
        *end = page;
        self.cached_bytes -= held.cached_bytes;
        Some(held)
    }

    /// Moves batches from here to the block cache, in order; true when none are left here.
    pub fn move_to_cache(&mut self, cache: &mut LogCache) -> bool {
        let Tail {
            bytes,
            steps,
            heap_bytes,
            cached_bytes,
            ..
        } = self;
        for step in steps.iter_mut() {
            let Step::Batches {
                segment,
                position,
                range,
            } = step
            else {
                continue;
            };
            if !cache.append(segment, *position, &bytes[range.clone()]) {
                return false;
            }
            let end = *position + range.len() as u32;
            segment.set_size(u64::from(end));
            *heap_bytes -= range.len();
            *cached_bytes += range.len();
            *step = Step::Cached {
                segment: segment.clone(),
                position: *position,
                end,
            };
        }
        bytes.clear();
        true
    }

    /// The index entries of the active segment that were not queued yet.
    pub fn push_index_entries(&mut self, active: &mut ActiveSegment) {
        let SegmentIndexes { offsets, times, .. } = &active.indexes;
        // Times first: whoever completes both after a kill begins where the offsets end.
        let times = &times.as_bytes()[active.times_taken..];
        self.push_entries(
            &active.segment,
            FileKind::TimeIndex,
            active.times_taken,
            times,
        );
        let offsets = &offsets.as_bytes()[active.offsets_taken..];
        self.push_entries(
            &active.segment,
            FileKind::OffsetIndex,
            active.offsets_taken,
            offsets,
        );
        active.offsets_taken = active.indexes.offsets.size_bytes();
        active.times_taken = active.indexes.times.size_bytes();
    }

    /// Bytes at `position` of an index file.
    pub fn push_entries(
        &mut self,
        segment: &Arc<Segment>,
        kind: FileKind,
        position: usize,
        entries: &[u8],
    ) {
        if entries.is_empty() {
            return;
        }
        let start = self.entries.len();
        self.entries.extend_from_slice(entries);
        let range = start..self.entries.len();
        self.steps.push(Step::Entries {
            segment: segment.clone(),
            kind,
            position,
            range,
        });
    }

    /// The rest of a segment that takes no more batches.
    pub fn push_close(&mut self, closed: ActiveSegment) {
        if closed.size == 0 {
            self.push_create(&closed.segment);
        }
        let segment = closed.segment.clone();
        segment.begin_close(closed);
        self.steps.push(Step::Close { segment });
    }

    /// The files of a segment that is empty as yet.
    pub fn push_create(&mut self, segment: &Arc<Segment>) {
        self.steps.push(Step::Create {
            segment: segment.clone(),
        });
    }

    /// A whole small file.
    pub fn push_file(&mut self, name: String, content: Vec<u8>) {
        self.steps.push(Step::File { name, content });
    }

    /// A producer snapshot.
    pub fn push_snapshot(&mut self, name: String, entries: Vec<ProducerEntry>) {
        self.snapshot_bytes += entries.capacity() * size_of::<ProducerEntry>();
        self.steps.push(Step::Snapshot { name, entries });
    }

    /// A small file that is not needed any more.
    pub fn push_removal(&mut self, name: String) {
        self.steps.push(Step::Remove { name });
    }

    /// The steps from `*done` on, counting there those that are done.
    fn execute(&self, env: &LogEnv, folder: &Folder, done: &mut usize) -> io::Result<()> {
        for step in &self.steps[*done..] {
            self.execute_step(step, env, folder)?;
            *done += 1;
        }
        Ok(())
    }

    fn execute_step(&self, step: &Step, env: &LogEnv, folder: &Folder) -> io::Result<()> {
        match step {
            Step::Batches {
                segment,
                position,
                range,
            } => {
                if *position == 0 {
                    create_files(segment, env)?;
                }
                let file = segment.log_file_for_writing()?;
                file.write_all_at(&self.bytes[range.clone()], u64::from(*position))?;
                segment.set_written(u64::from(*position) + range.len() as u64);
            }
            Step::Cached {
                segment,
                position,
                end,
            } => {
                if *position == 0 {
                    create_files(segment, env)?;
                }
                write_cached(segment, env, *position, *end)?;
            }
            Step::Entries {
                segment,
                kind,
                position,
                range,
            } => {
                let file = env.disk().open(&segment.path(*kind), OpenMode::Create)?;
                file.write_all_at(&self.entries[range.clone()], *position as u64)?;
            }
            Step::Create { segment } => create_files(segment, env)?,
            Step::Close { segment } => segment.finish_indexes()?,
            Step::File { name, content } => {
                disk::replace_file_unsynced(env.disk(), &folder.file(name), content)?;
            }
            Step::Snapshot { name, entries } => {
                let content = snapshot::encode_sorted(entries.clone());
                disk::replace_file_unsynced(env.disk(), &folder.file(name), &content)?;
            }
            Step::Remove { name } => {
                disk::missing_is_fine(env.disk().remove_file(&folder.file(name)))?;
            }
        }
        Ok(())
    }

    /// Names of the small files that the steps write.
    pub fn file_names(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().filter_map(|step| match step {
            Step::File { name, .. } | Step::Snapshot { name, .. } => Some(name.as_str()),
            _ => None,
        })
    }

    fn closes_segment(&self) -> bool {
        self.steps
            .iter()
            .any(|step| matches!(step, Step::Close { .. }))
    }
}

/// All of a segment's files exist from its first write on, as Kafka's tools expect. Whatever an
/// earlier life of the folder left under these names is emptied.
fn create_files(segment: &Arc<Segment>, env: &LogEnv) -> io::Result<()> {
    for kind in [FileKind::OffsetIndex, FileKind::TimeIndex] {
        env.disk().open(&segment.path(kind), OpenMode::Truncate)?;
    }
    segment.log_file_for_writing()?.set_len(0)
}

/// What the writer does for one log in one turn. See [`crate::Log::take_writes`].
#[derive(Debug)]
pub struct WriteJob {
    env: Arc<LogEnv>,
    folder: Arc<Folder>,
    pub(crate) tail: Tail,
    /// Steps of the tail that are done.
    done: usize,
    /// The log end offset once the job is done.
    pub(crate) end: LogPosition,
    /// The gate opens only after a sync (`flush.messages`).
    pub(crate) sync: Option<SyncJob>,
}

impl WriteJob {
    pub(crate) fn new(
        env: &Arc<LogEnv>,
        folder: &Arc<Folder>,
        tail: Tail,
        end: LogPosition,
        sync: Option<SyncJob>,
    ) -> Self {
        Self {
            env: env.clone(),
            folder: folder.clone(),
            tail,
            done: 0,
            end,
            sync,
        }
    }

    /// Bytes of batches that the job writes.
    pub fn size_bytes(&self) -> usize {
        self.tail.batch_bytes()
    }

    /// Writes; must not be called with the log's lock held.
    ///
    /// # Errors
    /// The disk's. The state of the files is then unknown: hand the error to
    /// [`crate::Log::complete_writes`] and poison the directory; never try again. But where it is
    /// only that there is no space left ([`disk::is_full`]), the job may be kept and executed again:
    /// it goes on with the step that failed, which writes the same bytes at the same place.
    pub fn execute(&mut self) -> io::Result<()> {
        self.tail.execute(&self.env, &self.folder, &mut self.done)?;
        match &mut self.sync {
            Some(sync) => sync.execute(),
            None => Ok(()),
        }
    }

    pub(crate) fn closes_segment(&self) -> bool {
        self.tail.closes_segment()
    }
}

/// What [`crate::Log::complete_writes`] has to tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completed {
    /// The gate moved: look at the high watermark and at waiting acknowledgements.
    pub gate_moved: bool,
    /// Bytes of batches that are now in files.
    pub written_bytes: usize,
    /// With the gate, at most so many became readable.
    pub readable_bytes: usize,
    /// There is more to write: queue the log at its writer again.
    pub more: bool,
    /// A segment was completed: the syncer should call [`crate::Log::take_sync`].
    pub rolled: bool,
}

/// Makes written data durable. See [`crate::Log::take_sync`].
#[derive(Debug)]
pub struct SyncJob {
    env: Arc<LogEnv>,
    folder: Arc<Folder>,
    /// Segments with unsynced data, in order.
    segments: Vec<Arc<Segment>>,
    /// Those among them that were closed before they were synced, so that all of them is durable.
    closed: Vec<Arc<Segment>>,
    /// Small files that were replaced since the last sync.
    pub(crate) files: Vec<String>,
    /// Everything below is durable once the job is done.
    pub(crate) end: i64,
    new_folder: bool,
}

impl SyncJob {
    pub(crate) fn new(
        env: &Arc<LogEnv>,
        folder: &Arc<Folder>,
        segments: Vec<Arc<Segment>>,
        files: Vec<String>,
        end: i64,
        new_folder: bool,
    ) -> Self {
        Self {
            env: env.clone(),
            folder: folder.clone(),
            segments,
            closed: Vec::new(),
            files,
            end,
            new_folder,
        }
    }

    /// Syncs: each segment's `.log`, the indexes of closed ones, the small files, then the folder.
    /// Must not be called with the log's lock held.
    ///
    /// # Errors
    /// The disk's; hand them to [`crate::Log::complete_sync`], which says what they mean.
    pub fn execute(&mut self) -> io::Result<()> {
        for segment in &self.segments {
            // Asked before: whatever is written from here on is not synced.
            let is_closed = segment.is_closed();
            if segment.is_removed() || (segment.written() == 0 && !is_closed) {
                continue;
            }
            segment.log_file_for_writing()?.sync_data()?;
            if is_closed {
                self.closed.push(Arc::clone(segment));
                self.sync_file(&segment.path(FileKind::OffsetIndex))?;
                self.sync_file(&segment.path(FileKind::TimeIndex))?;
            }
            self.sync_file(&segment.path(FileKind::TransactionIndex))?;
        }
        for name in &self.files {
            self.sync_file(&self.folder.file(name))?;
        }
        let path = self.folder.path();
        self.env.disk().sync_dir(&path)?;
        match path.parent() {
            Some(log_dir) if self.new_folder => self.env.disk().sync_dir(log_dir),
            _ => Ok(()),
        }
    }

    /// What has to be synced besides segments: small files, and whether the folder's own entry.
    pub(crate) fn into_rest(self) -> (Vec<String>, bool) {
        (self.files, self.new_folder)
    }

    /// Whether all of a segment's files were made durable.
    pub(crate) fn has_closed(&self, segment: &Arc<Segment>) -> bool {
        self.closed
            .iter()
            .any(|closed| Arc::ptr_eq(closed, segment))
    }

    /// A file that is gone (retention was faster) needs no sync.
    fn sync_file(&self, path: &std::path::Path) -> io::Result<()> {
        match self.env.disk().open(path, OpenMode::Write) {
            Ok(file) => file.sync_data(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The name of the producer snapshot at `offset`.
pub(crate) fn snapshot_name(offset: i64) -> String {
    names::file_name(offset, FileKind::Snapshot)
}
