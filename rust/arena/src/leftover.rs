//! Leftovers in the directory of shared memory: tells arenas that were never finished, or that cannot
//! be used, from those that a process has.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use crate::file::{lock, open_existing, open_with};
use crate::header::{self, Header};
use crate::layout::MAGIC;

const PREFIX: &str = "pyrklog-";
const SUFFIX: &str = ".arena";
const UUID_DIGITS: usize = 32;

/// Follows the name of an arena that cannot be used, until the next start.
pub const SET_ASIDE: &str = ".damaged";

/// What the header of the arena's file at `path` says; a sentence when it is not that of a whole arena.
///
/// # Errors
/// See above.
pub fn read_header_of(path: &Path) -> Result<Header, String> {
    let file = open_with(OpenOptions::new().read(true), path).map_err(|error| error.to_string())?;
    header::read(&file)
}

/// Whether a file has the name of an arena.
pub fn is_arena_name(name: &str) -> bool {
    let uuid = name
        .strip_prefix(PREFIX)
        .and_then(|rest| rest.strip_suffix(SUFFIX));
    uuid.is_some_and(|uuid| {
        uuid.len() == UUID_DIGITS && uuid.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}

/// Whether a file has the name of one that was set aside.
pub fn is_set_aside_name(name: &str) -> bool {
    name.strip_suffix(SET_ASIDE).is_some_and(is_arena_name)
}

/// Whether a file was to become an arena and its maker was killed before: its first bytes come last,
/// and nothing is appended before that.
pub fn is_unfinished(path: &Path) -> bool {
    open_with(OpenOptions::new().read(true), path).is_ok_and(|file| lacks_magic(&file))
}

fn lacks_magic(file: &File) -> bool {
    let mut magic = [0; MAGIC.len()];
    match file.read_exact_at(&mut magic, 0) {
        Ok(()) => magic == [0; MAGIC.len()],
        Err(error) => error.kind() == io::ErrorKind::UnexpectedEof,
    }
}

/// Removes a file that was to become an arena, unless somebody is making it right now.
pub fn remove_unfinished(path: &Path) -> bool {
    remove_unused(path, lacks_magic)
}

/// Removes a file unless somebody uses it or looks at it.
pub fn remove_unlocked(path: &Path) -> bool {
    remove_unused(path, |_| true)
}

fn remove_unused(path: &Path, is_wanted: impl Fn(&File) -> bool) -> bool {
    let Ok(file) = open_existing(path) else {
        return false;
    };
    let is_free = lock(&file, path).is_ok();
    // The holder of the lock may have removed it.
    let is_there = file.metadata().is_ok_and(|file| file.nlink() > 0);
    is_free && is_there && is_wanted(&file) && std::fs::remove_file(path).is_ok()
}
