//! Compresses piece by piece: what is compressed need not be in memory as a whole.

use std::io::{self, Write};

use flate2::write::GzEncoder;
use pyrklog_wire::batch::Compression;

use super::lz4::{self, Lz4Header};
use super::snappy;

/// Appends what is written to it, compressed, to a vector. zstd has no place in message sets, for
/// which this is.
pub struct CompressedStream {
    codec: Codec,
    /// Bytes that do not make a block yet.
    pending: Vec<u8>,
}

enum Codec {
    Plain(Vec<u8>),
    Gzip(Box<GzEncoder<Vec<u8>>>),
    Snappy(Vec<u8>, Box<snap::raw::Encoder>),
    Lz4(Vec<u8>),
}

impl std::fmt::Debug for CompressedStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompressedStream").finish_non_exhaustive()
    }
}

impl CompressedStream {
    /// Behind the bytes of `out`.
    ///
    /// # Errors
    /// `Unsupported` for zstd.
    pub fn new(codec: Compression, lz4_header: Lz4Header, mut out: Vec<u8>) -> io::Result<Self> {
        let codec = match codec {
            Compression::None => Codec::Plain(out),
            Compression::Gzip => {
                let encoder = GzEncoder::new(out, flate2::Compression::default());
                Codec::Gzip(Box::new(encoder))
            }
            Compression::Snappy => {
                snappy::begin(&mut out);
                Codec::Snappy(out, Box::new(snap::raw::Encoder::new()))
            }
            Compression::Lz4 => {
                lz4::begin(lz4_header, &mut out);
                Codec::Lz4(out)
            }
            Compression::Zstd => return Err(io::ErrorKind::Unsupported.into()),
        };
        Ok(CompressedStream {
            codec,
            pending: Vec::new(),
        })
    }

    /// Compresses `bytes`.
    ///
    /// # Errors
    /// An error of the codec's library, such as a lack of memory.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.codec {
            Codec::Plain(out) => {
                out.extend_from_slice(bytes);
                Ok(())
            }
            Codec::Gzip(encoder) => encoder.write_all(bytes),
            Codec::Snappy(out, encoder) => {
                let put = |block: &[u8]| snappy::put_block(encoder, block, out);
                put_blocks(&mut self.pending, bytes, snappy::BLOCK_BYTES, put)
            }
            Codec::Lz4(out) => {
                let put = |block: &[u8]| lz4::put_block(block, None, out);
                put_blocks(&mut self.pending, bytes, lz4::WRITTEN_BLOCK_BYTES, put)
            }
        }
    }

    /// Length of the vector by now; what the codec has not given out yet is not in it.
    pub fn len(&self) -> usize {
        match &self.codec {
            Codec::Plain(out) | Codec::Lz4(out) | Codec::Snappy(out, _) => out.len(),
            Codec::Gzip(encoder) => encoder.get_ref().len(),
        }
    }

    /// Whether the vector is empty by now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The vector with everything that was written.
    ///
    /// # Errors
    /// As [`CompressedStream::write`].
    pub fn finish(self) -> io::Result<Vec<u8>> {
        let pending = self.pending;
        match self.codec {
            Codec::Plain(out) => Ok(out),
            Codec::Gzip(encoder) => encoder.finish(),
            Codec::Snappy(mut out, mut encoder) => {
                if !pending.is_empty() {
                    snappy::put_block(&mut encoder, &pending, &mut out)?;
                }
                Ok(out)
            }
            Codec::Lz4(mut out) => {
                if !pending.is_empty() {
                    lz4::put_block(&pending, None, &mut out)?;
                }
                lz4::end(&mut out);
                Ok(out)
            }
        }
    }
}

/// Gives whole blocks of `pending` and `bytes` to `put`, and keeps the rest.
fn put_blocks(
    pending: &mut Vec<u8>,
    mut bytes: &[u8],
    block_bytes: usize,
    mut put: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    while pending.len() + bytes.len() >= block_bytes {
        let (now, later) = bytes.split_at(block_bytes - pending.len());
        pending.extend_from_slice(now);
        put(pending)?;
        pending.clear();
        bytes = later;
    }
    pending.extend_from_slice(bytes);
    Ok(())
}
