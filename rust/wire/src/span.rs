//! A place in a frame.

/// Start and length of bytes in a frame. Decoded requests hold spans instead of borrows if the
/// caller patches the frame in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Span {
    start: usize,
    len: usize,
}

impl Span {
    /// `len` bytes from `start` on.
    pub fn new(start: usize, len: usize) -> Self {
        Span { start, len }
    }

    /// First byte's index.
    pub fn start(self) -> usize {
        self.start
    }

    /// Index after the last byte.
    pub fn end(self) -> usize {
        self.start + self.len
    }

    /// Length in bytes.
    pub fn len(self) -> usize {
        self.len
    }

    /// True for no bytes at all.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// As a range, for indexing.
    pub fn range(self) -> std::ops::Range<usize> {
        self.start..self.end()
    }

    /// The bytes. Panics if `frame` is shorter than the span's own frame.
    pub fn of(self, frame: &[u8]) -> &[u8] {
        &frame[self.range()]
    }

    /// The bytes, to be patched. Panics as [`Span::of`].
    pub fn of_mut(self, frame: &mut [u8]) -> &mut [u8] {
        &mut frame[self.range()]
    }

    /// The text of a string's span, which decoding has checked: empty only if the text is, or the
    /// frame was changed. Panics as [`Span::of`].
    pub fn text(self, frame: &[u8]) -> &str {
        std::str::from_utf8(self.of(frame)).unwrap_or_default()
    }
}

/// Elements whose memory a reusable request keeps.
const REUSED_ELEMENTS_MAX: usize = 4096;

/// Empties a vector of a reusable request and keeps bounded memory.
pub(crate) fn clear_reusable<T>(elements: &mut Vec<T>) {
    elements.clear();
    if elements.capacity() > REUSED_ELEMENTS_MAX {
        elements.shrink_to(REUSED_ELEMENTS_MAX);
    }
}
