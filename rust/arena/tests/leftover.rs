//! Leftovers of arenas that were never finished, and their removal while others make theirs.

use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use pyrklog_arena::{
    Arena, Identity, is_arena_name, is_set_aside_name, is_unfinished, read_header_of,
    remove_unfinished, remove_unlocked,
};

const ID: Identity = Identity {
    uuid: [7; 16],
    boot: [9; 16],
};

#[test]
fn only_names_that_a_broker_gives_are_looked_at() {
    let uuid = "0123456789abcdef0123456789abcdef";
    assert!(is_arena_name(&format!("pyrklog-{uuid}.arena")));
    assert!(is_set_aside_name(&format!("pyrklog-{uuid}.arena.damaged")));
    for name in ["pyrklog-1.arena", "pyrklog-.arena", "pyrklog.arena", ""] {
        assert!(!is_arena_name(name) && !is_set_aside_name(&format!("{name}.damaged")));
    }
    assert!(!is_arena_name(&format!("pyrklog-{uuid}.arena.damaged")));
}

#[test]
fn search_for_unfinished_arenas_spares_one_being_made() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("one.arena");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                remove_unfinished(&path);
            }
        });
        let made = (0..300).try_for_each(|_| {
            let arena = Arena::create(&path, ID, "/logs", 1 << 20).map_err(|e| e.to_string())?;
            assert!(arena.is_linked());
            drop(arena);
            read_header_of(&path)?;
            fs::remove_file(&path).map_err(|e| e.to_string())
        });
        is_over.store(true, Ordering::Relaxed);
        made.unwrap();
    });
}

#[test]
fn locked_and_finished_arenas_are_not_removed_as_unfinished() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("one.arena");
    let arena = Arena::create(&path, ID, "/logs", 1 << 20).unwrap();
    assert!(!is_unfinished(&path) && !remove_unlocked(&path));
    drop(arena);
    assert!(!remove_unfinished(&path), "it is an arena");
    assert!(remove_unlocked(&path) && !path.exists());
    for len in [0, 7, 8, 1 << 20] {
        File::create(&path).unwrap().set_len(len).unwrap();
        assert!(is_unfinished(&path) && remove_unfinished(&path));
    }
}

/// Anybody may make files in a directory of shared memory: only regular files are opened.
#[test]
fn pipe_or_link_named_as_an_arena_blocks_no_broker() {
    let dir = tempfile::tempdir().unwrap();
    let (pipe, link) = (dir.path().join("pipe.arena"), dir.path().join("link.arena"));
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
    for path in [&pipe, &link] {
        let is_refused = |path: &Path| read_header_of(path).is_err() && !is_unfinished(path);
        assert!(is_refused(path) && Arena::peek(path, ID).is_err());
        assert!(!remove_unlocked(path) && fs::symlink_metadata(path).is_ok());
    }
}
