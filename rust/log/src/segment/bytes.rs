//! The bytes of a segment, in the block cache or in the file.

use std::io;
use std::sync::Arc;

use pyrklog_arena::CachedSegment;

use crate::disk::DiskFile;
use crate::kept_pages::{PIECE_BYTES, Verdict};
use crate::scan::{BatchScanner, ReadBytes};
use crate::segment::Segment;
use crate::wait::Wait;
use crate::windows::{Look, Window};

/// Distance at which to probe the page cache: a probe of the first byte may find what an earlier
/// probe made the kernel fetch.
const PROBE_AHEAD_BYTES: u64 = 128 * 1024;

/// The readable bytes of a segment. Cheap to clone; they stay readable while one is held, even if
/// retention removes the segment.
#[derive(Clone, Debug)]
pub struct SegmentBytes {
    source: Source,
}

/// Where bytes of a segment are that no block holds.
#[derive(Debug)]
pub enum BytesPlace {
    /// In a window.
    Window(Arc<Window>),
    /// In the page cache, or in a file without windows.
    PageCache,
    /// On the disk or in the page cache, through which the next `len` bytes must be read.
    Kept {
        /// Up to the end of the piece.
        len: usize,
    },
    /// On the disk, and not to be put in the page cache.
    Disk,
}

#[derive(Clone, Debug)]
enum Source {
    Segment(Arc<Segment>),
    File(Arc<dyn DiskFile>),
}

impl SegmentBytes {
    pub(crate) fn new(segment: &Arc<Segment>) -> SegmentBytes {
        SegmentBytes {
            source: Source::Segment(Arc::clone(segment)),
        }
    }

    /// Of a file that nothing caches.
    pub fn of_file(file: Arc<dyn DiskFile>) -> SegmentBytes {
        SegmentBytes {
            source: Source::File(file),
        }
    }

    /// The blocks that hold some of them.
    pub fn cached(&self) -> Option<&Arc<CachedSegment>> {
        match &self.source {
            Source::Segment(segment) => segment.cached(),
            Source::File(_) => None,
        }
    }

    /// The file. Opening it may wait, so [`Wait::Nowait`] gives `WouldBlock` if it is not open.
    pub fn file(&self, wait: Wait) -> io::Result<Arc<dyn DiskFile>> {
        match &self.source {
            Source::Segment(segment) => segment.log_file(wait),
            Source::File(file) => Ok(Arc::clone(file)),
        }
    }

    /// Reads up to `buffer.len()` bytes at `position`; 0 only at the end.
    ///
    /// # Errors
    /// A disk error; `WouldBlock` if [`Wait::Nowait`] would have to wait.
    pub fn read(&self, buffer: &mut [u8], position: u64, wait: Wait) -> io::Result<usize> {
        if let Some(cached) = self.cached()
            && let Ok(position) = u32::try_from(position)
        {
            let count = cached.copy(position, buffer);
            if count > 0 {
                return Ok(count);
            }
        }
        let window = match (self.look_up_window(position), wait) {
            (Look::Held(window), _) => Some(window),
            // Read ahead for a reader far behind: must not stay in the page cache.
            (Look::GoesOn, Wait::Nowait) => return Err(io::ErrorKind::WouldBlock.into()),
            (_, Wait::PastCache) => self.window(position)?,
            _ => None,
        };
        if let Some(window) = window {
            let found = window.from(position);
            let count = found.len().min(buffer.len());
            buffer[..count].copy_from_slice(&found[..count]);
            return Ok(count);
        }
        let file = self.file(wait)?;
        match (wait, &self.source) {
            (Wait::Nowait, Source::Segment(segment)) => {
                read_nowait(&*file, segment, buffer, position)
            }
            (Wait::Nowait, Source::File(_)) => file.read_at_nowait(buffer, position),
            (Wait::Blocking | Wait::PastCache, _) => file.read_at(buffer, position),
        }
    }

    /// Tells the system which bytes of the file will be read soon.
    pub fn read_ahead(&self, position: u64, len: u64) {
        let is_cached = |cached: &Arc<CachedSegment>| {
            let range = u32::try_from(position).ok().zip(u32::try_from(len).ok());
            range.is_some_and(|(at, len)| cached.holds(at, at.saturating_add(len)))
        };
        if self.cached().is_some_and(is_cached) {
            return;
        }
        // A hint is not worth opening a file.
        if let Ok(file) = self.file(Wait::Nowait) {
            file.read_ahead(position, len);
        }
    }

    fn look_up_window(&self, position: u64) -> Look {
        match &self.source {
            Source::Segment(segment) => segment.env().windows.look_up(segment.id(), position),
            Source::File(_) => Look::Unknown,
        }
    }

    /// Where the bytes from `position` on are, or go when read. Waits only for opening the file.
    pub fn place(&self, position: u64) -> io::Result<BytesPlace> {
        let Source::Segment(segment) = &self.source else {
            return Ok(BytesPlace::PageCache);
        };
        let env = segment.env();
        let look = env.windows.look_up(segment.id(), position);
        if let Look::Held(window) = look {
            return Ok(BytesPlace::Window(window));
        }
        let file = segment.log_file(Wait::Blocking)?;
        let kept = &env.kept_pages;
        let mut verdict = kept.touch(&**segment, position);
        if verdict.is_none() {
            // The page cache of files that are not the system's is unknown.
            let can_keep = file.descriptor().is_some();
            // Pages that the system read ahead of a reader of kept data do not count.
            let follows = can_keep && kept.holds_or_before(segment.id(), position);
            let is_resident = !follows && matches!(look, Look::Unknown) && {
                let last = segment.written().saturating_sub(1);
                let probe = last.min(position + PROBE_AHEAD_BYTES);
                read_nowait(&*file, segment, &mut [0], probe).is_ok()
            };
            if is_resident && !(can_keep && kept.has_room()) {
                return Ok(BytesPlace::PageCache);
            }
            if can_keep {
                verdict = Some(kept.judge(segment, position));
            }
        }
        let Some(Verdict::PageCache { ask_pieces }) = verdict else {
            return Ok(BytesPlace::Disk);
        };
        ask_for(&*file, segment, position, ask_pieces);
        let len = usize::try_from(piece_end(position) - position).unwrap_or(usize::MAX);
        Ok(BytesPlace::Kept { len })
    }

    /// Whether the page cache has the byte at `position`.
    pub fn is_resident(&self, position: u64) -> bool {
        let file = self.file(Wait::Nowait);
        file.is_ok_and(|file| file.read_at_nowait_keeping(&mut [0], position).is_ok())
    }

    /// Reads the window that holds the bytes from `position` on, waiting for the disk; `None` if
    /// the file ends before or has no windows.
    pub fn load(&self, position: u64) -> io::Result<Option<Arc<Window>>> {
        match &self.source {
            Source::Segment(segment) => segment.env().windows.load(segment, position),
            Source::File(_) => Ok(None),
        }
    }

    /// The window that holds the bytes from `position` on, read if needed, waiting for the disk.
    /// `None` if the page cache has them or the file has no windows.
    pub fn window(&self, position: u64) -> io::Result<Option<Arc<Window>>> {
        match self.place(position)? {
            BytesPlace::Window(window) => Ok(Some(window)),
            BytesPlace::PageCache | BytesPlace::Kept { .. } => Ok(None),
            BytesPlace::Disk => self.load(position),
        }
    }

    /// Plans reads ahead behind a window; pass each to [`SegmentBytes::load_ahead`] or
    /// [`SegmentBytes::forget_ahead`].
    pub fn plan_ahead(&self, window: &Window) -> Vec<u64> {
        let Source::Segment(segment) = &self.source else {
            return Vec::new();
        };
        let windows = &segment.env().windows;
        let mut plan = windows.plan_ahead(segment, window);
        // Kept pieces are read from the page cache.
        let kept = plan.iter().position(|at| is_kept_from(segment, *at));
        for dropped in plan.drain(kept.unwrap_or(plan.len())..) {
            windows.forget_ahead(segment.id(), dropped);
        }
        plan
    }

    /// Carries out a planned read. Waits for the disk.
    pub fn load_ahead(&self, position: u64) {
        if let Source::Segment(segment) = &self.source {
            segment.env().windows.load_ahead(segment, position);
        }
    }

    /// Drops a planned read.
    pub fn forget_ahead(&self, position: u64) {
        if let Source::Segment(segment) = &self.source {
            segment.env().windows.forget_ahead(segment.id(), position);
        }
    }

    /// Everything up to the end of a window was sent.
    pub fn passed(&self, window: &Arc<Window>) {
        if let Source::Segment(segment) = &self.source {
            segment.env().windows.passed(window);
        }
    }
}

impl Segment {
    /// All its bytes.
    pub fn bytes(self: &Arc<Self>) -> SegmentBytes {
        SegmentBytes::new(self)
    }

    /// Walks over the batches from `start` on, and waits for the disk.
    pub fn walk(self: &Arc<Self>, start: u64, chunk: usize) -> BatchScanner<SegmentBytes> {
        BatchScanner::new(self.bytes(), start, self.size(), chunk, Wait::Blocking)
    }
}

impl ReadBytes for SegmentBytes {
    fn read(&self, buffer: &mut [u8], position: u64, wait: Wait) -> io::Result<usize> {
        SegmentBytes::read(self, buffer, position, wait)
    }
}

fn piece_end(position: u64) -> u64 {
    (position / PIECE_BYTES + 1) * PIECE_BYTES
}

/// Asks the system to fetch this many pieces, beginning with that of `position`.
fn ask_for(file: &dyn DiskFile, segment: &Segment, position: u64, pieces: u64) {
    let Some(behind) = pieces.checked_sub(1) else {
        return;
    };
    let end = segment
        .written()
        .min(piece_end(position) + behind * PIECE_BYTES);
    file.read_ahead(position, end.saturating_sub(position));
}

/// Whether what follows is kept, or is to be from now on, which is decided at the start of a piece.
fn is_kept_from(segment: &Arc<Segment>, position: u64) -> bool {
    let kept = &segment.env().kept_pages;
    if kept.holds(segment.id(), position) {
        return true;
    }
    if !position.is_multiple_of(PIECE_BYTES) {
        return false;
    }
    let Ok(file) = segment.log_file(Wait::Nowait) else {
        return false;
    };
    if file.descriptor().is_none() {
        return false;
    }
    match kept.judge(segment, position) {
        Verdict::Past => false,
        Verdict::PageCache { ask_pieces } => {
            ask_for(&*file, segment, position, ask_pieces);
            true
        }
    }
}

/// Reads what the page cache has. What a miss makes the system fetch stays there if old data may.
fn read_nowait(
    file: &dyn DiskFile,
    segment: &Segment,
    buffer: &mut [u8],
    position: u64,
) -> io::Result<usize> {
    if segment.env().kept_pages.is_open() {
        file.read_at_nowait_keeping(buffer, position)
    } else {
        file.read_at_nowait(buffer, position)
    }
}
