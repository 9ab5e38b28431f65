//! What segments of a real size would take too long for: one that does not fit when converted.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pyrklog_wire::batch::Batches;
use pyrklog_wire::message_set::{MAGIC_0, write_message};

use super::large;
use super::segment::{Converted, Source, convert, install};
use crate::config::LogConfig;
use crate::disk::testing::{Fault, FaultyDisk, MemDisk, Operation};
use crate::disk::{DirEntry, Disk, DiskFile, LockGuard, OpenMode, Space};
use crate::env::LogEnv;
use crate::folder::Folder;
use crate::names::{FileKind, file_name};
use crate::open::files;
use crate::open::old_formats::sound_message;
use crate::segment::SegmentBytes;

const FOLDER: &str = "/data/t-0";
const LAST: i64 = 2_000;

/// Messages of format 0 at all offsets from 0 to [`LAST`] but the odd ones.
fn content() -> Vec<u8> {
    let mut content = Vec::new();
    for offset in (0..=LAST).step_by(2) {
        let value = format!("value {offset}");
        write_message(
            &mut content,
            (MAGIC_0, 0),
            offset,
            -1,
            None,
            Some(value.as_bytes()),
        );
    }
    content
}

struct Rig {
    memory: MemDisk,
    disk: FaultyDisk,
    env: Arc<LogEnv>,
    folder: Arc<Folder>,
    config: LogConfig,
}

impl Rig {
    fn new() -> Self {
        let memory = MemDisk::default();
        memory.create_dir_all(Path::new(FOLDER)).expect("in memory");
        let path = Path::new(FOLDER).join(file_name(0, FileKind::Log));
        memory.put(&path, &content());
        // Another segment's, which must stay.
        let path = Path::new(FOLDER).join(file_name(LAST + 1, FileKind::Log));
        memory.put(&path, &[]);
        let disk = FaultyDisk::new(Arc::new(memory.clone()));
        Self {
            env: LogEnv::new(Arc::new(disk.clone()), 16),
            folder: Folder::new(FOLDER.into()),
            config: LogConfig::default(),
            memory,
            disk,
        }
    }

    fn source(&self, limit: i64, output_bytes_max: u64) -> Source<'_> {
        Source {
            env: &self.env,
            folder: &self.folder,
            config: &self.config,
            base_offset: 0,
            limit,
            output_bytes_max,
        }
    }

    fn finish(&self) {
        files::finish_interrupted(&self.env, &self.folder, &mut Vec::new()).expect("a sound disk");
    }

    /// Base offsets of the `.log`s, and the offsets of batches in them.
    fn logs(&self) -> Vec<(i64, Vec<(i64, i64)>)> {
        let mut logs = Vec::new();
        for path in self.memory.files() {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let Some(digits) = name.strip_suffix(".log") else {
                continue;
            };
            let bytes = self.memory.content(&path).unwrap_or_default();
            let headers = Batches::new(&bytes).map(|view| view.map(|view| view.header));
            let offsets = headers.map_while(Result::ok);
            let offsets = offsets.map(|header| (header.base_offset, header.last_offset()));
            logs.push((digits.parse().unwrap_or(-1), offsets.collect()));
        }
        logs
    }
}

fn check(rig: &Rig) {
    let logs = rig.logs();
    let (last, others) = logs.split_last().expect("several");
    assert_eq!(*last, (LAST + 1, Vec::new()));
    assert!(others.len() > 2, "{logs:?}");
    let all: Vec<(i64, i64)> = others
        .iter()
        .flat_map(|(_, batches)| batches.clone())
        .collect();
    assert_eq!((all[0].0, all[all.len() - 1].1), (0, LAST));
    assert!(all.windows(2).all(|pair| pair[0].1 < pair[1].0));
    for (base_offset, batches) in others {
        assert_eq!(*base_offset, batches[0].0);
    }
}

#[test]
fn what_does_not_fit_into_a_segment_becomes_several() {
    let rig = Rig::new();
    let source = rig.source(LAST + 1, 5_000);
    let converted = convert(&source, 0).expect("a sound disk");
    assert!(converted.outputs.len() > 2);
    install(&source, &converted.outputs).expect("a sound disk");
    rig.finish();
    check(&rig);
}

/// Nothing of the swap may be taken for a whole one.
#[test]
fn a_swap_of_several_segments_may_end_at_any_step() {
    for seed in [None, Some(1), Some(2), Some(3), Some(4)] {
        for operation in [Operation::Rename, Operation::SyncDir, Operation::Remove] {
            for skip in 0..40 {
                let rig = Rig::new();
                let source = rig.source(LAST + 1, 5_000);
                rig.disk
                    .fail(operation, "", skip, usize::MAX, Fault::InputOutput);
                let done = convert(&source, 0).is_ok_and(|Converted { outputs, .. }| {
                    install(&source, &outputs).is_ok()
                        && files::finish_interrupted(&rig.env, &rig.folder, &mut Vec::new()).is_ok()
                });
                rig.disk.heal();
                if let Some(seed) = seed {
                    rig.memory.reboot(seed);
                }
                rig.finish();
                let first = rig
                    .memory
                    .content(&Path::new(FOLDER).join(file_name(0, FileKind::Log)));
                match first.is_some_and(|first| first == content()) {
                    true => assert!(
                        !done && rig.logs().len() == 2,
                        "{seed:?} {operation:?} {skip}"
                    ),
                    false => check(&rig),
                }
            }
        }
    }
}

/// A compacted log may have offsets further apart than a segment's indexes reach.
#[test]
fn offsets_far_apart_become_several_segments() {
    let rig = Rig::new();
    let far = 1 << 33;
    let mut content = content();
    write_message(&mut content, (MAGIC_0, 0), far, -1, None, Some(b"far"));
    rig.memory.put(
        &Path::new(FOLDER).join(file_name(0, FileKind::Log)),
        &content,
    );
    let source = rig.source(far + 1, i32::MAX as u64);
    let converted = convert(&source, 0).expect("a sound disk");
    assert_eq!(converted.outputs, [0, far]);
}

/// Passes everything on, and notes whether [`large::lock`] is held while much is read.
#[derive(Debug)]
struct Watched {
    inner: MemDisk,
    unlocked: Arc<AtomicUsize>,
    locked: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct WatchedFile {
    inner: Arc<dyn DiskFile>,
    unlocked: Arc<AtomicUsize>,
    locked: Arc<AtomicUsize>,
}

impl Disk for Watched {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(WatchedFile {
            inner: self.inner.open(path, mode)?,
            unlocked: Arc::clone(&self.unlocked),
            locked: Arc::clone(&self.locked),
        }))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir_all(path)
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.inner.read_dir(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.inner.exists(path)
    }

    fn file_len(&self, path: &Path) -> io::Result<u64> {
        self.inner.file_len(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_dir_all(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.sync_dir(path)
    }

    fn sync_file_system(&self, path: &Path) -> io::Result<()> {
        self.inner.sync_file_system(path)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        self.inner.space(path)
    }

    fn modified_ms(&self, path: &Path) -> io::Result<i64> {
        self.inner.modified_ms(path)
    }

    fn set_modified_ms(&self, path: &Path, modified_ms: i64) -> io::Result<()> {
        self.inner.set_modified_ms(path, modified_ms)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockGuard>> {
        self.inner.lock(path)
    }
}

impl WatchedFile {
    fn note(&self, bytes: usize) {
        let count = match large::is_locked() {
            _ if bytes <= large::SMALL_BYTES => return,
            true => &self.locked,
            false => &self.unlocked,
        };
        count.fetch_add(1, Ordering::SeqCst);
    }
}

impl DiskFile for WatchedFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.note(buffer.len());
        self.inner.read_at(buffer, position)
    }

    fn read_at_nowait(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.inner.read_at_nowait(buffer, position)
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.note(bytes.len());
        self.inner.write_all_at(bytes, position)
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.inner.sync_data()
    }

    fn read_ahead(&self, position: u64, len: u64) {
        self.inner.read_ahead(position, len);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }
}

/// Of all threads that open logs, one has a large message in memory, and its batch.
#[test]
fn large_messages_are_read_and_written_by_one_thread_at_a_time() {
    let rig = Rig::new();
    let mut content = Vec::new();
    let large = vec![b'x'; large::SMALL_BYTES + 1];
    for (offset, value) in [(0, &b"small"[..]), (1, &large), (2, b"small")] {
        write_message(&mut content, (MAGIC_0, 0), offset, -1, None, Some(value));
    }
    let path = Path::new(FOLDER).join(file_name(0, FileKind::Log));
    rig.memory.put(&path, &content);
    let (locked, unlocked) = <(Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
    let watched = Watched {
        inner: rig.memory.clone(),
        locked: Arc::clone(&locked),
        unlocked: Arc::clone(&unlocked),
    };
    let env = LogEnv::new(Arc::new(watched), 16);
    let source = Source {
        env: &env,
        ..rig.source(LAST + 1, i32::MAX as u64)
    };
    convert(&source, 0).expect("a sound disk");
    let bytes = SegmentBytes::of_file(env.disk().open(&path, OpenMode::Read).expect("it is there"));
    let small = 8 + 4 + 4 + 1 + 1 + 4 + 4 + 5;
    let found = sound_message(bytes, small, content.len() as u64);
    assert_eq!(found.expect("a sound disk"), Some(MAGIC_0));
    let counts = (&locked, &unlocked);
    let counts = (
        counts.0.load(Ordering::SeqCst),
        counts.1.load(Ordering::SeqCst),
    );
    assert_eq!(counts, (3, 0), "read, written, and read again");
}
