//! Finds a single flipped bit that explains a wrong checksum.
//!
//! CRCs are linear: the difference between the stored and the computed one depends only on which
//! bits changed, not on the content. A single bit has a unique difference for every distance below
//! 2^31 bits from the end.

/// CRC-32C's polynomial, reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// The byte, and the bit in it (0 = lowest), whose flip in `len` checked bytes turns the computed
/// checksum into the stored one; `None` if no single bit does.
pub(super) fn find(stored: u32, computed: u32, len: usize) -> Option<(usize, u32)> {
    let difference = stored ^ computed;
    let mut register: u32 = 1;
    for from_end in 0..len {
        for bit in (0..8).rev() {
            register = if register & 1 == 0 {
                register >> 1
            } else {
                register >> 1 ^ POLYNOMIAL
            };
            if register == difference {
                return Some((len - 1 - from_end, bit));
            }
        }
    }
    None
}

/// A sentence about the damaged place: `start` is the position of the first checked byte,
/// `crc_position` that of the stored checksum.
pub(super) fn explain(
    stored: u32,
    computed: u32,
    start: u64,
    len: usize,
    crc_position: u64,
) -> String {
    if let Some((byte, bit)) = find(stored, computed, len) {
        let position = start + byte as u64;
        return format!("one flipped bit explains it: bit {bit} of the byte at {position}");
    }
    let difference = stored ^ computed;
    if difference.count_ones() == 1 {
        let from_low = difference.trailing_zeros();
        let position = crc_position + u64::from(3 - from_low / 8);
        let bit = from_low % 8;
        return format!("one flipped bit explains it: bit {bit} of the byte at {position}");
    }
    let end = start + len as u64;
    format!("more than one bit differs, between {crc_position} and {end}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use pyrklog_wire::batch::crc32c;

    #[test]
    fn every_single_bit_is_located() {
        let good: Vec<u8> = (0..200).collect();
        let stored = crc32c(&good);
        for i in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[i / 8] ^= 1 << (i % 8);
            assert_eq!(
                find(stored, crc32c(&bad), bad.len()),
                Some((i / 8, (i % 8) as u32))
            );
        }
    }

    #[test]
    fn the_stored_checksum_can_be_the_damage() {
        let computed = crc32c(b"some bytes");
        let text = explain(computed ^ 0x0001_0000, computed, 21, 10, 17);
        assert_eq!(text, "one flipped bit explains it: bit 0 of the byte at 18");
        let text = explain(computed ^ 0x0101_0000, computed, 21, 10, 17);
        assert_eq!(text, "more than one bit differs, between 17 and 31");
    }
}
