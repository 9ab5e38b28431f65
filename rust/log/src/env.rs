//! What all logs of one log directory share: the disk, the poison flag, buffers, file handles.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use pyrklog_arena::{Arena, Found, FoundPartition, PartitionName};

use crate::dir_cache::{Claimed, DirCache, has_unwritten};
use crate::disk::Disk;
use crate::kept::Kept;
use crate::segment_handle::SegmentHandle;
use crate::windows::Windows;

/// Empty tails kept for reuse, and the largest capacity one may have to be kept.
const SPARE_TAILS_MAX: usize = 64;
const SPARE_TAIL_BYTES_MAX: usize = 4 << 20;
const SPARE_BYTES_MAX: usize = 64 << 20;

/// Below this the device's own time for a write costs more than the copy to the page cache.
pub const DIRECT_MIN_BYTES: u32 = 64 * 1024;

/// Shared by the logs of one log directory.
///
/// A directory that failed once is *poisoned*: the state of its disk is unknown, so nothing in it
/// is written, synced or served any more until the process starts anew. An fsync is never retried
/// (after a failed one the kernel may have dropped the pages and call the next one a success).
#[derive(Debug)]
pub struct LogEnv {
    disk: Arc<dyn Disk>,
    poison: OnceLock<String>,
    is_full: AtomicBool,
    spare: Mutex<SpareBuffers>,
    handles: Mutex<VecDeque<Weak<dyn SegmentHandle>>>,
    max_open_segments: usize,
    /// Segments that take no more batches and are not synced.
    unsynced_segments: AtomicUsize,
    cache: OnceLock<Mutex<DirCache>>,
    /// Topics and partitions of logs whose files are to be checked when they are opened.
    unrecovered: Mutex<HashSet<(String, i32)>>,
    /// Those that an earlier life did not close and nobody has opened since: an orderly end says
    /// nothing about them.
    left_open: Mutex<HashSet<(String, i32)>>,
    windows: Windows,
    kept: Kept,
    direct_min_bytes: AtomicU32,
}

/// Empty buffers of tails, kept for the next one.
#[derive(Debug, Default)]
struct SpareBuffers {
    buffers: Vec<TailBuffers>,
    bytes: usize,
}

/// The memory of a tail.
#[derive(Debug, Default)]
pub(crate) struct TailBuffers {
    /// Batches, back to back.
    pub bytes: Vec<u8>,
    /// Bytes of index files.
    pub entries: Vec<u8>,
}

impl TailBuffers {
    /// Memory held.
    pub fn capacity_bytes(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity()
    }
}

impl LogEnv {
    /// `max_open_segments` bounds how many segments that are only read have files open, each at most
    /// three; a segment's `.log` stays open from its first write until it is closed and synced. It bounds,
    /// too, how many closed segments wait for that before none is rolled because of its age.
    pub fn new(disk: Arc<dyn Disk>, max_open_segments: usize) -> Arc<Self> {
        Arc::new(Self {
            disk,
            poison: OnceLock::new(),
            is_full: AtomicBool::new(false),
            spare: Mutex::default(),
            handles: Mutex::default(),
            max_open_segments: max_open_segments.max(8),
            unsynced_segments: AtomicUsize::new(0),
            cache: OnceLock::new(),
            unrecovered: Mutex::default(),
            left_open: Mutex::default(),
            windows: Windows::default(),
            kept: Kept::default(),
            direct_min_bytes: AtomicU32::new(DIRECT_MIN_BYTES),
        })
    }

    /// So many bytes of the block cache and more are written around the page cache.
    pub fn set_direct_min_bytes(&self, bytes: u32) {
        self.direct_min_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn direct_min_bytes(&self) -> u32 {
        self.direct_min_bytes.load(Ordering::Relaxed)
    }

    /// Gives the directory its block cache, before any log is opened; once. `found` is what an
    /// earlier life left in the arena. With `is_same_boot` that life used the directory since the
    /// machine was started, so that the files hold all that it wrote.
    pub fn set_cache(&self, arena: Arc<Arena>, is_same_boot: bool, found: Found) {
        let cache = DirCache {
            arena,
            is_same_boot,
            found,
            quarantined: HashMap::new(),
        };
        // A second cache would be a mistake of the caller; the first one is in use.
        let _first_stays = self.cache.set(Mutex::new(cache));
    }

    /// The directory's block cache.
    pub fn arena(&self) -> Option<Arc<Arena>> {
        Some(Arc::clone(&self.cache.get()?.lock().arena))
    }

    /// Whether the cache is that of an earlier life of the broker in this boot: whatever was appended
    /// then is there.
    pub fn has_reattached_cache(&self) -> bool {
        self.cache
            .get()
            .is_some_and(|cache| cache.lock().is_same_boot)
    }

    /// The files of these logs may lack what was written to them.
    pub(crate) fn recover(&self, logs: HashSet<(String, i32)>) {
        *self.unrecovered.lock() = logs;
    }

    /// Whether a log is one of them still.
    pub(crate) fn must_recover(&self, topic: &str, partition: i32) -> bool {
        let unrecovered = self.unrecovered.lock();
        !unrecovered.is_empty() && unrecovered.contains(&(topic.to_owned(), partition))
    }

    /// These logs were not closed by the life that had them open.
    pub(crate) fn left_open(&self, logs: HashSet<(String, i32)>) {
        self.left_open.lock().extend(logs);
    }

    /// A log was let go without having been closed in order, and its folder is still there: the next
    /// opening recovers it, in this life or another.
    pub fn leave_open(&self, topic: &str, partition: i32) {
        let name = (topic.to_owned(), partition);
        self.unrecovered.lock().insert(name.clone());
        self.left_open([name].into());
    }

    /// Logs that are not as an orderly close leaves them and were not opened since.
    pub(crate) fn not_closed(&self) -> HashSet<(String, i32)> {
        let mut logs = self.left_open.lock().clone();
        logs.extend(self.unrecovered.lock().iter().cloned());
        logs
    }

    /// It was opened, or is gone. True for the last one that was to be recovered.
    pub(crate) fn recovered(&self, topic: &str, partition: i32) -> bool {
        self.left_open.lock().remove(&(topic.to_owned(), partition));
        let mut unrecovered = self.unrecovered.lock();
        !unrecovered.is_empty()
            && unrecovered.remove(&(topic.to_owned(), partition))
            && unrecovered.is_empty()
    }

    /// How many partitions that were refused, or whose log was not opened, have blocks that are not
    /// written, or of which that is not known: while there are any, the arena must not be given up,
    /// nor the directory be taken for clean.
    pub fn unclaimed_unwritten(&self) -> usize {
        let Some(cache) = self.cache.get() else {
            return 0;
        };
        let cache = cache.lock();
        let is_needed =
            |found: &&FoundPartition| found.damage.is_some() || has_unwritten(&found.segments);
        let refused = cache.quarantined.values().map(|(found, _)| found);
        cache
            .found
            .values()
            .chain(refused)
            .filter(is_needed)
            .count()
    }

    /// Partitions whose blocks nobody has claimed yet.
    pub fn unclaimed_partitions(&self) -> Vec<PartitionName> {
        let cache = self.cache.get().map(Mutex::lock);
        cache.map_or_else(Vec::new, |cache| cache.found.keys().cloned().collect())
    }

    /// Gives up the blocks of a partition that is not there any more.
    pub fn forget_partition(&self, name: &PartitionName) {
        let Some(cache) = self.cache.get() else {
            return;
        };
        let mut cache = cache.lock();
        if let Some(found) = cache.found.remove(name) {
            cache.arena.release_slot(found.slot);
        }
    }

    /// Gives up all blocks of a folder that was deleted before its log was opened, or whose log was
    /// refused.
    pub fn forget_folder(&self, topic: &str, partition: i32) {
        let Some(cache) = self.cache.get() else {
            return;
        };
        let DirCache {
            arena,
            found,
            quarantined,
            ..
        } = &mut *cache.lock();
        let is_it = |name: &PartitionName| name.topic == topic && name.partition == partition;
        let found = found.extract_if(|name, _| is_it(name));
        let refused = quarantined.extract_if(|name, _| is_it(name));
        for (_, found) in found.chain(refused.map(|(name, (found, _))| (name, found))) {
            arena.release_slot(found.slot);
        }
    }

    /// Gives up the blocks of a log that was closed before its folder was deleted.
    pub fn forget_closed(&self, name: &PartitionName) {
        let Some(cache) = self.cache.get() else {
            return;
        };
        let arena = Arc::clone(&cache.lock().arena);
        if let Some(slot) = arena.known_slot(name) {
            arena.release_slot(slot);
        }
    }

    /// What the arena holds of a log, if there is an arena.
    ///
    /// # Errors
    /// Why the blocks must not be used.
    pub(crate) fn claim(&self, name: &PartitionName) -> Result<Option<Claimed>, String> {
        let Some(cache) = self.cache.get() else {
            return Ok(None);
        };
        let mut cache = cache.lock();
        if let Some((_, reason)) = cache.quarantined.get(name) {
            return Err(reason.clone());
        }
        let found = cache.found.remove(name);
        if let Some(FoundPartition {
            damage: Some(damage),
            ..
        }) = &found
        {
            let reason = format!("its blocks in {}: {damage}", cache.arena.path().display());
            let found = found.expect("it was just looked at");
            let kept = (found, reason.clone());
            cache.quarantined.insert(name.clone(), kept);
            return Err(reason);
        }
        Ok(Some(Claimed {
            arena: Arc::clone(&cache.arena),
            is_same_boot: cache.is_same_boot && !self.must_recover(&name.topic, name.partition),
            found,
        }))
    }

    /// Gives blocks back that were claimed for an opening that is to be tried again.
    pub(crate) fn unclaim(&self, name: &PartitionName, found: FoundPartition) {
        if let Some(cache) = self.cache.get() {
            cache.lock().found.insert(name.clone(), found);
        }
    }

    /// Keeps blocks that must not be used, so that they are not lost either.
    pub(crate) fn quarantine(&self, name: &PartitionName, found: FoundPartition, reason: &str) {
        if let Some(cache) = self.cache.get() {
            let kept = (found, reason.to_owned());
            cache.lock().quarantined.insert(name.clone(), kept);
        }
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

    /// What readers far behind hold of the directory's files.
    pub(crate) fn windows(&self) -> &Windows {
        &self.windows
    }

    /// Which old data of the directory stay in the page cache.
    pub(crate) fn kept(&self) -> &Kept {
        &self.kept
    }

    /// Gives up what no reader that is far behind came for since the last call, and of the old data in
    /// the page cache what there is no room for any more.
    pub fn forget_idle_reads(&self) {
        self.windows.forget_idle();
        self.kept.settle();
    }

    /// Old data that was read and is left in the page cache; the system may have taken some of it
    /// back.
    pub fn kept_bytes(&self) -> u64 {
        self.kept.bytes()
    }

    /// Memory that readers far behind hold.
    pub fn window_bytes(&self) -> usize {
        self.windows.bytes()
    }

    /// Whether logs take no records for lack of space; what they have is read and written on.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::SeqCst)
    }

    /// See [`LogEnv::is_full`]; returns what it was before.
    pub fn set_full(&self, is_full: bool) -> bool {
        self.is_full.swap(is_full, Ordering::SeqCst)
    }

    /// Empty buffers for a tail, recycled when possible.
    pub(crate) fn take_buffers(&self) -> TailBuffers {
        let mut spare = self.spare.lock();
        let buffers = spare.buffers.pop().unwrap_or_default();
        spare.bytes -= buffers.capacity_bytes();
        buffers
    }

    /// Keeps the memory of a written tail for the next one.
    pub(crate) fn recycle_buffers(&self, mut buffers: TailBuffers) {
        buffers.bytes.clear();
        buffers.entries.clear();
        let capacity = buffers.capacity_bytes();
        let mut spare = self.spare.lock();
        if capacity <= SPARE_TAIL_BYTES_MAX
            && spare.bytes + capacity <= SPARE_BYTES_MAX
            && spare.buffers.len() < SPARE_TAILS_MAX
        {
            spare.bytes += capacity;
            spare.buffers.push(buffers);
        }
    }

    /// Counts the segments that take no more batches and are not synced, each with its file open.
    pub(crate) fn count_unsynced(&self, is_synced: bool) {
        if is_synced {
            self.unsynced_segments.fetch_sub(1, Ordering::Relaxed);
        } else {
            self.unsynced_segments.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether there are as many of them as may be: no log rolls because of age until some are synced.
    #[inline]
    pub(crate) fn has_many_unsynced(&self) -> bool {
        self.unsynced_segments.load(Ordering::Relaxed) >= self.max_open_segments
    }

    /// Notes that a segment opened a file for reading, and closes those of others if there are too
    /// many. Closing may wait for the disk.
    pub(crate) fn opened<S: SegmentHandle + 'static>(&self, segment: &Arc<S>) {
        self.list(segment);
        self.close_surplus();
    }

    /// Notes that a segment has a file open that may be closed when others need its place. Memory
    /// only: for those who hold a log's lock.
    pub(crate) fn list<S: SegmentHandle + 'static>(&self, segment: &Arc<S>) {
        let segment: Weak<S> = Arc::downgrade(segment);
        self.handles.lock().push_back(segment);
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
