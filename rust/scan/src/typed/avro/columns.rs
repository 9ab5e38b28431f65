//! Which columns a reader's schema has.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, TimeUnit};

use crate::typed::avro::schema::{Kind, Logical, Record, RecordField, Schema};

/// Digits of the largest decimal that a column holds.
const DECIMAL_DIGITS_MAX: u32 = 38;
const UTC: &str = "UTC";

/// The columns of a record's fields.
///
/// # Errors
/// A sentence, which names the field: a type that no column has.
pub(crate) fn fields(record: &Record) -> Result<Fields, String> {
    let one = |field: &RecordField| column(&field.name, &field.schema);
    record.fields.iter().map(one).collect()
}

fn column(name: &str, schema: &Schema) -> Result<Field, String> {
    let Some((inner, is_nullable)) = schema.optional() else {
        return Err(format!(
            "the field {name:?} cannot be a union of several types"
        ));
    };
    Ok(Field::new(name, data_type(name, inner)?, is_nullable))
}

fn data_type(name: &str, schema: &Schema) -> Result<DataType, String> {
    if let Some(logical) = schema.logical {
        return logical_type(name, logical);
    }
    Ok(match &schema.kind {
        Kind::Boolean => DataType::Boolean,
        Kind::Int => DataType::Int32,
        Kind::Long => DataType::Int64,
        Kind::Float => DataType::Float32,
        Kind::Double => DataType::Float64,
        Kind::Bytes | Kind::Fixed(_) => DataType::Binary,
        // A field that is always null has no other type.
        Kind::Null | Kind::String | Kind::Enum(_) => DataType::Utf8,
        Kind::Record(record) => {
            DataType::Struct(fields(record).map_err(|reason| format!("{reason} (in {name:?})"))?)
        }
        Kind::Array(item) => DataType::List(Arc::new(inner("item", name, item)?)),
        Kind::Map(values) => {
            let values = inner("value", name, values)?;
            let entries = vec![Field::new("key", DataType::Utf8, false), values];
            let entries = Field::new("entries", DataType::Struct(entries.into()), false);
            DataType::Map(Arc::new(entries), false)
        }
        Kind::Union(_) => return Err(format!("the field {name:?} cannot be a union in a union")),
    })
}

/// The column of an array's or a map's elements.
fn inner(own: &str, name: &str, schema: &Schema) -> Result<Field, String> {
    column(own, schema).map_err(|reason| format!("{reason} (in {name:?})"))
}

fn logical_type(name: &str, logical: Logical) -> Result<DataType, String> {
    Ok(match logical {
        Logical::Decimal { precision, scale } if precision <= DECIMAL_DIGITS_MAX => {
            // Both are at most 38.
            DataType::Decimal128(precision as u8, scale as i8)
        }
        Logical::Decimal { precision, .. } => {
            return Err(format!(
                "the field {name:?} cannot be a decimal of {precision} digits, but of \
                 {DECIMAL_DIGITS_MAX} at most"
            ));
        }
        Logical::Uuid => DataType::Utf8,
        Logical::Date => DataType::Date32,
        Logical::TimeMillis => DataType::Time32(TimeUnit::Millisecond),
        Logical::TimeMicros => DataType::Time64(TimeUnit::Microsecond),
        Logical::Timestamp { unit, is_local } => {
            DataType::Timestamp(unit, (!is_local).then(|| Arc::from(UTC)))
        }
    })
}
