//! A script: bytes that decide what is built and damaged. Its end reads as zeros, so every sequence
//! of bytes is valid.

use arbitrary::Unstructured;

/// See the module.
#[derive(Debug)]
pub struct Script<'a>(Unstructured<'a>);

impl<'a> Script<'a> {
    /// Over these bytes.
    pub fn new(data: &'a [u8]) -> Self {
        Script(Unstructured::new(data))
    }

    /// A number below `end`, which is at least 1.
    pub fn below(&mut self, end: usize) -> usize {
        self.0.int_in_range(0..=end - 1).unwrap_or(0)
    }

    /// One in `n`.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == n - 1
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Any number, with a liking for those at the edges.
    pub fn i64(&mut self) -> i64 {
        match self.below(4) {
            0 => self.below(300) as i64 - 20,
            1 => self.pick(&[i64::MIN, -2, -1, 0, 1, i64::from(i32::MAX), i64::MAX]),
            2 => i64::from(self.0.arbitrary::<i32>().unwrap_or(0)),
            _ => self.0.arbitrary().unwrap_or(0),
        }
    }

    /// The same in 32 bits.
    pub fn i32(&mut self) -> i32 {
        self.i64() as i32
    }

    /// The same in 16 bits.
    pub fn i16(&mut self) -> i16 {
        self.i64() as i16
    }

    /// Yes or no.
    pub fn bool(&mut self) -> bool {
        self.below(2) == 1
    }

    /// Up to `max` bytes.
    pub fn bytes(&mut self, max: usize) -> Vec<u8> {
        let len = self.below(max + 1);
        (0..len).map(|_| self.below(256) as u8).collect()
    }

    /// A text, with a liking for short ones.
    pub fn text(&mut self) -> String {
        let len = self.below(6);
        (0..len)
            .map(|_| self.pick(&['a', 'b', '.', '_', '-', '\u{e9}', '\u{1f4a9}', ' ', '\0']))
            .collect()
    }

    /// A topic's name.
    pub fn topic(&mut self) -> String {
        let len = 1 + self.below(4);
        (0..len)
            .map(|_| self.pick(&['a', 'b', '.', '_', '-', '7']))
            .collect()
    }

    /// Something, or nothing.
    pub fn option<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.bool().then(|| make(self))
    }

    /// A UUID, as likely as not zero.
    pub fn uuid(&mut self) -> [u8; 16] {
        [self.pick(&[0, 1, 0xff]); 16]
    }

    /// Up to `max` of something.
    pub fn list<T>(&mut self, max: usize, mut element: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let len = self.below(max + 1);
        (0..len).map(|_| element(self)).collect()
    }

    /// Damages bytes in some way that changes them; says how.
    pub fn damage(&mut self, bytes: &mut Vec<u8>) -> Damage {
        let before = bytes.clone();
        let what = match self.below(4) {
            0 => {
                bytes.truncate(self.below(bytes.len().max(1)));
                Damage::Cut
            }
            1 => {
                let more = self.bytes(20);
                bytes.extend(more);
                Damage::Longer
            }
            2 if !bytes.is_empty() => {
                let bit = self.below(bytes.len() * 8);
                bytes[bit / 8] ^= 1 << (bit % 8);
                Damage::Changed
            }
            _ => {
                let lie = self.pick::<&[u8]>(&[
                    &[0x7f, 0xff, 0xff, 0xff],
                    &[0xff, 0xff, 0xff, 0xff, 0x0f],
                    &[0, 0xff, 0xff, 0xff],
                    &[0x80, 0, 0, 0],
                    &[0xff, 0xff],
                    &[0, 0, 0, 0],
                ]);
                let at = self.below(bytes.len().max(1));
                let end = bytes.len().min(at + lie.len());
                bytes[at.min(end)..end].copy_from_slice(&lie[..end - at.min(end)]);
                Damage::Changed
            }
        };
        if *bytes == before { Damage::None } else { what }
    }
}

/// How bytes were damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// By chance not at all.
    None,
    /// They end too early.
    Cut,
    /// More follows.
    Longer,
    /// Some are others.
    Changed,
}
