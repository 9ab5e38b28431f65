//! The decoder beside a plain one, and beside bytes that lie.

mod avro;
mod avro_bounds;
mod avro_model;
mod avro_plain;
mod bad_records;
mod decode;
mod hostile;
mod old_formats;
mod protobuf;
mod typed;
mod typed_model;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, RecordBatch};
use pyrklog_compression::compress;
use pyrklog_wire::batch::Compression;
use pyrklog_wire::builder::BatchBuilder;

use crate::columns::Column;
use crate::testing::{How, decode};

/// (key, value) of each header.
type Headers = Vec<(String, Option<Vec<u8>>)>;

/// A row as a caller reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Read {
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    offset: i64,
    /// Microseconds.
    timestamp: Option<i64>,
    timestamp_type: i32,
    headers: Option<Headers>,
}

fn all_columns() -> Vec<Column> {
    let names = Column::names();
    names
        .iter()
        .map(|name| Column::from_name(name).unwrap())
        .collect()
}

/// The rows of batches with all columns.
fn rows_of(batches: &[RecordBatch]) -> Vec<Read> {
    let mut rows = Vec::new();
    for batch in batches {
        let column = |name: &str| batch.column_by_name(name).unwrap();
        let (keys, values) = (column("key"), column("value"));
        let (keys, values) = (keys.as_binary::<i32>(), values.as_binary::<i32>());
        let offsets = column("offset").as_primitive::<Int64Type>();
        let times = column("timestamp").as_primitive::<TimestampMicrosecondType>();
        let types = column("timestampType").as_primitive::<Int32Type>();
        let headers = column("headers").as_list::<i32>();
        let partitions = column("partition").as_primitive::<Int32Type>();
        let topics = column("topic").as_string::<i32>();
        for row in 0..batch.num_rows() {
            assert_eq!((topics.value(row), partitions.value(row)), ("topic", 3));
            let bytes = |array: &arrow_array::BinaryArray| {
                array.is_valid(row).then(|| array.value(row).to_vec())
            };
            rows.push(Read {
                key: bytes(keys),
                value: bytes(values),
                offset: offsets.value(row),
                timestamp: times.is_valid(row).then(|| times.value(row)),
                timestamp_type: types.value(row),
                headers: headers
                    .is_valid(row)
                    .then(|| headers_of(&headers.value(row))),
            });
        }
    }
    rows
}

fn headers_of(array: &arrow_array::ArrayRef) -> Headers {
    let array = array.as_struct();
    let keys = array.column(0).as_string::<i32>();
    let values = array.column(1).as_binary::<i32>();
    (0..array.len())
        .map(|at| {
            let value = values.is_valid(at).then(|| values.value(at).to_vec());
            (keys.value(at).to_owned(), value)
        })
        .collect()
}

fn compressed(builder: BatchBuilder, codec: Compression) -> Vec<u8> {
    builder.build_compressed(codec, |records| {
        let mut out = Vec::new();
        compress(codec, records, &mut out).unwrap();
        out
    })
}
