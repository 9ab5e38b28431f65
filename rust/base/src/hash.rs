//! A cheap hash for maps whose keys an attacker cannot choose, so that collisions cannot be
//! provoked.

use std::hash::{BuildHasher, Hasher};

/// Multiply-and-rotate over 8-byte words.
#[derive(Clone, Copy, Debug, Default)]
pub struct WordHasher {
    state: u64,
}

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

impl WordHasher {
    fn word(&mut self, word: u64) {
        self.state = (self.state.rotate_left(23) ^ word).wrapping_mul(MULTIPLIER);
    }
}

impl Hasher for WordHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.word(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut last = [0u8; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.word(u64::from_le_bytes(last) ^ (rest.len() as u64) << 56);
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.word(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.word(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.word(value);
    }

    fn write_usize(&mut self, value: usize) {
        self.word(value as u64);
    }

    fn finish(&self) -> u64 {
        // Maps take the bucket from the low bits and a tag from the top seven: mix both.
        self.state ^ (self.state >> 32)
    }
}

/// Builds [`WordHasher`]s.
#[derive(Clone, Copy, Debug, Default)]
pub struct WordHash;

impl BuildHasher for WordHash {
    type Hasher = WordHasher;

    fn build_hasher(&self) -> WordHasher {
        WordHasher::default()
    }
}

/// A hash map with [`WordHash`].
pub type FastMap<K, V> = std::collections::HashMap<K, V, WordHash>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_spread_over_buckets() {
        let buckets: std::collections::HashSet<u64> = (0..1000)
            .map(|index| WordHash.hash_one(format!("topic-{index}").as_str()) % 1024)
            .collect();
        assert!(
            buckets.len() > 500,
            "{} buckets of 1024 for 1000 names",
            buckets.len()
        );
    }

    #[test]
    fn hash_depends_on_the_length() {
        assert_ne!(
            WordHash.hash_one([0u8; 3].as_slice()),
            WordHash.hash_one([0u8; 4].as_slice())
        );
    }
}
