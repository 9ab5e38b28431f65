//! Columns that grow by a value at a time, and whose last values can be taken back.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::types::*;
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, BinaryArray, BooleanArray, Decimal128Array, LargeStringArray,
    ListArray, MapArray, PrimitiveArray, StringArray, StructArray,
};
use arrow_buffer::{
    BooleanBufferBuilder, Buffer, NullBuffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer,
};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, TimeUnit};

/// Levels of a column: with that of the batch pyarrow imports no more.
pub(crate) const LEVELS_MAX: usize = 63;
/// Fields of a schema, of all levels.
pub(crate) const FIELDS_MAX: usize = 10_000;
/// So many fields are found without an index.
const INDEXED_FROM: usize = 17;
const DAY_MS: i64 = 86_400_000;

/// A column of values, or of fields or elements in them.
#[derive(Debug)]
pub(crate) struct Node {
    pub kind: Kind,
    pub nulls: NullBufferBuilder,
    pub is_nullable: bool,
    pub data_type: DataType,
    /// What a value takes besides texts and elements, null or not: bytes.
    pub width: usize,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Bool(BooleanBufferBuilder),
    /// Signed and unsigned numbers below 64 bits as well.
    Int {
        values: Vec<i64>,
        range: (i64, i64),
    },
    UInt64(Vec<u64>),
    Float {
        values: Vec<f64>,
        is_single: bool,
    },
    /// `None` counts days.
    Time {
        values: Vec<i64>,
        unit: Option<TimeUnit>,
    },
    Decimal {
        values: Vec<i128>,
        precision: u8,
        scale: i8,
    },
    Text(Text),
    List {
        offsets: Vec<i32>,
        item: Box<Node>,
        field: FieldRef,
    },
    Map {
        offsets: Vec<i32>,
        keys: Text,
        values: Box<Node>,
        entries: FieldRef,
    },
    Struct(Children),
}

/// Texts or bytes, one behind the other.
#[derive(Debug)]
pub(crate) struct Text {
    offsets: Vec<i32>,
    data: Vec<u8>,
}

/// The fields of a struct.
#[derive(Debug)]
pub(crate) struct Children {
    pub fields: Fields,
    pub nodes: Vec<Node>,
    index: Option<HashMap<String, usize>>,
}

impl Text {
    fn new() -> Text {
        Text {
            offsets: vec![0],
            data: Vec::new(),
        }
    }

    #[inline]
    pub fn push(&mut self, text: &str) {
        self.push_bytes(text.as_bytes());
    }

    /// For a column of bytes.
    #[inline]
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        self.data.extend_from_slice(bytes);
        // Batches end, and values are refused, long before 2 GiB.
        self.offsets.push(self.data.len() as i32);
    }

    fn truncate(&mut self, len: usize) {
        self.offsets.truncate(len + 1);
        self.data.truncate(self.offsets[len] as usize);
    }

    fn finish(&mut self) -> (OffsetBuffer<i32>, Buffer) {
        let data = take(&mut self.data);
        (finish_offsets(&mut self.offsets), Buffer::from_vec(data))
    }
}

impl Children {
    fn new(fields: &Fields, levels: usize, count: &mut usize) -> Result<Children, String> {
        let mut index = HashMap::with_capacity(fields.len());
        let mut nodes = Vec::with_capacity(fields.len());
        for (at, field) in fields.iter().enumerate() {
            if index.insert(field.name().clone(), at).is_some() {
                return Err(format!("the field {:?} is there twice", field.name()));
            }
            nodes.push(Node::new(field, levels, count)?);
        }
        Ok(Children {
            fields: fields.clone(),
            nodes,
            index: (fields.len() >= INDEXED_FROM).then_some(index),
        })
    }

    /// Where a field is. Producers write fields in the same order again: `guess` is looked at first.
    #[inline]
    pub fn find(&self, name: &str, guess: usize) -> Option<usize> {
        if self.fields.get(guess).is_some_and(|one| one.name() == name) {
            return Some(guess);
        }
        match &self.index {
            Some(index) => index.get(name).copied(),
            None => self.fields.iter().position(|one| one.name() == name),
        }
    }
}

impl Node {
    /// A column for a field; `levels` may lie below, and `count` fields of all levels were seen.
    ///
    /// # Errors
    /// A sentence: a type that no format has, bounds.
    pub fn new(field: &Field, levels: usize, count: &mut usize) -> Result<Node, String> {
        *count += 1;
        if *count > FIELDS_MAX {
            return Err(format!("a schema has at most {FIELDS_MAX} fields"));
        }
        let below = levels
            .checked_sub(1)
            .ok_or_else(|| format!("a schema has at most {LEVELS_MAX} levels"))?;
        let data_type = field.data_type();
        let (kind, width) = match kind_of(data_type) {
            Some(found) => found,
            None => nested(data_type, below, count).map_err(|reason| match reason {
                Some(reason) => reason,
                None => format!("the field {:?} cannot be {data_type}", field.name()),
            })?,
        };
        Ok(Node {
            kind,
            nulls: NullBufferBuilder::new(0),
            is_nullable: field.is_nullable(),
            data_type: data_type.clone(),
            width: width + 1,
        })
    }

    pub fn len(&self) -> usize {
        self.nulls.len()
    }

    /// Appends a null, with nulls below it.
    pub fn push_null(&mut self) {
        match &mut self.kind {
            Kind::Bool(values) => values.append(false),
            Kind::Int { values, .. } | Kind::Time { values, .. } => values.push(0),
            Kind::UInt64(values) => values.push(0),
            Kind::Float { values, .. } => values.push(0.0),
            Kind::Decimal { values, .. } => values.push(0),
            Kind::Text(text) => text.push(""),
            Kind::List { offsets, item, .. } => offsets.push(item.len() as i32),
            Kind::Map {
                offsets, values, ..
            } => offsets.push(values.len() as i32),
            Kind::Struct(children) => children.nodes.iter_mut().for_each(Node::push_null),
        }
        self.nulls.append_null();
    }

    /// Takes back all values from `len` on, and what was begun of another one.
    pub fn truncate(&mut self, len: usize) {
        self.nulls.truncate(len);
        match &mut self.kind {
            Kind::Bool(values) => values.truncate(len),
            Kind::Int { values, .. } | Kind::Time { values, .. } => values.truncate(len),
            Kind::UInt64(values) => values.truncate(len),
            Kind::Float { values, .. } => values.truncate(len),
            Kind::Decimal { values, .. } => values.truncate(len),
            Kind::Text(text) => text.truncate(len),
            Kind::List { offsets, item, .. } => {
                offsets.truncate(len + 1);
                item.truncate(offsets[len] as usize);
            }
            Kind::Map {
                offsets,
                keys,
                values,
                ..
            } => {
                offsets.truncate(len + 1);
                keys.truncate(offsets[len] as usize);
                values.truncate(offsets[len] as usize);
            }
            Kind::Struct(children) => {
                for node in &mut children.nodes {
                    node.truncate(len);
                }
            }
        }
    }

    /// The values as an array, and an empty column.
    ///
    /// # Errors
    /// None that is expected: Arrow checks what was built.
    pub fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let len = self.len();
        let nulls = self.nulls.finish();
        Ok(match &mut self.kind {
            Kind::Bool(values) => Arc::new(BooleanArray::new(values.finish(), nulls)),
            Kind::Int { values, .. } | Kind::Time { values, .. } => {
                integers(&self.data_type, values, nulls)?
            }
            Kind::UInt64(values) => Arc::new(PrimitiveArray::<UInt64Type>::try_new(
                take(values).into(),
                nulls,
            )?),
            Kind::Float { values, is_single } => match is_single {
                true => narrow::<_, Float32Type>(values, nulls, |value| value as f32)?,
                false => {
                    let values = take(values).into();
                    Arc::new(PrimitiveArray::<Float64Type>::try_new(values, nulls)?)
                }
            },
            Kind::Decimal {
                values,
                precision,
                scale,
            } => {
                let array = Decimal128Array::try_new(take(values).into(), nulls)?;
                Arc::new(array.with_precision_and_scale(*precision, *scale)?)
            }
            Kind::Text(text) => texts(&self.data_type, text, nulls)?,
            Kind::List {
                offsets,
                item,
                field,
            } => {
                let (field, offsets) = (Arc::clone(field), finish_offsets(offsets));
                Arc::new(ListArray::try_new(field, offsets, item.finish()?, nulls)?)
            }
            Kind::Map {
                offsets,
                keys,
                values,
                entries,
            } => {
                let DataType::Struct(fields) = entries.data_type() else {
                    unreachable!("checked when the column was made");
                };
                let (of_keys, data) = keys.finish();
                let keys = StringArray::try_new(of_keys, data, None)?;
                let columns: Vec<ArrayRef> = vec![Arc::new(keys), values.finish()?];
                let all = StructArray::try_new(fields.clone(), columns, None)?;
                let offsets = finish_offsets(offsets);
                Arc::new(MapArray::try_new(
                    Arc::clone(entries),
                    offsets,
                    all,
                    nulls,
                    false,
                )?)
            }
            Kind::Struct(children) => {
                let columns: Result<Vec<_>, _> =
                    children.nodes.iter_mut().map(Node::finish).collect();
                let fields = children.fields.clone();
                Arc::new(StructArray::try_new_with_length(
                    fields, columns?, nulls, len,
                )?)
            }
        })
    }
}

/// That a schema has no such field, and which it has.
pub(crate) fn no_field<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.take(50).collect();
    format!(
        "the schema has no field {name:?}; it has {}",
        known.join(", ")
    )
}

/// A column of a type without others in it, and its width.
fn kind_of(data_type: &DataType) -> Option<(Kind, usize)> {
    let int = |min, max, width| {
        let kind = Kind::Int {
            values: Vec::new(),
            range: (min, max),
        };
        Some((kind, width))
    };
    let time = |unit| {
        let values = Vec::new();
        Some((Kind::Time { values, unit }, 8))
    };
    let float = |is_single| {
        let values = Vec::new();
        Some((Kind::Float { values, is_single }, 8))
    };
    match data_type {
        DataType::Boolean => Some((Kind::Bool(BooleanBufferBuilder::new(0)), 1)),
        // Numbers are gathered as 64 bits, and made narrow at last.
        DataType::Int8 => int(i8::MIN.into(), i8::MAX.into(), 8),
        DataType::Int16 => int(i16::MIN.into(), i16::MAX.into(), 8),
        DataType::Int32 => int(i32::MIN.into(), i32::MAX.into(), 8),
        DataType::Int64 => int(i64::MIN, i64::MAX, 8),
        DataType::UInt8 => int(0, u8::MAX.into(), 8),
        DataType::UInt16 => int(0, u16::MAX.into(), 8),
        DataType::UInt32 => int(0, u32::MAX.into(), 8),
        DataType::UInt64 => Some((Kind::UInt64(Vec::new()), 8)),
        DataType::Float32 => float(true),
        DataType::Float64 => float(false),
        DataType::Date32 => time(None),
        DataType::Time32(TimeUnit::Millisecond) => int(0, DAY_MS - 1, 8),
        DataType::Time64(TimeUnit::Microsecond) => int(0, 1000 * DAY_MS - 1, 8),
        DataType::Timestamp(unit, _) => time(Some(*unit)),
        DataType::Decimal128(precision, scale) => {
            let kind = Kind::Decimal {
                values: Vec::new(),
                precision: *precision,
                scale: *scale,
            };
            Some((kind, 16))
        }
        DataType::Utf8 | DataType::Binary => Some((Kind::Text(Text::new()), 4)),
        // Made wide at last.
        DataType::LargeUtf8 => Some((Kind::Text(Text::new()), 12)),
        _ => None,
    }
}

/// A column of a type with others in it, and its width.
///
/// # Errors
/// The reason; `None` for a type that is none of these.
fn nested(
    data_type: &DataType,
    levels: usize,
    count: &mut usize,
) -> Result<(Kind, usize), Option<String>> {
    Ok(match data_type {
        DataType::List(field) => {
            let item = Box::new(Node::new(field, levels, count)?);
            let kind = Kind::List {
                offsets: vec![0],
                item,
                field: Arc::clone(field),
            };
            (kind, 4)
        }
        DataType::Map(entries, _) => {
            let DataType::Struct(fields) = entries.data_type() else {
                return Err(None);
            };
            let [key, value] = &fields[..] else {
                return Err(None);
            };
            if *key.data_type() != DataType::Utf8 || entries.is_nullable() {
                return Err(None);
            }
            let kind = Kind::Map {
                offsets: vec![0],
                keys: Text::new(),
                values: Box::new(Node::new(value, levels, count)?),
                entries: Arc::clone(entries),
            };
            (kind, 4)
        }
        DataType::Struct(fields) => {
            let children = Children::new(fields, levels, count)?;
            let width = children.nodes.iter().map(|node| node.width).sum();
            (Kind::Struct(children), width)
        }
        _ => return Err(None),
    })
}

fn integers(
    data_type: &DataType,
    values: &mut Vec<i64>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    match data_type {
        DataType::Int8 => return narrow::<_, Int8Type>(values, nulls, |value| value as i8),
        DataType::Int16 => return narrow::<_, Int16Type>(values, nulls, |value| value as i16),
        DataType::Int32 => return narrow::<_, Int32Type>(values, nulls, |value| value as i32),
        DataType::UInt8 => return narrow::<_, UInt8Type>(values, nulls, |value| value as u8),
        DataType::UInt16 => return narrow::<_, UInt16Type>(values, nulls, |value| value as u16),
        DataType::UInt32 => return narrow::<_, UInt32Type>(values, nulls, |value| value as u32),
        DataType::Date32 => return narrow::<_, Date32Type>(values, nulls, |value| value as i32),
        DataType::Time32(_) => {
            return narrow::<_, Time32MillisecondType>(values, nulls, |value| value as i32);
        }
        _ => {}
    }
    let values = ScalarBuffer::from(take(values));
    Ok(match data_type {
        DataType::Timestamp(TimeUnit::Second, zone) => {
            let array = PrimitiveArray::<TimestampSecondType>::try_new(values, nulls)?;
            Arc::new(array.with_timezone_opt(zone.clone()))
        }
        DataType::Timestamp(TimeUnit::Millisecond, zone) => {
            let array = PrimitiveArray::<TimestampMillisecondType>::try_new(values, nulls)?;
            Arc::new(array.with_timezone_opt(zone.clone()))
        }
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let array = PrimitiveArray::<TimestampMicrosecondType>::try_new(values, nulls)?;
            Arc::new(array.with_timezone_opt(zone.clone()))
        }
        DataType::Timestamp(TimeUnit::Nanosecond, zone) => {
            let array = PrimitiveArray::<TimestampNanosecondType>::try_new(values, nulls)?;
            Arc::new(array.with_timezone_opt(zone.clone()))
        }
        DataType::Time64(_) => Arc::new(PrimitiveArray::<Time64MicrosecondType>::try_new(
            values, nulls,
        )?),
        _ => Arc::new(PrimitiveArray::<Int64Type>::try_new(values, nulls)?),
    })
}

/// Each value is in the narrow type's range.
fn narrow<From: Copy, T: ArrowPrimitiveType>(
    values: &mut Vec<From>,
    nulls: Option<NullBuffer>,
    convert: impl Fn(From) -> T::Native,
) -> Result<ArrayRef, ArrowError> {
    let narrow: Vec<T::Native> = take(values).into_iter().map(convert).collect();
    Ok(Arc::new(PrimitiveArray::<T>::try_new(
        narrow.into(),
        nulls,
    )?))
}

fn texts(
    data_type: &DataType,
    text: &mut Text,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    let (offsets, data) = text.finish();
    Ok(match data_type {
        DataType::LargeUtf8 => {
            let wide: Vec<i64> = offsets.iter().map(|offset| i64::from(*offset)).collect();
            let offsets = OffsetBuffer::new(wide.into());
            Arc::new(LargeStringArray::try_new(offsets, data, nulls)?)
        }
        DataType::Binary => Arc::new(BinaryArray::try_new(offsets, data, nulls)?),
        _ => Arc::new(StringArray::try_new(offsets, data, nulls)?),
    })
}

fn finish_offsets(offsets: &mut Vec<i32>) -> OffsetBuffer<i32> {
    let all = take(offsets);
    offsets.push(0);
    OffsetBuffer::new(ScalarBuffer::from(all))
}

/// The vector; the next one begins a little larger.
fn take<T>(vector: &mut Vec<T>) -> Vec<T> {
    let empty = Vec::with_capacity(vector.len() + vector.len() / 16);
    std::mem::replace(vector, empty)
}
