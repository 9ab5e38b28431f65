//! LZ4 frames as Kafka's clients read them: independent blocks, no dictionary.
//!
//! ```text
//! magic 04 22 4d 18
//! FLG   bits 6-7 version = 1, 5 blocks independent, 4 block checksums, 3 content size,
//!       2 content checksum, 0 dictionary
//! BD    bits 4-6 size of blocks: 4 = 64 KiB, 5 = 256 KiB, 6 = 1 MiB, 7 = 4 MiB
//! [content size, 8 bytes]
//! HC    second byte of the XXH32 of the descriptor (FLG to content size)
//! blocks: u32 length, highest bit set if not compressed; the bytes; [XXH32 of the bytes]
//! 0 as u32; [XXH32 of the content]
//! ```
//!
//! Clients of message format 0 compute HC from the magic on ("broken" in Kafka's sources), and
//! readers of that format do not check it.
//!
//! Numbers are little-endian. As in Java's clients, bytes behind the frame and the content's
//! checksum are ignored; a batch has its own.

use std::io;

use lz4_flex::block::{self, DecompressError as BlockError};
use pyrklog_wire::batch::Compression;
use twox_hash::XxHash32;

use super::levels::LZ4_DEFAULT;
use super::lz4_search::Search;
use super::{DecompressError, Sink};

const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
const VERSION: u8 = 1 << 6;
const INDEPENDENT: u8 = 1 << 5;
const BLOCK_CHECKSUMS: u8 = 1 << 4;
const CONTENT_SIZE: u8 = 1 << 3;
/// The version's bits, and bits that must be 0.
const VERSION_MASK: u8 = 0b1100_0011;
const NOT_COMPRESSED: u32 = 1 << 31;
/// As clients write: blocks of 64 KiB, no checksum but the descriptor's.
const WRITTEN_FLG: u8 = VERSION | INDEPENDENT;
const WRITTEN_BD: u8 = 4 << 4;
pub(super) const WRITTEN_BLOCK_BYTES: usize = 64 * 1024;

/// Which header checksum a frame has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lz4Header {
    /// That of the LZ4 frame format.
    Standard,
    /// That of clients of message format 0: read unchecked.
    Format0,
}

fn corrupt(reason: impl ToString) -> DecompressError {
    DecompressError::corrupt(Compression::Lz4, reason)
}

pub(super) fn decode(
    body: &[u8],
    header: Lz4Header,
    sink: &mut Sink<'_>,
) -> Result<(), DecompressError> {
    let cut_off = || corrupt("the frame is cut off");
    let (flg, block_bytes_max, mut rest) = decode_descriptor(body, header)?;
    loop {
        let (prefix, after) = rest.split_first_chunk().ok_or_else(cut_off)?;
        let prefix = u32::from_le_bytes(*prefix);
        if prefix == 0 {
            return Ok(());
        }
        let len = (prefix & !NOT_COMPRESSED) as usize;
        if len > block_bytes_max {
            return Err(corrupt(format!(
                "a block of {len} bytes, {block_bytes_max} are allowed"
            )));
        }
        let (data, after) = after.split_at_checked(len).ok_or_else(cut_off)?;
        rest = after;
        if flg & BLOCK_CHECKSUMS != 0 {
            let (stored, after) = rest.split_first_chunk().ok_or_else(cut_off)?;
            if XxHash32::oneshot(0, data) != u32::from_le_bytes(*stored) {
                return Err(corrupt("a block's checksum does not match"));
            }
            rest = after;
        }
        if prefix & NOT_COMPRESSED != 0 {
            sink.push(data)?;
        } else {
            decode_block(data, block_bytes_max, sink)?;
        }
    }
}

/// FLG, the size of blocks, and the bytes behind the frame's header.
fn decode_descriptor(
    body: &[u8],
    header: Lz4Header,
) -> Result<(u8, usize, &[u8]), DecompressError> {
    let cut_off = || corrupt("the frame's header is cut off");
    let rest = body
        .strip_prefix(&MAGIC)
        .ok_or_else(|| corrupt("not an LZ4 frame"))?;
    let &[flg, bd, ..] = rest else {
        return Err(cut_off());
    };
    if flg & VERSION_MASK != VERSION {
        return Err(corrupt(format!("frame flags {flg:#04x} are not supported")));
    }
    if flg & INDEPENDENT == 0 {
        return Err(corrupt(
            "blocks depend on one another, which Java clients cannot read",
        ));
    }
    let block_bytes_max = match bd {
        0x40 | 0x50 | 0x60 | 0x70 => 1 << (8 + 2 * (bd >> 4)),
        _ => return Err(corrupt(format!("block size {bd:#04x} is not supported"))),
    };
    let descriptor_bytes = if flg & CONTENT_SIZE != 0 { 10 } else { 2 };
    let (descriptor, rest) = rest
        .split_at_checked(descriptor_bytes)
        .ok_or_else(cut_off)?;
    let (stored, rest) = rest.split_first().ok_or_else(cut_off)?;
    if header == Lz4Header::Standard && *stored != header_checksum(descriptor) {
        return Err(corrupt("the header's checksum does not match"));
    }
    Ok((flg, block_bytes_max, rest))
}

fn header_checksum(covered: &[u8]) -> u8 {
    let [_, second, ..] = XxHash32::oneshot(0, covered).to_le_bytes();
    second
}

/// Expands a block into a guessed size, and a larger one while that is too small.
fn decode_block(
    data: &[u8],
    block_bytes_max: usize,
    sink: &mut Sink<'_>,
) -> Result<(), DecompressError> {
    let room = block_bytes_max.min(sink.room());
    let mut guess = data.len().saturating_mul(4).max(4096).min(room);
    loop {
        let mut too_small = false;
        sink.fill(guess, |space| match block::decompress_into(data, space) {
            Ok(len) => Ok(len),
            Err(BlockError::OutputTooSmall { .. }) => {
                too_small = true;
                Ok(0)
            }
            Err(error) => Err(corrupt(error)),
        })?;
        if !too_small {
            return Ok(());
        }
        if guess == room {
            let within_block = room == block_bytes_max;
            let reason = format!("a block expands to more than {block_bytes_max} bytes");
            return Err(if within_block {
                corrupt(reason)
            } else {
                sink.too_large()
            });
        }
        guess = guess.saturating_mul(4).min(room);
    }
}

pub(super) fn encode(records: &[u8], level: i32, out: &mut Vec<u8>) -> io::Result<()> {
    let mut search = (level != LZ4_DEFAULT).then(|| Search::new(level, WRITTEN_BLOCK_BYTES));
    begin(Lz4Header::Standard, out);
    for piece in records.chunks(WRITTEN_BLOCK_BYTES) {
        put_block(piece, search.as_mut(), out)?;
    }
    end(out);
    Ok(())
}

/// Appends the compressed block behind `start`.
fn compress_fast(block: &[u8], start: usize, out: &mut Vec<u8>) -> io::Result<()> {
    out.resize(start + block::get_maximum_output_size(block.len()), 0);
    let len = block::compress_into(block, &mut out[start..]).map_err(io::Error::other)?;
    out.truncate(start + len);
    Ok(())
}

/// Begins a frame.
pub(super) fn begin(header: Lz4Header, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[WRITTEN_FLG, WRITTEN_BD]);
    let covered = match header {
        Lz4Header::Standard => start + MAGIC.len(),
        Lz4Header::Format0 => start,
    };
    let checksum = header_checksum(&out[covered..]);
    out.push(checksum);
}

/// Appends a block of at most [`WRITTEN_BLOCK_BYTES`], compressed by `search` if there is one.
pub(super) fn put_block(
    piece: &[u8],
    search: Option<&mut Search>,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    let prefix = out.len();
    let start = prefix + 4;
    match search {
        Some(search) => {
            out.resize(start, 0);
            search.compress(piece, out);
        }
        None => compress_fast(piece, start, out)?,
    }
    let len = out.len() - start;
    // Lengths are below 64 KiB plus the worst case's few hundred bytes.
    let mut written = len as u32;
    if len >= piece.len() {
        out.truncate(start);
        out.extend_from_slice(piece);
        written = piece.len() as u32 | NOT_COMPRESSED;
    }
    out[prefix..start].copy_from_slice(&written.to_le_bytes());
    Ok(())
}

/// Ends a frame.
pub(super) fn end(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0; 4]);
}
