//! Decodes the protocol's primitive types, bounds-checked and without copies.

use crate::error::{DecodeError, Result, first, first_chunk};
use crate::error_code::ErrorCode;
use crate::span::Span;
use crate::varint;

/// 16 bytes of a UUID as on the wire; all zero means "none".
pub type Uuid = [u8; 16];

/// A cursor over one message.
///
/// A message is classic or flexible (KIP-482) as a whole. [`Reader::string`], [`Reader::array_len`]
/// and others follow that; the `classic_`/`compact_` forms do not. After an error the position is
/// unspecified.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
    flexible: bool,
    /// Array elements: how many there may be, and how many more.
    elements_max: usize,
    elements_left: usize,
}

/// Limit of a request's array elements, topics and partitions alike: as many partitions as a
/// cluster may have, each in its own topic. Elements take more memory than wire bytes, so this
/// bounds the cost of decoding a request.
pub const REQUEST_ELEMENTS_MAX: usize = 400_000;

/// Of a string, also in compact form.
const STRING_MAX_BYTES: usize = i16::MAX as usize;

macro_rules! fixed {
    ($($name:ident: $type:ty;)*) => {
        $(#[doc = concat!("A big-endian `", stringify!($type), "`.")]
        #[inline]
        pub fn $name(&mut self) -> Result<$type> {
            Ok(<$type>::from_be_bytes(self.chunk()?))
        })*
    };
}

impl<'a> Reader<'a> {
    /// Reads `bytes` from the start.
    pub fn new(bytes: &'a [u8], flexible: bool) -> Self {
        Reader {
            bytes,
            position: 0,
            flexible,
            elements_max: usize::MAX,
            elements_left: usize::MAX,
        }
    }

    /// The same for a request, with at most [`REQUEST_ELEMENTS_MAX`] array elements.
    pub fn of_request(bytes: &'a [u8], position: usize, flexible: bool) -> Self {
        Reader::at(bytes, position, flexible).with_elements_max(REQUEST_ELEMENTS_MAX)
    }

    /// The same with at most so many array elements from here on.
    pub fn with_elements_max(mut self, elements_max: usize) -> Self {
        self.elements_max = elements_max;
        self.elements_left = elements_max;
        self
    }

    /// Reads `bytes` from `position` on; spans and positions count from the start.
    pub fn at(bytes: &'a [u8], position: usize, flexible: bool) -> Self {
        Reader {
            bytes,
            position: position.min(bytes.len()),
            flexible,
            elements_max: usize::MAX,
            elements_left: usize::MAX,
        }
    }

    /// True when the message is of a flexible version.
    pub fn is_flexible(&self) -> bool {
        self.flexible
    }

    /// Bytes read so far, from the start of the underlying bytes.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Bytes that are left.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    /// All that is left, without moving.
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.position..]
    }

    /// An error unless every byte was read.
    pub fn expect_end(&self) -> Result<()> {
        match self.remaining() {
            0 => Ok(()),
            left => Err(DecodeError::TrailingBytes(left)),
        }
    }

    /// The next `len` bytes.
    #[inline]
    pub fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let taken = first(self.rest(), len)?;
        self.position += len;
        Ok(taken)
    }

    #[inline]
    fn chunk<const N: usize>(&mut self) -> Result<[u8; N]> {
        let chunk = first_chunk(self.rest())?;
        self.position += N;
        Ok(*chunk)
    }

    fixed! {
        i8: i8;
        u8: u8;
        i16: i16;
        u16: u16;
        i32: i32;
        u32: u32;
        i64: i64;
        f64: f64;
    }

    /// A boolean: any non-zero byte is true, as in Kafka.
    #[inline]
    pub fn bool(&mut self) -> Result<bool> {
        Ok(self.u8()? != 0)
    }

    /// A UUID.
    pub fn uuid(&mut self) -> Result<Uuid> {
        self.chunk()
    }

    /// An error code.
    #[inline]
    pub fn error_code(&mut self) -> Result<ErrorCode> {
        self.i16().map(ErrorCode)
    }

    /// An unsigned variable-length integer.
    #[inline]
    pub fn uvarint(&mut self) -> Result<u32> {
        let (value, len) = varint::read_uvarint(self.rest())?;
        self.position += len;
        Ok(value)
    }

    /// A zig-zag variable-length integer of 32 bits.
    #[inline]
    pub fn varint(&mut self) -> Result<i32> {
        let (value, len) = varint::read_varint(self.rest())?;
        self.position += len;
        Ok(value)
    }

    /// A zig-zag variable-length integer of 64 bits.
    #[inline]
    pub fn varlong(&mut self) -> Result<i64> {
        let (value, len) = varint::read_varlong(self.rest())?;
        self.position += len;
        Ok(value)
    }

    /// A compact length: stored plus one, zero is null.
    fn compact_len(&mut self) -> Result<Option<usize>> {
        Ok(self.uvarint()?.checked_sub(1).map(|len| len as usize))
    }

    fn nullable_len(&mut self, is_string: bool) -> Result<Option<usize>> {
        if self.flexible {
            return self.compact_len();
        }
        if is_string {
            self.classic_string_len()
        } else {
            Ok(classic_len(self.i32()?.into()))
        }
    }

    fn classic_string_len(&mut self) -> Result<Option<usize>> {
        Ok(classic_len(self.i16()?.into()))
    }

    fn text(&mut self, len: usize) -> Result<&'a str> {
        if len > STRING_MAX_BYTES {
            return Err(DecodeError::StringTooLong(len));
        }
        std::str::from_utf8(self.take(len)?).map_err(|_| DecodeError::BadUtf8)
    }

    /// A nullable string in the message's form.
    pub fn nullable_string(&mut self) -> Result<Option<&'a str>> {
        let len = self.nullable_len(true)?;
        len.map(|len| self.text(len)).transpose()
    }

    /// A string, in the message's own form.
    pub fn string(&mut self) -> Result<&'a str> {
        self.nullable_string()?
            .ok_or(DecodeError::UnexpectedNull(-1))
    }

    /// A nullable string in classic form (request headers).
    pub fn classic_nullable_string(&mut self) -> Result<Option<&'a str>> {
        let len = self.classic_string_len()?;
        len.map(|len| self.text(len)).transpose()
    }

    /// A string's place; its bytes were checked to be UTF-8.
    pub fn string_span(&mut self) -> Result<Span> {
        self.nullable_string_span()?
            .ok_or(DecodeError::UnexpectedNull(-1))
    }

    /// The span of a nullable UTF-8 string.
    pub fn nullable_string_span(&mut self) -> Result<Option<Span>> {
        let text = self.nullable_string()?;
        Ok(text.map(|text| Span::new(self.position - text.len(), text.len())))
    }

    /// Bytes that may be null, in the message's own form.
    pub fn nullable_bytes(&mut self) -> Result<Option<&'a [u8]>> {
        let len = self.nullable_len(false)?;
        len.map(|len| self.take(len)).transpose()
    }

    /// Bytes, in the message's own form.
    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        self.nullable_bytes()?
            .ok_or(DecodeError::UnexpectedNull(-1))
    }

    /// The place of bytes that may be null.
    pub fn nullable_bytes_span(&mut self) -> Result<Option<Span>> {
        let bytes = self.nullable_bytes()?;
        Ok(bytes.map(|bytes| Span::new(self.position - bytes.len(), bytes.len())))
    }

    /// The count of a nullable array whose elements take at least `min_element_bytes`. Refuses a
    /// count that the remaining bytes cannot hold, or beyond a request's limit, before anything is
    /// allocated.
    pub fn nullable_array_len(&mut self, min_element_bytes: usize) -> Result<Option<usize>> {
        let Some(count) = self.nullable_len(false)? else {
            return Ok(None);
        };
        let remaining = self.remaining();
        if count.saturating_mul(min_element_bytes.max(1)) > remaining {
            return Err(DecodeError::CountTooLarge {
                count: count as u64,
                remaining,
            });
        }
        let max = self.elements_max;
        self.elements_left = self
            .elements_left
            .checked_sub(count)
            .ok_or(DecodeError::TooManyElements { max })?;
        Ok(Some(count))
    }

    /// The count of an array; see [`Reader::nullable_array_len`].
    pub fn array_len(&mut self, min_element_bytes: usize) -> Result<usize> {
        self.nullable_array_len(min_element_bytes)?
            .ok_or(DecodeError::UnexpectedNull(-1))
    }

    /// An array decoded element by element. `min_element_bytes` as in [`Reader::array_len`].
    pub fn array<T>(
        &mut self,
        min_element_bytes: usize,
        element: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let count = self.array_len(min_element_bytes)?;
        self.elements(count, element)
    }

    /// An array that may be null, decoded element by element.
    pub fn nullable_array<T>(
        &mut self,
        min_element_bytes: usize,
        element: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Option<Vec<T>>> {
        let count = self.nullable_array_len(min_element_bytes)?;
        count.map(|count| self.elements(count, element)).transpose()
    }

    fn elements<T>(
        &mut self,
        count: usize,
        mut element: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        // Elements can be larger in memory than on the wire: reserves at most the size of the
        // message, and grows as elements arrive.
        let fitting = self.remaining() / size_of::<T>().max(1);
        let mut elements = Vec::with_capacity(count.min(fitting.max(4)));
        for _ in 0..count {
            elements.push(element(self)?);
        }
        Ok(elements)
    }

    /// Skips the tagged fields at the end of a flexible structure.
    #[inline]
    pub fn skip_tags(&mut self) -> Result<()> {
        self.tags(|_, _| Ok(false))
    }

    /// Reads the tagged fields at the end of a flexible structure. `field` gets each tag and a
    /// reader of its content, and returns false for an unknown tag, which is skipped.
    pub fn tags(
        &mut self,
        mut field: impl FnMut(u32, &mut Reader<'a>) -> Result<bool>,
    ) -> Result<()> {
        if !self.flexible {
            return Ok(());
        }
        let count = self.uvarint()?;
        if u64::from(count) * 2 > self.remaining() as u64 {
            let remaining = self.remaining();
            return Err(DecodeError::CountTooLarge {
                count: u64::from(count),
                remaining,
            });
        }
        for _ in 0..count {
            let tag = self.uvarint()?;
            let size = self.uvarint()? as usize;
            self.take(size)?;
            // Over the same bytes, so that spans count from the same start.
            let mut reader = Reader::at(&self.bytes[..self.position], self.position - size, true);
            reader.elements_max = self.elements_max;
            reader.elements_left = self.elements_left;
            let known = field(tag, &mut reader);
            self.elements_left = reader.elements_left;
            match known {
                Ok(true) if reader.remaining() == 0 => {}
                Ok(false) => {}
                Ok(true) | Err(DecodeError::Truncated { .. }) => {
                    return Err(DecodeError::BadTaggedField { tag });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A length as in classic versions: any negative one means null, as in Kafka.
fn classic_len(len: i64) -> Option<usize> {
    usize::try_from(len).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lying_counts_are_refused_before_allocation() {
        let mut classic = Reader::new(&[0x7f, 0xff, 0xff, 0xff, 0, 0], false);
        assert_eq!(
            classic.array_len(1),
            Err(DecodeError::CountTooLarge {
                count: 0x7fff_ffff,
                remaining: 2
            })
        );
        let mut compact = Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0], true);
        assert_eq!(
            compact.array_len(4),
            Err(DecodeError::CountTooLarge {
                count: 0xffff_fffe,
                remaining: 1
            })
        );
        let mut tags = Reader::new(&[0xff, 0xff, 0x03, 0], true);
        assert!(matches!(
            tags.skip_tags(),
            Err(DecodeError::CountTooLarge { .. })
        ));
    }

    #[test]
    fn the_arrays_of_a_request_are_bounded_together() {
        let half = REQUEST_ELEMENTS_MAX / 2 + 1;
        let mut bytes = vec![0; 8 + 2 * half];
        bytes[..4].copy_from_slice(&(half as i32).to_be_bytes());
        bytes[4..8].copy_from_slice(&(half as i32).to_be_bytes());
        let mut request = Reader::of_request(&bytes, 0, false);
        assert_eq!(request.array_len(1), Ok(half));
        let refused = Err(DecodeError::TooManyElements {
            max: REQUEST_ELEMENTS_MAX,
        });
        assert_eq!(request.array_len(1), refused);
        let mut response = Reader::new(&bytes, false);
        assert_eq!(response.array_len(1), Ok(half));
        assert_eq!(response.array_len(1), Ok(half));
    }

    #[test]
    fn arrays_in_tagged_fields_count_as_well() {
        // Three elements; then field 0, three bytes: two elements.
        let bytes = [4, 1, 2, 3, 1, 0, 3, 3, 8, 9];
        let read = |elements_max| {
            let mut reader = Reader::new(&bytes, true).with_elements_max(elements_max);
            reader.array(1, Reader::u8)?;
            reader.tags(|_, field| field.array(1, Reader::u8).map(|_| true))
        };
        assert_eq!(read(5), Ok(()));
        assert_eq!(read(4), Err(DecodeError::TooManyElements { max: 4 }));
    }

    #[test]
    fn strings_of_both_forms() {
        let mut classic = Reader::new(&[0, 2, b'h', b'i', 0xff, 0xff, 0xff, 0xfe], false);
        assert_eq!(classic.string(), Ok("hi"));
        assert_eq!(classic.nullable_string(), Ok(None));
        assert_eq!(classic.nullable_string(), Ok(None), "any negative length");
        let mut compact = Reader::new(&[3, b'h', b'i', 0, 2, 0xff], true);
        assert_eq!(compact.string(), Ok("hi"));
        assert_eq!(compact.string(), Err(DecodeError::UnexpectedNull(-1)));
        assert_eq!(compact.string(), Err(DecodeError::BadUtf8));
        let mut long = vec![b'x'; 32_771];
        long[..3].copy_from_slice(&[0x81, 0x80, 0x02]);
        let refused = Reader::new(&long, true).string();
        assert_eq!(refused, Err(DecodeError::StringTooLong(32_768)));
    }

    #[test]
    fn tagged_fields_are_skipped_or_read_in_full() {
        let bytes = [2, 0, 2, 0xab, 0xcd, 9, 1, 7, 0x55];
        let mut reader = Reader::new(&bytes, true);
        let mut seen = None;
        reader
            .tags(|tag, content| {
                if tag == 9 {
                    seen = Some(content.u8()?);
                }
                Ok(tag == 9)
            })
            .unwrap();
        assert_eq!(seen, Some(7));
        assert_eq!(reader.rest(), [0x55]);

        let too_short = Reader::new(&bytes, true).tags(|_, content| content.i32().map(|_| true));
        assert_eq!(too_short, Err(DecodeError::BadTaggedField { tag: 0 }));
        let too_long = Reader::new(&bytes, true).tags(|_, content| content.u8().map(|_| true));
        assert_eq!(too_long, Err(DecodeError::BadTaggedField { tag: 0 }));
    }

    #[test]
    fn spans_count_from_the_start_of_the_bytes() {
        let bytes = [9, 9, 0, 2, b'o', b'k', 0, 0, 0, 1, 0xee];
        let mut reader = Reader::at(&bytes, 2, false);
        let name = reader.string_span().unwrap();
        assert_eq!(name.text(&bytes), "ok");
        let payload = reader.nullable_bytes_span().unwrap().unwrap();
        assert_eq!(payload.of(&bytes), [0xee]);
        assert_eq!(reader.expect_end(), Ok(()));
    }
}
