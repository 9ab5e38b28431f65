//! The tail of a log in memory: the writer's pending work.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::cache::LogCache;
use crate::cached_write::{page_to_hold_back, write_cached};
use crate::disk::{self, OpenMode};
use crate::env::LogEnv;
use crate::folder::Folder;
use crate::names::FileKind;
use crate::segment::{ActiveSegment, Segment, SegmentIndexes};
use crate::snapshot::{self, ProducerEntry};

/// Amounts that are not in files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unwritten {
    /// Bytes of batches.
    pub bytes: usize,
    /// Those only on the heap; the block cache holds the others.
    pub heap_bytes: usize,
    /// Waiting producer snapshots, on the heap. With many producers each roll adds a large one,
    /// however small the batch.
    pub snapshot_bytes: usize,
}

/// Appended bytes that no file holds yet, and the writer's other work, in order.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    /// Batches, back to back.
    bytes: Vec<u8>,
    /// Bytes of index files.
    entries: Vec<u8>,
    steps: Vec<Step>,
    /// Bytes of batches here, and of those in the block cache.
    heap_bytes: usize,
    cached_bytes: usize,
    snapshot_bytes: usize,
}

/// Bytes of the `.log` up to `end`; position 0 creates the segment's files.
#[derive(Debug)]
struct Bytes {
    segment: Arc<Segment>,
    position: u32,
    end: u32,
    /// Where they begin in the buffer; `None` if they are in the block cache.
    heap: Option<usize>,
}

impl Bytes {
    fn len(&self) -> usize {
        (self.end - self.position) as usize
    }
}

#[derive(Debug)]
enum Step {
    Bytes(Bytes),
    Entries {
        segment: Arc<Segment>,
        kind: FileKind,
        position: usize,
        range: Range<usize>,
    },
    /// Creates the files of a segment without batches.
    Create(Arc<Segment>),
    /// Completes the files of a closed segment.
    Close(Arc<Segment>),
    /// A whole small file: leader epochs.
    File(String, Vec<u8>),
    /// A producer snapshot, unsorted: with a hundred thousand producers sorting and encoding take
    /// far longer than the copy, and must not happen under the log's lock.
    Snapshot(String, Vec<ProducerEntry>),
    /// A small file that another one has replaced.
    Remove(String),
}

impl Tail {
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    pub fn batch_bytes(&self) -> usize {
        self.heap_bytes + self.cached_bytes
    }

    pub fn unwritten(&self) -> Unwritten {
        Unwritten {
            bytes: self.batch_bytes(),
            heap_bytes: self.heap_bytes,
            snapshot_bytes: self.snapshot_bytes,
        }
    }

    /// Bytes of batches that a kill would lose.
    pub fn heap_bytes(&self) -> usize {
        self.heap_bytes
    }

    /// Whether anything but bytes of the block cache waits.
    pub fn has_other_steps(&self) -> bool {
        let is_cached = |step: &Step| matches!(step, Step::Bytes(bytes) if bytes.heap.is_none());
        !self.steps.iter().all(is_cached)
    }

    /// Adds a batch at `position`, the end of `segment`.
    #[inline]
    pub fn push_batch(&mut self, segment: &Arc<Segment>, position: u32, batch: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(batch);
        self.heap_bytes += batch.len();
        self.push_bytes(
            segment,
            position,
            position + batch.len() as u32,
            Some(start),
        );
    }

    /// Adds bytes in the block cache, from `position` of `segment` to `end`.
    #[inline]
    pub fn push_cached(&mut self, segment: &Arc<Segment>, position: u32, end: u32) {
        self.cached_bytes += (end - position) as usize;
        self.push_bytes(segment, position, end, None);
    }

    #[inline]
    fn push_bytes(&mut self, segment: &Arc<Segment>, position: u32, end: u32, heap: Option<usize>) {
        if let Some(Step::Bytes(last)) = self.steps.last_mut()
            && Arc::ptr_eq(&last.segment, segment)
            && last.heap.is_some() == heap.is_some()
        {
            last.end = end;
            return;
        }
        self.steps.push(Step::Bytes(Bytes {
            segment: segment.clone(),
            position,
            end,
            heap,
        }));
    }

    /// Splits off a partial last page in the block cache that is better written later, as a tail of
    /// its own. Call before anything is queued behind it.
    pub fn hold_back_page(&mut self, direct_min_bytes: u32) -> Option<Tail> {
        let Some(Step::Bytes(last)) = self.steps.last_mut() else {
            return None;
        };
        if last.heap.is_some() {
            return None;
        }
        let page = page_to_hold_back(last.position, last.end, direct_min_bytes)?;
        let mut held = Tail::default();
        held.push_cached(&last.segment, page, last.end);
        last.end = page;
        self.cached_bytes -= held.cached_bytes;
        Some(held)
    }

    /// Moves batches to the block cache, in order; true if none are left here.
    pub fn move_to_cache(&mut self, cache: &mut LogCache) -> bool {
        let Tail {
            bytes,
            steps,
            heap_bytes,
            cached_bytes,
            ..
        } = self;
        for step in steps.iter_mut() {
            let Step::Bytes(step) = step else { continue };
            let Some(start) = step.heap else { continue };
            let len = step.len();
            if !cache.append(&step.segment, step.position, &bytes[start..start + len]) {
                return false;
            }
            step.segment.set_size(u64::from(step.end));
            *heap_bytes -= len;
            *cached_bytes += len;
            step.heap = None;
        }
        bytes.clear();
        true
    }

    /// Adds index entries of the active segment that were not queued yet.
    pub fn push_index_entries(&mut self, active: &mut ActiveSegment) {
        let ActiveSegment {
            segment, indexes, ..
        } = active;
        let SegmentIndexes { offsets, times, .. } = indexes;
        self.push_entries(segment, FileKind::TimeIndex, times.taken, times.untaken());
        self.push_entries(
            segment,
            FileKind::OffsetIndex,
            offsets.taken,
            offsets.untaken(),
        );
        indexes.set_taken();
    }

    /// Adds bytes at `position` of an index file.
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

    /// Adds what remains of a closed segment.
    pub fn push_close(&mut self, closed: ActiveSegment) {
        if closed.size == 0 {
            self.push_create(&closed.segment);
        }
        self.steps.push(Step::Close(closed.close()));
    }

    pub fn push_create(&mut self, segment: &Arc<Segment>) {
        self.steps.push(Step::Create(segment.clone()));
    }

    pub fn push_file(&mut self, name: String, content: Vec<u8>) {
        self.steps.push(Step::File(name, content));
    }

    pub fn push_snapshot(&mut self, name: String, entries: Vec<ProducerEntry>) {
        self.snapshot_bytes += entries.capacity() * size_of::<ProducerEntry>();
        self.steps.push(Step::Snapshot(name, entries));
    }

    pub fn push_removal(&mut self, name: String) {
        self.steps.push(Step::Remove(name));
    }

    /// Executes the steps from `*done` on and counts them there.
    pub fn execute(&self, env: &LogEnv, folder: &Folder, done: &mut usize) -> io::Result<()> {
        for step in &self.steps[*done..] {
            self.execute_step(step, env, folder)?;
            *done += 1;
        }
        Ok(())
    }

    fn execute_step(&self, step: &Step, env: &LogEnv, folder: &Folder) -> io::Result<()> {
        match step {
            Step::Bytes(step) => {
                let segment = &step.segment;
                if step.position == 0 {
                    create_files(segment, env)?;
                }
                let Some(start) = step.heap else {
                    return write_cached(segment, env, step.position, step.end);
                };
                let bytes = &self.bytes[start..start + step.len()];
                let file = segment.log_file_for_writing()?;
                file.write_all_at(bytes, u64::from(step.position))?;
                segment.set_written(u64::from(step.end));
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
            Step::Create(segment) => create_files(segment, env)?,
            Step::Close(segment) => segment.finish_indexes()?,
            Step::File(name, content) => {
                disk::replace_file_unsynced(env.disk(), &folder.file(name), content)?;
            }
            Step::Snapshot(name, entries) => {
                let content = snapshot::encode_sorted(entries.clone());
                disk::replace_file_unsynced(env.disk(), &folder.file(name), &content)?;
            }
            Step::Remove(name) => {
                disk::missing_is_fine(env.disk().remove_file(&folder.file(name)))?;
            }
        }
        Ok(())
    }

    /// Names of the small files that the steps write.
    pub fn file_names(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().filter_map(|step| match step {
            Step::File(name, _) | Step::Snapshot(name, _) => Some(name.as_str()),
            _ => None,
        })
    }

    pub fn closes_segment(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Close(_)))
    }
}

/// Creates all of a segment's files with its first write, as Kafka's tools expect, and empties
/// leftovers of these names.
fn create_files(segment: &Arc<Segment>, env: &LogEnv) -> io::Result<()> {
    for kind in [FileKind::OffsetIndex, FileKind::TimeIndex] {
        env.disk().open(&segment.path(kind), OpenMode::Truncate)?;
    }
    segment.log_file_for_writing()?.set_len(0)
}
