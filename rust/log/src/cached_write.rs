//! Writes bytes of the block cache to the file: whole pages past the page cache, the rest through
//! it (`block-cache.md`, section 2).

use std::io::{self, IoSlice};
use std::sync::Arc;

use crate::disk::{DiskFile, PAGE_BYTES};
use crate::env::LogEnv;
use crate::names::FileKind;
use crate::segment::Segment;

const PAGE: u32 = PAGE_BYTES as u32;

/// Shorter writes leave their pages in the page cache, since the next one begins in the same page.
const DROP_BEHIND_MIN_BYTES: u32 = 64 * 1024;

/// Where a partial last page begins that is better written with the next piece, provided enough
/// whole pages precede it; `None` if everything should be written.
pub(crate) fn page_to_hold_back(position: u32, end: u32, direct_min_bytes: u32) -> Option<u32> {
    let whole_end = end / PAGE * PAGE;
    let is_enough = whole_end.saturating_sub(position) >= direct_min_bytes.max(PAGE);
    (is_enough && whole_end < end).then_some(whole_end)
}

/// Writes bytes of the block cache to the existing file; afterwards they may be reclaimed.
pub(crate) fn write_cached(
    segment: &Arc<Segment>,
    env: &LogEnv,
    position: u32,
    end: u32,
) -> io::Result<()> {
    let missing = || {
        let path = segment.path(FileKind::Log);
        let path = path.display();
        io::Error::other(format!("the cache lacks {position} to {end} of {path}"))
    };
    let cached = segment.cached().ok_or_else(missing)?;
    let file = segment.log_file_for_writing()?;
    let guard = cached.arena().enter();
    // Starts at a page boundary if the cache still has those bytes, which avoids reading the page
    // back.
    let page = cached.reaches_back(position, position / PAGE * PAGE);
    // Written bytes may be reclaimed at any moment; unwritten ones may not.
    let (start, slices) = match cached.range(&guard, page, end) {
        Some(slices) => (page, slices),
        None => (
            position,
            cached.range(&guard, position, end).ok_or_else(missing)?,
        ),
    };
    write_slices(&*file, &slices, start, env.direct_min_bytes())?;
    segment.set_written(u64::from(end));
    cached.set_written(end);
    Ok(())
}

fn write_slices(
    file: &dyn DiskFile,
    slices: &[IoSlice<'_>],
    start: u32,
    direct_min_bytes: u32,
) -> io::Result<()> {
    let len: usize = slices.iter().map(|slice| slice.len()).sum();
    let end = start + len as u32;
    let whole_end = (end / PAGE * PAGE).max(start);
    let before_end = part(slices, 0, (whole_end - start) as usize);
    let pages = whole_pages(&before_end) as u32;
    let pages_start = whole_end - pages;
    if pages >= direct_min_bytes.max(PAGE) {
        let head = part(slices, 0, (pages_start - start) as usize);
        let pages = part(
            slices,
            (pages_start - start) as usize,
            (whole_end - start) as usize,
        );
        let rest = part(slices, (whole_end - start) as usize, len);
        // In order, so that the file never has a hole.
        file.write_slices_at(&head, u64::from(start), false)?;
        if file.write_pages_at(&pages, u64::from(pages_start))? {
            // The next piece begins with this page and bypasses the page cache: a dirty page would
            // delay it.
            return file.write_slices_at(&rest, u64::from(whole_end), true);
        }
    }
    let drop_behind = end - start >= DROP_BEHIND_MIN_BYTES;
    file.write_slices_at(slices, u64::from(start), drop_behind)
}

/// How many bytes at the end of `slices`, which is a page boundary of the file, are whole pages of
/// memory.
fn whole_pages(slices: &[IoSlice<'_>]) -> usize {
    let mut bytes = 0;
    for slice in slices.iter().rev() {
        let from = slice.as_ptr().addr();
        let end = from + slice.len();
        if !end.is_multiple_of(PAGE_BYTES) {
            break;
        }
        let first_page = from.next_multiple_of(PAGE_BYTES);
        bytes += end - first_page;
        if first_page != from {
            break;
        }
    }
    bytes
}

fn part<'a>(slices: &'a [IoSlice<'_>], from: usize, to: usize) -> Vec<IoSlice<'a>> {
    let mut parts = Vec::with_capacity(slices.len());
    let mut at = 0;
    for slice in slices {
        let range =
            from.saturating_sub(at).min(slice.len())..to.saturating_sub(at).min(slice.len());
        if range.start < range.end {
            parts.push(IoSlice::new(&slice[range]));
        }
        at += slice.len();
    }
    parts
}
