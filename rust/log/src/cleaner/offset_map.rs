//! Which offset is the last one of a key, in bounded memory.
//!
//! A key is known by 16 bytes of its hash, so an entry takes 24 bytes whatever the key's length.
//! The hash has a seed, so that nobody can make two keys that the map takes for one.

use twox_hash::XxHash3_128;

/// A key's digest in two halves.
#[derive(Clone, Copy, Debug)]
pub struct KeyHash([u64; 2]);

/// Two halves of the digest, and the offset plus one; 0 = free.
type Slot = [u64; 3];

/// Bytes of one slot.
pub const SLOT_BYTES: usize = size_of::<Slot>();

/// Last offsets by key: open addressing with linear probing. Nothing is ever removed.
#[derive(Debug)]
pub struct OffsetMap {
    slots: Vec<Slot>,
    used: usize,
    used_max: usize,
    latest: i64,
    seed: u64,
}

impl OffsetMap {
    /// Room for `slots` keys times `load_factor` (0 to 1), at least one. The memory is touched as
    /// keys come.
    pub fn new(slots: usize, load_factor: f64, seed: u64) -> Self {
        let slots = slots.max(2);
        let used_max = (slots as f64 * load_factor.clamp(0.0, 1.0)) as usize;
        Self {
            slots: vec![[0; 3]; slots],
            used: 0,
            // One slot stays free, where each search ends.
            used_max: used_max.clamp(1, slots - 1),
            latest: -1,
            seed,
        }
    }

    /// What the map knows a key by.
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        let digest = XxHash3_128::oneshot_with_seed(self.seed, key);
        KeyHash([(digest >> 64) as u64, digest as u64])
    }

    /// Reads where several keys' searches begin. A large map lies in main memory, which answers many
    /// reads at once: searches that follow one by one would wait for each of them.
    pub fn touch(&self, hashes: impl Iterator<Item = KeyHash>) {
        let mut seen = 0;
        for hash in hashes {
            let [high, _, offset] = self.slots[self.first_place(hash)];
            seen ^= high ^ offset;
        }
        std::hint::black_box(seen);
    }

    /// The key's last record so far is at `offset`. False if the map is full; nothing changes then.
    pub fn put(&mut self, key: KeyHash, offset: i64) -> bool {
        let (at, is_known) = self.find(key);
        if !is_known && self.used == self.used_max {
            return false;
        }
        let KeyHash([high, low]) = key;
        self.used += usize::from(!is_known);
        self.slots[at] = [high, low, offset as u64 + 1];
        self.note(offset);
        true
    }

    /// Offset of the key's last record.
    pub fn get(&self, key: KeyHash) -> Option<i64> {
        let (at, is_known) = self.find(key);
        is_known.then(|| self.slots[at][2] as i64 - 1)
    }

    /// Everything up to `offset` was looked at.
    pub fn note(&mut self, offset: i64) {
        self.latest = self.latest.max(offset);
    }

    /// The last offset that was looked at; the map says nothing of later ones. -1 if none was.
    pub fn latest(&self) -> i64 {
        self.latest
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.used
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Where the search for a key begins: its hash as a share of all slots.
    fn first_place(&self, KeyHash([high, _]): KeyHash) -> usize {
        ((u128::from(high) * self.slots.len() as u128) >> 64) as usize
    }

    /// The key's slot, or the free one where it would go.
    fn find(&self, hash: KeyHash) -> (usize, bool) {
        let mut at = self.first_place(hash);
        loop {
            let [high, low, offset] = self.slots[at];
            if offset == 0 {
                return (at, false);
            }
            if [high, low] == hash.0 {
                return (at, true);
            }
            at += 1;
            if at == self.slots.len() {
                at = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    impl OffsetMap {
        fn put_key(&mut self, key: &[u8], offset: i64) -> bool {
            let hash = self.hash(key);
            self.touch([hash].into_iter());
            self.put(hash, offset)
        }

        fn get_key(&self, key: &[u8]) -> Option<i64> {
            self.get(self.hash(key))
        }
    }

    #[test]
    fn a_full_map_takes_known_keys_only() {
        let mut map = OffsetMap::new(4, 0.5, 7);
        assert!(map.put_key(b"a", 0) && map.put_key(b"b", 1));
        assert!(!map.put_key(b"c", 2));
        assert_eq!((map.len(), map.latest(), map.get_key(b"c")), (2, 1, None));
        assert!(map.put_key(b"a", 3));
        assert_eq!((map.get_key(b"a"), map.get_key(b"b")), (Some(3), Some(1)));
        assert_eq!(map.latest(), 3);
    }

    #[test]
    fn the_smallest_map_holds_one_key() {
        let mut map = OffsetMap::new(0, 0.0, 0);
        assert!(map.is_empty() && map.put_key(b"", 0));
        assert!(!map.put_key(b"x", 1));
        assert_eq!(map.get_key(b""), Some(0));
    }

    proptest! {
        #[test]
        fn it_is_a_map(keys in proptest::collection::vec(0_u8..60, 0..200), seed: u64) {
            let mut map = OffsetMap::new(64, 1.0, seed);
            let mut model = HashMap::new();
            for (offset, key) in (0..).zip(keys) {
                prop_assert!(map.put_key(&[key], offset));
                model.insert(key, offset);
            }
            prop_assert_eq!(map.len(), model.len());
            for key in 0..=u8::MAX {
                prop_assert_eq!(map.get_key(&[key]), model.get(&key).copied());
            }
        }
    }
}
