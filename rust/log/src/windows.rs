//! What readers far behind hold of the files: *windows* of a mebibyte, read in one piece past the page
//! cache and sent from memory (docs/reads.md).
//!
//! A window holds bytes of one segment's file as they are there. Whoever reads on where another
//! consumer just was finds that one's windows; what nobody came for is forgotten, the oldest first.
//! Windows lie on the heap, [`WINDOWS_MAX_BYTES`] of a log directory at most; when nobody reads
//! from far behind, there are none.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::disk::PAGE_BYTES;
use crate::page_bytes::PageBytes;
use crate::read::Wait;
use crate::segment::Segment;

/// What is read from a disk at once.
pub const WINDOW_BYTES: usize = 1 << 20;

/// The same while many readers share the memory.
pub const SMALL_WINDOW_BYTES: usize = 128 << 10;

/// All windows of a log directory.
pub const WINDOWS_MAX_BYTES: usize = 64 << 20;

/// Windows that a reader has left are kept for those right behind it, up to this much.
pub const PASSED_MAX_BYTES: usize = 8 << 20;

/// Bytes of a segment's file.
#[derive(Debug)]
pub struct Window {
    start: u64,
    len: usize,
    /// It ends where it was meant to, not where the file did: a reader that leaves it goes on behind.
    is_full: bool,
    /// At least `len` bytes; kept at its size to be filled again.
    bytes: PageBytes,
}

impl Window {
    /// The bytes from `position` on; none when it holds none of them.
    pub fn from(&self, position: u64) -> &[u8] {
        let at = position.checked_sub(self.start);
        let at = at.and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.bytes[..self.len].get(at..))
            .unwrap_or_default()
    }

    fn end(&self) -> u64 {
        self.start + self.len as u64
    }
}

/// What is known about a position.
#[derive(Debug)]
pub(crate) enum Look {
    /// A window holds it.
    Held(Arc<Window>),
    /// A window ends there: whoever reads on has come from far behind.
    GoesOn,
    /// Nothing.
    Unknown,
}

#[derive(Debug)]
struct Held {
    segment: u64,
    window: Arc<Window>,
    /// A reader has left it.
    is_passed: bool,
    /// Looked at since the last [`Windows::forget_idle`].
    is_used: bool,
}

#[derive(Debug, Default)]
struct Inner {
    /// The oldest first.
    held: VecDeque<Held>,
    spare: Option<PageBytes>,
}

/// The windows of a log directory.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    inner: Mutex<Inner>,
    /// How many there are: those who look need no lock while there are none.
    count: AtomicUsize,
}

impl Windows {
    /// What is known about a position in the file of a segment. Memory only.
    pub fn look(&self, segment: u64, position: u64) -> Look {
        if self.count.load(Ordering::Acquire) == 0 {
            return Look::Unknown;
        }
        let mut inner = self.inner.lock();
        let mut goes_on = false;
        for held in inner.held.iter_mut().rev() {
            let window = &held.window;
            if held.segment != segment || !(window.start..=window.end()).contains(&position) {
                continue;
            }
            held.is_used = true;
            if position < window.end() {
                return Look::Held(Arc::clone(window));
            }
            goes_on |= window.is_full;
        }
        if goes_on { Look::GoesOn } else { Look::Unknown }
    }

    /// A reader has left a window: it goes before those that are still to be read.
    pub fn passed(&self, window: &Arc<Window>) {
        let mut inner = self.inner.lock();
        let mut held = inner.held.iter_mut();
        if let Some(held) = held.find(|held| Arc::ptr_eq(&held.window, window)) {
            held.is_passed = true;
        }
    }

    /// Reads the window that begins with the page of `position`, past the page cache. Waits for the
    /// disk, with no lock held. `None`: the file does not reach that far.
    ///
    /// # Errors
    /// The disk's.
    pub fn load(&self, segment: &Arc<Segment>, position: u64) -> io::Result<Option<Arc<Window>>> {
        let start = position - position % PAGE_BYTES as u64;
        let written = segment.written();
        if position >= written {
            return Ok(None);
        }
        let file = segment.log_file(Wait::Blocking)?;
        let mut bytes = self.room();
        let full = full_len(start, bytes.len());
        let wanted = usize::try_from(written - start).unwrap_or(usize::MAX);
        let wanted = wanted.min(full);
        // Whole pages can be read around the page cache.
        let asked = wanted.next_multiple_of(PAGE_BYTES);
        let mut len = 0;
        while len < wanted {
            match file.read_past_cache_at(&mut bytes[len..asked], start + len as u64) {
                Ok(0) => break,
                Ok(count) => len = wanted.min(len + count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) if start + len as u64 > position => break,
                Err(error) => {
                    self.give_back(bytes);
                    return Err(error);
                }
            }
        }
        if start + len as u64 <= position {
            self.give_back(bytes);
            return Ok(None);
        }
        let window = Arc::new(Window {
            start,
            len,
            is_full: len == full,
            bytes,
        });
        let mut inner = self.inner.lock();
        inner.held.push_back(Held {
            segment: segment.id(),
            window: Arc::clone(&window),
            is_passed: false,
            is_used: true,
        });
        self.count.store(inner.held.len(), Ordering::Release);
        Ok(Some(window))
    }

    /// Memory for a window: that of one that is not needed any more, if it can be had.
    fn room(&self) -> PageBytes {
        let mut inner = self.inner.lock();
        let wanted = if inner.bytes(|held| !held.is_passed) >= WINDOWS_MAX_BYTES / 2 {
            SMALL_WINDOW_BYTES
        } else {
            WINDOW_BYTES
        };
        while inner.bytes(|held| held.is_passed) > PASSED_MAX_BYTES
            || inner.bytes(|_| true) + wanted > WINDOWS_MAX_BYTES
        {
            let passed = inner.held.iter().position(|held| held.is_passed);
            let Some(oldest) = inner.held.remove(passed.unwrap_or(0)) else {
                break;
            };
            inner.keep_memory(oldest.window);
        }
        self.count.store(inner.held.len(), Ordering::Release);
        let spare = inner.spare.take();
        drop(inner);
        spare
            .filter(|bytes| bytes.len() == wanted)
            .unwrap_or_else(|| PageBytes::new(wanted))
    }

    fn give_back(&self, bytes: PageBytes) {
        self.inner.lock().spare = Some(bytes);
    }

    /// The segment's file is cut: nothing that was read of it counts.
    pub fn forget(&self, segment: u64) {
        self.retain(|held| held.segment != segment);
    }

    /// Forgets the windows that nobody looked at since the last time.
    pub fn forget_idle(&self) {
        self.retain(|held| std::mem::take(&mut held.is_used));
        self.inner.lock().spare = None;
    }

    fn retain(&self, keep: impl FnMut(&mut Held) -> bool) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut inner = self.inner.lock();
        inner.held.retain_mut(keep);
        self.count.store(inner.held.len(), Ordering::Release);
    }

    /// Memory that the windows take.
    pub fn bytes(&self) -> usize {
        self.inner.lock().bytes(|_| true)
    }
}

/// Windows end at multiples of their size, unless that would make them short: the kernel fetches, and
/// drops, by large pieces at such places, and would fetch twice one that two windows share.
fn full_len(start: u64, size: usize) -> usize {
    let to_end = size - (start % size as u64) as usize;
    if to_end < size / 4 { size } else { to_end }
}

impl Inner {
    fn bytes(&self, which: impl Fn(&Held) -> bool) -> usize {
        let held = self.held.iter().filter(|held| which(held));
        held.map(|held| held.window.bytes.len()).sum()
    }

    /// Whoever still sends from it keeps it alive; else its memory serves the next one.
    fn keep_memory(&mut self, window: Arc<Window>) {
        if let Ok(window) = Arc::try_unwrap(window)
            && window.bytes.len() == WINDOW_BYTES
        {
            self.spare = Some(window.bytes);
        }
    }
}

#[cfg(test)]
mod tests;
