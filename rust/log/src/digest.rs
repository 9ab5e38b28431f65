//! A digest of batches, by which replicas are compared.
//!
//! It is a chain over whole batches, independent of segments:
//!
//! ```text
//! state = 0; for each batch, for each of its words: state = mix(state ^ word)
//! words   base offset; leader epoch << 32 | batch length; CRC as stored << 32 | CRC of the bytes
//! mix     the finalizer of splitmix64
//! ```
//!
//! Like a checksum it detects accidental damage, not forgery. It is of all bytes, and so detects
//! decayed data even if the stored CRC is intact.

use pyrklog_wire::batch::BatchHeader;

/// The digest of the batches so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchDigest(u64);

impl BatchDigest {
    /// Adds a batch; `crc` is that of its bytes.
    pub fn add(&mut self, header: &BatchHeader, crc: u32) {
        for word in [
            header.base_offset.cast_unsigned(),
            halves(
                header.partition_leader_epoch.cast_unsigned(),
                header.batch_length.cast_unsigned(),
            ),
            halves(header.crc, crc),
        ] {
            self.0 = mix(self.0 ^ word);
        }
    }

    /// Its bits, as a signed number.
    pub fn value(self) -> i64 {
        self.0.cast_signed()
    }
}

fn halves(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// A bijection, so chains that differ in a single word stay different.
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
