//! Many files that grow by small pieces: what a disk can take.
//!
//! A broker with little memory and many partitions writes a small piece of each. Here only the
//! writes remain: no socket, record, read or index. Threads write whole pages around the page
//! cache, each to its own files.

use rustix::fs::OFlags;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

const PAGE_BYTES: usize = 4096;

/// The writes to do.
#[derive(Clone, Debug)]
pub struct Work {
    /// The folder, which is created.
    pub folder: PathBuf,
    /// The number of files, created on the way, each in a folder of its own.
    pub files: usize,
    /// Bytes of one write, in whole pages.
    pub piece_bytes: usize,
    /// Bytes in all; the rest that does not fill a piece is left out.
    pub bytes: usize,
    /// Threads that write.
    pub threads: usize,
}

/// Writes all of it; returns the time and the number of bytes.
///
/// # Errors
/// The disk's.
pub fn run(work: &Work) -> io::Result<(Duration, usize)> {
    // A thread without a file would never be done.
    let threads = work.threads.min(work.files);
    for index in 0..work.files {
        fs::create_dir_all(work.folder.join(index.to_string()))?;
    }
    let began = Instant::now();
    let written = thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || write(work, thread, threads)))
            .collect();
        running
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(io::Error::other("panic")))
            })
            .sum::<io::Result<usize>>()
    })?;
    Ok((began.elapsed(), written))
}

/// One thread's share: its files in turn, a piece each.
fn write(work: &Work, thread: usize, threads: usize) -> io::Result<usize> {
    let piece_bytes = work.piece_bytes.next_multiple_of(PAGE_BYTES);
    let mut memory = vec![7; piece_bytes + PAGE_BYTES];
    let aligned = memory.as_ptr().addr().next_multiple_of(PAGE_BYTES) - memory.as_ptr().addr();
    let piece = &mut memory[aligned..aligned + piece_bytes];
    let mine: Vec<usize> = (thread..work.files).step_by(threads).collect();
    let mut files: Vec<File> = Vec::new();
    let mut written = 0;
    for round in 0.. {
        for (place, index) in mine.iter().enumerate() {
            if written + piece_bytes > work.bytes / threads {
                return Ok(written);
            }
            if round == 0 {
                files.push(create(&work.folder.join(index.to_string()))?);
            }
            let at = (round * piece_bytes) as u64;
            files[place].write_all_at(piece, at)?;
            written += piece_bytes;
        }
    }
    Ok(written)
}

/// Around the page cache if the file system can do that.
fn create(folder: &Path) -> io::Result<File> {
    let path = folder.join("00000000000000000000.log");
    let open = |flags: OFlags| {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        options.custom_flags(flags.bits() as i32).open(&path)
    };
    open(OFlags::DIRECT).or_else(|_| open(OFlags::empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_threads_than_files_are_no_more_than_files() {
        let folder = tempfile::tempdir().unwrap();
        let work = Work {
            folder: folder.path().into(),
            files: 2,
            piece_bytes: PAGE_BYTES,
            bytes: 8 * PAGE_BYTES,
            threads: 5,
        };
        assert_eq!(run(&work).unwrap().1, work.bytes);
    }

    #[test]
    fn every_file_grows_by_whole_pieces() {
        let folder = tempfile::tempdir().unwrap();
        let work = Work {
            folder: folder.path().into(),
            files: 6,
            piece_bytes: 2 * PAGE_BYTES,
            bytes: 24 * 2 * PAGE_BYTES + 1,
            threads: 2,
        };
        let (_, written) = run(&work).unwrap();
        assert_eq!(written, 24 * 2 * PAGE_BYTES);
        for index in 0..6 {
            let path = folder
                .path()
                .join(format!("{index}/00000000000000000000.log"));
            let bytes = fs::read(path).unwrap();
            assert_eq!(bytes, vec![7; 4 * 2 * PAGE_BYTES]);
        }
    }
}
