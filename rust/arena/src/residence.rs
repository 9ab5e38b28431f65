//! Which pages of a file are in the page cache. For tests, also those of other crates.

use std::fs::File;
use std::io;
use std::ptr::null_mut;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::param::page_size;

/// Counts the pages of a file's first `len` bytes that are in the page cache.
///
/// The question brings no page in. A read with RWF_NOWAIT does, and it succeeds where the disk
/// delivers the page before the kernel looks again, as happens on a busy machine.
pub fn resident_pages(file: &File, len: usize) -> io::Result<usize> {
    let mut pages = vec![0u8; len.div_ceil(page_size())];
    // SAFETY: a new mapping at an address of the kernel's choice, which nothing reads.
    let base = unsafe { mmap(null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, 0)? };
    // SAFETY: the mapping has `len` bytes, and `pages` one byte for each page of it.
    let asked = unsafe { libc::mincore(base, len, pages.as_mut_ptr()) };
    let error = io::Error::last_os_error();
    // SAFETY: mapped above, and nothing borrows it.
    unsafe { munmap(base, len)? };
    if asked != 0 {
        return Err(error);
    }
    Ok(pages.into_iter().filter(|page| page & 1 == 1).count())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn written_pages_are_resident_and_holes_are_not() {
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let page = page_size();
        file.set_len(8 * page as u64).unwrap();
        file.write_all_at(b"second", page as u64).unwrap();
        file.write_all_at(b"seventh", 6 * page as u64).unwrap();
        assert_eq!(resident_pages(&file, 8 * page).unwrap(), 2);
        assert_eq!(resident_pages(&file, page).unwrap(), 0);
        assert_eq!(resident_pages(&file, page + 1).unwrap(), 1);
    }
}
