//! Bytes of a value that are still to be read. No length is believed before its bytes are there.

/// Bytes of the longest number, seven bits a byte.
pub(super) const NUMBER_BYTES_MAX: usize = 10;

/// What is still to be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input<'a> {
    pub rest: &'a [u8],
}

impl<'a> Input<'a> {
    /// So many bytes.
    ///
    /// # Errors
    /// A sentence: fewer are left.
    #[inline]
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], String> {
        match self.rest.split_at_checked(len) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => Err(cut(len, self.rest.len())),
        }
    }

    /// So many bytes, as an array.
    ///
    /// # Errors
    /// A sentence: fewer are left.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        match self.rest.split_first_chunk::<N>() {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(*taken)
            }
            None => Err(cut(N, self.rest.len())),
        }
    }
}

#[cold]
fn cut(wanted: usize, left: usize) -> String {
    format!("it ends where {wanted} bytes are to come, {left} are there")
}

/// Why no number begins `left` bytes before the end.
#[cold]
pub(super) fn no_number(left: usize) -> String {
    match left < NUMBER_BYTES_MAX {
        true => "it ends in a number".into(),
        false => "a number has more than 64 bits".into(),
    }
}
