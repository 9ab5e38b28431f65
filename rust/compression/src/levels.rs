//! Levels of compression (KIP-390): `compression.gzip.level` and the like.

use pyrklog_wire::batch::Compression;

/// Level of gzip that stands for the library's own, which is 6.
pub(super) const GZIP_DEFAULT: i32 = -1;
/// At this level lz4 compresses fast; at any other it searches for longer matches, as Kafka does.
pub(super) const LZ4_DEFAULT: i32 = 9;
const ZSTD_DEFAULT: i32 = 3;

/// Up to these levels a codec takes about as long as at its default.
const GZIP_FAST_MAX: i32 = 6;
const ZSTD_FAST_MAX: i32 = 6;

/// The level of each codec where the broker compresses. The caller has checked the bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompressionLevels {
    /// `compression.gzip.level`: 1 to 9, -1 = the library's default.
    pub gzip: i32,
    /// `compression.lz4.level`: 1 to 17.
    pub lz4: i32,
    /// `compression.zstd.level`: -131072 to 22.
    pub zstd: i32,
}

impl Default for CompressionLevels {
    fn default() -> Self {
        Self {
            gzip: GZIP_DEFAULT,
            lz4: LZ4_DEFAULT,
            zstd: ZSTD_DEFAULT,
        }
    }
}

impl CompressionLevels {
    /// Whether `codec` takes several times as long as at its default level.
    pub fn is_slow(&self, codec: Compression) -> bool {
        match codec {
            Compression::None | Compression::Snappy => false,
            Compression::Gzip => self.gzip > GZIP_FAST_MAX,
            Compression::Lz4 => self.lz4 != LZ4_DEFAULT,
            Compression::Zstd => self.zstd > ZSTD_FAST_MAX,
        }
    }
}
