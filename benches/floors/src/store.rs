//! Topics and partitions: batches in memory, the oldest of them forgotten, all of them in a file.

use crate::chunks::{CHUNK_BYTES, Chunks};
use crate::files::{self, Place};
use crate::relay::Relay;
use crate::writer::{self, Caching, Job};
use parking_lot::Mutex;
use pyrklog_wire::batch::{BatchHeader, Batches, set_base_offset, verify_crc};
use std::collections::{HashMap, VecDeque};
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, OnceLock};

/// How much of everything.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Partitions of each topic.
    pub partitions: usize,
    /// Memory kept for fetches.
    pub memory_bytes: usize,
    /// Bytes that may wait for their file.
    pub unwritten_bytes: usize,
    /// Whether what is no longer in memory is read from its file; else it is forgotten.
    pub reads_files: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            partitions: 6,
            memory_bytes: 700_000_000,
            // Writing to ext4 pauses for tens of milliseconds now and then: enough to go on meanwhile.
            unwritten_bytes: 375_000_000,
            reads_files: false,
        }
    }
}

/// A topic.
#[derive(Debug)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// Its id: a number that no other topic has.
    pub id: [u8; 16],
    /// Its partitions, by index.
    pub partitions: Vec<Arc<Partition>>,
    /// Once a consumer has asked where the end is: what comes goes to it at once.
    pub relay: OnceLock<Relay>,
}

/// A partition.
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

#[derive(Clone, Debug)]
struct Sealed {
    offsets: Range<i64>,
    bytes: Arc<Vec<u8>>,
}

/// Everything.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    partitions_each: usize,
    reads_files: bool,
    topics: Mutex<HashMap<String, Arc<Topic>>>,
    memory: Arc<Memory>,
    to_write: SyncSender<Job>,
}

/// What the writer must know, too.
#[derive(Debug)]
pub struct Memory {
    chunks: Chunks,
    chunks_max: usize,
    partitions: Mutex<Vec<Arc<Partition>>>,
    /// One entry a sealed chunk, oldest first: whose it is.
    kept: Mutex<VecDeque<Arc<Partition>>>,
}

/// What a fetch finds.
#[derive(Debug)]
pub struct Found {
    /// Whole batches: a range of these bytes.
    pub bytes: Arc<Vec<u8>>,
    /// Which of them.
    pub range: Range<usize>,
}

impl Store {
    /// An empty store whose files lie in `folder`, which is made if it is missing.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn open(folder: &Path, limits: Limits, caching: Caching) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let memory = Arc::new(Memory {
            chunks: Chunks::default(),
            chunks_max: (limits.memory_bytes / CHUNK_BYTES).max(1),
            partitions: Mutex::default(),
            kept: Mutex::default(),
        });
        let to_write = writer::start(limits.unwritten_bytes, caching, Arc::clone(&memory));
        Ok(Self {
            folder: folder.into(),
            partitions_each: limits.partitions,
            reads_files: limits.reads_files,
            topics: Mutex::default(),
            memory,
            to_write,
        })
    }

    /// The topic of this name, made if there is none.
    ///
    /// # Errors
    /// A file cannot be made; a name that is none for a folder.
    pub fn topic(&self, name: &str) -> io::Result<Arc<Topic>> {
        let mut topics = self.topics.lock();
        if let Some(topic) = topics.get(name) {
            return Ok(Arc::clone(topic));
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
            return Err(io::Error::other(format!("no name for a topic: {name:?}")));
        }
        let mut partitions = Vec::new();
        for index in 0..self.partitions_each {
            let folder = self.folder.join(format!("{name}-{index}"));
            fs::create_dir_all(&folder)?;
            let path = folder.join("00000000000000000000.log");
            partitions.push(Arc::new(Partition {
                file: File::create(&path)?,
                old_file: files::open(&path)?,
                reads_files: self.reads_files,
                state: Mutex::default(),
            }));
        }
        self.memory
            .partitions
            .lock()
            .extend(partitions.iter().cloned());
        let mut id = [0; 16];
        id[8..].copy_from_slice(&(topics.len() as u64 + 1).to_be_bytes());
        let name = name.to_owned();
        let topic = Arc::new(Topic {
            name: name.clone(),
            id,
            partitions,
            relay: OnceLock::new(),
        });
        topics.insert(name, Arc::clone(&topic));
        Ok(topic)
    }

    /// The topic with this id.
    pub fn topic_by_id(&self, id: &[u8; 16]) -> Option<Arc<Topic>> {
        self.topics
            .lock()
            .values()
            .find(|topic| topic.id == *id)
            .cloned()
    }

    /// Checks the one batch in `batch`, copies it and returns its base offset; `None` for what is no
    /// batch, or one with a wrong CRC. Blocks while too much waits for its file.
    pub fn append(&self, partition: &Arc<Partition>, batch: &[u8]) -> Option<i64> {
        let header = BatchHeader::parse(batch).ok()?;
        if header.total_len() != batch.len() || batch.len() > CHUNK_BYTES {
            return None;
        }
        verify_crc(batch).ok()?;
        let mut full = None;
        let base_offset;
        {
            let mut state = partition.state.lock();
            if state.chunk.len() + batch.len() > CHUNK_BYTES {
                full = state.seal(partition);
            }
            if state.chunk.capacity() == 0 {
                state.chunk = self.memory.chunks.take();
            }
            let start = state.chunk.len();
            state.chunk.extend_from_slice(batch);
            base_offset = state.next_offset;
            set_base_offset(&mut state.chunk[start..], base_offset);
            state.next_offset += i64::from(header.record_count.max(1));
            state.at_rest = false;
        }
        if let Some(job) = full {
            self.memory.keep(partition);
            // An error means that the writer is gone, and the process with it.
            let _ = self.to_write.send(job);
        }
        Some(base_offset)
    }
}

impl Memory {
    /// All partitions there are.
    pub fn partitions(&self) -> Vec<Arc<Partition>> {
        self.partitions.lock().clone()
    }

    /// Notes a sealed chunk, and forgets the oldest beyond the limit.
    pub fn keep(&self, partition: &Arc<Partition>) {
        let oldest = {
            let mut kept = self.kept.lock();
            kept.push_back(Arc::clone(partition));
            (kept.len() > self.chunks_max)
                .then(|| kept.pop_front())
                .flatten()
        };
        let forgotten = oldest.and_then(|partition| partition.state.lock().sealed.pop_front());
        if let Some(sealed) = forgotten {
            self.chunks.give_back(sealed.bytes);
        }
    }
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

impl Partition {
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

#[cfg(test)]
mod tests {
    use super::*;
    use pyrklog_wire::builder::BatchBuilder;
    use std::time::{Duration, Instant};

    fn batch(value_bytes: usize, records: usize) -> Vec<u8> {
        let mut builder = BatchBuilder::new();
        for _ in 0..records {
            builder.append(1, None, Some(&vec![7; value_bytes]));
        }
        builder.build()
    }

    fn store(folder: &Path, memory_bytes: usize) -> Store {
        let limits = Limits {
            partitions: 1,
            memory_bytes,
            unwritten_bytes: 1,
            reads_files: false,
        };
        Store::open(folder, limits, Caching::Drop).unwrap()
    }

    fn wait_for(what: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !what() {
            assert!(Instant::now() < deadline, "not in 30 s");
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_was_appended_is_found_by_offset_and_lies_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), 100 << 20);
        let topic = store.topic("t").unwrap();
        let partition = &topic.partitions[0];
        let one = batch(1_000, 100);
        for number in 0..25 {
            assert_eq!(store.append(partition, &one), Some(number * 100));
        }
        wait_for(|| partition.offsets() == (0..2_500));
        let found = partition.find(0, 1 << 20).unwrap();
        assert_eq!(found.range, 0..one.len() * (CHUNK_BYTES / one.len()));
        let found = partition.find(150, 1).unwrap();
        let view = Batches::new(&found.bytes[found.range.clone()]).next();
        assert_eq!(view.unwrap().unwrap().header.base_offset, 100);
        assert_eq!(found.range.len(), one.len());
        assert!(partition.find(2_500, 1).is_none());
        let path = folder.path().join("t-0/00000000000000000000.log");
        wait_for(|| fs::metadata(&path).unwrap().len() == 25 * one.len() as u64);
        let offsets: Vec<i64> = Batches::new(&fs::read(&path).unwrap())
            .map(|view| view.unwrap().header.base_offset)
            .collect();
        assert_eq!(
            offsets,
            (0..25).map(|number| number * 100).collect::<Vec<_>>()
        );
    }

    #[test]
    fn the_oldest_is_forgotten_beyond_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), 2 * CHUNK_BYTES);
        let topic = store.topic("t").unwrap();
        let large = batch(900_000, 1);
        for _ in 0..6 {
            store.append(&topic.partitions[0], &large).unwrap();
        }
        wait_for(|| topic.partitions[0].offsets() == (4..6));
        assert!(topic.partitions[0].find(3, 1 << 20).is_none());
        assert!(topic.partitions[0].find(4, 1 << 20).is_some());
    }

    #[test]
    fn what_is_no_batch_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), 1 << 20);
        let topic = store.topic("t").unwrap();
        let mut bytes = batch(10, 1);
        bytes[30] ^= 1;
        assert_eq!(store.append(&topic.partitions[0], &bytes), None);
        assert_eq!(store.append(&topic.partitions[0], b"short"), None);
        assert!(store.topic("../t").is_err());
        assert!(store.topic_by_id(&topic.id).is_some());
    }
}
