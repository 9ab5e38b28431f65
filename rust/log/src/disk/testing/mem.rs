//! A file system in memory that distinguishes synced and unsynced data.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;

use crate::disk::{DirEntry, Disk, DiskFile, LockGuard, OpenMode, Space};

/// Files in memory. [`MemDisk::reboot`] loses unsynced data: of each file's writes since its last
/// sync any subset survives, the last of them possibly torn; of each directory's changes since its
/// last sync a prefix survives, as on a journaling file system. Directories themselves are durable
/// at once.
#[derive(Clone, Debug, Default)]
pub struct MemDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<PathBuf, Arc<MemFile>>,
    durable: BTreeMap<PathBuf, Arc<MemFile>>,
    directories: BTreeSet<PathBuf>,
    pending: Vec<DirChange>,
    locks: BTreeSet<PathBuf>,
}

#[derive(Clone, Debug)]
enum DirChange {
    Link(PathBuf, Arc<MemFile>),
    Unlink(PathBuf),
    Rename(PathBuf, PathBuf),
}

impl DirChange {
    fn touches(&self, directory: &Path) -> bool {
        match self {
            Self::Link(path, _) | Self::Unlink(path) => path.parent() == Some(directory),
            Self::Rename(from, to) => {
                from.parent() == Some(directory) || to.parent() == Some(directory)
            }
        }
    }

    fn apply(&self, files: &mut BTreeMap<PathBuf, Arc<MemFile>>) {
        match self {
            Self::Link(path, file) => {
                files.insert(path.clone(), file.clone());
            }
            Self::Unlink(path) => {
                files.remove(path);
            }
            Self::Rename(from, to) => {
                if let Some(file) = files.remove(from) {
                    files.insert(to.clone(), file);
                }
            }
        }
    }
}

/// A small seeded random generator (xorshift64*).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let mixed = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        usize::try_from(mixed).unwrap_or(0) % bound.max(1)
    }
}

impl MemDisk {
    /// A power failure: see the type. `seed` determines what survives. Files opened before must not
    /// be used any more.
    pub fn reboot(&self, seed: u64) {
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let mut state = self.state.lock();
        let state = &mut *state;
        let mut cut: BTreeMap<PathBuf, usize> = BTreeMap::new();
        for directory in &state.directories {
            let changes = state
                .pending
                .iter()
                .filter(|c| c.touches(directory))
                .count();
            cut.insert(directory.clone(), dice.below(changes + 1));
        }
        for change in std::mem::take(&mut state.pending) {
            let parents = state.directories.iter().filter(|d| change.touches(d));
            let mut survives = true;
            for parent in parents {
                let left = cut.get_mut(parent).expect("every directory has a count");
                survives &= *left > 0;
                *left = left.saturating_sub(1);
            }
            if survives {
                change.apply(&mut state.durable);
            }
        }
        for file in state.durable.values() {
            file.content.lock().lose_unsynced(&mut dice);
        }
        state.files = state.durable.clone();
        state.locks.clear();
    }

    /// The process dies: no written data is lost, locks are released.
    pub fn kill_process(&self) {
        self.state.lock().locks.clear();
    }

    /// The current content of a file.
    pub fn content(&self, path: &Path) -> Option<Vec<u8>> {
        let file = self.state.lock().files.get(path).cloned()?;
        let content = file.content.lock().current.clone();
        Some(content)
    }

    /// Replaces the content of a file durably.
    pub fn put(&self, path: &Path, content: &[u8]) {
        let file = Arc::new(MemFile::default());
        file.content.lock().current = content.to_vec();
        file.content.lock().durable = content.to_vec();
        let mut state = self.state.lock();
        state.files.insert(path.to_owned(), file.clone());
        state.durable.insert(path.to_owned(), file);
    }

    /// A file of no directory.
    pub fn file(content: Vec<u8>) -> Arc<dyn DiskFile> {
        let file = MemFile::default();
        file.content.lock().current = content;
        Arc::new(file)
    }

    /// Paths of all files, in order.
    pub fn files(&self) -> Vec<PathBuf> {
        self.state.lock().files.keys().cloned().collect()
    }
}

fn not_found(path: &Path) -> io::Error {
    io::Error::new(
        io::ErrorKind::NotFound,
        format!("{} is not there", path.display()),
    )
}

impl Disk for MemDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state.lock();
        if let Some(file) = state.files.get(path) {
            if mode == OpenMode::Truncate {
                file.set_len(0)?;
            }
            return Ok(file.clone());
        }
        let parent = path.parent().unwrap_or(Path::new("/"));
        if matches!(mode, OpenMode::Read | OpenMode::Write) || !state.directories.contains(parent) {
            return Err(not_found(path));
        }
        let file = Arc::new(MemFile::default());
        state.files.insert(path.to_owned(), file.clone());
        state
            .pending
            .push(DirChange::Link(path.to_owned(), file.clone()));
        Ok(file)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        for ancestor in path.ancestors() {
            state.directories.insert(ancestor.to_owned());
        }
        Ok(())
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let state = self.state.lock();
        if !state.directories.contains(path) {
            return Err(not_found(path));
        }
        let named = |child: &PathBuf, is_dir| {
            (child.parent() == Some(path)).then(|| DirEntry {
                name: child
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned(),
                is_dir,
            })
        };
        let files = state.files.keys().filter_map(|child| named(child, false));
        let directories = state
            .directories
            .iter()
            .filter_map(|child| named(child, true));
        Ok(files.chain(directories).collect())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let state = self.state.lock();
        Ok(state.files.contains_key(path) || state.directories.contains(path))
    }

    fn file_len(&self, path: &Path) -> io::Result<u64> {
        let state = self.state.lock();
        state.files.get(path).ok_or_else(|| not_found(path))?.len()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.files.contains_key(from) {
            let change = DirChange::Rename(from.to_owned(), to.to_owned());
            change.apply(&mut state.files);
            state.pending.push(change);
            return Ok(());
        }
        if !state.directories.contains(from) {
            return Err(not_found(from));
        }
        state.move_directory(from, to);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.files.remove(path).ok_or_else(|| not_found(path))?;
        state.pending.push(DirChange::Unlink(path.to_owned()));
        Ok(())
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.files.retain(|file, _| !file.starts_with(path));
        state.durable.retain(|file, _| !file.starts_with(path));
        state
            .directories
            .retain(|directory| !directory.starts_with(path));
        state.pending.retain(|change| !change.touches(path));
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let (now, later): (Vec<_>, Vec<_>) = state
            .pending
            .drain(..)
            .partition(|change| change.touches(path));
        now.iter()
            .for_each(|change| change.apply(&mut state.durable));
        state.pending = later;
        Ok(())
    }

    fn sync_file_system(&self, _path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.pending.clear();
        state.durable = state.files.clone();
        state
            .files
            .values()
            .for_each(|file| file.content.lock().sync());
        Ok(())
    }

    fn space(&self, _path: &Path) -> io::Result<Space> {
        Ok(Space {
            total_bytes: 1 << 40,
            usable_bytes: 1 << 39,
        })
    }

    fn modified_ms(&self, path: &Path) -> io::Result<i64> {
        let state = self.state.lock();
        let file = state.files.get(path).ok_or_else(|| not_found(path))?;
        Ok(file.modified_ms.load(Ordering::Relaxed))
    }

    fn set_modified_ms(&self, path: &Path, modified_ms: i64) -> io::Result<()> {
        let state = self.state.lock();
        let file = state.files.get(path).ok_or_else(|| not_found(path))?;
        file.modified_ms.store(modified_ms, Ordering::Relaxed);
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockGuard>> {
        self.open(path, OpenMode::Create)?;
        if !self.state.lock().locks.insert(path.to_owned()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(MemLock {
            disk: self.clone(),
            path: path.to_owned(),
        }))
    }
}

impl State {
    fn move_directory(&mut self, from: &Path, to: &Path) {
        let moved = |path: &Path| {
            let rest = path.strip_prefix(from).ok()?;
            Some(if rest.as_os_str().is_empty() {
                to.to_owned()
            } else {
                to.join(rest)
            })
        };
        let map = |files: &BTreeMap<PathBuf, Arc<MemFile>>| {
            let renamed = files
                .iter()
                .map(|(path, file)| (moved(path).unwrap_or_else(|| path.clone()), file.clone()));
            renamed.collect::<BTreeMap<_, _>>()
        };
        self.files = map(&self.files);
        self.durable = map(&self.durable);
        let directories = self.directories.iter();
        self.directories = directories
            .map(|d| moved(d).unwrap_or_else(|| d.clone()))
            .collect();
        for change in &mut self.pending {
            let paths = match change {
                DirChange::Rename(from, to) => vec![from, to],
                DirChange::Link(path, _) | DirChange::Unlink(path) => vec![path],
            };
            for path in paths {
                if let Some(new) = moved(path) {
                    *path = new;
                }
            }
        }
    }
}

#[derive(Debug)]
struct MemLock {
    disk: MemDisk,
    path: PathBuf,
}

impl LockGuard for MemLock {}

impl Drop for MemLock {
    fn drop(&mut self) {
        self.disk.state.lock().locks.remove(&self.path);
    }
}

#[derive(Debug, Default)]
struct MemFile {
    content: Mutex<Content>,
    /// As it was set; 0 before.
    modified_ms: AtomicI64,
}

#[derive(Debug, Default)]
struct Content {
    current: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Change>,
}

#[derive(Debug)]
enum Change {
    Write(u64, Vec<u8>),
    SetLen(u64),
}

impl Content {
    fn sync(&mut self) {
        if !self.pending.is_empty() {
            self.durable.clone_from(&self.current);
            self.pending.clear();
        }
    }

    fn lose_unsynced(&mut self, dice: &mut Dice) {
        let mut survivor = std::mem::take(&mut self.durable);
        for change in std::mem::take(&mut self.pending) {
            match change {
                Change::SetLen(len) if dice.below(2) == 0 => survivor.resize(len as usize, 0),
                Change::SetLen(_) => {}
                Change::Write(position, bytes) => match dice.below(4) {
                    0 => {}
                    1 => write(
                        &mut survivor,
                        position,
                        &bytes[..dice.below(bytes.len() + 1)],
                    ),
                    _ => write(&mut survivor, position, &bytes),
                },
            }
        }
        self.durable.clone_from(&survivor);
        self.current = survivor;
    }
}

fn write(content: &mut Vec<u8>, position: u64, bytes: &[u8]) {
    let start = position as usize;
    let end = start + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[start..end].copy_from_slice(bytes);
}

impl DiskFile for MemFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let content = self.content.lock();
        let start = usize::try_from(position)
            .unwrap_or(usize::MAX)
            .min(content.current.len());
        let n = buffer.len().min(content.current.len() - start);
        buffer[..n].copy_from_slice(&content.current[start..start + n]);
        Ok(n)
    }

    fn read_at_nowait(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.read_at(buffer, position)
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        let mut content = self.content.lock();
        write(&mut content.current, position, bytes);
        content
            .pending
            .push(Change::Write(position, bytes.to_vec()));
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.content.lock().current.len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut content = self.content.lock();
        content.current.resize(len as usize, 0);
        content.pending.push(Change::SetLen(len));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.content.lock().sync();
        Ok(())
    }

    fn read_ahead(&self, _position: u64, _len: u64) {}

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
