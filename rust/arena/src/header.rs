//! The header: whose arena it is, and how large.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::error::ArenaError;
use crate::fnv::Fnv;
use crate::layout::{
    HEADER_BOOT, HEADER_BYTES, HEADER_CHUNKS, HEADER_CRC, HEADER_FIXED, HEADER_LEFT, HEADER_PATH,
    HEADER_PATH_HASH, HEADER_PATH_LEN, HEADER_POPULATED, HEADER_SLOTS, HEADER_UUID, HEADER_VERSION,
    MAGIC, VERSION, VERSION_EARLIEST, file_bytes, guarded,
};
use crate::memory::Memory;

/// Names an arena, and the boot of the machine whose memory it lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Drawn when the arena is made.
    pub uuid: [u8; 16],
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot: [u8; 16],
}

/// What the header of an arena's file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The format's version.
    pub version: u32,
    /// Which arena.
    pub identity: Identity,
    /// Chunks that fit.
    pub capacity: u32,
    /// The log directory's path, as far as it fits.
    pub log_dir: String,
    /// Hash of the whole path; 0 in arenas of earlier versions.
    path_hash: u64,
    /// An orderly end left it: its content is in the files.
    pub is_kept: bool,
}

impl Header {
    /// Whether it was made for the log directory of this path.
    pub fn is_of(&self, log_dir: &str) -> bool {
        match self.path_hash {
            0 => self.log_dir == cut(log_dir),
            hash => hash == path_hash(log_dir),
        }
    }
}

/// As much of a path as fits.
fn cut(log_dir: &str) -> &str {
    let mut end = log_dir.len().min(HEADER_PATH.len());
    while !log_dir.is_char_boundary(end) {
        end -= 1;
    }
    &log_dir[..end]
}

/// Never 0.
fn path_hash(log_dir: &str) -> u64 {
    let mut hash = Fnv::default();
    hash.add(log_dir.as_bytes());
    hash.finish()
}

pub(crate) fn store(memory: &Memory, identity: Identity, capacity: u32, log_dir: &str) {
    let path = cut(log_dir);
    memory.store(HEADER_VERSION, VERSION);
    memory.store_bytes(HEADER_UUID, &identity.uuid);
    memory.store_bytes(HEADER_BOOT, &identity.boot);
    memory.store_wide(HEADER_CHUNKS, u64::from(capacity));
    memory.store_wide(HEADER_PATH_HASH, path_hash(log_dir));
    memory.store(HEADER_PATH_LEN, path.len() as u32);
    memory.store_bytes(HEADER_PATH.start, path.as_bytes());
    memory.store_wide(HEADER_POPULATED, guarded(0));
    memory.store_wide(HEADER_SLOTS, guarded(0));
    let fixed = memory.load_bytes(HEADER_FIXED.start, HEADER_FIXED.len());
    memory.store(HEADER_CRC, crc_fast::crc32_iscsi(&fixed));
    memory.store_bytes(0, &MAGIC);
}

/// Reads the header of a file. The error says why it is not that of a whole arena.
pub fn read(file: &File) -> Result<Header, String> {
    let mut page = [0; HEADER_BYTES];
    file.read_exact_at(&mut page, 0)
        .map_err(|error| format!("its header cannot be read: {error}"))?;
    let word = |at: usize| u32::from_le_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]]);
    if page[..MAGIC.len()] != MAGIC {
        return Err("it is not an arena".to_owned());
    }
    let version = word(HEADER_VERSION);
    if !(VERSION_EARLIEST..=VERSION).contains(&version) {
        return Err(format!("its version is {version}"));
    }
    if word(HEADER_CRC) != crc_fast::crc32_iscsi(&page[HEADER_FIXED]) {
        return Err("its header has a wrong checksum".to_owned());
    }
    let wide = |at: usize| u64::from(word(at + 4)) << 32 | u64::from(word(at));
    let id = |at: usize| {
        let mut id = [0; 16];
        id.copy_from_slice(&page[at..at + 16]);
        id
    };
    let path_len = (word(HEADER_PATH_LEN) as usize).min(HEADER_PATH.len());
    let path = &page[HEADER_PATH.start..HEADER_PATH.start + path_len];
    let capacity = word(HEADER_CHUNKS);
    let len = file.metadata().map_or(0, |metadata| metadata.len());
    // A longer file was about to be enlarged.
    if len < file_bytes(capacity) as u64 {
        return Err(format!(
            "it has {len} bytes instead of {}",
            file_bytes(capacity)
        ));
    }
    Ok(Header {
        version,
        identity: Identity {
            uuid: id(HEADER_UUID),
            boot: id(HEADER_BOOT),
        },
        capacity,
        log_dir: String::from_utf8_lossy(path).into_owned(),
        path_hash: wide(HEADER_PATH_HASH),
        is_kept: wide(HEADER_LEFT) == guarded(1),
    })
}

/// Makes room for more chunks in an arena that an orderly end left and that is not reattached yet.
/// A kill in between leaves an arena as large as before in a longer file: the checksum and its
/// fields are one write within a page, and a kill leaves all or nothing of it.
pub(crate) fn enlarge(file: &File, capacity: u32) -> io::Result<()> {
    let mut fixed = [0; HEADER_FIXED.end - HEADER_CRC];
    file.read_exact_at(&mut fixed, HEADER_CRC as u64)?;
    file.set_len(file_bytes(capacity) as u64)?;
    let at = HEADER_CHUNKS - HEADER_CRC;
    fixed[at..at + 8].copy_from_slice(&u64::from(capacity).to_le_bytes());
    let crc = crc_fast::crc32_iscsi(&fixed[HEADER_FIXED.start - HEADER_CRC..]);
    fixed[..4].copy_from_slice(&crc.to_le_bytes());
    file.write_all_at(&fixed, HEADER_CRC as u64)
}

/// The header of a file that must be the arena named `expected`.
pub(crate) fn check_file(
    file: &File,
    path: &Path,
    expected: Option<Identity>,
) -> Result<Header, ArenaError> {
    let foreign = |reason: String| ArenaError::Foreign(format!("{}: {reason}", path.display()));
    let header = read(file).map_err(foreign)?;
    if expected.is_some_and(|expected| expected != header.identity) {
        return Err(foreign(
            "it belongs to another log directory, or to another boot".to_owned(),
        ));
    }
    Ok(header)
}
