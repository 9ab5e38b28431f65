//! The four codecs of record batches: bounded decoding, and encoding for topics that ask for it.
//!
//! A batch's records are compressed as one block. Decoding streams into a reusable buffer and stops
//! once the output passes its bound, so a small batch that would expand to gigabytes costs at most
//! the bound. The output need not be valid records.

#![forbid(unsafe_code)]

mod levels;
mod lz4;
mod lz4_search;
mod snappy;
mod stream;

use std::cell::RefCell;
use std::io::{self, Read, Write};

use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;
use pyrklog_wire::batch::Compression;
use thiserror::Error;
use zstd::zstd_safe::{CParameter, DCtx, DParameter};

pub use self::levels::CompressionLevels;
pub use lz4::Lz4Header;
pub use stream::CompressedStream;

/// Default bound of a batch's expansion: what a client can send without compression
/// (`socket.request.max.bytes`).
pub const EXPANDED_BYTES_MAX_DEFAULT: usize = 100 * 1024 * 1024;

/// Largest window of a zstd frame, as a power of two: the limit of Java's library.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// From this level on zstd's tables and window for large inputs are cut to a few tens of megabytes
/// (its own take up to a gigabyte).
const ZSTD_LARGE_LEVEL: i32 = 15;
/// Inputs for which zstd's tables are large.
const ZSTD_LARGE_BYTES: usize = 256 * 1024;
const ZSTD_TABLE_LOG_MAX: u32 = 22;
/// Larger decoders and scratch buffers are not kept.
const KEPT_BYTES_MAX: usize = 4 << 20;
const FIRST_READ_BYTES: usize = 16 * 1024;

/// A batch body that cannot be expanded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)] // The messages name variants and fields.
pub enum DecompressError {
    #[error("the records expand to more than {limit_bytes} bytes")]
    TooLarge { limit_bytes: usize },
    #[error("the records are not valid {codec}: {reason}")]
    Corrupt { codec: &'static str, reason: String },
}

impl DecompressError {
    fn corrupt(codec: Compression, reason: impl ToString) -> Self {
        Self::Corrupt {
            codec: codec.name(),
            reason: reason.to_string(),
        }
    }
}

thread_local! {
    static ZSTD: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Replaces the content of `out` by the expansion of `body`, at most `limit_bytes`.
///
/// # Errors
/// [`DecompressError`]; `out` then holds a part of the expansion.
pub fn decompress(
    codec: Compression,
    body: &[u8],
    out: &mut Vec<u8>,
    limit_bytes: usize,
) -> Result<(), DecompressError> {
    decompress_with(codec, Lz4Header::Standard, body, out, limit_bytes)
}

/// The same for LZ4 frames with another header.
///
/// # Errors
/// As [`decompress`].
pub fn decompress_with(
    codec: Compression,
    lz4_header: Lz4Header,
    body: &[u8],
    out: &mut Vec<u8>,
    limit_bytes: usize,
) -> Result<(), DecompressError> {
    out.clear();
    let mut sink = Sink { out, limit_bytes };
    match codec {
        Compression::None => sink.push(body),
        Compression::Gzip => sink.drain(codec, MultiGzDecoder::new(body), body.len()),
        Compression::Snappy => snappy::decode(body, &mut sink),
        Compression::Lz4 => lz4::decode(body, lz4_header, &mut sink),
        Compression::Zstd => decode_zstd(body, &mut sink),
    }
}

/// Calls `use_it` with the expansion of `body` in a buffer of the thread, or with `body` itself if
/// it is not compressed.
///
/// # Errors
/// [`DecompressError`].
pub fn with_decompressed<T>(
    codec: Compression,
    body: &[u8],
    limit_bytes: usize,
    use_it: impl FnOnce(&[u8]) -> T,
) -> Result<T, DecompressError> {
    if codec == Compression::None {
        return Ok(use_it(body));
    }
    // Taken, not borrowed: a nested call finds an empty buffer.
    let mut scratch = SCRATCH.take();
    let result = decompress(codec, body, &mut scratch, limit_bytes).map(|()| use_it(&scratch));
    if scratch.capacity() <= KEPT_BYTES_MAX {
        SCRATCH.set(scratch);
    }
    result
}

/// Appends `records` to `out`, compressed at the codec's default level.
///
/// # Errors
/// As [`compress_at`].
pub fn compress(codec: Compression, records: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    compress_at(CompressionLevels::default(), codec, records, out)
}

/// Appends `records` to `out`, compressed at the codec's level of `levels`.
///
/// # Errors
/// An error of the codec's library, such as a lack of memory.
pub fn compress_at(
    levels: CompressionLevels,
    codec: Compression,
    records: &[u8],
    out: &mut Vec<u8>,
) -> io::Result<()> {
    match codec {
        Compression::None => out.extend_from_slice(records),
        Compression::Gzip => {
            let level = u32::try_from(levels.gzip);
            let level = level.map_or_else(|_| Default::default(), flate2::Compression::new);
            let mut encoder = GzEncoder::new(out, level);
            encoder.write_all(records)?;
            encoder.finish()?;
        }
        Compression::Snappy => snappy::encode(records, out)?,
        Compression::Lz4 => lz4::encode(records, levels.lz4, out)?,
        Compression::Zstd => out.extend_from_slice(&encode_zstd(records, levels.zstd)?),
    }
    Ok(())
}

fn encode_zstd(records: &[u8], level: i32) -> io::Result<Vec<u8>> {
    let mut compressor = zstd::bulk::Compressor::new(level)?;
    if level >= ZSTD_LARGE_LEVEL && records.len() > ZSTD_LARGE_BYTES {
        compressor.set_parameter(CParameter::WindowLog(ZSTD_TABLE_LOG_MAX))?;
        compressor.set_parameter(CParameter::HashLog(ZSTD_TABLE_LOG_MAX))?;
        compressor.set_parameter(CParameter::ChainLog(ZSTD_TABLE_LOG_MAX))?;
    }
    compressor.compress(records)
}

fn decode_zstd(body: &[u8], sink: &mut Sink<'_>) -> Result<(), DecompressError> {
    let codec = Compression::Zstd;
    let mut context = match ZSTD.take() {
        Some(context) => context,
        None => new_zstd_context()?,
    };
    let decoder = zstd::stream::read::Decoder::with_context(body, &mut context);
    let result = sink.drain(codec, decoder, body.len());
    if context.sizeof() <= KEPT_BYTES_MAX {
        ZSTD.set(Some(context));
    }
    result
}

fn new_zstd_context() -> Result<DCtx<'static>, DecompressError> {
    let no_memory = |_| DecompressError::corrupt(Compression::Zstd, "no memory for a decoder");
    let mut context = DCtx::try_create().ok_or(()).map_err(no_memory)?;
    let window = DParameter::WindowLogMax(ZSTD_WINDOW_LOG_MAX);
    context.set_parameter(window).map_err(|_| no_memory(()))?;
    Ok(context)
}

struct Sink<'a> {
    out: &'a mut Vec<u8>,
    limit_bytes: usize,
}

impl Sink<'_> {
    fn too_large(&self) -> DecompressError {
        DecompressError::TooLarge {
            limit_bytes: self.limit_bytes,
        }
    }

    fn room(&self) -> usize {
        self.limit_bytes - self.out.len().min(self.limit_bytes)
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), DecompressError> {
        if bytes.len() > self.room() {
            return Err(self.too_large());
        }
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    /// Appends at most `len` bytes, which `fill` writes and counts.
    fn fill(
        &mut self,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, DecompressError>,
    ) -> Result<(), DecompressError> {
        let start = self.out.len();
        self.out.resize(start + len, 0);
        let filled = fill(&mut self.out[start..]);
        self.out
            .truncate(start + filled.as_ref().map_or(0, |filled| *filled));
        filled.map(|_| ())
    }

    fn drain(
        &mut self,
        codec: Compression,
        mut decoder: impl Read,
        input_bytes: usize,
    ) -> Result<(), DecompressError> {
        let mut chunk_bytes = input_bytes.saturating_mul(4).max(FIRST_READ_BYTES);
        loop {
            let start = self.out.len();
            // One byte more than fits tells output of exactly the bound from a longer one.
            let wanted = chunk_bytes.min(self.room() + 1);
            self.fill(wanted, |space| read_full(&mut decoder, space, codec))?;
            if self.out.len() > self.limit_bytes {
                return Err(self.too_large());
            }
            if self.out.len() - start < wanted {
                return Ok(());
            }
            chunk_bytes = self.out.len();
        }
    }
}

/// Reads until `space` is full or the decoder ends.
fn read_full(
    decoder: &mut impl Read,
    space: &mut [u8],
    codec: Compression,
) -> Result<usize, DecompressError> {
    let mut filled = 0;
    while filled < space.len() {
        match decoder.read(&mut space[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(DecompressError::corrupt(codec, error)),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests;
