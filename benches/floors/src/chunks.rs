//! Memory in reused pieces of one size: once all were in use, no page is touched for the first
//! time.

use parking_lot::Mutex;
use std::sync::Arc;

/// Size of a piece.
pub const CHUNK_BYTES: usize = 1 << 20;

/// The free pieces.
#[derive(Debug, Default)]
pub struct Chunks {
    free: Mutex<Vec<Vec<u8>>>,
}

impl Chunks {
    /// An empty piece with room for [`CHUNK_BYTES`].
    pub fn take(&self) -> Vec<u8> {
        self.free
            .lock()
            .pop()
            .unwrap_or_else(|| Vec::with_capacity(CHUNK_BYTES))
    }

    /// Returns a piece, unless it still has readers: the last one frees it.
    pub fn give_back(&self, chunk: Arc<Vec<u8>>) {
        if let Ok(mut bytes) = Arc::try_unwrap(chunk) {
            bytes.clear();
            self.free.lock().push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_used_again_unless_it_is_being_read() {
        let chunks = Chunks::default();
        let mut bytes = chunks.take();
        bytes.push(1);
        let place = bytes.as_ptr();
        chunks.give_back(Arc::new(bytes));
        let again = chunks.take();
        assert_eq!((again.as_ptr(), again.len()), (place, 0));
        let shared = Arc::new(again);
        let reader = Arc::clone(&shared);
        chunks.give_back(shared);
        let another = chunks.take();
        assert_ne!(another.as_ptr(), reader.as_ptr());
    }
}
