//! Page-aligned memory, for reads past the page cache.

use std::ops::{Deref, DerefMut};

use crate::disk::PAGE_BYTES;

/// Bytes on the heap that begin at a page boundary.
#[derive(Debug)]
pub(crate) struct PageBytes {
    memory: Vec<u8>,
    lead: usize,
    len: usize,
}

impl PageBytes {
    pub fn new(len: usize) -> PageBytes {
        let memory = vec![0; len + PAGE_BYTES - 1];
        // The vector never grows, so it never moves.
        let lead = memory.as_ptr().addr().next_multiple_of(PAGE_BYTES) - memory.as_ptr().addr();
        PageBytes { memory, lead, len }
    }
}

impl Deref for PageBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.lead..self.lead + self.len]
    }
}

impl DerefMut for PageBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.lead..self.lead + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_bytes_are_aligned_to_a_page() {
        for len in [1, 4096, 100_000] {
            let mut bytes = PageBytes::new(len);
            assert!(bytes.as_ptr().addr().is_multiple_of(PAGE_BYTES));
            assert_eq!(*bytes, vec![0; len]);
            bytes[len - 1] = 7;
            assert_eq!(bytes.last(), Some(&7));
        }
    }
}
