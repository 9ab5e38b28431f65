//! Avro's encoding, plainly, and cells of columns.

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, TimeUnit};
use pyrklog_wire::builder::BatchBuilder;
use serde_json::Value;

use crate::columns::{Column, Columns};
use crate::error::Result;
use crate::progress::SplitProgress;
use crate::testing::{How, decode_columns};
use crate::typed::Decoding;

/// Values as a broker sends them, and what becomes of them.
pub(super) fn decoded(
    how: How,
    decoding: Decoding,
    values: &[Option<&[u8]>],
) -> Result<(Vec<RecordBatch>, SplitProgress)> {
    let mut builder = BatchBuilder::new();
    for value in values {
        builder.append(7, None, *value);
    }
    let columns = Columns::decoded(&[Column::Offset, Column::Value], decoding);
    decode_columns(how, columns, &builder.build(), &[])
}

/// The values of all rows.
pub(super) fn cells(batches: &[RecordBatch]) -> Vec<Value> {
    let rows = |batch: &RecordBatch| {
        let column = batch.column(1).clone();
        (0..batch.num_rows()).map(move |row| cell(&column, row))
    };
    batches.iter().flat_map(rows).collect()
}

/// A cell of a column: bytes as numbers, a decimal's digits as a text, times as they are stored.
pub(super) fn cell(array: &ArrayRef, row: usize) -> Value {
    if array.is_null(row) {
        return Value::Null;
    }
    match array.data_type() {
        DataType::Boolean => array.as_boolean().value(row).into(),
        DataType::Int32 => array.as_primitive::<Int32Type>().value(row).into(),
        DataType::Int64 => array.as_primitive::<Int64Type>().value(row).into(),
        DataType::UInt8 => array.as_primitive::<UInt8Type>().value(row).into(),
        DataType::UInt32 => array.as_primitive::<UInt32Type>().value(row).into(),
        DataType::UInt64 => array.as_primitive::<UInt64Type>().value(row).into(),
        DataType::Float32 => array.as_primitive::<Float32Type>().value(row).into(),
        DataType::Float64 => array.as_primitive::<Float64Type>().value(row).into(),
        DataType::Utf8 => array.as_string::<i32>().value(row).into(),
        DataType::Binary => array.as_binary::<i32>().value(row).to_vec().into(),
        DataType::Date32 => array.as_primitive::<Date32Type>().value(row).into(),
        DataType::Time32(_) => array
            .as_primitive::<Time32MillisecondType>()
            .value(row)
            .into(),
        DataType::Time64(_) => array
            .as_primitive::<Time64MicrosecondType>()
            .value(row)
            .into(),
        DataType::Timestamp(unit, _) => timestamp(array, row, *unit).into(),
        DataType::Decimal128(..) => {
            let value = array.as_primitive::<Decimal128Type>().value(row);
            value.to_string().into()
        }
        DataType::List(_) => {
            let items = array.as_list::<i32>().value(row);
            (0..items.len()).map(|at| cell(&items, at)).collect()
        }
        DataType::Struct(fields) => {
            let columns = fields.iter().zip(array.as_struct().columns());
            let cells = columns.map(|(field, column)| (field.name().clone(), cell(column, row)));
            Value::Object(cells.collect())
        }
        DataType::Map(..) => {
            let entries = array.as_map().value(row);
            let keys = entries.column(0).as_string::<i32>();
            let cells =
                (0..entries.len()).map(|at| (keys.value(at).into(), cell(entries.column(1), at)));
            Value::Object(cells.collect())
        }
        other => panic!("{other}"),
    }
}

fn timestamp(array: &ArrayRef, row: usize, unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => array.as_primitive::<TimestampSecondType>().value(row),
        TimeUnit::Millisecond => array.as_primitive::<TimestampMillisecondType>().value(row),
        TimeUnit::Microsecond => array.as_primitive::<TimestampMicrosecondType>().value(row),
        TimeUnit::Nanosecond => array.as_primitive::<TimestampNanosecondType>().value(row),
    }
}

/// An int or a long: zigzag, the lowest seven bits first.
pub(super) fn number(value: i64) -> Vec<u8> {
    let mut rest = match value < 0 {
        true => 2 * value.unsigned_abs().wrapping_sub(1) as u128 + 1,
        false => 2 * value as u128,
    };
    let mut out = Vec::new();
    loop {
        let seven = (rest % 128) as u8;
        rest /= 128;
        match rest {
            0 => {
                out.push(seven);
                return out;
            }
            _ => out.push(seven + 128),
        }
    }
}

/// Bytes behind their length.
pub(super) fn prefixed(bytes: &[u8]) -> Vec<u8> {
    [number(bytes.len() as i64), bytes.to_vec()].concat()
}
