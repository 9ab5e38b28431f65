//! A second descriptor of a file, for writes past the page cache.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustix::io::Errno;

const O_DIRECT: i32 = rustix::fs::OFlags::DIRECT.bits() as i32;

/// Descriptors kept open in the process. Beyond that each is opened for one write: thousands of
/// partitions must not need two descriptors each, and opening costs little compared with a write of
/// that size.
const KEPT_MAX: usize = 1_000;

static KEPT: AtomicUsize = AtomicUsize::new(0);

#[derive(Debug, Default)]
pub struct Direct(Mutex<State>);

#[derive(Debug, Default)]
enum State {
    #[default]
    Closed,
    Open(KeptFile),
    /// The file system does not support it.
    Refused,
}

#[derive(Debug)]
struct KeptFile(Arc<File>);

impl KeptFile {
    /// `None` if there are enough.
    fn new(file: &Arc<File>) -> Option<KeptFile> {
        if KEPT.fetch_add(1, Ordering::Relaxed) >= KEPT_MAX {
            KEPT.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(KeptFile(Arc::clone(file)))
    }
}

impl Drop for KeptFile {
    fn drop(&mut self) {
        KEPT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Opens a file again, past the page cache.
pub fn open_direct(file: &impl AsRawFd, options: &mut OpenOptions) -> io::Result<File> {
    options.custom_flags(O_DIRECT).open(own_path(file))
}

/// By its descriptor, since the file may be renamed or removed.
pub fn own_path(file: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

impl Direct {
    /// The descriptor for `file`, if the file system supports it.
    pub fn of(&self, file: BorrowedFd<'_>) -> Option<Arc<File>> {
        let mut state = self.0.lock();
        match &*state {
            State::Open(kept) => return Some(Arc::clone(&kept.0)),
            State::Refused => return None,
            State::Closed => {}
        }
        match open_direct(&file, OpenOptions::new().write(true)) {
            Ok(file) => {
                let file = Arc::new(file);
                if let Some(kept) = KeptFile::new(&file) {
                    *state = State::Open(kept);
                }
                Some(file)
            }
            Err(error) => {
                // Otherwise no descriptor is free or /proc is missing, which may pass.
                if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) {
                    *state = State::Refused;
                }
                None
            }
        }
    }

    /// Closes it when such writes become rare.
    pub fn close(&self) {
        if let Some(mut state) = self.0.try_lock()
            && let State::Open(_) = *state
        {
            *state = State::Closed;
        }
    }

    /// The device refuses this alignment.
    pub fn refuse(&self) {
        *self.0.lock() = State::Refused;
    }

    pub fn take(&mut self) -> Option<Arc<File>> {
        match self.0.get_mut() {
            State::Open(kept) => Some(Arc::clone(&kept.0)),
            State::Closed | State::Refused => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn second_descriptors_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let probe = tempfile::tempfile_in(dir.path()).unwrap();
        if Direct::default().of(probe.as_fd()).is_none() {
            // This file system has none, so nothing is kept.
            assert_eq!(KEPT.load(Ordering::Relaxed), 0);
            return;
        }
        let path = dir.path().join("one");
        let file = File::create(&path).unwrap();
        let mut all: Vec<Direct> = Vec::new();
        for _ in 0..KEPT_MAX + 50 {
            let direct = Direct::default();
            assert!(direct.of(file.as_fd()).is_some(), "kept or not");
            all.push(direct);
        }
        let kept = all.iter_mut().filter_map(Direct::take).count();
        assert!((KEPT_MAX - 50..=KEPT_MAX).contains(&kept), "{kept}");
        all[0].close();
        assert!(all[0].take().is_none());
        drop(all);
        let mut next = Direct::default();
        assert!(next.of(file.as_fd()).is_some());
        assert!(next.take().is_some(), "there is room again");
    }
}
