//! Snappy: one raw block, or the framing of Java's library, which most clients write.
//!
//! ```text
//!  0  8  82 'S' 'N' 'A' 'P' 'P' 'Y' 00
//!  8  4  version
//! 12  4  lowest compatible version
//! 16  …  blocks: i32 length, raw snappy block
//! ```
//!
//! Joined streams repeat the header between blocks.

use std::io;

use pyrklog_wire::batch::Compression;

use super::{DecompressError, Sink};

const MAGIC: [u8; 8] = *b"\x82SNAPPY\0";
const HEADER_BYTES: usize = 16;
const VERSION: [u8; 4] = [0, 0, 0, 1];
pub(super) const BLOCK_BYTES: usize = 32 * 1024;
/// The longest copy, 64 bytes, takes three bytes of a block.
const EXPANSION_MAX: usize = 24;

fn corrupt(reason: impl ToString) -> DecompressError {
    DecompressError::corrupt(Compression::Snappy, reason)
}

pub(super) fn decode(body: &[u8], sink: &mut Sink<'_>) -> Result<(), DecompressError> {
    if !body.starts_with(&MAGIC) {
        return decode_block(body, sink);
    }
    let mut rest = body;
    while !rest.is_empty() {
        if rest.starts_with(&MAGIC) {
            rest = rest
                .get(HEADER_BYTES..)
                .ok_or_else(|| corrupt("the header is cut off"))?;
            continue;
        }
        let (prefix, after) = rest
            .split_first_chunk()
            .ok_or_else(|| corrupt("a block's length is cut off"))?;
        let len = i32::from_be_bytes(*prefix);
        let block = usize::try_from(len)
            .ok()
            .and_then(|len| after.split_at_checked(len))
            .ok_or_else(|| corrupt(format!("a block announces {len} bytes")))?;
        decode_block(block.0, sink)?;
        rest = block.1;
    }
    Ok(())
}

fn decode_block(block: &[u8], sink: &mut Sink<'_>) -> Result<(), DecompressError> {
    let len = snap::raw::decompress_len(block).map_err(corrupt)?;
    if len > sink.room() {
        return Err(sink.too_large());
    }
    if len > block.len().saturating_mul(EXPANSION_MAX) {
        return Err(corrupt(format!(
            "{} bytes cannot expand to {len}",
            block.len()
        )));
    }
    sink.fill(len, |space| {
        snap::raw::Decoder::new()
            .decompress(block, space)
            .map_err(corrupt)
    })
}

pub(super) fn encode(records: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    begin(out);
    let mut encoder = snap::raw::Encoder::new();
    for piece in records.chunks(BLOCK_BYTES) {
        put_block(&mut encoder, piece, out)?;
    }
    Ok(())
}

/// Begins a stream.
pub(super) fn begin(out: &mut Vec<u8>) {
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION);
    out.extend_from_slice(&VERSION);
}

/// Appends a block of at most [`BLOCK_BYTES`].
pub(super) fn put_block(
    encoder: &mut snap::raw::Encoder,
    piece: &[u8],
    out: &mut Vec<u8>,
) -> io::Result<()> {
    let prefix = out.len();
    let start = prefix + 4;
    out.resize(start + snap::raw::max_compress_len(piece.len()), 0);
    let len = encoder
        .compress(piece, &mut out[start..])
        .map_err(io::Error::other)?;
    out.truncate(start + len);
    // A block of 32 KiB compresses to little more than that at worst.
    out[prefix..start].copy_from_slice(&(len as i32).to_be_bytes());
    Ok(())
}
