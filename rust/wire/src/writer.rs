//! Encodes the protocol's primitive types, appending to a byte vector.

use crate::reader::Uuid;
use crate::varint;

/// Appends the elements of one message in classic or flexible form (KIP-482).
///
/// Panics for a length beyond the form's limit: 32,767 bytes for a classic string, 2 GiB otherwise.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    flexible: bool,
}

macro_rules! fixed {
    ($($name:ident: $type:ty;)*) => {
        $(#[doc = concat!("A big-endian `", stringify!($type), "`.")]
        #[inline]
        pub fn $name(&mut self, value: $type) {
            self.out.extend_from_slice(&value.to_be_bytes());
        })*
    };
}

impl<'a> Writer<'a> {
    /// Appends to `out`.
    pub fn new(out: &'a mut Vec<u8>, flexible: bool) -> Self {
        Writer { out, flexible }
    }

    /// True when the message is of a flexible version.
    pub fn is_flexible(&self) -> bool {
        self.flexible
    }

    /// Length of the vector so far.
    pub fn position(&self) -> usize {
        self.out.len()
    }

    /// The vector itself, for bytes that need no encoding.
    pub fn out(&mut self) -> &mut Vec<u8> {
        self.out
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

    /// A boolean.
    pub fn bool(&mut self, value: bool) {
        self.u8(u8::from(value));
    }

    /// A UUID.
    pub fn uuid(&mut self, value: &Uuid) {
        self.raw(value);
    }

    /// Bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// An unsigned variable-length integer.
    pub fn uvarint(&mut self, value: u32) {
        varint::write_uvarint(self.out, value);
    }

    /// A zig-zag variable-length integer of 32 bits.
    pub fn varint(&mut self, value: i32) {
        varint::write_varint(self.out, value);
    }

    /// A zig-zag variable-length integer of 64 bits.
    pub fn varlong(&mut self, value: i64) {
        varint::write_varlong(self.out, value);
    }

    fn compact_len(&mut self, len: Option<usize>) {
        let stored = len.map_or(0, |len| {
            u32::try_from(len + 1).expect("a length over 4 GiB")
        });
        self.uvarint(stored);
    }

    /// A nullable string in the message's form. Panics beyond the classic form's 32,767 bytes.
    pub fn nullable_string(&mut self, value: Option<&str>) {
        if self.flexible {
            self.compact_len(value.map(str::len));
            self.raw(value.unwrap_or_default().as_bytes());
        } else {
            self.classic_nullable_string(value);
        }
    }

    /// A string, in the message's own form. Panics as [`Writer::nullable_string`].
    pub fn string(&mut self, value: &str) {
        self.nullable_string(Some(value));
    }

    /// A nullable string in classic form (request headers). Panics beyond 32,767 bytes.
    pub fn classic_nullable_string(&mut self, value: Option<&str>) {
        let len = value.map_or(-1, |text| {
            i16::try_from(text.len()).expect("a classic string holds at most 32,767 bytes")
        });
        self.i16(len);
        self.raw(value.unwrap_or_default().as_bytes());
    }

    /// Nullable bytes in the message's form. Panics beyond 2 GiB.
    pub fn nullable_bytes(&mut self, value: Option<&[u8]>) {
        self.nullable_len(value.map(<[u8]>::len));
        self.raw(value.unwrap_or_default());
    }

    /// Bytes, in the message's own form. Panics beyond 2 GiB.
    pub fn bytes(&mut self, value: &[u8]) {
        self.nullable_bytes(Some(value));
    }

    /// The length or count of nullable bytes or a nullable array; the caller appends the content.
    /// Panics beyond 2 GiB.
    pub fn nullable_len(&mut self, len: Option<usize>) {
        if self.flexible {
            self.compact_len(len);
        } else {
            let len = len.map_or(-1, |len| i32::try_from(len).expect("a length over 2 GiB"));
            self.i32(len);
        }
    }

    /// The count of an array; the caller appends its elements.
    pub fn array_len(&mut self, count: usize) {
        self.nullable_len(Some(count));
    }

    /// An array, element by element.
    pub fn array<T>(&mut self, elements: &[T], mut element: impl FnMut(&mut Self, &T)) {
        self.array_len(elements.len());
        for item in elements {
            element(self, item);
        }
    }

    /// An array that may be null, element by element.
    pub fn nullable_array<T>(
        &mut self,
        elements: Option<&[T]>,
        element: impl FnMut(&mut Self, &T),
    ) {
        match elements {
            Some(elements) => self.array(elements, element),
            None => self.nullable_len(None),
        }
    }

    /// Ends a structure without tagged fields: a zero byte in a flexible version.
    #[inline]
    pub fn no_tags(&mut self) {
        if self.flexible {
            self.u8(0);
        }
    }

    /// Starts a structure's tagged fields: their number, then as many [`Writer::tagged_field`] by
    /// ascending tag. The count must be zero in a classic version.
    pub fn tag_count(&mut self, count: u32) {
        debug_assert!(
            self.flexible || count == 0,
            "tagged fields in a classic version"
        );
        if self.flexible {
            self.uvarint(count);
        }
    }

    /// One tagged field; `content` appends what it holds.
    pub fn tagged_field(&mut self, tag: u32, content: impl FnOnce(&mut Writer<'_>)) {
        self.uvarint(tag);
        // The variable-length size precedes the content: encode behind, then move the size.
        let start = self.out.len();
        content(&mut Writer {
            out: self.out,
            flexible: true,
        });
        let size = u32::try_from(self.out.len() - start).expect("a tagged field over 4 GiB");
        self.uvarint(size);
        self.out[start..].rotate_right(varint::uvarint_len(size));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::Reader;

    #[test]
    fn tagged_fields_carry_their_size() {
        let long = vec![0x5a; 300];
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out, true);
        writer.tag_count(2);
        writer.tagged_field(0, |field| field.i32(7));
        writer.tagged_field(5, |field| field.raw(&long));
        let mut seen = Vec::new();
        let mut reader = Reader::new(&out, true);
        reader
            .tags(|tag, content| {
                seen.push((tag, content.remaining()));
                content.take(content.remaining()).map(|_| true)
            })
            .unwrap();
        assert_eq!(seen, [(0, 4), (5, 300)]);
        assert_eq!(reader.expect_end(), Ok(()));
    }

    #[test]
    fn both_forms_read_back() {
        for flexible in [false, true] {
            let mut out = Vec::new();
            let mut writer = Writer::new(&mut out, flexible);
            writer.string("näme");
            writer.nullable_string(None);
            writer.nullable_bytes(Some(&[1, 2]));
            writer.nullable_bytes(None);
            writer.nullable_array(Some(&[1i32, 2][..]), |w, v| w.i32(*v));
            writer.nullable_array::<i32>(None, |w, v| w.i32(*v));
            writer.bool(true);
            writer.no_tags();
            let mut reader = Reader::new(&out, flexible);
            assert_eq!(reader.string(), Ok("näme"));
            assert_eq!(reader.nullable_string(), Ok(None));
            assert_eq!(reader.nullable_bytes(), Ok(Some(&[1, 2][..])));
            assert_eq!(reader.nullable_bytes(), Ok(None));
            assert_eq!(reader.nullable_array(4, |r| r.i32()), Ok(Some(vec![1, 2])));
            assert_eq!(reader.nullable_array(4, |r| r.i32()), Ok(None));
            assert_eq!(reader.bool(), Ok(true));
            reader.skip_tags().unwrap();
            assert_eq!(reader.expect_end(), Ok(()));
        }
    }
}
