//! Finds the next message behind a damaged one, whose size does not tell where it ends.

use std::io;
use std::ops::Range;

use pyrklog_wire::batch;
use pyrklog_wire::message_set::{MAGIC_0, MAGIC_1, Message, next_len};

use super::large::SMALL_BYTES;
use crate::disk::{DiskFile, read_exact_at};

/// Bytes up to and with the format number.
pub(super) const MAGIC_END: usize = 17;
/// Most damaged entries of a segment behind which the next one is searched. Of further ones the size
/// counts, if there is one.
pub(super) const SEARCHES_MAX: usize = 256;
/// Most bytes whose checksums are taken: damaged content may look like many long messages.
const CHECKED_BYTES_MAX: usize = 16 * SMALL_BYTES;

/// Of an entry's first bytes; preallocated zeros are none.
pub(super) fn has_old_magic(head: &[u8]) -> bool {
    matches!(head.last(), Some(0 | 1)) && head.iter().any(|byte| *byte != 0)
}

/// Looks behind `position` for a message or batch with a right checksum and one of `offsets`. It
/// must end within the next 4 MiB. Returns the bytes before it.
///
/// # Errors
/// A disk error.
pub(super) fn next_sound(
    file: &dyn DiskFile,
    position: u64,
    size: u64,
    offsets: Range<i64>,
) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; SMALL_BYTES.min((size - position) as usize)];
    read_exact_at(file, &mut bytes, position)?;
    let mut left = CHECKED_BYTES_MAX;
    for at in 1..bytes.len().saturating_sub(MAGIC_END) {
        let Some(entry) = candidate(&bytes[at..], &offsets) else {
            continue;
        };
        if entry.len() > left {
            break;
        }
        left -= entry.len();
        if is_sound(entry) {
            bytes.truncate(at);
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}

/// Whether an entry with a right checksum begins here, or nothing is left.
pub(super) fn goes_on(file: &dyn DiskFile, position: u64, size: u64) -> io::Result<bool> {
    let left = SMALL_BYTES.min((size - position) as usize);
    let mut bytes = vec![0; left.min(MAGIC_END)];
    read_exact_at(file, &mut bytes, position)?;
    let len = next_len(&bytes).ok().flatten();
    let Some(len) = len.filter(|len| *len <= left) else {
        return Ok(left == 0);
    };
    bytes.resize(len, 0);
    read_exact_at(file, &mut bytes, position)?;
    Ok(candidate(&bytes, &(0..i64::MAX)).is_some_and(is_sound))
}

/// What may be a whole entry at the start of `bytes`.
fn candidate<'a>(bytes: &'a [u8], offsets: &Range<i64>) -> Option<&'a [u8]> {
    let magic = *bytes.get(MAGIC_END - 1)? as i8;
    let offset = i64::from_be_bytes(*bytes.first_chunk()?);
    let is_format = matches!(magic, MAGIC_0 | MAGIC_1 | batch::MAGIC);
    if !is_format || !offsets.contains(&offset) {
        return None;
    }
    bytes.get(..next_len(bytes).ok()??)
}

fn is_sound(entry: &[u8]) -> bool {
    if !has_old_magic(&entry[..MAGIC_END]) {
        return batch::verify_crc(entry).is_ok();
    }
    let message = Message::parse(entry).ok().flatten();
    message.is_some_and(|message| message.verify_crc().is_ok())
}
