//! Old records from their files: other threads read ahead while one piece is sent.
//!
//! Reads go around the page cache into memory of its own, as for a broker that leaves the page
//! cache alone.

use crate::partition::{Found, Partition, Place, range_of};
use parking_lot::Mutex;
use rustix::fs::OFlags;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// Threads that read for one connection: a disk does several things at a time.
const THREADS: usize = 2;

const PAGE_BYTES: u64 = 4096;

/// Beyond this, read pieces that nobody fetched are dropped.
const READY_MAX: usize = 64;

/// A partition, and the position of a piece in it.
type Key = (*const Partition, u64);

#[derive(Debug)]
struct Order {
    partition: Arc<Partition>,
    place: Place,
    memory: Vec<u8>,
}

#[derive(Debug)]
struct Piece {
    partition: Arc<Partition>,
    position: u64,
    found: io::Result<Found>,
}

/// One connection's reads.
#[derive(Debug)]
pub struct Ahead {
    orders: Sender<Order>,
    done: Receiver<Piece>,
    ordered: Vec<Key>,
    ready: HashMap<Key, io::Result<Found>>,
    /// Pieces being sent; their memory is reused afterwards.
    given: Vec<Arc<Vec<u8>>>,
    free: Vec<Vec<u8>>,
}

impl Default for Ahead {
    fn default() -> Self {
        let (orders, ordered) = channel::<Order>();
        let ordered = Arc::new(Mutex::new(ordered));
        let (finished, done) = channel();
        for _ in 0..THREADS {
            let (ordered, finished) = (Arc::clone(&ordered), finished.clone());
            thread::spawn(move || read_all(&ordered, &finished));
        }
        Self {
            orders,
            done,
            ordered: Vec::new(),
            ready: HashMap::new(),
            given: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl Ahead {
    /// Whole batches from the one with `offset` on, at least one and at most `bytes_max`, from one
    /// piece; `None` if no piece has it.
    ///
    /// # Errors
    /// The disk's.
    pub fn find(
        &mut self,
        partition: &Arc<Partition>,
        offset: i64,
        bytes_max: usize,
    ) -> io::Result<Option<Found>> {
        let [Some(place), next] = partition.places(offset) else {
            return Ok(None);
        };
        self.order(partition, &place);
        if let Some(next) = next {
            self.order(partition, &next);
        }
        let found = self.take((Arc::as_ptr(partition), place.position))?;
        self.given.push(Arc::clone(&found.bytes));
        let whole = offset == place.offsets.start && place.len <= bytes_max;
        let range = if whole {
            found.range
        } else {
            let start = found.range.start;
            let Some(range) = range_of(&found.bytes[found.range], offset, bytes_max) else {
                return Ok(None);
            };
            start + range.start..start + range.end
        };
        Ok(Some(Found {
            bytes: found.bytes,
            range,
        }))
    }

    fn order(&mut self, partition: &Arc<Partition>, place: &Place) {
        let key = (Arc::as_ptr(partition), place.position);
        if self.ordered.contains(&key) || self.ready.contains_key(&key) {
            return;
        }
        for bytes in std::mem::take(&mut self.given) {
            match Arc::try_unwrap(bytes) {
                Ok(memory) => self.free.push(memory),
                Err(bytes) => self.given.push(bytes),
            }
        }
        self.ordered.push(key);
        let order = Order {
            partition: Arc::clone(partition),
            place: place.clone(),
            memory: self.free.pop().unwrap_or_default(),
        };
        // An error means that the thread is gone; `take` finds out.
        let _ = self.orders.send(order);
    }

    fn take(&mut self, key: Key) -> io::Result<Found> {
        loop {
            if let Some(found) = self.ready.remove(&key) {
                return found;
            }
            let piece = self.done.recv().map_err(io::Error::other)?;
            let of_piece = (Arc::as_ptr(&piece.partition), piece.position);
            self.ordered.retain(|key| *key != of_piece);
            if self.ready.len() >= READY_MAX {
                self.ready.clear();
            }
            self.ready.insert(of_piece, piece.found);
        }
    }
}

fn read_all(ordered: &Mutex<Receiver<Order>>, finished: &Sender<Piece>) {
    loop {
        let Ok(order) = ordered.lock().recv() else {
            return;
        };
        let Order {
            partition,
            place,
            memory,
        } = order;
        let found = read(&partition, &place, memory);
        let piece = Piece {
            partition,
            position: place.position,
            found,
        };
        if finished.send(piece).is_err() {
            return;
        }
    }
}

/// Opens a file to be read around the page cache, if the file system can do that.
///
/// # Errors
/// The file is missing, or not ours.
pub fn open(path: &Path) -> io::Result<File> {
    let open = |flags: OFlags| {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(flags.bits() as i32);
        options.open(path)
    };
    open(OFlags::DIRECT).or_else(|_| open(OFlags::empty()))
}

/// Reads the pages of a piece.
fn read(partition: &Partition, place: &Place, mut memory: Vec<u8>) -> io::Result<Found> {
    let first = place.position / PAGE_BYTES * PAGE_BYTES;
    let end = place.position + place.len as u64;
    let pages_bytes = (end.next_multiple_of(PAGE_BYTES) - first) as usize;
    memory.resize(memory.len().max(pages_bytes + 2 * PAGE_BYTES as usize), 0);
    let address = memory.as_ptr().addr();
    let begin = address.next_multiple_of(PAGE_BYTES as usize) - address;
    let mut filled = 0;
    let wanted = (end - first) as usize;
    while filled < wanted {
        let rest = &mut memory[begin + filled..begin + pages_bytes];
        match partition.old_file().read_at(rest, first + filled as u64)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => filled += count,
        }
    }
    let start = begin + (place.position - first) as usize;
    Ok(Found {
        bytes: Arc::new(memory),
        range: start..start + place.len,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunks::CHUNK_BYTES;
    use crate::store::{Limits, Store};
    use crate::writer::Caching;
    use pyrklog_wire::batch::Batches;
    use pyrklog_wire::builder::BatchBuilder;

    #[test]
    fn what_memory_has_forgotten_comes_out_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let limits = Limits {
            partitions: 1,
            memory_bytes: 2 * CHUNK_BYTES,
            unwritten_bytes: 1,
            reads_files: true,
        };
        let store = Store::open(folder.path(), limits, Caching::Drop).unwrap();
        let topic = store.topic("t").unwrap();
        let partition = &topic.partitions[0];
        let mut builder = BatchBuilder::new();
        builder.append(1, None, Some(&vec![7; 100_001]));
        let batch = builder.build();
        for _ in 0..100 {
            store.append(partition, &batch).unwrap();
        }
        assert_eq!(partition.offsets().start, 0);
        let in_memory = (0..).find(|offset| partition.find(*offset, 1).is_some());
        assert!(in_memory.unwrap() > 20);
        let mut ahead = Ahead::default();
        let mut offset = 0;
        while let Some(found) = ahead.find(partition, offset, CHUNK_BYTES).unwrap() {
            for view in Batches::new(&found.bytes[found.range.clone()]) {
                let view = view.unwrap();
                assert_eq!(view.header.base_offset, offset);
                assert_eq!(view.bytes[20..], batch[20..]);
                offset += 1;
            }
        }
        // The writer goes on meanwhile, and memory forgets more.
        assert!(Some(offset) >= in_memory);
        let within = ahead.find(partition, 5, 1).unwrap().unwrap();
        assert_eq!(within.range.len(), batch.len());
        let view = Batches::new(&within.bytes[within.range]).next().unwrap();
        assert_eq!(view.unwrap().header.base_offset, 5);
    }
}
