//! One segment: up to `segment.bytes` of consecutive batches in one `.log`, with its indexes.
//!
//! Readers and the log share a [`Segment`] by `Arc`, so its files stay readable until the last of
//! them is done, even if retention renamed or removed them. The active segment's indexes live on
//! the heap in [`ActiveSegment`], under the log's lock. A closed segment's are searched in their
//! files, entry by entry, and never loaded.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};
use pyrklog_arena::CachedSegment;

use crate::disk::{DiskFile, OpenMode, missing_is_fine};
use crate::env::LogEnv;
use crate::folder::Folder;
use crate::names::FileKind;
use crate::offset_index;
use crate::segment_handle::SegmentHandle;
use crate::time_index::{self, TimeEntry};
use crate::wait::Wait;

mod active;
mod bytes;
mod indexes;
mod removal;
pub(crate) use active::{ActiveSegment, Crowd};
pub use bytes::{Place as BytesPlace, SegmentBytes};
pub(crate) use indexes::SegmentIndexes;

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// The part of a segment outside the log's lock.
#[derive(Debug)]
pub(crate) struct Segment {
    env: Arc<LogEnv>,
    folder: Arc<Folder>,
    base_offset: i64,
    /// Unique in this process.
    id: u64,
    /// Bytes of the `.log` that are in the file.
    written: AtomicU64,
    /// Bytes that can be read: from the file, and behind them from the block cache.
    size: AtomicU64,
    /// Its blocks, once it has any.
    cached: OnceLock<Arc<CachedSegment>>,
    /// No more bytes will come and all its files are complete.
    closed: AtomicBool,
    /// Its `.log` carries `.deleted`, or is gone.
    log_removed: AtomicBool,
    /// All its files carry `.deleted`, or are gone.
    removed: AtomicBool,
    /// The log file must stay open: it is written to, or has unsynced data.
    pinned: AtomicBool,
    /// It takes no more batches and is unsynced; counted by its directory.
    awaits_sync: AtomicBool,
    used: AtomicBool,
    log: Mutex<Option<OpenLog>>,
    indexes: Mutex<Option<Arc<IndexFiles>>>,
    /// Between its roll and the completion of its index files.
    closing: Mutex<Option<Arc<ClosingIndexes>>>,
    largest: Mutex<Option<TimeEntry>>,
    modified_ms: Mutex<Option<i64>>,
}

#[derive(Clone, Debug)]
struct OpenLog {
    file: Arc<dyn DiskFile>,
    writable: bool,
}

/// The indexes of a closing segment, while its files lack some entries.
#[derive(Debug)]
pub(crate) struct ClosingIndexes {
    pub indexes: SegmentIndexes,
    /// Bytes of the offset index that were handed to the writer.
    pub offsets_taken: usize,
    /// Bytes of the time index that were handed to the writer.
    pub times_taken: usize,
}

#[derive(Debug)]
pub(crate) struct IndexFiles {
    offsets: Arc<dyn DiskFile>,
    offset_entries: usize,
    times: Arc<dyn DiskFile>,
    time_entries: usize,
}

impl Segment {
    /// A segment with `written` bytes in its `.log`.
    pub fn new(
        env: &Arc<LogEnv>,
        folder: &Arc<Folder>,
        base_offset: i64,
        written: u64,
        closed: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            env: env.clone(),
            folder: folder.clone(),
            base_offset,
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            written: AtomicU64::new(written),
            size: AtomicU64::new(written),
            cached: OnceLock::new(),
            closed: AtomicBool::new(closed),
            log_removed: AtomicBool::new(false),
            removed: AtomicBool::new(false),
            pinned: AtomicBool::new(false),
            awaits_sync: AtomicBool::new(false),
            used: AtomicBool::new(false),
            log: Mutex::new(None),
            indexes: Mutex::new(None),
            closing: Mutex::new(None),
            largest: Mutex::new(None),
            modified_ms: Mutex::new(None),
        })
    }

    /// Unique in this process.
    pub fn id(&self) -> u64 {
        self.id
    }

    pub fn env(&self) -> &LogEnv {
        &self.env
    }

    /// Offset of the first record that it may hold.
    pub fn base_offset(&self) -> i64 {
        self.base_offset
    }

    /// Bytes of the `.log` that are in the file.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    pub fn set_written(&self, bytes: u64) {
        self.written.store(bytes, Ordering::Release);
        self.size.fetch_max(bytes, Ordering::AcqRel);
    }

    /// Bytes that can be read, from the file or the block cache.
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Sets the bytes in file and block cache together.
    pub fn set_size(&self, bytes: u64) {
        self.size.store(bytes, Ordering::Release);
    }

    /// Everything behind `bytes` was truncated.
    pub fn cut(&self, bytes: u64) {
        self.written.fetch_min(bytes, Ordering::AcqRel);
        self.size.store(bytes, Ordering::Release);
        if let (Some(cached), Ok(position)) = (self.cached(), u32::try_from(bytes)) {
            cached.cut(position);
        }
        self.env.windows().forget(self.id);
        self.env.kept().forget(self.id);
    }

    /// Its blocks in the cache, if any.
    pub fn cached(&self) -> Option<&Arc<CachedSegment>> {
        self.cached.get()
    }

    /// Its blocks; `make` creates some.
    pub fn cached_or(&self, make: impl FnOnce() -> Arc<CachedSegment>) -> &Arc<CachedSegment> {
        self.cached.get_or_init(make)
    }

    /// Whether no more bytes will come and all files are complete.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// The segment was rolled: `indexes` serve look-ups until [`Segment::finish_indexes`].
    pub fn begin_close(&self, indexes: ClosingIndexes) {
        self.set_awaits_sync(true);
        self.set_largest(indexes.indexes.largest);
        *self.closing.lock() = Some(Arc::new(indexes));
    }

    /// Completes the index files and cuts them to size; the segment is then closed.
    pub fn finish_indexes(&self) -> io::Result<()> {
        let closing = self.closing.lock().clone();
        if let Some(closing) = closing {
            self.write_index_tails(&closing.indexes, closing.offsets_taken, closing.times_taken)?;
        }
        self.closed.store(true, Ordering::Release);
        *self.closing.lock() = None;
        if let Some(open) = &*self.log.lock() {
            open.file.no_more_writes();
        }
        Ok(())
    }

    /// Appends the missing entries to the index files, which have the given numbers of bytes.
    pub fn write_index_tails(
        &self,
        indexes: &SegmentIndexes,
        offsets_taken: usize,
        times_taken: usize,
    ) -> io::Result<()> {
        let times = &indexes.times.as_bytes()[times_taken..];
        self.finish_index(FileKind::TimeIndex, times_taken, times)?;
        let offsets = &indexes.offsets.as_bytes()[offsets_taken..];
        self.finish_index(FileKind::OffsetIndex, offsets_taken, offsets)
    }

    /// Makes it the active segment again, after those behind it were removed.
    pub fn reopen(&self) {
        self.set_awaits_sync(false);
        self.closed.store(false, Ordering::Release);
        *self.indexes.lock() = None;
        *self.largest.lock() = None;
    }

    fn finish_index(&self, kind: FileKind, position: usize, bytes: &[u8]) -> io::Result<()> {
        let file = self.env.disk().open(&self.path(kind), OpenMode::Create)?;
        file.write_all_at(bytes, position as u64)?;
        let end = (position + bytes.len()) as u64;
        // Kafka preallocates the index of an active segment; an adopted one is cut to its content
        // here.
        if file.len()? != end {
            file.set_len(end)?;
        }
        Ok(())
    }

    /// Keeps the log file open, or lets it be closed for others.
    pub fn set_pinned(self: &Arc<Self>, pinned: bool) {
        if !pinned {
            self.set_awaits_sync(false);
        }
        let before = self.pinned.swap(pinned, Ordering::AcqRel);
        if before && !pinned && self.log.lock().is_some() {
            self.env.list(self);
        }
    }

    fn set_awaits_sync(&self, awaits: bool) {
        if self.awaits_sync.swap(awaits, Ordering::AcqRel) != awaits {
            self.env.count_unsynced(!awaits);
        }
    }

    /// The largest timestamp and the last offset of the first batch with it, if known; (-1, _)
    /// without timestamps.
    pub fn largest(&self) -> Option<TimeEntry> {
        *self.largest.lock()
    }

    pub fn set_largest(&self, largest: TimeEntry) {
        *self.largest.lock() = Some(largest);
    }

    /// The `.log` for reading. `Nowait` fails if it must be opened first.
    pub fn log_file(self: &Arc<Self>, wait: Wait) -> io::Result<Arc<dyn DiskFile>> {
        self.used.store(true, Ordering::Relaxed);
        let mut log = lock(&self.log, wait)?;
        if let Some(open) = &*log {
            return Ok(open.file.clone());
        }
        if wait == Wait::Nowait {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let file = self.open_for_reading(FileKind::Log)?;
        *log = Some(OpenLog {
            file: file.clone(),
            writable: false,
        });
        drop(log);
        if !self.pinned.load(Ordering::Acquire) {
            self.env.opened(self);
        }
        Ok(file)
    }

    /// The `.log` for writing, created if missing; it then stays open.
    pub fn log_file_for_writing(&self) -> io::Result<Arc<dyn DiskFile>> {
        let mut log = self.log.lock();
        self.pinned.store(true, Ordering::Release);
        if let Some(OpenLog {
            file,
            writable: true,
        }) = &*log
        {
            return Ok(file.clone());
        }
        let file = self
            .env
            .disk()
            .open(&self.path(FileKind::Log), OpenMode::Create)?;
        *log = Some(OpenLog {
            file: file.clone(),
            writable: true,
        });
        Ok(file)
    }

    /// The caller holds the lock of the kind, which prevents a rename meanwhile.
    fn open_for_reading(&self, kind: FileKind) -> io::Result<Arc<dyn DiskFile>> {
        self.env.disk().open(&self.path(kind), OpenMode::Read)
    }

    /// A lower bound in the `.log` for `offset`, from a closed segment's offset index file.
    pub fn search_offset(self: &Arc<Self>, offset: i64, wait: Wait) -> io::Result<u32> {
        if let Some(closing) = &*self.closing.lock() {
            return Ok(closing.indexes.offsets.lookup(offset).position);
        }
        let files = self.index_files(wait)?;
        let read = |i: usize| read_entry(&*files.offsets, i, wait);
        let entry =
            offset_index::search_offset(files.offset_entries, self.base_offset, offset, read)?;
        Ok(entry.position)
    }

    /// The last entry at or below `timestamp` in a closed segment's time index file.
    pub fn search_time(self: &Arc<Self>, timestamp: i64, wait: Wait) -> io::Result<TimeEntry> {
        if let Some(closing) = &*self.closing.lock() {
            return Ok(closing.indexes.times.lookup(timestamp));
        }
        let files = self.index_files(wait)?;
        let read = |i: usize| read_entry(&*files.times, i, wait);
        time_index::search_time(files.time_entries, self.base_offset, timestamp, read)
    }

    /// [`Segment::largest`], read from a closed segment's time index if unknown.
    pub fn load_largest(self: &Arc<Self>, wait: Wait) -> io::Result<TimeEntry> {
        if let Some(largest) = self.largest() {
            return Ok(largest);
        }
        let files = self.index_files(wait)?;
        let largest = match files.time_entries.checked_sub(1) {
            Some(last) => {
                let bytes: [u8; time_index::ENTRY_BYTES] = read_entry(&*files.times, last, wait)?;
                time_index::TimeIndexView::trusted(self.base_offset, &bytes).last()
            }
            None => None,
        };
        let none = TimeEntry {
            timestamp: time_index::NO_TIMESTAMP,
            offset: self.base_offset,
        };
        let largest = largest.unwrap_or(none);
        self.set_largest(largest);
        Ok(largest)
    }

    /// Time of the newest record (ms): its timestamp, or the file's last change without timestamps;
    /// `None` if not read yet.
    pub fn newest_ms(&self) -> Option<i64> {
        match self.largest() {
            Some(largest) if largest.timestamp >= 0 => Some(largest.timestamp),
            _ => *self.modified_ms.lock(),
        }
    }

    /// [`Segment::newest_ms`], read from a closed segment's files if unknown.
    pub fn load_newest_ms(self: &Arc<Self>) -> io::Result<i64> {
        if let Some(newest_ms) = self.newest_ms() {
            return Ok(newest_ms);
        }
        let largest = self.load_largest(Wait::Blocking)?;
        if largest.timestamp >= 0 {
            return Ok(largest.timestamp);
        }
        let modified_ms = self.env.disk().modified_ms(&self.path(FileKind::Log))?;
        *self.modified_ms.lock() = Some(modified_ms);
        Ok(modified_ms)
    }

    /// The index files, opened and checked on first use; rebuilt from the `.log` if missing or
    /// wrong.
    fn index_files(self: &Arc<Self>, wait: Wait) -> io::Result<Arc<IndexFiles>> {
        self.used.store(true, Ordering::Relaxed);
        let mut indexes = lock(&self.indexes, wait)?;
        if let Some(files) = &*indexes {
            return Ok(files.clone());
        }
        if wait == Wait::Nowait {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let files = match self.open_indexes()? {
            Some(files) => files,
            None => {
                let log = self.bytes();
                let built = SegmentIndexes::rebuild(&log, self.base_offset, self.size())?;
                built.replace(self.env.disk(), &|kind| self.path(kind))?;
                self.open_indexes()?.ok_or_else(|| {
                    let path = self.path(FileKind::OffsetIndex);
                    io::Error::new(
                        io::ErrorKind::InvalidData,
                        format!("{} is wrong right after it was rebuilt", path.display()),
                    )
                })?
            }
        };
        let files = Arc::new(files);
        *indexes = Some(files.clone());
        drop(indexes);
        self.env.opened(self);
        Ok(files)
    }

    /// `None` if a file is missing, ends inside an entry or with an impossible one.
    fn open_indexes(&self) -> io::Result<Option<IndexFiles>> {
        let open = |kind| match self.open_for_reading(kind) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
        let (Some(offsets), Some(times)) =
            (open(FileKind::OffsetIndex)?, open(FileKind::TimeIndex)?)
        else {
            return Ok(None);
        };
        let (offsets_len, times_len) = (offsets.len()? as usize, times.len()? as usize);
        if offsets_len % offset_index::ENTRY_BYTES != 0 || times_len % time_index::ENTRY_BYTES != 0
        {
            return Ok(None);
        }
        let files = IndexFiles {
            offset_entries: offsets_len / offset_index::ENTRY_BYTES,
            time_entries: times_len / time_index::ENTRY_BYTES,
            offsets,
            times,
        };
        Ok(self.last_entries_fit(&files)?.then_some(files))
    }

    fn last_entries_fit(&self, files: &IndexFiles) -> io::Result<bool> {
        if let Some(last) = files.offset_entries.checked_sub(1) {
            let bytes: [u8; offset_index::ENTRY_BYTES] =
                read_entry(&*files.offsets, last, Wait::Blocking)?;
            let entry = offset_index::OffsetIndexView::trusted(self.base_offset, &bytes).last();
            if !entry.is_some_and(|entry| {
                entry.offset > self.base_offset && u64::from(entry.position) < self.size()
            }) {
                return Ok(false);
            }
        }
        if let Some(last) = files.time_entries.checked_sub(1) {
            let bytes: [u8; time_index::ENTRY_BYTES] =
                read_entry(&*files.times, last, Wait::Blocking)?;
            let entry = time_index::TimeIndexView::trusted(self.base_offset, &bytes).last();
            if !entry.is_some_and(|e| e.timestamp >= 0 && e.offset >= self.base_offset) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Removes misleading index files; they are rebuilt on next use.
    pub fn discard_indexes(&self) -> io::Result<()> {
        let mut indexes = self.indexes.lock();
        *indexes = None;
        *self.largest.lock() = None;
        for kind in [FileKind::OffsetIndex, FileKind::TimeIndex] {
            missing_is_fine(self.env.disk().remove_file(&self.path(kind)))?;
        }
        Ok(())
    }
}

impl SegmentHandle for Segment {
    fn id(&self) -> u64 {
        self.id
    }

    fn written(&self) -> u64 {
        Segment::written(self)
    }

    fn open_log(self: Arc<Self>, wait: Wait) -> io::Result<Arc<dyn DiskFile>> {
        self.log_file(wait)
    }

    fn give_up_pages(self: Arc<Self>, position: u64, len: u64) {
        // If it cannot be opened, its pages serve nobody.
        if let Ok(file) = self.log_file(Wait::Blocking) {
            file.give_up_pages(position, len);
        }
    }

    fn take_files_unless_used(&self, closing: &mut Vec<Arc<dyn DiskFile>>) -> bool {
        if self.pinned.load(Ordering::Acquire) {
            return true;
        }
        if self.used.swap(false, Ordering::Relaxed) {
            return false;
        }
        // The holder of one of these locks uses the files now, and may itself wait for the list of
        // open segments that the caller has locked.
        let (Some(mut log), Some(mut indexes)) = (self.log.try_lock(), self.indexes.try_lock())
        else {
            return false;
        };
        closing.extend(log.take().map(|log| log.file));
        if let Some(files) = indexes.take() {
            closing.extend([Arc::clone(&files.offsets), Arc::clone(&files.times)]);
        }
        true
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        self.set_awaits_sync(false);
    }
}

/// Another thread may hold the lock while it opens or rebuilds files.
fn lock<T>(mutex: &Mutex<T>, wait: Wait) -> io::Result<MutexGuard<'_, T>> {
    match wait {
        Wait::Blocking | Wait::PastCache => Ok(mutex.lock()),
        Wait::Nowait => mutex
            .try_lock()
            .ok_or_else(|| io::ErrorKind::WouldBlock.into()),
    }
}

fn read_entry<const N: usize>(file: &dyn DiskFile, i: usize, wait: Wait) -> io::Result<[u8; N]> {
    let mut entry = [0; N];
    let position = (i * N) as u64;
    let mut done = 0;
    while done < N {
        let at = position + done as u64;
        let n = match wait {
            Wait::Blocking | Wait::PastCache => file.read_at(&mut entry[done..], at)?,
            Wait::Nowait => file.read_at_nowait(&mut entry[done..], at)?,
        };
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        done += n;
    }
    Ok(entry)
}
