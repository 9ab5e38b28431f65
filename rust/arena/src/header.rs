//! The header: whose arena it is, and how large.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::arena::{ArenaError, Identity};
use crate::layout::{
    HEADER_BOOT, HEADER_BYTES, HEADER_CHUNKS, HEADER_CRC, HEADER_FIXED, HEADER_PATH,
    HEADER_PATH_LEN, HEADER_POPULATED, HEADER_SLOTS, HEADER_UUID, HEADER_VERSION, MAGIC, VERSION,
    file_bytes, guarded,
};
use crate::memory::Memory;

/// What the header of an arena's file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Which arena.
    pub identity: Identity,
    /// Chunks that fit.
    pub capacity: u32,
    /// The log directory's path, as far as it fits.
    pub log_dir: String,
}

/// Fills the header of a new arena.
pub(crate) fn store(memory: &Memory, identity: Identity, capacity: u32, log_dir: &str) {
    let mut end = log_dir.len().min(HEADER_PATH.len());
    while !log_dir.is_char_boundary(end) {
        end -= 1;
    }
    memory.store(HEADER_VERSION, VERSION);
    memory.store_bytes(HEADER_UUID, &identity.uuid);
    memory.store_bytes(HEADER_BOOT, &identity.boot);
    memory.store_wide(HEADER_CHUNKS, u64::from(capacity));
    memory.store(HEADER_PATH_LEN, end as u32);
    memory.store_bytes(HEADER_PATH.start, &log_dir.as_bytes()[..end]);
    memory.store_wide(HEADER_POPULATED, guarded(0));
    memory.store_wide(HEADER_SLOTS, guarded(0));
    let fixed = memory.load_bytes(HEADER_FIXED.start, HEADER_FIXED.len());
    memory.store(HEADER_CRC, crc_fast::crc32_iscsi(&fixed));
    memory.store_bytes(0, &MAGIC);
}

/// Reads the header of a file; a sentence when it is not that of a whole arena.
pub fn read(file: &File) -> Result<Header, String> {
    let mut page = [0; HEADER_BYTES];
    file.read_exact_at(&mut page, 0)
        .map_err(|error| format!("its header cannot be read: {error}"))?;
    let word = |at: usize| u32::from_le_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]]);
    if page[..MAGIC.len()] != MAGIC {
        return Err("it is not an arena".to_owned());
    }
    if word(HEADER_VERSION) != VERSION {
        return Err(format!("its version is {}", word(HEADER_VERSION)));
    }
    if word(HEADER_CRC) != crc_fast::crc32_iscsi(&page[HEADER_FIXED]) {
        return Err("its header has a wrong checksum".to_owned());
    }
    let id = |at: usize| {
        let mut id = [0; 16];
        id.copy_from_slice(&page[at..at + 16]);
        id
    };
    let path_len = (word(HEADER_PATH_LEN) as usize).min(HEADER_PATH.len());
    let path = &page[HEADER_PATH.start..HEADER_PATH.start + path_len];
    let capacity = word(HEADER_CHUNKS);
    let len = file.metadata().map_or(0, |metadata| metadata.len());
    if len != file_bytes(capacity) as u64 {
        return Err(format!(
            "it has {len} bytes instead of {}",
            file_bytes(capacity)
        ));
    }
    Ok(Header {
        identity: Identity {
            uuid: id(HEADER_UUID),
            boot: id(HEADER_BOOT),
        },
        capacity,
        log_dir: String::from_utf8_lossy(path).into_owned(),
    })
}

/// The capacity of a file that must be the arena named `expected`.
pub(crate) fn check_file(
    file: &File,
    path: &Path,
    expected: Option<Identity>,
) -> Result<u32, ArenaError> {
    let foreign = |reason: String| ArenaError::Foreign(format!("{}: {reason}", path.display()));
    let header = read(file).map_err(foreign)?;
    if expected.is_some_and(|expected| expected != header.identity) {
        return Err(foreign(
            "it belongs to another log directory, or to another boot".to_owned(),
        ));
    }
    Ok(header.capacity)
}
