//! A block cache that an orderly shutdown keeps for the next start: whether it may be kept, and
//! whether the directory is unchanged since (`block-cache.md`, section 3).

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pyrklog_arena::limits::memory_limits;
use pyrklog_arena::{
    Arena, ArenaError, Found, Glance, Header, LeftFiles, is_arena_name, is_set_aside_name,
    read_header_of, remove_unfinished, remove_unlocked,
};
use pyrklog_log::{ArenaMarker, KeptMark, LogDir, hex};
use rustix::process::geteuid;

use crate::block_cache::{Note, note_unclean, patiently};
use pyrklog_base::clock::Now;
use pyrklog_control::seam::CacheConfig;

const MIB: u64 = 1 << 20;

const MARKER: &str = ".pyrklog-arena";

/// A kept arena may hold this fraction of the memory that would be free without it: no process
/// gives its memory back.
const KEPT_SHARE: u64 = 2;

/// The next broker that looks removes a kept arena that was not reattached for this long.
const KEPT_MS: u64 = 3_600_000;

/// Owner of an arena, seen from a log directory whose marker names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// This directory.
    Own,
    /// Another directory, which also names it: this one is a copy.
    Original,
    /// This directory, under an earlier path.
    Moved,
}

/// Compares the path in the arena's header with the directory's.
pub fn whose(header: &Header, log_dir: &Path) -> Whose {
    let other = Path::new(&header.log_dir);
    if header.is_of(&full_path(log_dir)) || is_same(other, log_dir) {
        return Whose::Own;
    }
    match marker_of(other) {
        Some(marker) if marker.identity == header.identity => Whose::Original,
        _ => Whose::Moved,
    }
}

/// The absolute path, as an arena's header has it.
pub fn full_path(log_dir: &Path) -> String {
    let path = std::path::absolute(log_dir).unwrap_or_else(|_| log_dir.to_owned());
    path.display().to_string()
}

/// Whether both are one directory. Those that are missing are none.
pub fn is_same(one: &Path, other: &Path) -> bool {
    let id = |path: &Path| Some(fs::metadata(path).ok()?).map(|dir| (dir.dev(), dir.ino()));
    id(one).is_some_and(|found| Some(found) == id(other))
}

/// The marker of a log directory, which this process need not have opened.
pub fn marker_of(log_dir: &Path) -> Option<ArenaMarker> {
    let text = fs::read_to_string(log_dir.join(MARKER)).ok()?;
    ArenaMarker::parse(&text)
}

/// Reads the header of an arena's file; `None` if it is not a complete arena.
pub fn header_of(path: &Path) -> Option<Header> {
    read_header_of(path).ok()
}

/// Reattaches a kept arena. On false the arena was dropped.
pub fn reattach(
    config: &CacheConfig,
    files: &LogDir,
    (marker, kept): (&ArenaMarker, KeptMark),
    share_bytes: u64,
    notes: &mut Vec<Note>,
) -> bool {
    let lost = records_since(files, marker);
    if let Some(reason) = &lost {
        note_unclean(files, reason, notes);
    }
    let reason = match try_reattach(config, files, (marker, kept), share_bytes) {
        Ok((arena, found)) => {
            let kept_bytes = arena.statistics().held_bytes;
            let path = arena.path().display();
            let told = format!("reattached {path}: {} MiB are in memory", kept_bytes / MIB);
            notes.push(("info", told));
            files.env().set_cache(arena, false, found);
            return true;
        }
        Err(reason) => reason,
    };
    let path = marker.path.display();
    notes.push(("info", format!("dropped {path}: {reason}")));
    // An arena with a damaged header is useless to all.
    let is_own = header_of(&marker.path).is_none_or(|header| {
        header.identity == marker.identity && whose(&header, files.path()) == Whose::Own
    });
    // The marker goes first: a named but missing arena raises an alarm.
    if is_own && files.remove_arena_marker().is_ok() && lost.is_none() {
        // It holds nothing of value; a later sweep removes it.
        let _gone_or_not = remove_unlocked(&marker.path);
    }
    false
}

/// Detects an older copy of the directory: its arena was used after the shutdown that the marker
/// records. Returns the reason as half a sentence.
fn records_since(files: &LogDir, marker: &ArenaMarker) -> Option<String> {
    let header = header_of(&marker.path)?;
    let is_own = header.identity == marker.identity && whose(&header, files.path()) == Whose::Own;
    if header.is_kept || !is_own {
        return None;
    }
    let glance = patiently(marker, |identity| Arena::peek(&marker.path, identity)).ok();
    let has_unwritten = |glance: Glance| glance.damage.is_some() || glance.unwritten_bytes > 0;
    // A start that was killed before it wrote its own marker has removed the clean-shutdown mark,
    // but has appended nothing.
    let is_older = files.was_clean() || glance.is_none_or(has_unwritten);
    is_older.then(|| {
        let path = marker.path.display();
        format!("the directory is an older copy: {path} was used after this copy was made")
    })
}

/// # Errors
/// Why it cannot be reattached: half a sentence.
fn try_reattach(
    config: &CacheConfig,
    files: &LogDir,
    (marker, kept): (&ArenaMarker, KeptMark),
    share_bytes: u64,
) -> Result<(Arc<Arena>, Found), String> {
    if config.drops {
        return Err("the options drop it".to_owned());
    }
    if !files.was_clean() {
        return Err("the directory was used since without an orderly shutdown".to_owned());
    }
    if files.clean_mark() != Some(kept.clean_mark) {
        return Err("another broker has used the directory since".to_owned());
    }
    if share_bytes == 0 || config.dir.as_deref() != marker.path.parent() {
        return Err("the block cache is off or in another directory".to_owned());
    }
    match header_of(&marker.path).map(|header| whose(&header, files.path())) {
        None | Some(Whose::Own) => {}
        Some(_) => return Err("the directory was copied or moved".to_owned()),
    }
    let (arena, mut found) = patiently(marker, |identity| {
        Arena::attach_kept(&marker.path, identity, share_bytes)
    })
    .map_err(|error: ArenaError| error.to_string())?;
    drop_changed(files, &arena, &mut found);
    // The arena is in use from here on, also after a kill.
    let in_use = ArenaMarker {
        unregistered: Some(files.clean_epoch()),
        kept: None,
        ..marker.clone()
    };
    files
        .write_arena_marker(&in_use)
        .map_err(|error| format!("writing its marker: {error}"))?;
    Ok((arena, found))
}

/// Whether the directory is as left by an orderly shutdown that was killed before it wrote its
/// marker: compares the marker and the files of each closed log.
pub fn is_as_left(files: &LogDir, left: &LeftFiles) -> bool {
    let marker = || files.arena_marker_hash();
    let is_marker = left.marker == 0 || marker().is_ok_and(|hash| hash == left.marker);
    let mut closed = left.partitions.iter().filter(|(_, hash)| *hash != 0);
    is_marker
        && closed.all(|(name, hash)| {
            let now = files.files_hash(&name.topic, name.partition);
            now.is_ok_and(|now| now == Some(*hash))
        })
}

fn drop_changed(files: &LogDir, arena: &Arena, found: &mut Found) {
    for (name, slot) in arena.partitions() {
        let is_whole = found.get(&name).is_some_and(|found| {
            let mut segments = found.segments.values();
            found.damage.is_none() && segments.all(|segment| segment.unwritten_from().is_none())
        });
        let now = || files.files_hash(&name.topic, name.partition).ok().flatten();
        let hash = arena.files_hash(slot);
        if !is_whole || hash.is_none() || hash != now() {
            found.remove(&name);
            arena.release_slot(slot);
        }
    }
}

/// Prepares the arena to be kept, before the directory is marked clean; false if it cannot be kept.
/// `closed` are the closed logs. Nothing in the arena may be unwritten.
pub fn prepare(config: &CacheConfig, files: &LogDir, closed: &HashSet<(String, i32)>) -> bool {
    let Some(arena) = files.env().arena() else {
        return false;
    };
    let is_ours = config.dir.as_deref() == arena.path().parent()
        && header_of(arena.path()).is_some_and(|header| header.is_of(&full_path(files.path())));
    if !config.keeps || !is_ours || !arena.is_open() || !arena.is_linked() {
        return false;
    }
    let populated_bytes = u64::from(arena.populated()) * MIB;
    let free_bytes = memory_limits().available_bytes + populated_bytes;
    arena.trim(u32::try_from(free_bytes / KEPT_SHARE / MIB).unwrap_or(u32::MAX));
    let unopened: HashSet<_> = files.env().unclaimed_partitions().into_iter().collect();
    let mut holds_any = false;
    let marker = files.arena_marker_hash().unwrap_or(0);
    arena.mark_left(marker, |name| {
        let folder = (name.topic.clone(), name.partition);
        let is_closed = closed.contains(&folder)
            || unopened.contains(name) && files.is_left_closed(&folder.0, folder.1);
        let hash = is_closed.then(|| files.files_hash(&folder.0, folder.1).ok().flatten());
        let hash = hash.flatten().unwrap_or(0);
        holds_any |= hash != 0;
        hash
    });
    holds_any && arena.statistics().held_bytes > 0
}

/// Marks a prepared arena as kept, after the clean-shutdown mark was written.
///
/// # Errors
/// A disk error: the arena is not kept.
pub fn mark_kept(files: &LogDir) -> io::Result<()> {
    let Some(arena) = files.env().arena() else {
        return Ok(());
    };
    let kept = KeptMark {
        at_ms: Now::read().wall_ms,
        clean_mark: files.clean_mark_now()?,
    };
    files.write_arena_marker(&ArenaMarker {
        identity: arena.identity(),
        path: arena.path().to_owned(),
        unregistered: None,
        kept: Some(kept),
    })
}

/// Removes abandoned arenas in `dir`: those of killed brokers whose directory is gone, unfinished
/// ones, and those kept for over an hour. Arenas of `log_dirs`, the broker's own, stay: their disk
/// may be absent.
pub fn sweep(dir: &Path, log_dirs: &[PathBuf]) -> io::Result<usize> {
    let mut removed = 0;
    for path in own_files(dir, geteuid().as_raw(), is_arena_name)? {
        if remove_abandoned(&path, log_dirs) || remove_unfinished(&path) {
            removed += 1;
        }
    }
    Ok(removed)
}

/// Removes arenas that earlier starts set aside; called before any directory is opened.
pub fn sweep_set_aside(dir: &Path) {
    // The next start handles what cannot be read now.
    let own = own_files(dir, geteuid().as_raw(), is_set_aside_name);
    for path in own.into_iter().flatten() {
        let _gone_or_in_use = remove_unlocked(&path);
    }
}

/// Files of `owner` with a wanted name. Other users' files are excluded: they may name any path,
/// and truncating one while it is mapped would end this process.
fn own_files(dir: &Path, owner: u32, is_wanted: fn(&str) -> bool) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let is_own = |file: fs::Metadata| file.is_file() && file.uid() == owner;
        if entry.file_name().to_str().is_some_and(is_wanted) && entry.metadata().is_ok_and(is_own) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

fn remove_abandoned(path: &Path, log_dirs: &[PathBuf]) -> bool {
    let Some(header) = header_of(path) else {
        return false;
    };
    let log_dir = Path::new(&header.log_dir);
    let is_wanted = match marker_of(log_dir) {
        Some(marker) if marker.identity == header.identity => marker
            .kept
            // The clock may have been set back, so the age is absolute.
            .is_none_or(|kept| Now::read().wall_ms.abs_diff(kept.at_ms) < KEPT_MS),
        // A damaged marker may name it.
        Some(_) => false,
        None => match fs::read_to_string(log_dir.join(MARKER)) {
            Ok(text) => text.contains(&hex(&header.identity.uuid)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut own = log_dirs.iter();
                own.any(|dir| header.is_of(&full_path(dir))) || may_be_away(log_dir)
            }
            Err(_) => true,
        },
    };
    if is_wanted {
        return false;
    }
    // `peek` takes the lock that a user of the arena would hold.
    let Ok(glance) = Arena::peek(path, header.identity) else {
        return false;
    };
    glance.damage.is_none() && glance.unwritten_bytes == 0 && fs::remove_file(path).is_ok()
}

/// Whether a directory without a marker may be on an absent disk: a link is dangling, or a possible
/// mount point is empty.
fn may_be_away(log_dir: &Path) -> bool {
    if log_dir.is_dir() {
        return false;
    }
    let mut ancestors = log_dir.ancestors();
    let there = ancestors.find(|path| fs::symlink_metadata(path).is_ok());
    let entries = there.and_then(|path| fs::read_dir(path).ok());
    entries.is_none_or(|mut entries| !matches!(entries.next(), Some(Ok(_))))
}

#[cfg(test)]
mod tests {
    use pyrklog_arena::Identity;

    use super::*;

    #[test]
    fn foreign_files_and_folders_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let named = |digit: &str| {
            dir.path()
                .join(format!("pyrklog-{}.arena", digit.repeat(32)))
        };
        fs::write(named("0"), b"").unwrap();
        fs::create_dir(named("1")).unwrap();
        std::os::unix::fs::symlink(named("0"), named("2")).unwrap();
        fs::write(dir.path().join("other"), b"").unwrap();
        let owner = geteuid().as_raw();
        let found = |owner| own_files(dir.path(), owner, is_arena_name).unwrap();
        assert_eq!(found(owner), [named("0")]);
        assert!(found(owner + 1).is_empty());
    }

    /// An arena without a user, made for a log directory.
    fn left_of(dir: &Path, log_dir: &Path) -> PathBuf {
        let identity = Identity {
            uuid: [3; 16],
            boot: [4; 16],
        };
        let path = dir.join(format!("pyrklog-{}.arena", hex(&identity.uuid)));
        drop(Arena::create(&path, identity, &full_path(log_dir), MIB).unwrap());
        path
    }

    #[test]
    fn arena_of_a_missing_directory_is_removed_unless_it_is_our_own() {
        let dir = tempfile::tempdir().unwrap();
        let log_dir = dir.path().join("gone/logs");
        let path = left_of(dir.path(), &log_dir);
        assert_eq!(
            sweep(dir.path(), std::slice::from_ref(&log_dir)).unwrap(),
            0
        );
        assert!(path.exists());
        assert_eq!(sweep(dir.path(), &[]).unwrap(), 1);
        assert!(!path.exists());
    }

    #[test]
    fn a_directory_where_a_disk_may_be_mounted_is_not_taken_for_gone() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("mnt");
        fs::create_dir(&place).unwrap();
        let path = left_of(dir.path(), &place.join("broker/logs"));
        assert_eq!(sweep(dir.path(), &[]).unwrap(), 0);
        fs::write(place.join("other"), b"").unwrap();
        assert_eq!(sweep(dir.path(), &[]).unwrap(), 1);
        assert!(!path.exists());
    }

    #[test]
    fn a_marker_that_cannot_be_read_may_name_the_arena() {
        let dir = tempfile::tempdir().unwrap();
        let marker = dir.path().join(MARKER);
        fs::create_dir(&marker).unwrap();
        left_of(dir.path(), dir.path());
        assert_eq!(sweep(dir.path(), &[]).unwrap(), 0);
        fs::remove_dir(&marker).unwrap();
        assert_eq!(sweep(dir.path(), &[]).unwrap(), 1);
    }
}
