//! Topics: batches in memory, the oldest of them forgotten, all of them in a file.

use crate::chunks::CHUNK_BYTES;
use crate::files;
use crate::memory::Memory;
use crate::partition::{Job, Partition};
use crate::relay::Relay;
use crate::writer::{self, Caching};
use parking_lot::Mutex;
use pyrklog_wire::batch::{BatchHeader, verify_crc};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
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
    pub name: Arc<str>,
    /// Its id: a number that no other topic has.
    pub id: [u8; 16],
    /// Its partitions, by index.
    pub partitions: Vec<Arc<Partition>>,
    /// Once a consumer has asked where the end is: what comes goes to it at once.
    pub relay: OnceLock<Relay>,
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

impl Store {
    /// An empty store whose files lie in `folder`, which is made if it is missing.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn open(folder: &Path, limits: Limits, caching: Caching) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let memory = Arc::new(Memory::new(limits.memory_bytes));
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
            let file = File::create(&path)?;
            let partition = Partition::new(file, files::open(&path)?, self.reads_files);
            partitions.push(Arc::new(partition));
        }
        self.memory.add(&partitions);
        let mut id = [0; 16];
        id[8..].copy_from_slice(&(topics.len() as u64 + 1).to_be_bytes());
        let topic = Arc::new(Topic {
            name: name.into(),
            id,
            partitions,
            relay: OnceLock::new(),
        });
        topics.insert(name.to_owned(), Arc::clone(&topic));
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
        let (base_offset, full) = partition.append(&header, batch, self.memory.chunks());
        if let Some(job) = full {
            self.memory.keep(partition);
            // An error means that the writer is gone, and the process with it.
            let _ = self.to_write.send(job);
        }
        Some(base_offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pyrklog_wire::batch::Batches;
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
