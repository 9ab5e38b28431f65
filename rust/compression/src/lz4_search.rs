//! Compresses LZ4 blocks by searching for long matches, for levels other than the default.
//!
//! ```text
//! sequences: token (high 4 bits length of the literals, low 4 bits length of the match - 4; 15 is
//!            continued in bytes that are added up, the first below 255 being the last),
//!            literals, distance of the match as u16
//! the last sequence has literals only
//! ```
//!
//! The block's last five bytes are literals, and no match begins in its last twelve.
//!
//! Positions with the same hash of four bytes form a chain, the newest first. A level follows so
//! many links of it, [`LINKS_MAX`] at most: bytes that are made to collide cost a bounded time.

const MATCH_MIN: usize = 4;
const LAST_LITERALS: usize = 5;
const MATCH_START_MARGIN: usize = 12;
const LENGTH_MASK: usize = 15;
const HASH_BITS: u32 = 15;
const HASH_FACTOR: u32 = 2_654_435_761;

/// Links followed at level 9 and above.
const LINKS_MAX: usize = 256;
/// From this level on a match waits for the next position's, which may be longer.
const LAZY_LEVEL: i32 = 10;
/// A match of this length waits for none.
const LONG_MATCH: usize = 64;

/// Chains of positions, reused from block to block. Positions are stored plus one; 0 is the end.
pub(super) struct Search {
    heads: Vec<u32>,
    links: Vec<u32>,
    /// Positions below it are in the chains.
    next: usize,
    links_max: usize,
    is_lazy: bool,
}

#[derive(Clone, Copy)]
struct Match {
    from: usize,
    len: usize,
}

impl Search {
    /// For blocks of at most `block_bytes_max`, which is at most 64 KiB.
    pub(super) fn new(level: i32, block_bytes_max: usize) -> Search {
        debug_assert!(block_bytes_max <= 1 << 16);
        let doublings = u32::try_from(level - 1).unwrap_or(0).clamp(1, 8);
        Search {
            heads: vec![0; 1 << HASH_BITS],
            links: vec![0; block_bytes_max],
            next: 0,
            links_max: (1 << doublings).min(LINKS_MAX),
            is_lazy: level >= LAZY_LEVEL,
        }
    }

    /// Appends the compressed block to `out`.
    pub(super) fn compress(&mut self, block: &[u8], out: &mut Vec<u8>) {
        self.heads.fill(0);
        self.next = 0;
        let mut literals_from = 0;
        let mut at = 0;
        // Positions at which a match may begin.
        let end = (block.len() + 1).saturating_sub(MATCH_START_MARGIN);
        while at < end {
            let Some(mut found) = self.longest(block, at) else {
                at += 1;
                continue;
            };
            while self.is_lazy && found.len < LONG_MATCH && at + 1 < end {
                match self.longest(block, at + 1) {
                    Some(later) if later.len > found.len => {
                        found = later;
                        at += 1;
                    }
                    _ => break,
                }
            }
            put_match(out, &block[literals_from..at], at - found.from, found.len);
            at += found.len;
            literals_from = at;
        }
        put_literals(out, &block[literals_from..], 0);
    }

    fn longest(&mut self, block: &[u8], at: usize) -> Option<Match> {
        self.add_below(block, at);
        let len_max = block.len() - LAST_LITERALS - at;
        let mut best = Match {
            from: 0,
            len: MATCH_MIN - 1,
        };
        let mut candidate = self.heads[hash_at(block, at)];
        for _ in 0..self.links_max {
            let Some(from) = (candidate as usize).checked_sub(1) else {
                break;
            };
            // A longer match also has the byte behind the best one's.
            if block[from + best.len] == block[at + best.len] {
                let len = common_len(&block[from..], &block[at..at + len_max]);
                if len > best.len {
                    best = Match { from, len };
                }
                if best.len == len_max {
                    break;
                }
            }
            candidate = self.links[from];
        }
        (best.len >= MATCH_MIN).then_some(best)
    }

    fn add_below(&mut self, block: &[u8], end: usize) {
        for at in self.next..end {
            let head = &mut self.heads[hash_at(block, at)];
            self.links[at] = *head;
            *head = at as u32 + 1;
        }
        self.next = self.next.max(end);
    }
}

fn hash_at(block: &[u8], at: usize) -> usize {
    let bytes = [block[at], block[at + 1], block[at + 2], block[at + 3]];
    let hash = u32::from_le_bytes(bytes).wrapping_mul(HASH_FACTOR);
    (hash >> (u32::BITS - HASH_BITS)) as usize
}

fn common_len(earlier: &[u8], later: &[u8]) -> usize {
    let pairs = earlier.iter().zip(later);
    pairs.take_while(|(one, other)| one == other).count()
}

fn put_match(out: &mut Vec<u8>, literals: &[u8], distance: usize, len: usize) {
    let rest = len - MATCH_MIN;
    put_literals(out, literals, rest.min(LENGTH_MASK) as u8);
    // Within a block of 64 KiB.
    out.extend_from_slice(&(distance as u16).to_le_bytes());
    put_length(out, rest);
}

/// A token with `low` as its low bits, and the literals.
fn put_literals(out: &mut Vec<u8>, literals: &[u8], low: u8) {
    out.push((literals.len().min(LENGTH_MASK) as u8) << 4 | low);
    put_length(out, literals.len());
    out.extend_from_slice(literals);
}

/// What a token's four bits do not hold.
fn put_length(out: &mut Vec<u8>, len: usize) {
    let Some(mut rest) = len.checked_sub(LENGTH_MASK) else {
        return;
    };
    while rest >= 255 {
        out.push(255);
        rest -= 255;
    }
    out.push(rest as u8);
}
