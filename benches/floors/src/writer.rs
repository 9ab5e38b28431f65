//! Writes what is full behind the answers, in the order in which it became full.

use crate::chunks::CHUNK_BYTES;
use crate::memory::Memory;
use crate::partition::Job;
use rustix::io::{Errno, ReadWriteFlags, pwritev2};
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// How long a partition rests before what it has is written though its piece is not full.
const REST: Duration = Duration::from_millis(20);
/// RWF_DONTCACHE of Linux 6.14: the pages leave the page cache once they are written.
const DROP_BEHIND: u32 = 0x80;

/// What becomes of written pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// They stay in the page cache.
    Keep,
    /// They leave it, where the kernel and the file system can do that; else they stay.
    Drop,
}

/// Starts the thread; the sender blocks when `unwritten_bytes` wait for it.
pub fn start(unwritten_bytes: usize, caching: Caching, memory: Arc<Memory>) -> SyncSender<Job> {
    let (sender, jobs) = sync_channel((unwritten_bytes / CHUNK_BYTES).max(1));
    thread::spawn(move || run(&jobs, caching, &memory));
    sender
}

fn run(jobs: &Receiver<Job>, caching: Caching, memory: &Memory) {
    let drop_behind = AtomicBool::new(caching == Caching::Drop);
    let execute = |job: Job| {
        let file = job.partition.file();
        if let Err(error) = write(file, &job.bytes, job.position, &drop_behind) {
            eprintln!("pyrklog-floors: writing failed: {error}");
            std::process::exit(1);
        }
    };
    loop {
        match jobs.recv_timeout(REST) {
            Ok(job) => execute(job),
            Err(RecvTimeoutError::Timeout) => {
                for partition in memory.partitions() {
                    if let Some(job) = partition.seal_at_rest() {
                        execute(job);
                        memory.keep(&partition);
                    }
                }
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn write(file: &File, bytes: &[u8], position: u64, drop_behind: &AtomicBool) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() && drop_behind.load(Ordering::Relaxed) {
        let flags = ReadWriteFlags::from_bits_retain(DROP_BEHIND);
        let rest = [IoSlice::new(&bytes[done..])];
        match pwritev2(file, &rest, position + done as u64, flags) {
            Ok(written) => done += written,
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::INVAL) => drop_behind.store(false, Ordering::Relaxed),
            Err(error) => return Err(error.into()),
        }
    }
    file.write_all_at(&bytes[done..], position + done as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_reach_their_place_with_and_without_dropping() {
        for caching in [Caching::Keep, Caching::Drop] {
            let file = tempfile::tempfile().unwrap();
            let drop_behind = AtomicBool::new(caching == Caching::Drop);
            write(&file, b"later", 3, &drop_behind).unwrap();
            write(&file, b"abc", 0, &drop_behind).unwrap();
            let mut found = [0; 8];
            file.read_exact_at(&mut found, 0).unwrap();
            assert_eq!(&found, b"abclater");
        }
    }
}
