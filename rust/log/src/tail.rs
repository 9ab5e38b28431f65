//! The tail of a log in memory: the writer's pending work.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::cache::LogCache;
use crate::cached_write::{page_to_hold_back, write_cached};
use crate::disk::{self, OpenMode};
use crate::env::{LogEnv, TailBuffers};
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

/// Appended bytes that no file holds yet, and the writer's other work, in order. Buffers are
/// reused.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    buffers: TailBuffers,
    steps: Vec<Step>,
    /// Bytes of batches here, and of those in the block cache.
    heap_bytes: usize,
    cached_bytes: usize,
    snapshot_bytes: usize,
}

#[derive(Debug)]
enum Step {
    /// Bytes of the `.log`; position 0 creates the segment's files.
    Batches {
        segment: Arc<Segment>,
        position: u32,
        range: Range<usize>,
    },
    /// The same for bytes in the block cache, up to `end`.
    Cached {
        segment: Arc<Segment>,
        position: u32,
        end: u32,
    },
    Entries {
        segment: Arc<Segment>,
        kind: FileKind,
        position: usize,
        range: Range<usize>,
    },
    /// Creates the files of a segment without batches.
    Create { segment: Arc<Segment> },
    /// Completes the files of a closed segment.
    Close { segment: Arc<Segment> },
    /// A whole small file: leader epochs.
    File { name: String, content: Vec<u8> },
    /// A producer snapshot, unsorted: with a hundred thousand producers sorting and encoding take
    /// far longer than the copy, and must not happen under the log's lock.
    Snapshot {
        name: String,
        entries: Vec<ProducerEntry>,
    },
    /// A small file that another one has replaced.
    Remove { name: String },
}

impl Tail {
    pub fn new(buffers: TailBuffers) -> Tail {
        Tail {
            buffers,
            ..Tail::default()
        }
    }

    pub fn into_buffers(self) -> TailBuffers {
        self.buffers
    }

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
        self.steps
            .iter()
            .any(|step| !matches!(step, Step::Cached { .. }))
    }

    pub fn capacity_bytes(&self) -> usize {
        self.buffers.capacity_bytes()
    }

    /// Adds a batch at `position`, the end of `segment`.
    #[inline]
    pub fn push_batch(&mut self, segment: &Arc<Segment>, position: u32, batch: &[u8]) {
        let start = self.buffers.bytes.len();
        self.buffers.bytes.extend_from_slice(batch);
        self.heap_bytes += batch.len();
        let end = self.buffers.bytes.len();
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

    /// Adds bytes in the block cache, from `position` of `segment` to `end`.
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

    /// Splits off a partial last page in the block cache that is better written later, as a tail of
    /// its own. Call before anything is queued behind it.
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

    /// Moves batches to the block cache, in order; true if none are left here.
    pub fn move_to_cache(&mut self, cache: &mut LogCache) -> bool {
        let Tail {
            buffers: TailBuffers { bytes, .. },
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

    /// Adds index entries of the active segment that were not queued yet.
    pub fn push_index_entries(&mut self, active: &mut ActiveSegment) {
        let SegmentIndexes { offsets, times, .. } = &active.indexes;
        // Times first: completing both after a kill begins where the offsets end.
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
        let start = self.buffers.entries.len();
        self.buffers.entries.extend_from_slice(entries);
        let range = start..self.buffers.entries.len();
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
        let segment = closed.close();
        self.steps.push(Step::Close { segment });
    }

    pub fn push_create(&mut self, segment: &Arc<Segment>) {
        self.steps.push(Step::Create {
            segment: segment.clone(),
        });
    }

    pub fn push_file(&mut self, name: String, content: Vec<u8>) {
        self.steps.push(Step::File { name, content });
    }

    pub fn push_snapshot(&mut self, name: String, entries: Vec<ProducerEntry>) {
        self.snapshot_bytes += entries.capacity() * size_of::<ProducerEntry>();
        self.steps.push(Step::Snapshot { name, entries });
    }

    pub fn push_removal(&mut self, name: String) {
        self.steps.push(Step::Remove { name });
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
            Step::Batches {
                segment,
                position,
                range,
            } => {
                if *position == 0 {
                    create_files(segment, env)?;
                }
                let file = segment.log_file_for_writing()?;
                file.write_all_at(&self.buffers.bytes[range.clone()], u64::from(*position))?;
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
                file.write_all_at(&self.buffers.entries[range.clone()], *position as u64)?;
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

    pub fn closes_segment(&self) -> bool {
        self.steps
            .iter()
            .any(|step| matches!(step, Step::Close { .. }))
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
