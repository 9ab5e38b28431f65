//! Reads a file without leaving further pages in the page cache.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::Advice;
use rustix::io::{Errno, ReadWriteFlags};
use rustix::param::page_size;

use super::direct::{open_direct, own_path};
use crate::disk::PAGE_BYTES;

/// Pages that a read brings into the page cache leave it afterwards; others stay. This includes the
/// kernel's read-ahead (Linux 6.14, by file system). Written pages leave it once they are on the disk.
pub const RWF_DONTCACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

/// The file system or kernel, or what runs programs in its place (an emulator, a sandbox), has no
/// such reads and writes.
pub fn is_unknown(error: Errno) -> bool {
    matches!(error, Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS)
}

/// Whether [`RWF_DONTCACHE`] is still accepted.
static IS_KNOWN: AtomicBool = AtomicBool::new(true);

/// One byte of each such piece of the file tells whether it is in the page cache. No kernel has
/// larger pages, so pieces consist of whole pages.
const PIECE_BYTES: u64 = 64 * 1024;

/// A file's further descriptors, opened on demand.
#[derive(Debug, Default)]
pub struct Apart {
    /// For reads past the page cache (O_DIRECT).
    direct: OnceLock<Option<File>>,
    /// The file system does not support them.
    is_refused: AtomicBool,
    /// Without the kernel's read-ahead.
    plain: OnceLock<Option<File>>,
}

impl Apart {
    pub fn take(&mut self) -> impl Iterator<Item = File> {
        let both = [self.direct.take(), self.plain.take()];
        both.into_iter().flatten().flatten()
    }
}

/// Reads like `read_at`: direct if whole pages are asked for and the file system supports it,
/// otherwise through the page cache and out again.
pub fn read(file: &File, apart: &Apart, buffer: &mut [u8], position: u64) -> io::Result<usize> {
    let numbers = [buffer.as_ptr().addr(), buffer.len(), position as usize];
    if numbers.iter().all(|n| n.is_multiple_of(PAGE_BYTES))
        && !apart.is_refused.load(Ordering::Relaxed)
        && let Some(direct) = apart
            .direct
            .get_or_init(|| open_direct(file, OpenOptions::new().read(true)).ok())
    {
        match rustix::io::pread(direct, &mut *buffer, position) {
            Err(Errno::INVAL) => apart.is_refused.store(true, Ordering::Relaxed),
            result => return Ok(result?),
        }
    }
    if IS_KNOWN.load(Ordering::Relaxed) {
        match rustix::io::preadv2(
            file,
            &mut [IoSliceMut::new(buffer)],
            position,
            RWF_DONTCACHE,
        ) {
            Err(error) if is_unknown(error) => IS_KNOWN.store(false, Ordering::Relaxed),
            result => return Ok(result?),
        }
    }
    let plain = apart.plain.get_or_init(|| reopen(file));
    read_and_drop(plain.as_ref().unwrap_or(file), buffer, position)
}

/// Reads what is in the page cache. A miss makes the kernel fetch the rest, which must not stay
/// either.
pub fn read_nowait(file: &File, buffer: &mut [u8], position: u64) -> Result<usize, Errno> {
    let mut buffers = [IoSliceMut::new(buffer)];
    if IS_KNOWN.load(Ordering::Relaxed) {
        let flags = ReadWriteFlags::NOWAIT.union(RWF_DONTCACHE);
        match rustix::io::preadv2(file, &mut buffers, position, flags) {
            Err(error) if is_unknown(error) => IS_KNOWN.store(false, Ordering::Relaxed),
            result => return result,
        }
    }
    rustix::io::preadv2(file, &mut buffers, position, ReadWriteFlags::NOWAIT)
}

/// Opens the file again without the kernel's read-ahead, whose pages could not be dropped.
fn reopen(file: &File) -> Option<File> {
    let apart = File::open(own_path(file)).ok()?;
    // If refused, some pages of the kernel's read-ahead stay.
    let _refused = rustix::fs::fadvise(&apart, 0, None, Advice::Random);
    Some(apart)
}

/// Reads, then drops the pieces that were absent before.
fn read_and_drop(file: &File, buffer: &mut [u8], position: u64) -> io::Result<usize> {
    let asked = pieces(position, position + buffer.len() as u64);
    let absent: Vec<u64> = asked.filter(|at| !is_resident(file, *at)).collect();
    let count = file.read_at(buffer, position)?;
    let end = position + count as u64;
    for at in absent.into_iter().filter(|at| *at < end) {
        // All of the page of the byte that was absent: the kernel drops whole pages only.
        let start = at - at % page_size() as u64;
        let len = NonZeroU64::new(end.min(next_piece(at)) - start);
        // If refused, the page cache ages as usual.
        let _refused = rustix::fs::fadvise(file, start, len, Advice::DontNeed);
    }
    Ok(count)
}

/// Where the pieces between two positions begin; the first one at `from`.
fn pieces(from: u64, to: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(from), |at| Some(next_piece(*at))).take_while(move |at| *at < to)
}

fn next_piece(at: u64) -> u64 {
    at - at % PIECE_BYTES + PIECE_BYTES
}

/// The question makes a page resident, so `file` must come from [`reopen`], which fetches no more.
/// If the disk delivers the page before the kernel looks again, it counts as resident before: its
/// piece then stays in the page cache.
fn is_resident(file: &File, position: u64) -> bool {
    let byte = &mut [0];
    let mut buffers = [IoSliceMut::new(byte)];
    rustix::io::preadv2(file, &mut buffers, position, ReadWriteFlags::NOWAIT).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page_bytes::PageBytes;
    use std::os::fd::AsFd;

    const LEN: usize = 4 << 20;
    const TRIES: usize = 20;

    /// An uncached file in the build directory, which is on a disk, with its content.
    fn cold_file() -> (File, Vec<u8>) {
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let content: Vec<u8> = (0..LEN).map(|at| (at / 1000) as u8).collect();
        file.write_all_at(&content, 0).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(file.as_fd(), 0, None, Advice::DontNeed).unwrap();
        (file, content)
    }

    fn resident_pages(file: &File) -> usize {
        pyrklog_arena::resident_pages(file, LEN).unwrap()
    }

    #[test]
    fn pieces_of_a_file_are_whole_pages() {
        let all = |from, to| pieces(from, to).collect::<Vec<_>>();
        assert_eq!(all(0, PIECE_BYTES), [0]);
        assert_eq!(all(100, PIECE_BYTES + 1), [100, PIECE_BYTES]);
        assert_eq!(all(PIECE_BYTES - 1, PIECE_BYTES), [PIECE_BYTES - 1]);
        assert!(all(7, 7).is_empty());
        assert!(PIECE_BYTES.is_multiple_of(page_size() as u64));
    }

    #[test]
    fn a_read_from_within_a_page_leaves_no_page() {
        let left = || {
            let (file, content) = cold_file();
            let apart = reopen(&file).unwrap();
            let mut buffer = vec![0; LEN - 1000];
            assert_eq!(
                read_and_drop(&apart, &mut buffer, 1000).unwrap(),
                LEN - 1000
            );
            assert_eq!(buffer, content[1000..]);
            resident_pages(&file)
        };
        assert_eq!(nearest(0, left), 0);
    }

    fn read_all(read: impl Fn(&mut [u8], u64) -> io::Result<usize>) -> Vec<u8> {
        let mut all = vec![0; LEN];
        let mut done = 0;
        while done < LEN {
            let end = LEN.min(done + (1 << 20));
            done += read(&mut all[done..end], done as u64).unwrap();
        }
        all
    }

    /// The result of several tries nearest to `wanted`: dropping pages is a hint, the kernel keeps
    /// pages in use, and [`is_resident`] errs at times on a busy machine.
    fn nearest(wanted: usize, pages: impl Fn() -> usize) -> usize {
        let mut nearest = pages();
        for _ in 1..TRIES {
            if nearest == wanted {
                break;
            }
            let again = pages();
            if again.abs_diff(wanted) < nearest.abs_diff(wanted) {
                nearest = again;
            }
        }
        nearest
    }

    #[test]
    fn ordinary_reads_stay_in_the_page_cache() {
        let (file, content) = cold_file();
        assert_eq!(read_all(|buffer, at| file.read_at(buffer, at)), content);
        assert_eq!(resident_pages(&file), LEN / page_size());
    }

    #[test]
    fn reading_past_the_cache_leaves_no_page() {
        let left = || {
            let (file, content) = cold_file();
            let apart = Apart::default();
            let all = read_all(|buffer, at| read(&file, &apart, buffer, at));
            assert_eq!(all, content);
            resident_pages(&file)
        };
        assert_eq!(nearest(0, left), 0);
    }

    #[test]
    fn reading_past_the_cache_leaves_no_partial_last_page() {
        let left = || {
            let (file, content) = cold_file();
            file.set_len(LEN as u64 - 100).unwrap();
            file.sync_all().unwrap();
            rustix::fs::fadvise(file.as_fd(), 0, None, Advice::DontNeed).unwrap();
            let apart = Apart::default();
            let mut pages = PageBytes::new(LEN);
            assert_eq!(read(&file, &apart, &mut pages, 0).unwrap(), LEN - 100);
            assert_eq!(pages[..LEN - 100], content[..LEN - 100]);
            let left = resident_pages(&file);
            let is_direct = apart.direct.get().is_some_and(Option::is_some);
            assert!(
                is_direct || apart.plain.get().is_none(),
                "one way is enough"
            );
            // Dirty data in the page cache is seen.
            file.write_all_at(b"new", 5000).unwrap();
            assert_eq!(read(&file, &apart, &mut pages[..8192], 0).unwrap(), 8192);
            assert_eq!(pages[5000..5003], *b"new");
            left
        };
        assert_eq!(nearest(0, left), 0);
    }

    #[test]
    fn reading_and_dropping_leaves_no_page() {
        let left = || {
            let (file, content) = cold_file();
            let apart = reopen(&file).unwrap();
            let all = read_all(|buffer, at| read_and_drop(&apart, buffer, at));
            assert_eq!(all, content);
            resident_pages(&file)
        };
        assert_eq!(nearest(0, left), 0);
    }

    #[test]
    fn pages_cached_before_stay_in_the_page_cache() {
        type Read = fn(&File, &mut [u8], u64) -> io::Result<usize>;
        let both: [Read; 2] = [
            |file, buffer, at| read(file, &Apart::default(), buffer, at),
            |file, buffer, at| read_and_drop(&reopen(file).unwrap(), buffer, at),
        ];
        for read in both {
            let left = || {
                let (file, content) = cold_file();
                let apart = reopen(&file).unwrap();
                let mut kept = vec![0; PIECE_BYTES as usize];
                apart.read_exact_at(&mut kept, 1 << 20).unwrap();
                assert_eq!(read_all(|buffer, at| read(&file, buffer, at)), content);
                resident_pages(&file)
            };
            let piece = PIECE_BYTES as usize / page_size();
            assert_eq!(nearest(piece, left), piece);
        }
    }

    #[test]
    fn the_end_of_a_file_is_no_error() {
        let (file, _) = cold_file();
        let mut buffer = vec![0; 1000];
        let apart = reopen(&file).unwrap();
        assert_eq!(read_and_drop(&apart, &mut buffer, LEN as u64).unwrap(), 0);
        let count = read_and_drop(&apart, &mut buffer, LEN as u64 - 10).unwrap();
        assert_eq!(count, 10);
    }
}
