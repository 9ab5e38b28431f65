//! The bytes of a segment, wherever they are: in the block cache, or in the file.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use pyrklog_arena::CachedSegment;

use crate::disk::DiskFile;
use crate::read::Wait;
use crate::segment::Segment;
use crate::windows::{Look, Window};

/// Where to look whether bytes are in the page cache: so far behind their first one. Whoever asked
/// for that one before has made the kernel fetch it, and some more.
const PROBE_AHEAD_BYTES: u64 = 128 * 1024;

/// What of a segment can be read. Cheap to clone; the bytes stay readable as long as one is held,
/// also when retention has taken the segment out of its log.
#[derive(Clone, Debug)]
pub struct SegmentBytes {
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    Segment(Arc<Segment>),
    File(Arc<dyn DiskFile>),
}

impl SegmentBytes {
    /// Of a segment.
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

    /// The file. Opening it may wait, so [`Wait::Nowait`] gives `WouldBlock` when it is not open.
    ///
    /// # Errors
    /// The disk's.
    pub fn file(&self, wait: Wait) -> io::Result<Arc<dyn DiskFile>> {
        match &self.source {
            Source::Segment(segment) => segment.log_file(wait),
            Source::File(file) => Ok(Arc::clone(file)),
        }
    }

    /// Reads up to `buffer.len()` bytes at `position`: at least one, but at the end.
    ///
    /// # Errors
    /// The disk's; `WouldBlock` for [`Wait::Nowait`] where it would have to be waited for.
    pub fn read(&self, buffer: &mut [u8], position: u64, wait: Wait) -> io::Result<usize> {
        if let Some(cached) = self.cached()
            && let Ok(position) = u32::try_from(position)
        {
            let count = cached.copy(position, buffer);
            if count > 0 {
                return Ok(count);
            }
        }
        let window = match (self.look(position), wait) {
            (Look::Held(window), _) => Some(window),
            // Read ahead for somebody far behind: it is not to stay in the page cache.
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
        match wait {
            Wait::Nowait => file.read_at_nowait(buffer, position),
            Wait::Blocking | Wait::PastCache => file.read_at(buffer, position),
        }
    }

    fn look(&self, position: u64) -> Look {
        match &self.source {
            Source::Segment(segment) => segment.env().windows().look(segment.id(), position),
            Source::File(_) => Look::Unknown,
        }
    }

    /// The window that holds the bytes from `position` on, read if need be: waits for the disk.
    /// `None` where the page cache has them, and for files that have no windows.
    ///
    /// # Errors
    /// The disk's.
    pub fn window(&self, position: u64) -> io::Result<Option<Arc<Window>>> {
        let Source::Segment(segment) = &self.source else {
            return Ok(None);
        };
        let windows = segment.env().windows();
        match windows.look(segment.id(), position) {
            Look::Held(window) => return Ok(Some(window)),
            Look::GoesOn => {}
            Look::Unknown => {
                let last = segment.written().saturating_sub(1);
                let probe = last.min(position + PROBE_AHEAD_BYTES);
                let file = segment.log_file(Wait::Blocking)?;
                if file.read_at_nowait(&mut [0], probe).is_ok() {
                    return Ok(None);
                }
            }
        }
        windows.load(segment, position)
    }

    /// Whether what follows a window should be read now, before anybody asks for it.
    pub fn wants_ahead(&self, window: &Window) -> Option<u64> {
        let Source::Segment(segment) = &self.source else {
            return None;
        };
        let next = window.next()?;
        let windows = segment.env().windows();
        windows.wants(segment, next).then_some(next)
    }

    /// Reads the window at `position`, for whoever comes there. Waits for the disk.
    pub fn load_ahead(&self, position: u64) {
        if let Source::Segment(segment) = &self.source {
            // Whoever asks for the bytes meets the error again.
            let _error = segment.env().windows().load(segment, position);
        }
    }

    /// Everything up to the end of a window was sent.
    pub fn passed(&self, window: &Arc<Window>) {
        if let Source::Segment(segment) = &self.source {
            segment.env().windows().passed(window);
        }
    }
}

/// So that whatever walks a file also walks what is not in the file yet. Reading only.
impl DiskFile for SegmentBytes {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.read(buffer, position, Wait::Blocking)
    }

    fn read_at_nowait(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.read(buffer, position, Wait::Nowait)
    }

    fn read_past_cache_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.read(buffer, position, Wait::PastCache)
    }

    fn write_all_at(&self, _bytes: &[u8], _position: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn len(&self) -> io::Result<u64> {
        match &self.source {
            Source::Segment(segment) => Ok(segment.size()),
            Source::File(file) => file.len(),
        }
    }

    fn set_len(&self, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn read_ahead(&self, position: u64, len: u64) {
        let is_cached = |cached: &Arc<CachedSegment>| {
            let range = u32::try_from(position).ok().zip(u32::try_from(len).ok());
            range.is_some_and(|(at, len)| cached.holds(at, at.saturating_add(len)))
        };
        if self.cached().is_some_and(is_cached) {
            return;
        }
        // A hint is not worth opening a file for.
        if let Ok(file) = self.file(Wait::Nowait) {
            file.read_ahead(position, len);
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
