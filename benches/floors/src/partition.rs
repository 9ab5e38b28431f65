//! A partition: the chunk that is being filled, the sealed ones in memory, and its file.

use crate::chunks::{CHUNK_BYTES, Chunks};
use parking_lot::Mutex;
use pyrklog_wire::batch::{BatchHeader, Batches, set_base_offset};
use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub struct Partition {
    file: File,
    /// The same, to be read around the page cache.
    old_file: File,
    reads_files: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What is being filled; it begins at `chunk_offset` and in the file at `chunk_position`.
    chunk: Vec<u8>,
    chunk_offset: i64,
    chunk_position: u64,
    next_offset: i64,
    /// Whether nothing was appended since the writer last looked.
    at_rest: bool,
    /// What can be fetched, oldest first.
    sealed: VecDeque<Sealed>,
    /// Where all that was ever sealed lies, oldest first.
    places: Vec<Place>,
}

/// Where a sealed chunk lies.
#[derive(Clone, Debug)]
pub struct Place {
    /// What it holds.
    pub offsets: Range<i64>,
    /// Where it begins in its file.
    pub position: u64,
    /// Its length, bytes.
    pub len: usize,
}

/// Bytes of a partition and their place in its file.
#[derive(Debug)]
pub struct Job {
    /// Whose file.
    pub partition: Arc<Partition>,
    /// Where in it.
    pub position: u64,
    /// What to write.
    pub bytes: Arc<Vec<u8>>,
}

#[derive(Clone, Debug)]
struct Sealed {
    offsets: Range<i64>,
    bytes: Arc<Vec<u8>>,
}

/// What a fetch finds.
#[derive(Debug)]
pub struct Found {
    /// Whole batches: a range of these bytes.
    pub bytes: Arc<Vec<u8>>,
    /// Which of them.
    pub range: Range<usize>,
}

impl Partition {
    /// An empty one. `old_file` is the same file, to be read around the page cache; where sealed
    /// chunks lie in it is kept if `reads_files`.
    pub fn new(file: File, old_file: File, reads_files: bool) -> Self {
        Self {
            file,
            old_file,
            reads_files,
            state: Mutex::default(),
        }
    }

    /// Its file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The same file, to be read around the page cache.
    pub fn old_file(&self) -> &File {
        &self.old_file
    }

    /// The first offset that can be fetched, and the end of those.
    pub fn offsets(&self) -> Range<i64> {
        let state = self.state.lock();
        let in_memory = state.sealed.front().map(|sealed| &sealed.offsets);
        let in_file = state.places.first().map(|place| &place.offsets);
        let first = in_file.or(in_memory).map(|offsets| offsets.start);
        first.unwrap_or(state.chunk_offset)..state.chunk_offset
    }

    /// Where the piece with `offset` lies, if it is not in memory any more, and the one behind it.
    pub fn places(&self, offset: i64) -> [Option<Place>; 2] {
        let state = self.state.lock();
        let in_memory = state.sealed.front().map(|sealed| sealed.offsets.start);
        let end = in_memory.unwrap_or(state.chunk_offset);
        let place = state
            .places
            .partition_point(|place| place.offsets.end <= offset);
        [place, place + 1].map(|place| {
            let place = state.places.get(place);
            place.filter(|place| place.offsets.start < end).cloned()
        })
    }

    /// Copies a batch with this header into the chunk. Returns its base offset, and a job where a
    /// chunk before it became full.
    pub fn append(
        self: &Arc<Self>,
        header: &BatchHeader,
        batch: &[u8],
        chunks: &Chunks,
    ) -> (i64, Option<Job>) {
        let mut state = self.state.lock();
        let mut full = None;
        if state.chunk.len() + batch.len() > CHUNK_BYTES {
            full = state.seal(self);
        }
        if state.chunk.capacity() == 0 {
            state.chunk = chunks.take();
        }
        let start = state.chunk.len();
        state.chunk.extend_from_slice(batch);
        let base_offset = state.next_offset;
        set_base_offset(&mut state.chunk[start..], base_offset);
        state.next_offset += i64::from(header.record_count.max(1));
        state.at_rest = false;
        (base_offset, full)
    }

    /// Drops the oldest sealed chunk from memory; its bytes.
    pub fn forget_oldest(&self) -> Option<Arc<Vec<u8>>> {
        let sealed = self.state.lock().sealed.pop_front();
        sealed.map(|sealed| sealed.bytes)
    }

    /// The offset of the next record.
    pub fn next_offset(&self) -> i64 {
        self.state.lock().next_offset
    }

    /// For the writer: seals a chunk to which nothing was appended since it last asked.
    pub fn seal_at_rest(self: &Arc<Self>) -> Option<Job> {
        let mut state = self.state.lock();
        let rested = std::mem::replace(&mut state.at_rest, true);
        rested.then(|| state.seal(self)).flatten()
    }

    /// Whole batches from the one that holds `offset` on, at most `bytes_max` but one at least;
    /// `None` where there is nothing (yet, or any more).
    pub fn find(&self, offset: i64, bytes_max: usize) -> Option<Found> {
        let sealed = {
            let state = self.state.lock();
            let place = state
                .sealed
                .partition_point(|sealed| sealed.offsets.end <= offset);
            state.sealed.get(place)?.clone()
        };
        if offset < sealed.offsets.start {
            return None;
        }
        if offset == sealed.offsets.start && sealed.bytes.len() <= bytes_max {
            let range = 0..sealed.bytes.len();
            return Some(Found {
                bytes: sealed.bytes,
                range,
            });
        }
        let range = range_of(&sealed.bytes, offset, bytes_max)?;
        Some(Found {
            bytes: sealed.bytes,
            range,
        })
    }
}

/// Whole batches from the one that holds `offset` on, at most `bytes_max` but one at least.
pub fn range_of(bytes: &[u8], offset: i64, bytes_max: usize) -> Option<Range<usize>> {
    let mut range: Option<Range<usize>> = None;
    for view in Batches::new(bytes).flatten() {
        let end = view.position + view.bytes.len();
        match &mut range {
            Some(range) if end - range.start > bytes_max => break,
            Some(range) => range.end = end,
            None if view.header.next_offset() > offset => range = Some(view.position..end),
            None => {}
        }
    }
    range
}

impl State {
    /// Ends the chunk; the job writes it.
    fn seal(&mut self, partition: &Arc<Partition>) -> Option<Job> {
        if self.chunk.is_empty() {
            return None;
        }
        let bytes = Arc::new(std::mem::take(&mut self.chunk));
        let position = self.chunk_position;
        if partition.reads_files {
            self.places.push(Place {
                offsets: self.chunk_offset..self.next_offset,
                position,
                len: bytes.len(),
            });
        }
        self.sealed.push_back(Sealed {
            offsets: self.chunk_offset..self.next_offset,
            bytes: Arc::clone(&bytes),
        });
        self.chunk_offset = self.next_offset;
        self.chunk_position += bytes.len() as u64;
        Some(Job {
            partition: Arc::clone(partition),
            position,
            bytes,
        })
    }
}
