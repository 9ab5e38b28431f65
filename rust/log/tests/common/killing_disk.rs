//! The real disk, on which the process kills itself at a chosen operation.

use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use pyrklog_log::disk::{DirEntry, Disk, DiskFile, LockGuard, OpenMode, RealDisk, Space};

/// Where a process may be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// A batch is being written to a segment.
    Append,
    /// A segment is being created: files, snapshot, directory.
    Roll,
    /// Entries are being written to an index.
    IndexWrite,
    /// The log is being truncated.
    Truncation,
    /// Old segments are renamed and removed, the log start is recorded.
    Retention,
    /// The producer state is being written.
    Snapshot,
    /// The log is being opened after a crash.
    Recovery,
}

impl Point {
    /// All of them, with the names for child processes.
    pub const ALL: [(&'static str, Point); 7] = [
        ("append", Point::Append),
        ("roll", Point::Roll),
        ("index-write", Point::IndexWrite),
        ("truncation", Point::Truncation),
        ("retention", Point::Retention),
        ("snapshot", Point::Snapshot),
        ("recovery", Point::Recovery),
    ];
}

/// The current activity, where file names do not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Running,
    Opening,
    Truncating,
    Retaining,
}

/// An operation on a file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Open,
    Write,
    Cut,
    Sync,
    SyncDir,
    Rename,
    Remove,
}

/// See the module. Clones share their state.
#[derive(Clone, Debug)]
pub struct KillingDisk {
    real: Arc<RealDisk>,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    point: Point,
    /// Operations of the point before the fatal one.
    left: AtomicUsize,
    phase: Mutex<Phase>,
}

impl KillingDisk {
    /// Kills the process at an operation of that point, after `skip` others.
    pub fn new(point: Point, skip: usize) -> KillingDisk {
        KillingDisk {
            real: Arc::new(RealDisk),
            state: Arc::new(State {
                point,
                left: AtomicUsize::new(skip + 1),
                phase: Mutex::new(Phase::Running),
            }),
        }
    }

    pub fn enter(&self, phase: Phase) {
        *self.state.phase.lock() = phase;
    }
}

impl State {
    /// Whether the process dies with this operation; announces it.
    fn is_fatal(&self, operation: Operation, path: &Path) -> bool {
        if !self.is_at_point(operation, path) || self.left.fetch_sub(1, Ordering::SeqCst) != 1 {
            return false;
        }
        println!("@killed {:?} {operation:?} {}", self.point, path.display());
        io::stdout().flush().unwrap();
        true
    }

    fn is_at_point(&self, operation: Operation, path: &Path) -> bool {
        let phase = *self.phase.lock();
        let kind = path.extension().and_then(|kind| kind.to_str());
        let is_index = matches!(kind, Some("index" | "timeindex" | "txnindex"));
        let is_snapshot = path.to_string_lossy().contains(".snapshot");
        let running = phase == Phase::Running;
        match self.point {
            Point::Append => running && operation == Operation::Write && kind == Some("log"),
            Point::Roll => {
                running && (operation == Operation::Open && kind == Some("log"))
                    || running && operation == Operation::SyncDir
                    || running && operation == Operation::Open && is_index
            }
            Point::IndexWrite => running && operation == Operation::Write && is_index,
            Point::Truncation => phase == Phase::Truncating,
            Point::Retention => phase == Phase::Retaining,
            Point::Snapshot => running && is_snapshot,
            Point::Recovery => phase == Phase::Opening,
        }
    }

    /// Dies before, or after, what `done` does.
    fn guard<T>(&self, operation: Operation, path: &Path, done: impl FnOnce() -> T) -> T {
        if !self.is_fatal(operation, path) {
            return done();
        }
        if self.still_happens(path) {
            let _outcome = done();
        }
        die();
    }

    /// Whether the fatal operation still takes effect; varies from kill to kill.
    fn still_happens(&self, path: &Path) -> bool {
        path.as_os_str().len().is_multiple_of(2)
    }
}

fn die() -> ! {
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
        .unwrap();
    loop {
        std::thread::park();
    }
}

impl Disk for KillingDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let file = if mode == OpenMode::Read {
            self.real.open(path, mode)?
        } else {
            self.state
                .guard(Operation::Open, path, || self.real.open(path, mode))?
        };
        Ok(Arc::new(KillingFile {
            file,
            path: path.to_owned(),
            state: Arc::clone(&self.state),
        }))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.real.create_dir_all(path)
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.real.read_dir(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.real.exists(path)
    }

    fn file_len(&self, path: &Path) -> io::Result<u64> {
        self.real.file_len(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.state
            .guard(Operation::Rename, to, || self.real.rename(from, to))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.state
            .guard(Operation::Remove, path, || self.real.remove_file(path))
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.real.remove_dir_all(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.state
            .guard(Operation::SyncDir, path, || self.real.sync_dir(path))
    }

    fn sync_file_system(&self, path: &Path) -> io::Result<()> {
        self.real.sync_file_system(path)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        self.real.space(path)
    }

    fn modified_ms(&self, path: &Path) -> io::Result<i64> {
        self.real.modified_ms(path)
    }

    fn set_modified_ms(&self, path: &Path, modified_ms: i64) -> io::Result<()> {
        self.state.guard(Operation::Write, path, || {
            self.real.set_modified_ms(path, modified_ms)
        })
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockGuard>> {
        self.real.lock(path)
    }
}

#[derive(Debug)]
struct KillingFile {
    file: Arc<dyn DiskFile>,
    path: std::path::PathBuf,
    state: Arc<State>,
}

impl DiskFile for KillingFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.file.read_at(buffer, position)
    }

    fn read_at_nowait(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.file.read_at_nowait(buffer, position)
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        if self.state.is_fatal(Operation::Write, &self.path) {
            // Any part of the write may be there.
            let part = (position as usize).wrapping_mul(31) % (bytes.len() + 1);
            let _outcome = self.file.write_all_at(&bytes[..part], position);
            die();
        }
        self.file.write_all_at(bytes, position)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.state
            .guard(Operation::Cut, &self.path, || self.file.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.state
            .guard(Operation::Sync, &self.path, || self.file.sync_data())
    }

    fn read_ahead(&self, position: u64, len: u64) {
        self.file.read_ahead(position, len);
    }

    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.file.descriptor()
    }
}
