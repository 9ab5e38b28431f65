//! *Windows*: pieces of files, read past the page cache for readers far behind and sent from memory
//! (reads.md).
//!
//! A window holds bytes of one segment's file. Consumers that follow each other share windows;
//! unused ones are dropped, the oldest first. Windows lie on the heap, up to [`WINDOWS_MAX_BYTES`]
//! a log directory.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::disk::PAGE_BYTES;
use crate::page_bytes::PageBytes;
use crate::segment_handle::SegmentHandle;
use crate::wait::Wait;

/// Bytes read from a disk at once.
pub const WINDOW_BYTES: usize = 1 << 20;

/// The same while many readers share the memory.
pub const SMALL_WINDOW_BYTES: usize = 128 << 10;

/// Limit of all windows of a log directory.
pub const WINDOWS_MAX_BYTES: usize = 64 << 20;

/// Limit of windows that their reader has left; they are kept for readers right behind it.
pub const PASSED_MAX_BYTES: usize = 8 << 20;

/// Windows are read ahead while unread ones hold less than this.
const AHEAD_MAX_BYTES: usize = WINDOWS_MAX_BYTES / 4;

/// Windows that are read ahead of one reader: initially and at most.
const AHEAD_MIN: usize = 2;
const AHEAD_MAX: usize = 8;

/// Bytes of a segment's file.
#[derive(Debug)]
pub struct Window {
    start: u64,
    len: usize,
    /// It was filled, so the file may continue: a reader goes on behind it.
    is_full: bool,
    /// At least `len` bytes; keeps its size for reuse.
    bytes: PageBytes,
}

impl Window {
    /// The bytes from `position` on; empty if it holds none of them.
    pub fn from(&self, position: u64) -> &[u8] {
        let at = position.checked_sub(self.start);
        let at = at.and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.bytes[..self.len].get(at..))
            .unwrap_or_default()
    }

    fn end(&self) -> u64 {
        self.start + self.len as u64
    }

    /// Where a reader continues; `None` at the end of the file.
    pub fn next(&self) -> Option<u64> {
        self.is_full.then(|| self.end())
    }
}

/// Knowledge about a position.
#[derive(Debug)]
pub(crate) enum Look {
    Held(Arc<Window>),
    /// A window ends there: its reader has come from far behind.
    GoesOn,
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
    /// Reads under way: segment and range.
    loading: Vec<(u64, Range<u64>)>,
    /// Planned reads ahead: segment and start.
    planned: Vec<(u64, u64)>,
    /// Windows beyond [`AHEAD_MIN`] to read ahead: grows while readers wait for the disk.
    deeper: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Windows {
    inner: Mutex<Inner>,
    /// Signals the end of a read.
    loaded: Condvar,
    /// Number of windows; look-ups need no lock while it is 0.
    count: AtomicUsize,
}

impl Windows {
    /// Looks up a position in a segment's file. Memory only.
    pub fn look_up(&self, segment: u64, position: u64) -> Look {
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

    /// A reader has left a window, which is now dropped before unread ones.
    pub fn passed(&self, window: &Arc<Window>) {
        let mut inner = self.inner.lock();
        let mut held = inner.held.iter_mut();
        if let Some(held) = held.find(|held| Arc::ptr_eq(&held.window, window)) {
            held.is_passed = true;
        }
    }

    /// Reads the window that begins with the page of `position`, past the page cache. Waits for the
    /// disk without a lock, or for another reader's read. `None` if the file ends before.
    ///
    /// # Errors
    /// A disk error.
    pub fn load<S: SegmentHandle>(
        &self,
        segment: &Arc<S>,
        position: u64,
    ) -> io::Result<Option<Arc<Window>>> {
        if position >= segment.written() {
            return Ok(None);
        }
        let mut inner = self.inner.lock();
        // The reader was faster than the read-ahead.
        if inner.find(segment.id(), position).is_none() {
            inner.deeper = (inner.deeper + 1).min(AHEAD_MAX - AHEAD_MIN);
        }
        while inner.is_loading(segment.id(), position) {
            self.loaded.wait(&mut inner);
        }
        self.load_unless_held(segment, position, inner)
    }

    fn load_unless_held<S: SegmentHandle>(
        &self,
        segment: &Arc<S>,
        position: u64,
        mut inner: MutexGuard<'_, Inner>,
    ) -> io::Result<Option<Arc<Window>>> {
        if let Some(window) = inner.find(segment.id(), position) {
            return Ok(Some(window));
        }
        if position >= segment.written() || inner.is_loading(segment.id(), position) {
            return Ok(None);
        }
        let start = position - position % PAGE_BYTES as u64;
        let (size, spare) = inner.make_room();
        let full = full_len(start, size);
        let range = start..start + full as u64;
        inner.loading.push((segment.id(), range.clone()));
        self.count.store(inner.held.len(), Ordering::Release);
        drop(inner);
        let mut bytes = spare.unwrap_or_else(|| PageBytes::new(size));
        let result = fill(segment, &mut bytes[..full], start, position);
        let mut inner = self.inner.lock();
        let is_this = |loading: &(u64, Range<u64>)| *loading == (segment.id(), range.clone());
        if let Some(place) = inner.loading.iter().position(is_this) {
            inner.loading.swap_remove(place);
        }
        self.loaded.notify_all();
        let Ok(len @ 1..) = result else {
            inner.spare = Some(bytes);
            return result.map(|_| None);
        };
        let window = Arc::new(Window {
            start,
            len,
            is_full: len == full,
            bytes,
        });
        inner.held.push_back(Held {
            segment: segment.id(),
            window: Arc::clone(&window),
            is_passed: false,
            is_used: true,
        });
        self.count.store(inner.held.len(), Ordering::Release);
        Ok(Some(window))
    }

    /// Plans reads ahead behind a window: positions that are neither held, read nor planned, as
    /// memory allows.
    pub fn plan_ahead<S: SegmentHandle>(&self, segment: &Arc<S>, window: &Window) -> Vec<u64> {
        let (id, written) = (segment.id(), segment.written());
        let mut plan = Vec::new();
        let mut inner = self.inner.lock();
        let under_way = (inner.planned.len() + inner.loading.len()) * WINDOW_BYTES;
        let mut bytes = inner.bytes(|held| !held.is_passed) + under_way;
        let mut next = window.next();
        for _ in 0..AHEAD_MIN + inner.deeper {
            let Some(position) = next.filter(|next| *next < written) else {
                break;
            };
            let behind = position + full_len(position, WINDOW_BYTES) as u64;
            next = Some(behind);
            if let Some(window) = inner.find(id, position) {
                next = window.next();
            } else if !inner.is_loading(id, position) && !inner.planned.contains(&(id, position)) {
                if bytes >= AHEAD_MAX_BYTES {
                    break;
                }
                bytes += WINDOW_BYTES;
                inner.planned.push((id, position));
                plan.push(position);
            }
        }
        plan
    }

    pub fn load_ahead<S: SegmentHandle>(&self, segment: &Arc<S>, position: u64) {
        let inner = self.forget_plan(segment.id(), position);
        // The reader meets the error again.
        let _error = self.load_unless_held(segment, position, inner);
    }

    pub fn forget_ahead(&self, segment: u64, position: u64) {
        drop(self.forget_plan(segment, position));
    }

    fn forget_plan(&self, segment: u64, position: u64) -> MutexGuard<'_, Inner> {
        let mut inner = self.inner.lock();
        inner
            .planned
            .retain(|planned| *planned != (segment, position));
        inner
    }

    pub fn forget(&self, segment: u64) {
        self.retain(|held| held.segment != segment);
    }

    /// Drops windows that were not looked at since the last call.
    pub fn forget_idle(&self) {
        let mut is_for_nobody = false;
        self.retain(|held| {
            is_for_nobody |= !held.is_used && !held.is_passed;
            std::mem::take(&mut held.is_used)
        });
        let mut inner = self.inner.lock();
        inner.spare = None;
        if is_for_nobody || inner.held.is_empty() {
            inner.deeper = 0;
        }
    }

    fn retain(&self, keep: impl FnMut(&mut Held) -> bool) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut inner = self.inner.lock();
        inner.held.retain_mut(keep);
        self.count.store(inner.held.len(), Ordering::Release);
    }

    pub fn bytes(&self) -> usize {
        self.inner.lock().bytes(|_| true)
    }
}

/// Windows end at multiples of their size, unless that makes them short: the kernel fetches and
/// drops large pieces at such boundaries, and would fetch a piece that two windows share twice.
fn full_len(start: u64, size: usize) -> usize {
    let to_end = size - (start % size as u64) as usize;
    if to_end < size / 4 { size } else { to_end }
}

/// Reads `bytes` from `start` up to the end of the file; returns the count, 0 if they do not reach
/// beyond `position`. Bytes read before an error count.
fn fill<S: SegmentHandle>(
    segment: &Arc<S>,
    bytes: &mut [u8],
    start: u64,
    position: u64,
) -> io::Result<usize> {
    let file = Arc::clone(segment).open_log(Wait::Blocking)?;
    let written = usize::try_from(segment.written() - start).unwrap_or(usize::MAX);
    let wanted = written.min(bytes.len());
    // Whole pages can be read past the page cache.
    let asked = wanted.next_multiple_of(PAGE_BYTES);
    let mut len = 0;
    while len < wanted {
        match file.read_past_cache_at(&mut bytes[len..asked], start + len as u64) {
            Ok(0) => break,
            Ok(count) => len = wanted.min(len + count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) if start + len as u64 > position => break,
            Err(error) => return Err(error),
        }
    }
    let is_enough = start + len as u64 > position;
    Ok(if is_enough { len } else { 0 })
}

impl Inner {
    fn is_loading(&self, segment: u64, position: u64) -> bool {
        let mut loading = self.loading.iter();
        loading.any(|(id, range)| *id == segment && range.contains(&position))
    }

    fn find(&self, segment: u64, position: u64) -> Option<Arc<Window>> {
        let holds =
            |held: &&Held| held.segment == segment && !held.window.from(position).is_empty();
        let held = self.held.iter().rev().find(holds);
        held.map(|held| Arc::clone(&held.window))
    }

    /// Makes room for another window; returns its size and reusable memory, if any.
    fn make_room(&mut self) -> (usize, Option<PageBytes>) {
        let wanted = if self.bytes(|held| !held.is_passed) >= WINDOWS_MAX_BYTES / 2 {
            SMALL_WINDOW_BYTES
        } else {
            WINDOW_BYTES
        };
        while self.bytes(|held| held.is_passed) > PASSED_MAX_BYTES
            || self.bytes(|_| true) + wanted > WINDOWS_MAX_BYTES
        {
            let passed = self.held.iter().position(|held| held.is_passed);
            let Some(oldest) = self.held.remove(passed.unwrap_or(0)) else {
                break;
            };
            self.keep_memory(oldest.window);
        }
        let spare = self.spare.take();
        (wanted, spare.filter(|bytes| bytes.len() == wanted))
    }

    fn bytes(&self, which: impl Fn(&Held) -> bool) -> usize {
        let held = self.held.iter().filter(|held| which(held));
        held.map(|held| held.window.bytes.len()).sum()
    }

    /// Keeps the memory for reuse unless a reader still sends from it.
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
