//! Unusable arenas: of killed makers, of starts that could not use them. The next start removes
//! them, and leaves those in use alone.

mod harness;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use harness::kept::*;
use harness::*;
use pyrklog_arena::{Arena, Identity};
use pyrklog_dataplane::arena_tools;
use pyrklog_dataplane::seam::PlaneConfig;

fn uuid_path(dir: &Path, digit: &str) -> PathBuf {
    dir.join(format!("pyrklog-{}.arena", digit.repeat(32)))
}

fn states(dir: &Path) -> Vec<&'static str> {
    let rows = arena_tools::list(dir).unwrap();
    rows.into_iter().map(|row| row.state).collect()
}

/// A broker that was killed with records only in its arena, which is then damaged.
fn damaged(dir: &Path) -> (PlaneConfig, PathBuf) {
    let config = keeping(dir);
    let mut behind = config.clone();
    behind.cache.flush_ms = 3_600_000;
    behind.cache.flush_bytes = usize::MAX;
    let mut test = start(&behind);
    test.create("t", 1);
    append(&test, "t", 0, 10);
    drop(test);
    let path = arenas(dir).remove(0);
    let file = fs::File::options().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"?", 100).unwrap();
    let mut aside = path.into_os_string();
    aside.push(".damaged");
    (config, aside.into())
}

#[test]
fn unusable_arena_is_kept_until_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let (config, aside) = damaged(dir.path());
    let mut test = start(&config);
    test.wait_for_notice("block_cache");
    assert!(aside.exists() && is_unclean(dir.path()));
    let mut seen = states(dir.path());
    seen.sort_unstable();
    assert_eq!(seen, ["in use", "set aside"]);
    drop(test);
    let looker = fs::File::open(&aside).unwrap();
    rustix::fs::flock(&looker, rustix::fs::FlockOperation::LockShared).unwrap();
    drop(start(&config));
    assert!(aside.exists());
    drop(looker);
    drop(start(&config));
    assert!(!aside.exists() && arenas(dir.path()).len() == 1);
}

#[test]
fn tools_drop_set_aside_and_unfinished_arenas() {
    let dir = tempfile::tempdir().unwrap();
    let (config, aside) = damaged(dir.path());
    let unfinished = uuid_path(dir.path(), "0");
    fs::write(&unfinished, vec![0; 1 << 20]).unwrap();
    let test = start(&config);
    // A broker sweeps at its start, and then not for ten minutes.
    eventually("sweeping", || (!unfinished.exists()).then_some(()));
    fs::write(&unfinished, vec![0; 1 << 20]).unwrap();
    let mut seen = states(dir.path());
    seen.sort_unstable();
    assert_eq!(seen, ["in use", "set aside", "unfinished"]);
    let dropped = arena_tools::drop_kept(dir.path(), None).unwrap();
    assert!(
        dropped.arenas == 2 && dropped.bytes >= 1 << 20,
        "{dropped:?}"
    );
    assert!(!aside.exists() && !unfinished.exists());
    assert_eq!(states(dir.path()), ["in use"]);
    drop(test);
}

#[test]
fn unfinished_arena_of_a_killed_broker_is_removed_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let identity = Identity {
        uuid: [0x22; 16],
        boot: [0; 16],
    };
    let live_path = uuid_path(dir.path(), "2");
    let live = Arena::create(&live_path, identity, "/nowhere", 1 << 20).unwrap();
    let (empty, headless) = (uuid_path(dir.path(), "0"), uuid_path(dir.path(), "1"));
    fs::write(&empty, b"").unwrap();
    fs::write(&headless, vec![0; 4096]).unwrap();
    let foreign = dir.path().join("pyrklog-notes.arena");
    fs::write(&foreign, b"").unwrap();
    let test = start(&keeping(dir.path()));
    eventually("sweeping", || {
        (!empty.exists() && !headless.exists()).then_some(())
    });
    assert!(live_path.exists() && foreign.exists());
    drop((live, test));
}

/// A kill while a kept arena's file is enlarged: first the file, then the header.
#[test]
fn a_kill_while_an_arena_is_enlarged_leaves_one_that_can_be_had() {
    for is_clean in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let mut config = keeping(dir.path());
        let end = ended(&config, &["t"]);
        let left = arenas(dir.path()).remove(0);
        let file = fs::File::options().write(true).open(&left).unwrap();
        file.set_len(file.metadata().unwrap().len() + 64 * MIB)
            .unwrap();
        if !is_clean {
            // The start that was killed had removed the mark.
            fs::remove_file(dir.path().join("logs/.kafka_cleanshutdown")).unwrap();
        }
        config.cache.max_bytes = Some(320 * MIB);
        let test = again(&config, &["t"]);
        assert_eq!(is_all_cached(&test, "t", end), is_clean);
        assert_eq!(left.exists(), is_clean, "nobody else would remove it");
        assert!(arenas(dir.path()).len() == 1 && !is_unclean(dir.path()));
        append(&test, "t", end, 10);
        read_all(&test, "t", end + 10);
    }
}

/// Anybody may make files in a directory of shared memory.
#[test]
fn pipe_named_as_an_arena_does_not_block_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let config = keeping(dir.path());
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let pipe = uuid_path(dir.path(), "0");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
    let kept = config_of(dir.path(), "kept");
    let mut test = start(&kept);
    test.create("t", 1);
    append(&test, "t", 0, 10);
    assert!(test.shutdown());
    let left = arenas(dir.path());
    let left = left.iter().find(|path| **path != pipe).unwrap().clone();
    fs::remove_dir_all(dir.path().join("kept")).unwrap();
    let test = TestPlane::start_with(config, Arc::new(pyrklog_log::disk::RealDisk));
    eventually("sweeping behind it", || (!left.exists()).then_some(()));
    assert!(pipe.exists());
    let rows = arena_tools::list(dir.path()).unwrap();
    assert!(
        rows.iter()
            .any(|row| row.path == pipe && row.state == "damaged")
    );
    drop(test);
}

/// Runs a broker until it has looked at every arena in `dir`.
fn sweep_with(dir: &Path, config: &PlaneConfig) {
    let unfinished = uuid_path(dir, "0");
    fs::write(&unfinished, b"").unwrap();
    let test = start(config);
    eventually("sweeping", || (!unfinished.exists()).then_some(()));
    // Not clean while a directory is away. The earlier look includes it.
    test.shutdown();
}

/// The disk of one of two log directories is away at one start, or while another broker looks.
#[test]
fn arena_survives_a_temporarily_missing_log_directory() {
    for is_own in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let in_dir = |name: &str| dir.path().join(name);
        fs::create_dir(in_dir("disk")).unwrap();
        std::os::unix::fs::symlink(in_dir("disk"), in_dir("mounted")).unwrap();
        let away = config_of(dir.path(), "mounted/more");
        let mut both = away.clone();
        both.log_dirs.insert(0, in_dir("logs"));
        both.cache.dir = Some(dir.path().to_owned());
        let mut one = both.clone();
        one.log_dirs.truncate(1);
        let mut before = away.clone();
        before.cache.dir = Some(dir.path().to_owned());
        let mut test = start(&before);
        test.create("t", 1);
        append(&test, "t", 0, 10);
        eventually("writing", || {
            (test.statistic("unwritten_bytes") == 0).then_some(())
        });
        drop(test);
        let left = arenas(dir.path()).remove(0);
        fs::rename(in_dir("disk"), in_dir("elsewhere")).unwrap();
        sweep_with(dir.path(), if is_own { &both } else { &one });
        assert!(left.exists());
        fs::rename(in_dir("elsewhere"), in_dir("disk")).unwrap();
        let test = again(&before, &["t"]);
        assert!(!in_dir("disk/more/.pyrklog-unclean").exists());
        read_all(&test, "t", 10);
    }
}
