//! Which partition a row goes to, as with Java's producer.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

const SEED: u32 = 0x9747_b28c;
const M: u32 = 0x5bd1_e995;
const R: u32 = 24;

/// The hash of Java's producer (`Utils.murmur2`).
pub fn murmur2(data: &[u8]) -> i32 {
    let mut hash = SEED ^ data.len() as u32;
    let mut words = data.chunks_exact(4);
    for word in &mut words {
        let mut k = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        k = k.wrapping_mul(M);
        k ^= k >> R;
        k = k.wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ k;
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        for (at, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * at);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    (hash ^ (hash >> 15)) as i32
}

/// The partition of a key among `count`, which is above 0.
pub fn partition_of_key(key: &[u8], count: usize) -> usize {
    (murmur2(key) & i32::MAX) as usize % count
}

/// The partition of rows without a key: one after the other, each for so many bytes (KIP-794).
#[derive(Debug)]
pub(crate) struct Sticky {
    partition: usize,
    bytes: usize,
    random: u64,
}

impl Sticky {
    /// Begins anywhere.
    pub fn new(count: usize) -> Sticky {
        let random = RandomState::new().build_hasher().finish() | 1;
        let mut sticky = Sticky {
            partition: 0,
            bytes: 0,
            random,
        };
        sticky.turn(count);
        sticky
    }

    /// The partition of a row of so many bytes.
    pub fn next(&mut self, row_bytes: usize, batch_bytes: usize, count: usize) -> usize {
        if self.bytes >= batch_bytes {
            self.turn(count);
        }
        self.bytes += row_bytes;
        self.partition
    }

    /// Marsaglia's xorshift: which partition is of no importance, only that all come.
    fn turn(&mut self, count: usize) {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.partition = (self.random >> 16) as usize % count;
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of Kafka's own test, `UtilsTest.testMurmur2`.
    #[test]
    fn hashes_are_javas() {
        for (text, hash) in [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            (
                "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
                -58_897_971,
            ),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(text.as_bytes()), hash, "{text}");
        }
    }

    #[test]
    fn partitions_take_turns_of_a_batch_each() {
        let mut sticky = Sticky::new(4);
        let mut seen = [0_usize; 4];
        for _ in 0..400 {
            let first = sticky.next(10, 30, 4);
            for _ in 0..2 {
                assert_eq!(sticky.next(10, 30, 4), first);
            }
            seen[first] += 1;
        }
        assert!(seen.iter().all(|turns| *turns > 40), "{seen:?}");
    }
}
