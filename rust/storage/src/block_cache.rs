//! Opens a log directory's block cache: reattaches the arena, creates a new one, or does without,
//! by marker, boot id and options (`block-cache.md`, section 3).

use std::collections::HashMap;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use pyrklog_arena::limits::memory_limits;
use pyrklog_arena::{Arena, ArenaError, Found, Identity, SET_ASIDE, remove_unlocked};
use pyrklog_log::{ArenaMarker, LogDir, LogDirError, PartitionFolder, hex, parse_id};

use crate::kept_arena::{self, Whose};
use pyrklog_base::clock::Now;
use pyrklog_control::seam::CacheConfig;

/// Share of the memory limit for all arenas together.
const MEMORY_SHARE: f64 = 0.6;

/// Memory for the process and its clients on the smallest supported machine.
const OTHERS_BYTES: u64 = 448 << 20;

/// Limit for waiting for the arena's lock. `pyrklog arena list` holds it briefly, and so does a
/// killed broker until the kernel has torn it down.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);
const LOCK_LOOK: Duration = Duration::from_millis(10);

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A message for the operator: (level, sentence).
pub type Note = (&'static str, String);

/// Identifies this boot of the machine; `None` if the kernel does not tell.
pub fn boot_id() -> Option<[u8; 16]> {
    fs::read_to_string(BOOT_ID)
        .ok()
        .as_deref()
        .and_then(parse_id)
}

/// The arena limit of each of `dirs` directories, in bytes.
pub fn share_bytes(config: &CacheConfig, dirs: usize) -> u64 {
    let all = match config.max_bytes {
        Some(bytes) => bytes,
        None => cap_bytes(memory_limits().limit_bytes),
    };
    all / dirs.max(1) as u64
}

/// The default limit: what process and clients leave, but at least an eighth of the memory
/// (isolation.md).
fn cap_bytes(limit_bytes: u64) -> u64 {
    let left_bytes = limit_bytes.saturating_sub(OTHERS_BYTES);
    let most_bytes = (limit_bytes as f64 * MEMORY_SHARE) as u64;
    most_bytes.min(left_bytes.max(limit_bytes / 8))
}

/// Gives a directory that was just opened its cache. After a failure that loses nothing the
/// directory goes on without a cache, and its logs are written through.
///
/// # Errors
/// The arena of an earlier run may be whole but cannot be attached now. Going on would lose its
/// records.
pub fn open(
    config: &CacheConfig,
    files: &LogDir,
    folders: &[PartitionFolder],
    share_bytes: u64,
) -> Result<Vec<Note>, LogDirError> {
    let mut notes = Vec::new();
    let Some(boot) = boot_id() else {
        let told = format!("{BOOT_ID} cannot be read: no block cache");
        notes.push(("warning", told));
        begin_recovery(files, folders, false, &mut notes);
        return Ok(notes);
    };
    let mut left = None;
    let reattached = match files.arena_marker() {
        Ok(None) => Reattached::No,
        Ok(Some(marker)) if marker.identity.boot == boot => match marker.kept {
            Some(kept) => {
                left = Some((marker, kept));
                Reattached::No
            }
            None => reattach(files, &marker, share_bytes, &mut notes)?,
        },
        Ok(Some(marker)) => {
            // A kept arena's marker does not tell how later runs ended.
            if !files.was_clean() && marker.kept.is_none() {
                note_unclean(files, "the machine crashed or was rebooted", &mut notes);
            }
            drop_stale(&marker);
            Reattached::No
        }
        Err(error) => {
            if !files.was_clean() {
                note_unclean(files, &error.to_string(), &mut notes);
            }
            Reattached::No
        }
    };
    begin_recovery(files, folders, reattached == Reattached::Whole, &mut notes);
    if reattached != Reattached::No {
        if let (None, Some(arena)) = (&config.dir, files.env().arena()) {
            // The cache is switched off: the arena takes no appends.
            arena.close();
        }
        return Ok(notes);
    }
    if let Some((marker, kept)) = &left
        && kept_arena::reattach(config, files, (marker, *kept), share_bytes, &mut notes)
    {
        return Ok(notes);
    }
    let made = match &config.dir {
        Some(dir) if share_bytes > 0 => make(files, dir, boot, share_bytes),
        _ => files.remove_arena_marker().map_err(ArenaError::Io),
    };
    if let Err(error) = made {
        notes.push(("warning", format!("no block cache: {error}")));
        // The marker would name a missing arena.
        if let Err(error) = files.remove_arena_marker() {
            notes.push(("warning", format!("removing its marker: {error}")));
        }
    }
    Ok(notes)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reattached {
    /// The directory goes on without it.
    No,
    /// Directory and arena together hold all acknowledged records.
    Whole,
    /// Attached, but the files lack records that had been written to them.
    OlderFiles,
}

/// After an unclean end without the arena, the machine may have crashed: recovers all logs fully.
fn begin_recovery(
    files: &LogDir,
    folders: &[PartitionFolder],
    is_reattached: bool,
    notes: &mut Vec<Note>,
) {
    let may_lack = !files.was_clean() && !is_reattached;
    if let Err(error) = files.begin_recovery(folders, may_lack) {
        let told = format!("recording that logs need recovery: {error}");
        notes.push(("warning", told));
    }
    if let Err(error) = files.begin_seeing(folders) {
        let told = format!("looking which logs were never opened: {error}");
        notes.push(("warning", told));
    }
}

fn reattach(
    files: &LogDir,
    marker: &ArenaMarker,
    share_bytes: u64,
    notes: &mut Vec<Note>,
) -> Result<Reattached, LogDirError> {
    if let Some(header) = kept_arena::header_of(&marker.path)
        && kept_arena::whose(&header, files.path()) == Whose::Original
    {
        if !files.was_clean() {
            let original = &header.log_dir;
            let reason = format!("the directory is a copy of {original}, which keeps the arena");
            note_unclean(files, &reason, notes);
        }
        return Ok(Reattached::No);
    }
    let left = patiently(marker, |identity| Arena::left_files(&marker.path, identity));
    if let Ok(Some(left)) = left
        && !kept_arena::is_as_left(files, &left)
    {
        drop(left);
        drop_of_other_files(files, marker, notes);
        return Ok(Reattached::No);
    }
    let attached = patiently(marker, |identity| {
        Arena::attach(&marker.path, identity, share_bytes)
    });
    let (arena, mut found) = match attached {
        Ok(attached) => attached,
        Err(error) if !is_lost(&error) => {
            return Err(LogDirError::Io {
                path: marker.path.display().to_string(),
                error: io::Error::other(error.to_string()),
            });
        }
        Err(error) => {
            if !files.was_clean() {
                let reason = format!("its arena {}: {error}", marker.path.display());
                note_unclean(files, &reason, notes);
            }
            set_aside(&marker.path);
            return Ok(Reattached::No);
        }
    };
    let lacking = match files.was_clean() {
        true => None,
        false => files.lacks_written(&found),
    };
    if files.was_clean() || lacking.is_some() {
        // The broker was killed late in an orderly shutdown, the directory was changed since, or it
        // is an older copy. Blocks that repeat file contents may be stale.
        retain_unwritten(&arena, &mut found);
    }
    tell_of_unwritten(marker, &found, notes);
    let Some(reason) = lacking else {
        files.env().set_cache(arena, true, found);
        files.note_marker(marker);
        return Ok(Reattached::Whole);
    };
    note_unclean(files, &reason, notes);
    mark_unregistered(files, marker)?;
    files.env().set_cache(arena, false, found);
    Ok(Reattached::OlderFiles)
}

/// Marks the directory before its arena is used: after a kill before the cluster learns of the
/// older files, they must not count as whole.
fn mark_unregistered(files: &LogDir, marker: &ArenaMarker) -> Result<(), LogDirError> {
    let marker = ArenaMarker {
        unregistered: Some(None),
        ..marker.clone()
    };
    let written = files.write_arena_marker(&marker);
    written.map_err(|error| LogDirError::Io {
        path: files.path().display().to_string(),
        error,
    })
}

/// The arena was closed in order beside other files than these. It held nothing unwritten, and none
/// of its blocks fits these files.
fn drop_of_other_files(files: &LogDir, marker: &ArenaMarker, notes: &mut Vec<Note>) {
    let path = marker.path.display();
    if files.was_clean() {
        // Another broker has used the directory since.
        let reason = format!("dropped {path}: another broker has changed the files since");
        notes.push(("info", reason));
    } else {
        let reason =
            format!("the directory is an older copy: {path} was closed together with other files");
        note_unclean(files, &reason, notes);
    }
    // The marker goes first: a named but missing arena raises an alarm.
    if files.remove_arena_marker().is_ok() {
        // It holds nothing of value; a later sweep removes it.
        let _gone_or_not = remove_unlocked(&marker.path);
    }
}

/// Releases partitions without unwritten records and damage.
fn retain_unwritten(arena: &Arena, found: &mut Found) {
    found.retain(|_, found| {
        let mut segments = found.segments.values();
        let is_needed =
            found.damage.is_some() || segments.any(|segment| segment.unwritten_from().is_some());
        if !is_needed {
            arena.release_slot(found.slot);
        }
        is_needed
    });
}

fn tell_of_unwritten(marker: &ArenaMarker, found: &Found, notes: &mut Vec<Note>) {
    let unwritten = found.values().filter(|found| {
        let mut segments = found.segments.values();
        segments.any(|segment| segment.unwritten_from().is_some())
    });
    let count = unwritten.count();
    if count > 0 {
        let path = marker.path.display();
        let told = format!(
            "reattached {path}: {count} partitions have records that are not in their files"
        );
        notes.push(("info", told));
    }
}

/// Retries `attempt` for up to [`LOCK_PATIENCE`] while another process holds the arena's lock.
pub fn patiently<T>(
    marker: &ArenaMarker,
    attempt: impl Fn(Identity) -> Result<T, ArenaError>,
) -> Result<T, ArenaError> {
    let until = Instant::now() + LOCK_PATIENCE;
    loop {
        match attempt(marker.identity) {
            Err(ArenaError::Locked(_)) if Instant::now() < until => thread::sleep(LOCK_LOOK),
            result => return result,
        }
    }
}

/// Whether a later try cannot succeed either.
fn is_lost(error: &ArenaError) -> bool {
    match error {
        ArenaError::Foreign(_) => true,
        ArenaError::Io(error) => error.kind() == io::ErrorKind::NotFound,
        ArenaError::Locked(_) => false,
    }
}

/// Frees the blocks of partitions whose folder is gone or has another topic id.
pub fn forget_missing(files: &LogDir, folders: &[PartitionFolder]) {
    const NO_ID: [u8; 16] = [0; 16];
    let of_folder = |folder: &PartitionFolder| folder.topic_id.filter(|id| *id != NO_ID);
    let by_name: HashMap<(&str, i32), Option<[u8; 16]>> = folders
        .iter()
        .map(|folder| ((&*folder.topic, folder.partition), of_folder(folder)))
        .collect();
    for name in files.env().unclaimed_partitions() {
        let is_its = by_name
            .get(&(&*name.topic, name.partition))
            .is_some_and(|id| name.topic_id == NO_ID || id.is_none_or(|id| id == name.topic_id));
        if !is_its {
            files.env().forget_partition(&name);
        }
    }
}

fn make(files: &LogDir, dir: &Path, boot: [u8; 16], share_bytes: u64) -> Result<(), ArenaError> {
    let identity = Identity {
        uuid: fresh_uuid(),
        boot,
    };
    let path = dir.join(format!("pyrklog-{}.arena", hex(&identity.uuid)));
    let log_dir = kept_arena::full_path(files.path());
    let arena = Arena::create(&path, identity, &log_dir, share_bytes)?;
    let marker = ArenaMarker {
        identity,
        path,
        unregistered: Some(files.clean_epoch()),
        kept: None,
    };
    if let Err(error) = files.write_arena_marker(&marker) {
        let _nothing_in_it = arena.remove();
        return Err(error.into());
    }
    files.env().set_cache(arena, false, Found::new());
    Ok(())
}

fn fresh_uuid() -> [u8; 16] {
    let half = |half: u8| RandomState::new().hash_one((std::process::id(), half));
    (u128::from(half(0)) << 64 | u128::from(half(1))).to_be_bytes()
}

/// Tells the operator that acknowledged records may be lost, and notes it in the directory.
pub fn note_unclean(files: &LogDir, reason: &str, notes: &mut Vec<Note>) {
    let told = format!("acknowledged records that were not in files yet may be lost: {reason}");
    notes.push(("error", told));
    if let Err(error) = files.record_unclean(Now::read().wall_ms, reason) {
        notes.push(("error", format!("recording that: {error}")));
    }
}

fn drop_stale(marker: &ArenaMarker) {
    let is_it = kept_arena::header_of(&marker.path)
        .is_some_and(|header| header.identity == marker.identity);
    if is_it {
        // A leftover file does no harm.
        let _gone_or_not = fs::remove_file(&marker.path);
    }
}

/// Renames an unusable arena, so that it can be examined until the next start.
fn set_aside(path: &Path) {
    let mut aside = path.as_os_str().to_owned();
    aside.push(SET_ASIDE);
    let _gone_or_not = fs::rename(path, PathBuf::from(aside));
}

/// Removes marker and arena after an orderly end, unless the arena holds unwritten records of
/// unopened logs. The clean-shutdown mark must have been written.
pub fn give_up(files: &LogDir) -> io::Result<()> {
    let Some(arena) = files.env().arena() else {
        return Ok(());
    };
    if files.env().unclaimed_unwritten() > 0 {
        return Ok(());
    }
    files.remove_arena_marker()?;
    arena.remove()
}

/// Restores directories after another one failed to open; no log was opened yet.
pub fn leave_again<'a>(dirs: impl IntoIterator<Item = &'a LogDir>) {
    for files in dirs {
        if files.env().has_reattached_cache() {
            continue;
        }
        let marked = files.clean_epoch().map(|epoch| files.mark_clean(epoch));
        if !matches!(marked, Some(Err(_))) {
            // The next start reattaches what remains, as after a kill.
            let _gone_or_not = give_up(files);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_memory_is_for_clients_first() {
        const MIB: u64 = 1 << 20;
        assert_eq!(cap_bytes(512 * MIB), 64 * MIB);
        assert_eq!(cap_bytes(1024 * MIB), 576 * MIB);
        assert_eq!(cap_bytes(256 * MIB), 32 * MIB);
        let much = 24 << 30;
        assert_eq!(cap_bytes(much), (much as f64 * MEMORY_SHARE) as u64);
    }
}
