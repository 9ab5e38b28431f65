//! What the logs of one log directory share: disk, poison flag, file handles.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use pyrklog_arena::{Arena, Found, FoundPartition, PartitionName};

use crate::conversion::ConversionListener;
use crate::dir_cache::{Claimed, DirCache, has_unwritten};
use crate::disk::Disk;
use crate::kept_pages::KeptPages;
use crate::segment_handle::SegmentHandle;
use crate::windows::Windows;

/// For smaller writes the device's own time exceeds the cost of a copy to the page cache.
pub const DIRECT_MIN_BYTES: u32 = 64 * 1024;

/// Shared by the logs of one log directory.
///
/// After a failure the directory is *poisoned*: the state of its disk is unknown, so nothing in it
/// is written, synced or served until the process restarts. An fsync is never retried: after a
/// failed one the kernel may have dropped the pages and report success.
#[derive(Debug)]
pub struct LogEnv {
    disk: Arc<dyn Disk>,
    poison: OnceLock<String>,
    is_read_only: AtomicBool,
    handles: Mutex<VecDeque<Weak<dyn SegmentHandle>>>,
    max_open_segments: usize,
    /// Closed segments that are not synced.
    unsynced_segments: AtomicUsize,
    cache: OnceLock<Mutex<DirCache>>,
    conversion_listener: OnceLock<Weak<dyn ConversionListener>>,
    /// Held while a segment of old formats is converted, from the look at the free space until the
    /// old one has gone: each may need as much space as it has.
    pub(crate) converting: Mutex<()>,
    reserve_bytes: AtomicU64,
    /// Logs to recover when opened: (topic, partition).
    unrecovered: Mutex<HashSet<(String, i32)>>,
    /// Logs that an earlier run left unclosed and that were not opened since. An orderly shutdown
    /// does not make them clean.
    left_open: Mutex<HashSet<(String, i32)>>,
    /// Logs as another broker left them.
    unseen: Mutex<HashSet<(String, i32)>>,
    /// Of readers far behind.
    pub(crate) windows: Windows,
    /// Old data that stays in the page cache.
    pub(crate) kept_pages: KeptPages,
    direct_min_bytes: AtomicU32,
}

impl LogEnv {
    /// `max_open_segments` bounds the segments open for reading only, each with up to four files.
    /// The `.log` of a written segment stays open until it is closed and synced. The bound also
    /// limits unsynced closed segments before rolls by age stop.
    pub fn new(disk: Arc<dyn Disk>, max_open_segments: usize) -> Arc<Self> {
        Arc::new(Self {
            disk,
            poison: OnceLock::new(),
            is_read_only: AtomicBool::new(false),
            handles: Mutex::default(),
            max_open_segments: max_open_segments.max(8),
            unsynced_segments: AtomicUsize::new(0),
            cache: OnceLock::new(),
            conversion_listener: OnceLock::new(),
            converting: Mutex::default(),
            reserve_bytes: AtomicU64::new(0),
            unrecovered: Mutex::default(),
            left_open: Mutex::default(),
            unseen: Mutex::default(),
            windows: Windows::default(),
            kept_pages: KeptPages::default(),
            direct_min_bytes: AtomicU32::new(DIRECT_MIN_BYTES),
        })
    }

    /// Sets the least bytes of the block cache to write past the page cache.
    pub fn set_direct_min_bytes(&self, bytes: u32) {
        self.direct_min_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn direct_min_bytes(&self) -> u32 {
        self.direct_min_bytes.load(Ordering::Relaxed)
    }

    /// Sets the directory's block cache, once, before any log is opened. `found` is what an earlier
    /// run left in the arena. With `is_same_boot` that run was in this boot, so the files hold all
    /// that it wrote.
    pub fn set_cache(&self, arena: Arc<Arena>, is_same_boot: bool, found: Found) {
        let cache = DirCache {
            arena,
            is_same_boot,
            found,
            quarantined: HashMap::new(),
        };
        // The first one stays.
        let _first_stays = self.cache.set(Mutex::new(cache));
    }

    /// Sets who hears of conversions, once, before any log is opened.
    pub fn set_conversion_listener(&self, listener: Weak<dyn ConversionListener>) {
        let _first_stays = self.conversion_listener.set(listener);
    }

    fn conversion_listener(&self) -> Option<Arc<dyn ConversionListener>> {
        self.conversion_listener.get()?.upgrade()
    }

    pub(crate) fn conversion_begins(&self, folder: &Path, segments: usize, bytes: u64) {
        if let Some(listener) = self.conversion_listener() {
            listener.begins(folder, segments, bytes);
        }
    }

    pub(crate) fn may_convert(&self) -> bool {
        let listener = self.conversion_listener();
        listener.is_none_or(|listener| listener.may_go_on())
    }

    /// Sets how many bytes [`crate::LogDir::make_reserve`] will be asked for: conversions leave them.
    pub fn set_reserve_bytes(&self, bytes: u64) {
        self.reserve_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn reserve_bytes(&self) -> u64 {
        self.reserve_bytes.load(Ordering::Relaxed)
    }

    /// The directory's block cache.
    pub fn arena(&self) -> Option<Arc<Arena>> {
        Some(Arc::clone(&self.cache.get()?.lock().arena))
    }

    /// Whether the cache was reattached within the same boot, so that all records are there.
    pub fn has_reattached_cache(&self) -> bool {
        self.with_cache(|cache| cache.is_same_boot)
    }

    /// The default without a cache.
    fn with_cache<T: Default>(&self, act: impl FnOnce(&mut DirCache) -> T) -> T {
        let cache = self.cache.get();
        cache.map_or_else(T::default, |cache| act(&mut cache.lock()))
    }

    /// Sets the logs whose files may lack written data.
    pub(crate) fn recover(&self, logs: HashSet<(String, i32)>) {
        *self.unrecovered.lock() = logs;
    }

    /// Whether a log still needs recovery.
    pub(crate) fn must_recover(&self, topic: &str, partition: i32) -> bool {
        let unrecovered = self.unrecovered.lock();
        !unrecovered.is_empty() && unrecovered.contains(&(topic.to_owned(), partition))
    }

    /// Adds logs that an earlier run left unclosed.
    pub(crate) fn left_open(&self, logs: HashSet<(String, i32)>) {
        self.left_open.lock().extend(logs);
    }

    /// A log was dropped without an orderly close and its folder remains: the next opening, in this
    /// run or another, recovers it.
    pub fn leave_open(&self, topic: &str, partition: i32) {
        let name = (topic.to_owned(), partition);
        self.unrecovered.lock().insert(name.clone());
        self.left_open([name].into());
    }

    /// Logs that were not closed in order and not opened since.
    pub(crate) fn not_closed(&self) -> HashSet<(String, i32)> {
        let mut logs = self.left_open.lock().clone();
        logs.extend(self.unrecovered.lock().iter().cloned());
        logs
    }

    /// A log was opened or deleted. True for the last one that needed recovery.
    pub(crate) fn recovered(&self, topic: &str, partition: i32) -> bool {
        self.left_open.lock().remove(&(topic.to_owned(), partition));
        let mut unrecovered = self.unrecovered.lock();
        !unrecovered.is_empty()
            && unrecovered.remove(&(topic.to_owned(), partition))
            && unrecovered.is_empty()
    }

    pub(crate) fn set_unseen(&self, logs: HashSet<(String, i32)>) {
        *self.unseen.lock() = logs;
    }

    /// In order.
    pub(crate) fn unseen(&self) -> Vec<(String, i32)> {
        let mut logs: Vec<_> = self.unseen.lock().iter().cloned().collect();
        logs.sort();
        logs
    }

    /// Whether the log was not opened since another broker left it.
    pub(crate) fn is_unseen(&self, topic: &str, partition: i32) -> bool {
        let unseen = self.unseen.lock();
        !unseen.is_empty() && unseen.contains(&(topic.to_owned(), partition))
    }

    /// A log was opened or deleted. True for the last one of these.
    pub(crate) fn seen(&self, topic: &str, partition: i32) -> bool {
        let mut unseen = self.unseen.lock();
        !unseen.is_empty() && unseen.remove(&(topic.to_owned(), partition)) && unseen.is_empty()
    }

    /// Number of refused or unopened partitions with blocks that are unwritten or damaged. While
    /// there are any, the arena must not be removed nor the directory marked clean.
    pub fn unclaimed_unwritten(&self) -> usize {
        let is_needed =
            |found: &&FoundPartition| found.damage.is_some() || has_unwritten(&found.segments);
        self.with_cache(|cache| {
            let refused = cache.quarantined.values().map(|(found, _)| found);
            cache
                .found
                .values()
                .chain(refused)
                .filter(is_needed)
                .count()
        })
    }

    /// Partitions with unclaimed blocks.
    pub fn unclaimed_partitions(&self) -> Vec<PartitionName> {
        self.with_cache(|cache| cache.found.keys().cloned().collect())
    }

    /// Frees the blocks of a partition that no longer exists.
    pub fn forget_partition(&self, name: &PartitionName) {
        self.with_cache(|cache| {
            if let Some(found) = cache.found.remove(name) {
                cache.arena.release_slot(found.slot);
            }
        });
    }

    /// Frees all blocks of a folder that was deleted before its log was opened or after it was
    /// refused.
    pub fn forget_folder(&self, topic: &str, partition: i32) {
        let is_it = |name: &PartitionName| name.topic == topic && name.partition == partition;
        self.with_cache(|cache| {
            let found = cache.found.extract_if(|name, _| is_it(name));
            let refused = cache.quarantined.extract_if(|name, _| is_it(name));
            for (_, found) in found.chain(refused.map(|(name, (found, _))| (name, found))) {
                cache.arena.release_slot(found.slot);
            }
        });
    }

    /// Frees the blocks of a log that was closed before its folder was deleted.
    pub fn forget_closed(&self, name: &PartitionName) {
        if let Some(arena) = self.arena()
            && let Some(slot) = arena.known_slot(name)
        {
            arena.release_slot(slot);
        }
    }

    /// Claims a log's blocks.
    ///
    /// # Errors
    /// Why the blocks must not be used.
    pub(crate) fn claim(&self, name: &PartitionName) -> Result<Claimed, String> {
        let Some(cache) = self.cache.get() else {
            return Ok(Claimed::default());
        };
        let mut cache = cache.lock();
        if let Some((_, reason)) = cache.quarantined.get(name) {
            return Err(reason.clone());
        }
        let mut found = cache.found.remove(name);
        if let Some(damaged) = found.take_if(|found| found.damage.is_some()) {
            let damage = damaged.damage.as_deref().unwrap_or_default();
            let reason = format!("its blocks in {}: {damage}", cache.arena.path().display());
            let kept = (damaged, reason.clone());
            cache.quarantined.insert(name.clone(), kept);
            return Err(reason);
        }
        Ok(Claimed {
            arena: Some(Arc::clone(&cache.arena)),
            is_same_boot: cache.is_same_boot && !self.must_recover(&name.topic, name.partition),
            found,
        })
    }

    /// Returns claimed blocks for a later try to open the log.
    pub(crate) fn unclaim(&self, name: &PartitionName, found: FoundPartition) {
        self.with_cache(|cache| cache.found.insert(name.clone(), found));
    }

    /// Keeps blocks that must be neither used nor freed.
    pub(crate) fn quarantine(&self, name: &PartitionName, found: FoundPartition, reason: &str) {
        let kept = (found, reason.to_owned());
        self.with_cache(|cache| cache.quarantined.insert(name.clone(), kept));
    }

    /// The disk.
    pub fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    /// Makes every log of the directory refuse from now on; the first reason stays.
    pub fn poison(&self, reason: impl Into<String>) {
        // A second failure adds nothing.
        let _first_wins = self.poison.set(reason.into());
    }

    /// Why the directory refuses, if it does.
    #[inline]
    pub fn poisoned(&self) -> Option<&str> {
        self.poison.get().map(String::as_str)
    }

    /// Gives up windows idle since the last call, and old data in the page cache beyond the limit.
    pub fn forget_idle_reads(&self) {
        self.windows.forget_idle();
        self.kept_pages.give_up_excess();
    }

    /// Bytes of old data left in the page cache; the system may have reclaimed some.
    pub fn kept_bytes(&self) -> u64 {
        self.kept_pages.bytes()
    }

    /// Memory held by readers far behind.
    pub fn window_bytes(&self) -> usize {
        self.windows.bytes()
    }

    /// Whether logs refuse records for lack of space; reads and writes go on.
    #[inline]
    pub fn is_read_only(&self) -> bool {
        self.is_read_only.load(Ordering::SeqCst)
    }

    /// Sets [`LogEnv::is_read_only`]; returns the previous value.
    pub fn set_read_only(&self, is_read_only: bool) -> bool {
        self.is_read_only.swap(is_read_only, Ordering::SeqCst)
    }

    /// Counts closed segments that are not synced and thus have their file open.
    pub(crate) fn count_unsynced(&self, is_synced: bool) {
        if is_synced {
            self.unsynced_segments.fetch_sub(1, Ordering::Relaxed);
        } else {
            self.unsynced_segments.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether these are as many as allowed: no log rolls because of age until some are synced.
    #[inline]
    pub(crate) fn has_many_unsynced(&self) -> bool {
        self.unsynced_segments.load(Ordering::Relaxed) >= self.max_open_segments
    }

    /// A segment opened a file for reading: closes files of others if too many are open. May wait
    /// for the disk.
    pub(crate) fn opened<S: SegmentHandle + 'static>(&self, segment: &Arc<S>) {
        self.list(segment);
        self.close_surplus();
    }

    /// Adds a segment with a file that may be closed for others. Memory only, for callers that hold
    /// a log's lock.
    pub(crate) fn list<S: SegmentHandle + 'static>(&self, segment: &Arc<S>) {
        let segment: Weak<S> = Arc::downgrade(segment);
        self.handles.lock().push_back(segment);
    }

    /// Closes files while too many are open: those opened longest ago that were not used since last
    /// considered. May wait for the disk; the caller must hold no log's lock.
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
            // This may be the last reference.
            segments.push(segment);
        }
        drop(handles);
    }
}
