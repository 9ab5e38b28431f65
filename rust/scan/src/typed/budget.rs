//! What a value may take as columns.

use thiserror::Error;

/// What an element or an entry takes besides its columns.
pub(crate) const ELEMENT_BYTES: usize = 4;

/// What a value takes in the columns, besides the width of the first one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    used: usize,
    most: usize,
}

/// A value takes more than so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("it takes more than {0} bytes as columns")]
pub(crate) struct TooMuch(usize);

impl Budget {
    pub fn new(most: usize) -> Budget {
        Budget { used: 0, most }
    }

    pub fn used(&self) -> usize {
        self.used
    }

    /// Counts bytes.
    ///
    /// # Errors
    /// There are too many.
    #[inline]
    pub fn charge(&mut self, bytes: usize) -> Result<(), TooMuch> {
        self.used += bytes;
        match self.used <= self.most {
            true => Ok(()),
            false => Err(TooMuch(self.most)),
        }
    }
}
