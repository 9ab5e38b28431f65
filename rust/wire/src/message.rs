//! Messages that are declared once: a table of their fields gives the type, its decoder and its
//! encoder.
//!
//! Messages that must be decoded without allocation, or whose bytes the caller patches, are written
//! by hand: the requests of [`crate::produce`], [`crate::fetch`] and [`crate::offset_commit`].

use std::borrow::Cow;
use std::marker::PhantomData;

use crate::api;
use crate::error::{DecodeError, Result};
use crate::error_code::ErrorCode;
use crate::reader::{Reader, Uuid};
use crate::writer::Writer;

/// How a value is read and written, in any version of its message.
pub trait Field<'a> {
    /// The value: the type itself, unless a table names another codec for it.
    type Value;

    /// Reads it.
    fn read(reader: &mut Reader<'a>, version: i16) -> Result<Self::Value>;

    /// Appends it.
    fn write(value: &Self::Value, writer: &mut Writer<'_>, version: i16);

    /// Its least bytes: an array has no more elements than fit.
    fn min_bytes(version: i16, flexible: bool) -> usize;
}

/// Values that have a method of [`Reader`] and [`Writer`], and a fixed size.
macro_rules! fixed {
    ($($type:ty: $method:ident;)*) => {
        $(impl Field<'_> for $type {
            type Value = Self;

            #[inline]
            fn read(reader: &mut Reader<'_>, _version: i16) -> Result<Self> {
                reader.$method()
            }

            #[inline]
            fn write(value: &Self, writer: &mut Writer<'_>, _version: i16) {
                writer.$method(*value);
            }

            fn min_bytes(_version: i16, _flexible: bool) -> usize {
                size_of::<Self>()
            }
        })*
    };
}

fixed! {
    bool: bool;
    i8: i8;
    i16: i16;
    i32: i32;
    i64: i64;
    Uuid: uuid;
    ErrorCode: error_code;
}

/// Values behind a length, which takes at least one byte, or so many in a classic version.
macro_rules! sized {
    ($([$($generics:tt)*] $type:ty, $classic:ty,
        |$reader:ident, $version:ident| $read:expr,
        |$value:ident, $writer:ident| $write:expr;
    )*) => {
        $(impl<'a, $($generics)*> Field<'a> for $type {
            type Value = Self;

            fn read($reader: &mut Reader<'a>, $version: i16) -> Result<Self> {
                $read
            }

            fn write($value: &Self, $writer: &mut Writer<'_>, $version: i16) {
                $write;
            }

            fn min_bytes(_version: i16, flexible: bool) -> usize {
                if flexible { 1 } else { size_of::<$classic>() }
            }
        })*
    };
}

sized! {
    [] &'a str, i16,
        |reader, _version| reader.string(),
        |value, writer| writer.string(value);
    [] Option<&'a str>, i16,
        |reader, _version| reader.nullable_string(),
        |value, writer| writer.nullable_string(*value);
    [] Option<Cow<'a, str>>, i16,
        |reader, _version| Ok(reader.nullable_string()?.map(Cow::Borrowed)),
        |value, writer| writer.nullable_string(value.as_deref());
    [] Option<&'a [u8]>, i32,
        |reader, _version| reader.nullable_bytes(),
        |value, writer| writer.nullable_bytes(*value);
    [T: Field<'a, Value = T>] Vec<T>, i32,
        |reader, version| read_array(reader, version)?.ok_or(NOT_NULL),
        |value, writer| write_array(Some(value), writer, version);
    [T: Field<'a, Value = T>] Option<Vec<T>>, i32,
        |reader, version| read_array(reader, version),
        |value, writer| write_array(value.as_deref(), writer, version);
    [T: Field<'a, Value = T> + Clone] Cow<'a, [T]>, i32,
        |reader, version| read_array(reader, version)?.map(Cow::Owned).ok_or(NOT_NULL),
        |value, writer| write_array(Some(value), writer, version);
    [T: Field<'a, Value = T> + Clone] Option<Cow<'a, [T]>>, i32,
        |reader, version| Ok(read_array(reader, version)?.map(Cow::Owned)),
        |value, writer| write_array(value.as_deref(), writer, version);
}

const NOT_NULL: DecodeError = DecodeError::UnexpectedNull(-1);

fn read_array<'a, T: Field<'a, Value = T>>(
    reader: &mut Reader<'a>,
    version: i16,
) -> Result<Option<Vec<T>>> {
    let min_bytes = T::min_bytes(version, reader.is_flexible());
    reader.nullable_array(min_bytes, |reader| T::read(reader, version))
}

fn write_array<'a, T: Field<'a, Value = T>>(
    array: Option<&[T]>,
    writer: &mut Writer<'_>,
    version: i16,
) {
    writer.nullable_array(array, |writer, element| T::write(element, writer, version));
}

/// A name that may be null from a version on; before, null is written as empty.
pub enum NullableSince<const SINCE: i16> {}

impl<'a, const SINCE: i16> Field<'a> for NullableSince<SINCE> {
    type Value = Option<&'a str>;

    fn read(reader: &mut Reader<'a>, version: i16) -> Result<Self::Value> {
        if version >= SINCE {
            reader.nullable_string()
        } else {
            reader.string().map(Some)
        }
    }

    fn write(value: &Self::Value, writer: &mut Writer<'_>, version: i16) {
        if version >= SINCE {
            writer.nullable_string(*value);
        } else {
            writer.string(value.unwrap_or_default());
        }
    }

    fn min_bytes(version: i16, flexible: bool) -> usize {
        <&str>::min_bytes(version, flexible)
    }
}

/// Tagged field 0 at the end of a type, from a version on; not written if it has its default value.
pub struct TagSince<T, const SINCE: i16>(PhantomData<T>);

impl<'a, T: Field<'a>, const SINCE: i16> Field<'a> for TagSince<T, SINCE>
where
    T::Value: Default + PartialEq,
{
    type Value = T::Value;

    #[inline]
    fn read(reader: &mut Reader<'a>, version: i16) -> Result<T::Value> {
        let mut value = T::Value::default();
        reader.tags(|tag, field| {
            let is_known = tag == 0 && version >= SINCE;
            if is_known {
                value = T::read(field, version)?;
            }
            Ok(is_known)
        })?;
        Ok(value)
    }

    #[inline]
    fn write(value: &T::Value, writer: &mut Writer<'_>, version: i16) {
        if version < SINCE || *value == T::Value::default() {
            return writer.no_tags();
        }
        writer.tag_count(1);
        writer.tagged_field(0, |field| T::write(value, field, version));
    }

    fn min_bytes(_version: i16, flexible: bool) -> usize {
        usize::from(flexible)
    }
}

/// Declares a type by its fields, in their order on the wire. Behind a field's type, `[in 4.., else
/// -1]` says which versions have it, and its value in the others; `[by Name]` names its codec
/// ([`Field`]). A `pub struct` ends in tagged fields, which are skipped and not written; a
/// `pub part` is what stands within another type, without any.
macro_rules! fields {
    (
        $(#[$attribute:meta])*
        pub $kind:ident $name:ident $(<$life:lifetime>)? {$(
            $(#[$field_attribute:meta])*
            pub $field:ident: $type:ty $([$($rule:tt)*])?,
        )*}
    ) => {
        $(#[$attribute])*
        pub struct $name $(<$life>)? {$(
            $(#[$field_attribute])*
            pub $field: $type,
        )*}

        impl<'a> Field<'a> for $crate::message::of!($name $(<$life>)?) {
            type Value = Self;

            #[inline]
            fn read(reader: &mut Reader<'a>, version: i16) -> Result<Self> {
                let value = $name {$(
                    $field: $crate::message::when!(
                        version [$($($rule)*)?]
                        <$crate::message::codec!($type $(, $($rule)*)?)>::read(reader, version)?
                    ),
                )*};
                if $crate::message::has_tags!($kind) {
                    reader.skip_tags()?;
                }
                Ok(value)
            }

            #[inline]
            fn write(value: &Self, writer: &mut Writer<'_>, version: i16) {
                $($crate::message::when!(
                    version [$($($rule)*)?]
                    <$crate::message::codec!($type $(, $($rule)*)?)>::write(
                        &value.$field, writer, version
                    ),
                    ()
                );)*
                if $crate::message::has_tags!($kind) {
                    writer.no_tags();
                }
            }

            fn min_bytes(version: i16, flexible: bool) -> usize {
                usize::from(flexible && $crate::message::has_tags!($kind)) $(+ $crate::message::when!(
                    version [$($($rule)*)?]
                    <$crate::message::codec!($type $(, $($rule)*)?)>::min_bytes(version, flexible),
                    0
                ))*
            }
        }
    };
}

/// What is done with a field in the versions that have it, and else: its value is the rule's unless
/// another is given.
macro_rules! when {
    ($version:ident [in $versions:expr, else $default:expr] $there:expr) => {
        if ($versions).contains(&$version) {
            $there
        } else {
            $default
        }
    };
    ($version:ident [in $versions:expr, else $default:expr] $there:expr, $else:expr) => {
        if ($versions).contains(&$version) {
            $there
        } else {
            $else
        }
    };
    ($version:ident [$($rule:tt)*] $there:expr $(, $else:expr)?) => {
        $there
    };
}

/// The codec of a field: the one that its rule names, or its type.
macro_rules! codec {
    ($type:ty, by $codec:ty) => {
        $codec
    };
    ($type:ty $(, in $($rule:tt)*)?) => {
        $type
    };
}

/// Whether a declaration ends in tagged fields.
macro_rules! has_tags {
    (struct) => {
        true
    };
    (part) => {
        false
    };
}

/// The type of a declaration, with the lifetime of the bytes that are read.
macro_rules! of {
    ($name:ident) => { $name };
    ($name:ident <$life:lifetime>) => { $name<'a> };
}

/// Makes a type the body of an API's requests or responses: `request PRODUCE from 3` with its lowest
/// version. Bytes behind a request are ignored, as in Kafka; behind a response they are an error.
macro_rules! body {
    (response $key:ident from $min:tt: $name:ident $(<$life:lifetime>)?) => {
        $crate::message::body!(@ response $key $min $name $(<$life>)?);

        impl<'a> $crate::message::of!($name $(<$life>)?) {
            /// Decodes a body with at most `elements_max` elements in all its arrays together. An
            /// element takes less on the wire than in memory: the reader of an untrusted broker's
            /// answer knows how many it asked for.
            ///
            /// # Errors
            /// As `decode`, `TooManyElements`.
            pub fn decode_bounded(
                body: &'a [u8],
                version: i16,
                elements_max: usize,
            ) -> Result<Self> {
                let api = ($crate::api::key::$key, $min);
                $crate::message::response_bounded(body, api, version, elements_max)
            }
        }
    };
    (request $key:ident from $min:tt: $name:ident $(<$life:lifetime>)?) => {
        $crate::message::body!(@ request $key $min $name $(<$life>)?);
    };
    (@ $kind:ident $key:ident $min:tt $name:ident $(<$life:lifetime>)?) => {
        impl<'a> $crate::message::of!($name $(<$life>)?) {
            /// Decodes a body.
            pub fn decode(body: &'a [u8], version: i16) -> Result<Self> {
                $crate::message::$kind(body, ($crate::api::key::$key, $min), version)
            }

            /// Appends the body.
            pub fn encode(&self, out: &mut Vec<u8>, version: i16) {
                let flexible = $crate::api::is_flexible($crate::api::key::$key, version);
                Self::write(self, &mut Writer::new(out, flexible), version);
            }
        }
    };
}

/// Decodes the body of a request; bytes behind it are ignored.
pub(crate) fn request<'a, T: Field<'a, Value = T>>(
    body: &'a [u8],
    (key, min_version): (i16, i16),
    version: i16,
) -> Result<T> {
    api::check_version(key, min_version, version)?;
    let mut reader = Reader::of_request(body, 0, api::is_flexible(key, version));
    T::read(&mut reader, version)
}

/// Decodes the body of a response.
pub(crate) fn response<'a, T: Field<'a, Value = T>>(
    body: &'a [u8],
    api: (i16, i16),
    version: i16,
) -> Result<T> {
    response_bounded(body, api, version, usize::MAX)
}

/// The same with at most so many array elements.
pub(crate) fn response_bounded<'a, T: Field<'a, Value = T>>(
    body: &'a [u8],
    (key, min_version): (i16, i16),
    version: i16,
    elements_max: usize,
) -> Result<T> {
    api::check_version(key, min_version, version)?;
    let reader = Reader::new(body, api::is_flexible(key, version));
    let mut reader = reader.with_elements_max(elements_max);
    let response = T::read(&mut reader, version)?;
    reader.expect_end()?;
    Ok(response)
}

pub(crate) use {body, codec, fields, has_tags, of, when};
