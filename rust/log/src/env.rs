//! What all logs of one log directory share: the disk, the poison flag, buffers, file handles.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;

use crate::disk::Disk;
use crate::segment::Segment;
use crate::write_behind::Tail;

/// Empty tails kept for reuse, and the largest capacity one may have to be kept.
const SPARE_TAILS_MAX: usize = 64;
const SPARE_TAIL_BYTES_MAX: usize = 4 << 20;
const SPARE_BYTES_MAX: usize = 64 << 20;

/// Shared by the logs of one log directory.
///
/// A directory that failed once is *poisoned*: the state of its disk is unknown, so nothing in it
/// is written, synced or served any more until the process starts anew. An fsync is never retried
/// (after a failed one the kernel may have dropped the pages and call the next one a success).
#[derive(Debug)]
pub struct LogEnv {
    disk: Arc<dyn Disk>,
    poison: OnceLock<String>,
    spare: Mutex<SpareTails>,
    handles: Mutex<VecDeque<Weak<Segment>>>,
    max_open_segments: usize,
}

#[derive(Debug, Default)]
struct SpareTails {
    tails: Vec<Tail>,
    bytes: usize,
}

impl LogEnv {
    /// `max_open_segments` bounds how many segments that are only read have files open, each at most
    /// three; a segment's `.log` stays open from its first write until it is closed and synced.
    pub fn new(disk: Arc<dyn Disk>, max_open_segments: usize) -> Arc<Self> {
        Arc::new(Self {
            disk,
            poison: OnceLock::new(),
            spare: Mutex::default(),
            handles: Mutex::default(),
            max_open_segments: max_open_segments.max(8),
        })
    }

    /// The disk under the directory.
    pub fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    /// Makes every log of the directory refuse from now on; the first reason is kept.
    pub fn poison(&self, reason: impl Into<String>) {
        // A second failure of a directory that already failed says nothing new.
        let _first_wins = self.poison.set(reason.into());
    }

    /// Why the directory refuses, if it does.
    #[inline]
    pub fn poisoned(&self) -> Option<&str> {
        self.poison.get().map(String::as_str)
    }

    /// An empty tail, recycled when possible.
    pub(crate) fn take_tail(&self) -> Tail {
        let mut spare = self.spare.lock();
        let tail = spare.tails.pop().unwrap_or_default();
        spare.bytes -= tail.capacity_bytes();
        tail
    }

    /// Keeps a written tail's memory for the next one.
    pub(crate) fn recycle_tail(&self, mut tail: Tail) {
        tail.clear();
        let capacity = tail.capacity_bytes();
        let mut spare = self.spare.lock();
        if capacity <= SPARE_TAIL_BYTES_MAX
            && spare.bytes + capacity <= SPARE_BYTES_MAX
            && spare.tails.len() < SPARE_TAILS_MAX
        {
            spare.bytes += capacity;
            spare.tails.push(tail);
        }
    }

    /// Notes that a segment opened a file for reading, and closes those of others if there are too
    /// many. Closing may wait for the disk.
    pub(crate) fn opened(&self, segment: &Arc<Segment>) {
        self.list(segment);
        self.close_surplus();
    }

    /// Notes that a segment has a file open that may be closed when others need its place. Memory
    /// only: for those who hold a log's lock.
    pub(crate) fn list(&self, segment: &Arc<Segment>) {
        self.handles.lock().push_back(Arc::downgrade(segment));
    }

    /// Closes files while too many are open: of the segments opened longest ago that were not used
    /// since they were last considered. May wait for the disk, with no lock held but those of the
    /// caller, who must hold no log's.
    pub fn close_surplus(&self) {
        let mut closing = Vec::new();
        let mut segments = Vec::new();
        let mut handles = self.handles.lock();
        let mut tries = handles.len();
        while handles.len() > self.max_open_segments && tries > 0 {
            tries -= 1;
            let Some(oldest) = handles.pop_front() else {
                break;
            };
            let Some(segment) = oldest.upgrade() else {
                continue;
            };
            if !segment.take_files_unless_used(&mut closing) {
                handles.push_back(oldest);
            }
            // It may be the last holder by now.
            segments.push(segment);
        }
        drop(handles);
    }
}
