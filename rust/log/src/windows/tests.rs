//! Which windows are held, for how long, and how many.

use std::path::{Path, PathBuf};

use super::*;
use crate::disk::testing::MemDisk;
use crate::disk::{Disk, OpenMode};
use crate::env::LogEnv;
use crate::folder::Folder;
use crate::names::FileKind;
use crate::segment::Segment;

const WINDOWS: usize = 12;
const LEN: usize = WINDOWS * WINDOW_BYTES + 10_000;

const RUN_BYTES: usize = 977;

fn byte_at(position: usize) -> u8 {
    (position / RUN_BYTES) as u8
}

/// A closed segment with `base_offset` whose file has [`LEN`] bytes.
fn segment(env: &Arc<LogEnv>, disk: &MemDisk, base_offset: i64) -> Arc<Segment> {
    let path = PathBuf::from("/logs/t-0");
    disk.create_dir_all(&path).unwrap();
    let folder = Folder::new(path);
    let segment = Segment::new(env, &folder, base_offset, LEN as u64, true);
    let runs = (0..=LEN / RUN_BYTES).flat_map(|run| [run as u8; RUN_BYTES]);
    let content: Vec<u8> = runs.take(LEN).collect();
    let file = disk
        .open(&segment.path(FileKind::Log), OpenMode::Create)
        .unwrap();
    file.write_all_at(&content, 0).unwrap();
    segment
}

fn rig() -> (MemDisk, Arc<LogEnv>, Arc<Segment>) {
    let disk = MemDisk::default();
    disk.create_dir_all(Path::new("/logs")).unwrap();
    let env = LogEnv::new(Arc::new(disk.clone()), 16);
    let segment = segment(&env, &disk, 0);
    (disk, env, segment)
}

/// Acts as a reader: (bytes from `position` on, whether the disk was read).
fn read(env: &LogEnv, segment: &Arc<Segment>, position: u64) -> (Vec<u8>, bool) {
    let windows = &env.windows;
    let (window, is_new) = match windows.look_up(segment.id(), position) {
        Look::Held(window) => (window, false),
        Look::GoesOn | Look::Unknown => (windows.load(segment, position).unwrap().unwrap(), true),
    };
    let found = window.from(position).to_vec();
    windows.passed(&window);
    (found, is_new)
}

/// Reads from `position` to the end of the file; returns the number of disk reads.
fn read_all(env: &LogEnv, segment: &Arc<Segment>, mut position: u64) -> usize {
    let mut loads = 0;
    while position < LEN as u64 {
        let (found, is_new) = read(env, segment, position);
        assert!(!found.is_empty());
        let is_right = |(at, byte): (usize, &u8)| *byte == byte_at(position as usize + at);
        let mut some = found.iter().enumerate().step_by(101);
        assert!(some.all(is_right), "at {position}");
        position += found.len() as u64;
        loads += usize::from(is_new);
    }
    loads
}

#[test]
fn a_reader_goes_through_a_file_in_large_steps() {
    let (_, env, segment) = rig();
    assert!(matches!(
        env.windows.look_up(segment.id(), 0),
        Look::Unknown
    ));
    assert_eq!(read_all(&env, &segment, 5_000), WINDOWS + 1);
    assert!(env.window_bytes() <= PASSED_MAX_BYTES + 2 * WINDOW_BYTES);
    assert!(env.windows.load(&segment, LEN as u64).unwrap().is_none());
}

#[test]
fn reader_goes_on_after_a_full_window_but_not_after_the_file_end() {
    let (_, env, segment) = rig();
    let look = |position: u64| env.windows.look_up(segment.id(), position);
    read(&env, &segment, 4096 + 10);
    let end = WINDOW_BYTES as u64;
    assert!(matches!(look(4095), Look::Unknown));
    assert!(matches!(look(4096), Look::Held(_)), "from the page on");
    assert!(matches!(look(end - 1), Look::Held(_)));
    assert!(matches!(look(end), Look::GoesOn));
    assert!(matches!(look(end + 1), Look::Unknown));
    read(&env, &segment, LEN as u64 - 1);
    assert!(matches!(look(LEN as u64), Look::Unknown));
}

#[test]
fn readers_close_behind_another_need_no_disk() {
    let (_, env, segment) = rig();
    let step = WINDOW_BYTES as u64;
    for at in 0..WINDOWS as u64 {
        assert!(read(&env, &segment, at * step).1);
        if at >= 7 {
            assert!(!read(&env, &segment, (at - 7) * step).1, "seven behind");
        }
    }
    assert!(read(&env, &segment, 0).1, "far behind");
    assert!(!read(&env, &segment, 11 * step).1, "the first one goes on");
}

#[test]
fn memory_is_bounded_and_shared_in_small_pieces_by_many() {
    let (disk, env, first) = rig();
    let others = (1..10).map(|base_offset| segment(&env, &disk, base_offset));
    // No reader has reached the end of any of them.
    let (mut largest, mut is_small) = (0, false);
    for segment in std::iter::once(first).chain(others) {
        for at in 0..WINDOWS as u64 {
            let window = env.windows.load(&segment, at * WINDOW_BYTES as u64);
            let len = window
                .unwrap()
                .unwrap()
                .from(at * WINDOW_BYTES as u64)
                .len();
            assert!(len == WINDOW_BYTES || len == SMALL_WINDOW_BYTES);
            is_small |= len == SMALL_WINDOW_BYTES;
            largest = largest.max(env.window_bytes());
            assert!(env.window_bytes() <= WINDOWS_MAX_BYTES);
        }
    }
    assert!(is_small && largest > WINDOWS_MAX_BYTES / 2);
}

#[test]
fn unused_windows_are_dropped() {
    let (_, env, segment) = rig();
    read(&env, &segment, 0);
    env.forget_idle_reads();
    assert_eq!(env.window_bytes(), WINDOW_BYTES, "it was used just now");
    assert!(!read(&env, &segment, 0).1);
    env.forget_idle_reads();
    env.forget_idle_reads();
    assert_eq!(env.window_bytes(), 0);
    assert!(read(&env, &segment, 0).1);
}

#[test]
fn a_file_that_is_cut_is_read_anew() {
    let (disk, env, one) = rig();
    let other = segment(&env, &disk, 1);
    read(&env, &one, 0);
    read(&env, &other, 0);
    one.cut(100);
    let look = |segment: &Segment| env.windows.look_up(segment.id(), 0);
    assert!(matches!(look(&one), Look::Unknown));
    assert!(matches!(look(&other), Look::Held(_)));
    let (found, _) = read(&env, &one, 0);
    assert_eq!(found.len(), 100, "nothing beyond what is written");
}

#[test]
fn read_ahead_covers_the_next_windows_while_memory_lasts() {
    let (disk, env, first) = rig();
    let windows = &env.windows;
    let mebibytes =
        |plan: Vec<u64>| -> Vec<u64> { plan.iter().map(|at| at / WINDOW_BYTES as u64).collect() };
    let window = windows.load(&first, 0).unwrap().unwrap();
    assert_eq!(window.next(), Some(WINDOW_BYTES as u64));
    let deeper = AHEAD_MIN as u64 + 1;
    let expected: Vec<u64> = (1..=deeper).collect();
    assert_eq!(mebibytes(windows.plan_ahead(&first, &window)), expected);
    assert!(
        windows.plan_ahead(&first, &window).is_empty(),
        "it is planned"
    );
    windows.forget_ahead(first.id(), WINDOW_BYTES as u64);
    assert_eq!(mebibytes(windows.plan_ahead(&first, &window)), [1]);
    for at in expected {
        windows.load_ahead(&first, at * WINDOW_BYTES as u64);
    }
    assert!(windows.plan_ahead(&first, &window).is_empty(), "it is here");
    let second = env.windows.load(&first, WINDOW_BYTES as u64);
    let second = second.unwrap().unwrap();
    assert_eq!(mebibytes(windows.plan_ahead(&first, &second)), [deeper + 1]);
    windows.forget_ahead(first.id(), (deeper + 1) * WINDOW_BYTES as u64);
    let last = windows.load(&first, LEN as u64 - 1).unwrap().unwrap();
    assert_eq!(last.next(), None, "nothing follows");
    assert!(windows.plan_ahead(&first, &last).is_empty());
    let other = segment(&env, &disk, 1);
    for at in 0..WINDOWS as u64 {
        windows.load(&other, at * WINDOW_BYTES as u64).unwrap();
    }
    let fourth = windows.load(&first, 3 * WINDOW_BYTES as u64);
    let plan = windows.plan_ahead(&first, &fourth.unwrap().unwrap());
    assert!(plan.is_empty(), "16 MiB wait to be read: {plan:?}");
}

#[test]
fn read_ahead_grows_when_a_reader_waits_and_ends_when_unused() {
    let (_, env, segment) = rig();
    let windows = &env.windows;
    let depth = || AHEAD_MIN + windows.inner.lock().deeper;
    for at in 0..WINDOWS as u64 {
        windows.load(&segment, at * WINDOW_BYTES as u64).unwrap();
        assert_eq!(depth(), AHEAD_MAX.min(AHEAD_MIN + at as usize + 1));
    }
    windows.load(&segment, 0).unwrap();
    env.forget_idle_reads();
    assert_eq!(depth(), AHEAD_MAX, "they were used");
    env.forget_idle_reads();
    assert_eq!(depth(), AHEAD_MIN);
}

/// Readers of the same bytes share one read of the disk.
#[test]
fn reader_waits_for_a_window_that_another_loads() {
    let (_, env, segment) = rig();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let window = env.windows.load(&segment, 5_000).unwrap().unwrap();
                assert_eq!(window.from(5_000)[0], byte_at(5_000));
            });
        }
    });
    assert_eq!(env.window_bytes(), WINDOW_BYTES);
    assert!(env.windows.inner.lock().loading.is_empty());
}

#[test]
fn a_read_that_fails_leaves_nothing_behind_and_the_next_one_tries_again() {
    let (disk, env, segment) = rig();
    let path = segment.path(FileKind::Log);
    let content = disk.content(&path).unwrap();
    disk.remove_file(&path).unwrap();
    assert!(env.windows.load(&segment, 0).is_err());
    assert!(env.windows.inner.lock().loading.is_empty());
    disk.put(&path, &content);
    assert_eq!(read(&env, &segment, 0).0.len(), WINDOW_BYTES);
}
