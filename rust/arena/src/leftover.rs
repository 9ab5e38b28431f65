//! Leftovers in the directory of shared memory: tells unfinished and unusable arenas from those in
//! use.

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

/// Suffix of an unusable arena's name, until the next start.
pub const SET_ASIDE: &str = ".damaged";

/// The header of the arena's file at `path`.
///
/// # Errors
/// It is not the header of a whole arena; a sentence.
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

/// Whether a file has the name of an arena that was set aside.
pub fn is_set_aside_name(name: &str) -> bool {
    name.strip_suffix(SET_ASIDE).is_some_and(is_arena_name)
}

/// Whether the file's maker was killed before it was an arena: its first bytes come last, and
/// nothing is appended before that.
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

/// Removes an unfinished file, unless it is being made right now.
pub fn remove_unfinished(path: &Path) -> bool {
    remove_unused(path, lacks_magic)
}

/// Removes a file unless it is in use or being looked at.
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
