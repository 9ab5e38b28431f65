//! The rows of an Arrow record batch, by the columns of Spark's Kafka sink.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Int32Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType,
};
use arrow_array::{
    Array, BinaryArray, Int32Array, Int64Array, LargeBinaryArray, LargeStringArray, ListArray,
    RecordBatch, StringArray, StructArray,
};
use arrow_schema::{DataType, TimeUnit};
use pyrklog_wire::builder::HeaderToWrite;

use crate::error::{ErrorKind, ProduceError, Result};

/// Text or binary data.
#[derive(Clone, Copy, Debug)]
enum Bytes<'a> {
    Binary(&'a BinaryArray),
    LargeBinary(&'a LargeBinaryArray),
    Text(&'a StringArray),
    LargeText(&'a LargeStringArray),
}

impl<'a> Bytes<'a> {
    fn of(array: &'a dyn Array, name: &str) -> Result<Self> {
        match array.data_type() {
            DataType::Binary => Ok(Self::Binary(array.as_binary())),
            DataType::LargeBinary => Ok(Self::LargeBinary(array.as_binary())),
            DataType::Utf8 => Ok(Self::Text(array.as_string())),
            DataType::LargeUtf8 => Ok(Self::LargeText(array.as_string())),
            other => Err(wrong_type(name, "a string or binary", other)),
        }
    }

    #[inline]
    fn get(self, row: usize) -> Option<&'a [u8]> {
        match self {
            Self::Binary(array) => array.is_valid(row).then(|| array.value(row)),
            Self::LargeBinary(array) => array.is_valid(row).then(|| array.value(row)),
            Self::Text(array) => array.is_valid(row).then(|| array.value(row).as_bytes()),
            Self::LargeText(array) => array.is_valid(row).then(|| array.value(row).as_bytes()),
        }
    }
}

/// Times with what they are divided or multiplied by to be milliseconds.
#[derive(Clone, Copy, Debug)]
struct Times<'a> {
    values: &'a [i64],
    array: &'a dyn Array,
    per_ms: i64,
}

impl<'a> Times<'a> {
    fn of(array: &'a dyn Array) -> Result<Self> {
        let (values, per_ms) = match array.data_type() {
            DataType::Timestamp(TimeUnit::Millisecond, _) => {
                (array.as_primitive::<TimestampMillisecondType>().values(), 1)
            }
            DataType::Timestamp(TimeUnit::Microsecond, _) => (
                array.as_primitive::<TimestampMicrosecondType>().values(),
                1000,
            ),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => (
                array.as_primitive::<TimestampNanosecondType>().values(),
                1_000_000,
            ),
            other => return Err(wrong_type("timestamp", "a timestamp", other)),
        };
        Ok(Times {
            values,
            array,
            per_ms,
        })
    }

    fn get(self, row: usize) -> Option<i64> {
        let ms = || self.values[row].div_euclid(self.per_ms);
        self.array.is_valid(row).then(ms)
    }
}

#[derive(Clone, Copy, Debug)]
struct Headers<'a> {
    lists: &'a ListArray,
    keys: Bytes<'a>,
    values: Bytes<'a>,
}

impl<'a> Headers<'a> {
    fn of(array: &'a dyn Array) -> Result<Self> {
        let wrong = || wrong_type("headers", "array<struct<key, value>>", array.data_type());
        let lists = array.as_list_opt::<i32>().ok_or_else(wrong)?;
        let entries: &StructArray = lists.values().as_struct_opt().ok_or_else(wrong)?;
        if entries.num_columns() != 2 {
            return Err(wrong());
        }
        Ok(Headers {
            lists,
            keys: Bytes::of(entries.column(0), "headers.key")?,
            values: Bytes::of(entries.column(1), "headers.value")?,
        })
    }

    fn get(self, row: usize, out: &mut Vec<HeaderToWrite<'a>>) -> Result<()> {
        if self.lists.is_null(row) {
            return Ok(());
        }
        let offsets = self.lists.value_offsets();
        for at in offsets[row] as usize..offsets[row + 1] as usize {
            let key = self
                .keys
                .get(at)
                .ok_or_else(|| ProduceError::new(ErrorKind::Argument, "a header's key is null"))?;
            out.push((key, self.values.get(at)));
        }
        Ok(())
    }
}

/// The columns of a batch.
#[derive(Debug)]
pub(crate) struct Rows<'a> {
    pub count: usize,
    key: Option<Bytes<'a>>,
    value: Bytes<'a>,
    topic: Option<Bytes<'a>>,
    partition: Option<&'a Int32Array>,
    headers: Option<Headers<'a>>,
    timestamp: Option<Times<'a>>,
    offset: Option<&'a Int64Array>,
}

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub topic: Option<&'a str>,
    pub partition: Option<i32>,
    /// Milliseconds.
    pub timestamp: Option<i64>,
    pub offset: Option<i64>,
}

impl<'a> Rows<'a> {
    /// `names` are those of the columns, in their order.
    pub fn of(batch: &'a RecordBatch, names: &[String]) -> Result<Self> {
        if batch.num_columns() != names.len() {
            let text = format!(
                "{} columns came, {} are named",
                batch.num_columns(),
                names.len()
            );
            return Err(ProduceError::new(ErrorKind::Argument, text));
        }
        let find = |name: &str| {
            let at = names.iter().position(|one| one == name)?;
            Some(&**batch.column(at))
        };
        let bytes = |name| find(name).map(|array| Bytes::of(array, name)).transpose();
        let partition = find("partition").map(|array| {
            let wrong = || wrong_type("partition", "an int", array.data_type());
            array.as_primitive_opt::<Int32Type>().ok_or_else(wrong)
        });
        let offset = find("offset").map(|array| {
            let wrong = || wrong_type("offset", "a bigint", array.data_type());
            array.as_primitive_opt::<Int64Type>().ok_or_else(wrong)
        });
        Ok(Rows {
            count: batch.num_rows(),
            key: bytes("key")?,
            value: bytes("value")?.ok_or_else(|| {
                ProduceError::new(ErrorKind::Argument, "there is no column value")
            })?,
            topic: bytes("topic")?,
            partition: partition.transpose()?,
            headers: find("headers").map(Headers::of).transpose()?,
            timestamp: find("timestamp").map(Times::of).transpose()?,
            offset: offset.transpose()?,
        })
    }

    /// A row; its headers go to `headers`.
    #[inline]
    pub fn get(&self, row: usize, headers: &mut Vec<HeaderToWrite<'a>>) -> Result<Row<'a>> {
        headers.clear();
        if let Some(column) = self.headers {
            column.get(row, headers)?;
        }
        let topic = match self.topic.and_then(|column| column.get(row)) {
            None => None,
            Some(name) => Some(std::str::from_utf8(name).map_err(|_| {
                ProduceError::new(ErrorKind::Argument, "a topic's name is not UTF-8")
            })?),
        };
        let partition = self.partition.filter(|column| column.is_valid(row));
        Ok(Row {
            key: self.key.and_then(|column| column.get(row)),
            value: self.value.get(row),
            topic,
            partition: partition.map(|column| column.value(row)),
            timestamp: self.timestamp.and_then(|column| column.get(row)),
            offset: self
                .offset
                .filter(|column| column.is_valid(row))
                .map(|column| column.value(row)),
        })
    }
}

fn wrong_type(name: &str, wanted: &str, found: &DataType) -> ProduceError {
    let text = format!("column {name} is {found}, and not {wanted}: cast it in the query");
    ProduceError::new(ErrorKind::Argument, text)
}
