//! Protobuf's wire format: tags and what follows them. No length is believed before its bytes are
//! there.

use crate::typed::input::{Input, NUMBER_BYTES_MAX, no_number};

/// Groups in groups that are passed over.
const GROUPS_MAX: usize = 100;

/// What follows a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire<'a> {
    Number(u64),
    Eight([u8; 8]),
    Four([u8; 4]),
    Bytes(&'a [u8]),
    /// Passed over.
    Group,
}

impl<'a> Input<'a> {
    /// The number of the next field, and its content; `None` at the end.
    ///
    /// # Errors
    /// A sentence: no field.
    #[inline]
    pub fn field(&mut self) -> Result<Option<(u32, Wire<'a>)>, String> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (number, kind) = self.tag()?;
        let wire = match kind {
            0 => Wire::Number(self.number()?),
            1 => Wire::Eight(self.array()?),
            2 => Wire::Bytes(self.prefixed()?),
            3 => {
                self.pass_group(number)?;
                Wire::Group
            }
            5 => Wire::Four(self.array()?),
            other => return Err(no_kind(number, other)),
        };
        Ok(Some((number, wire)))
    }

    fn tag(&mut self) -> Result<(u32, u8), String> {
        let tag = self.number()?;
        match u32::try_from(tag >> 3) {
            Ok(number) if number > 0 => Ok((number, (tag & 7) as u8)),
            _ => Err(format!("{tag} is not a tag")),
        }
    }

    /// Seven bits a byte.
    #[inline]
    pub fn number(&mut self) -> Result<u64, String> {
        let mut found = 0_u64;
        for (at, byte) in self.rest.iter().take(NUMBER_BYTES_MAX).enumerate() {
            // Bits above the sixty-fourth are dropped, as parsers do.
            found |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[at + 1..];
                return Ok(found);
            }
        }
        Err(no_number(self.rest.len()))
    }

    /// A length, and so many bytes.
    #[inline]
    pub fn prefixed(&mut self) -> Result<&'a [u8], String> {
        let len = self.number()?;
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        self.take(len)
    }

    /// Passes over a group, with those in it, without recursion.
    fn pass_group(&mut self, number: u32) -> Result<(), String> {
        let mut open = vec![number];
        while let Some(last) = open.last().copied() {
            let (number, kind) = self.tag()?;
            match kind {
                0 => {
                    self.number()?;
                }
                1 => {
                    self.array::<8>()?;
                }
                2 => {
                    self.prefixed()?;
                }
                3 if open.len() < GROUPS_MAX => open.push(number),
                4 if number == last => {
                    open.pop();
                }
                5 => {
                    self.array::<4>()?;
                }
                other => return Err(no_kind(number, other)),
            }
        }
        Ok(())
    }
}

/// Numbers whose sign is their last bit.
pub(crate) fn zigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

#[cold]
fn no_kind(number: u32, kind: u8) -> String {
    format!("the field {number} has the wire type {kind}")
}
