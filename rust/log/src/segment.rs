//! One segment: up to `segment.bytes` of consecutive batches in one `.log`, with its indexes.
//!
//! Readers and the log share a [`Segment`] by `Arc`, so its files stay readable until the last of
//! them is done, even if retention renamed or removed them. The active segment's indexes live on
//! the heap in [`ActiveSegment`], under the log's lock. A closed segment's are searched in their
//! files, entry by entry, and never loaded.

use std::io;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};
use pyrklog_arena::CachedSegment;

use crate::disk::{self, Disk, DiskFile, OpenMode, if_exists, missing_is_fine};
use crate::env::LogEnv;
use crate::folder::Folder;
use crate::names::FileKind;
use crate::offset_index::OffsetEntry;
use crate::segment_handle::SegmentHandle;
use crate::sparse_index::{self, IndexEntry, SparseIndex};
use crate::time_index::{self, TimeEntry};
use crate::wait::Wait;

mod active;
mod bytes;
mod indexes;
mod removal;
mod upper;
pub(crate) use active::{ActiveSegment, Crowd, fits_relative, is_gap_intended};
pub use bytes::{BytesPlace, SegmentBytes};
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
    closing: Mutex<Option<Arc<SegmentIndexes>>>,
    largest: Mutex<Option<TimeEntry>>,
    modified_ms: Mutex<Option<i64>>,
}

#[derive(Clone, Debug)]
struct OpenLog {
    file: Arc<dyn DiskFile>,
    writable: bool,
}

/// The index files of a closed segment.
#[derive(Debug)]
struct IndexFiles {
    offsets: IndexFile<OffsetEntry>,
    times: IndexFile<TimeEntry>,
    /// The transaction index, if it was asked for.
    aborted: OnceLock<Arc<dyn DiskFile>>,
}

#[derive(Debug)]
struct IndexFile<T> {
    file: Arc<dyn DiskFile>,
    base_offset: i64,
    entries: usize,
    entry: PhantomData<T>,
}

impl<T: IndexEntry> IndexFile<T> {
    /// Nothing if the file ends within an entry.
    fn new(file: Arc<dyn DiskFile>, base_offset: i64) -> io::Result<Option<Self>> {
        let len = file.len()? as usize;
        Ok(len.is_multiple_of(T::BYTES).then(|| Self {
            file,
            base_offset,
            entries: len / T::BYTES,
            entry: PhantomData,
        }))
    }

    fn search(&self, target: i64, wait: Wait) -> io::Result<T> {
        let read = |i| self.read(i, wait);
        sparse_index::search(self.entries, self.base_offset, target, read)
    }

    /// The first entry for which `is_before` is false; the entries for which it is true come first.
    fn first_not(&self, wait: Wait, is_before: impl Fn(&T) -> bool) -> io::Result<Option<T>> {
        let decoded = |i| {
            let bytes = self.read(i, wait)?;
            io::Result::Ok(T::decode(self.base_offset, &bytes))
        };
        let before = sparse_index::count_while(self.entries, |i| {
            Ok::<_, io::Error>(decoded(i)?.is_some_and(|entry| is_before(&entry)))
        })?;
        match before < self.entries {
            true => decoded(before),
            false => Ok(None),
        }
    }

    fn last(&self, wait: Wait) -> io::Result<Option<T>> {
        let Some(last) = self.entries.checked_sub(1) else {
            return Ok(None);
        };
        Ok(T::decode(self.base_offset, &self.read(last, wait)?))
    }

    /// The bytes of an entry, with zeros behind those of a short one.
    fn read(&self, i: usize, wait: Wait) -> io::Result<[u8; time_index::ENTRY_BYTES]> {
        let mut entry = [0; time_index::ENTRY_BYTES];
        let position = (i * T::BYTES) as u64;
        let mut done = 0;
        while done < T::BYTES {
            let (rest, at) = (&mut entry[done..T::BYTES], position + done as u64);
            let n = match wait {
                Wait::Blocking | Wait::PastCache => self.file.read_at(rest, at)?,
                Wait::Nowait => self.file.read_at_nowait(rest, at)?,
            };
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            done += n;
        }
        Ok(entry)
    }
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
        self.env.windows.forget(self.id);
        self.env.kept_pages.forget(self.id);
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
    pub fn begin_close(&self, indexes: SegmentIndexes) {
        self.set_awaits_sync(true);
        self.set_largest(indexes.largest);
        *self.closing.lock() = Some(Arc::new(indexes));
    }

    /// Completes the index files and cuts them to size; the segment is then closed.
    pub fn finish_indexes(&self) -> io::Result<()> {
        let closing = self.closing.lock().clone();
        if let Some(closing) = closing {
            self.write_index_tails(&closing)?;
        }
        self.closed.store(true, Ordering::Release);
        *self.closing.lock() = None;
        if let Some(open) = &*self.log.lock() {
            open.file.no_more_writes();
        }
        Ok(())
    }

    /// Appends the missing entries to the index files, which have the given numbers of bytes.
    pub fn write_index_tails(&self, indexes: &SegmentIndexes) -> io::Result<()> {
        self.finish_index(FileKind::TimeIndex, &indexes.times)?;
        self.finish_index(FileKind::OffsetIndex, &indexes.offsets)
    }

    /// Replaces the index files by `replace`: [`disk::replace_file`] if no sync follows, else
    /// [`disk::replace_file_unsynced`].
    pub fn replace_indexes(
        &self,
        indexes: &SegmentIndexes,
        replace: fn(&dyn Disk, &Path, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let (disk, path) = (self.env.disk(), |kind| self.path(kind));
        // In this order, so that after a kill the offsets are never ahead of the times.
        replace(disk, &path(FileKind::TimeIndex), indexes.times.as_bytes())?;
        replace(
            disk,
            &path(FileKind::OffsetIndex),
            indexes.offsets.as_bytes(),
        )
    }

    /// Makes it the active segment again, after those behind it were removed.
    pub fn reopen(&self) {
        self.set_awaits_sync(false);
        self.closed.store(false, Ordering::Release);
        *self.indexes.lock() = None;
        *self.largest.lock() = None;
    }

    fn finish_index<T: IndexEntry>(
        &self,
        kind: FileKind,
        index: &SparseIndex<T>,
    ) -> io::Result<()> {
        let file = self.env.disk().open(&self.path(kind), OpenMode::Create)?;
        file.write_all_at(index.untaken(), index.taken as u64)?;
        let end = index.size_bytes() as u64;
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
            return Ok(closing.offsets.lookup(offset).position);
        }
        Ok(self
            .index_files(wait)?
            .offsets
            .search(offset, wait)?
            .position)
    }

    /// The last entry at or below `timestamp` in a closed segment's time index file.
    pub fn search_time(self: &Arc<Self>, timestamp: i64, wait: Wait) -> io::Result<TimeEntry> {
        if let Some(closing) = &*self.closing.lock() {
            return Ok(closing.times.lookup(timestamp));
        }
        self.index_files(wait)?.times.search(timestamp, wait)
    }

    /// [`Segment::largest`], read from a closed segment's time index if unknown.
    pub fn load_largest(self: &Arc<Self>, wait: Wait) -> io::Result<TimeEntry> {
        if let Some(largest) = self.largest() {
            return Ok(largest);
        }
        let last = self.index_files(wait)?.times.last(wait)?;
        let largest = last.unwrap_or(TimeEntry::none(self.base_offset));
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
        self.load_modified_ms()
    }

    /// When the `.log` was last changed (ms).
    pub fn load_modified_ms(&self) -> io::Result<i64> {
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
                let built = SegmentIndexes::rebuild(self.bytes(), self.base_offset, self.size())?;
                self.replace_indexes(&built, disk::replace_file)?;
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

    /// The transaction index file of a closed segment that has one. `Nowait` fails if it must be
    /// opened first.
    pub fn transaction_index(self: &Arc<Self>, wait: Wait) -> io::Result<Arc<dyn DiskFile>> {
        let files = self.index_files(wait)?;
        if let Some(file) = files.aborted.get() {
            return Ok(file.clone());
        }
        // Nobody renames it meanwhile.
        let _locked = lock(&self.indexes, wait)?;
        if wait == Wait::Nowait {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let file = self.open_for_reading(FileKind::TransactionIndex)?;
        Ok(files.aborted.get_or_init(|| file).clone())
    }

    /// `None` if a file is missing, ends inside an entry or with an impossible one.
    fn open_indexes(&self) -> io::Result<Option<IndexFiles>> {
        let open = |kind| if_exists(self.open_for_reading(kind));
        let (Some(offsets), Some(times)) =
            (open(FileKind::OffsetIndex)?, open(FileKind::TimeIndex)?)
        else {
            return Ok(None);
        };
        let offsets = IndexFile::new(offsets, self.base_offset)?;
        let times = IndexFile::new(times, self.base_offset)?;
        let (Some(offsets), Some(times)) = (offsets, times) else {
            return Ok(None);
        };
        let files = IndexFiles {
            offsets,
            times,
            aborted: OnceLock::new(),
        };
        Ok(self.last_entries_fit(&files)?.then_some(files))
    }

    fn last_entries_fit(&self, files: &IndexFiles) -> io::Result<bool> {
        let offset_fits = files.offsets.last(Wait::Blocking)?.is_none_or(|entry| {
            entry.offset > self.base_offset && u64::from(entry.position) < self.size()
        });
        let time = files.times.last(Wait::Blocking)?;
        let time_fits = time.is_none_or(|e| e.timestamp >= 0 && e.offset >= self.base_offset);
        Ok(offset_fits && time_fits)
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
            closing.extend([&files.offsets.file, &files.times.file].map(Arc::clone));
            closing.extend(files.aborted.get().cloned());
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
