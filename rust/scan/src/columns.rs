//! The columns of a scan: stock Spark's, by the same names.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use thiserror::Error;

use crate::typed::Decoding;

/// The time zone of timestamps.
pub(crate) const UTC: &str = "UTC";

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Column {
    /// The record's key, null without one.
    Key,
    /// The record's value, null for a tombstone.
    Value,
    /// The topic's name.
    Topic,
    /// The partition's number.
    Partition,
    /// The record's offset.
    Offset,
    /// Microseconds, null without one (message format 0).
    Timestamp,
    /// 0 CreateTime, 1 LogAppendTime, -1 none.
    TimestampType,
    /// The record's headers, null without any.
    Headers,
}

/// A name that no column has.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("there is no column '{0}'; the columns are {list}", list = Column::names().join(", "))]
pub struct UnknownColumn(pub String);

impl Column {
    const ALL: [(Column, &str); 8] = [
        (Column::Key, "key"),
        (Column::Value, "value"),
        (Column::Topic, "topic"),
        (Column::Partition, "partition"),
        (Column::Offset, "offset"),
        (Column::Timestamp, "timestamp"),
        (Column::TimestampType, "timestampType"),
        (Column::Headers, "headers"),
    ];

    /// All names.
    pub fn names() -> Vec<&'static str> {
        Column::ALL.iter().map(|row| row.1).collect()
    }

    /// By its name.
    ///
    /// # Errors
    /// `UnknownColumn`.
    pub fn from_name(name: &str) -> Result<Column, UnknownColumn> {
        let row = Column::ALL.iter().find(|row| row.1 == name);
        row.map(|row| row.0)
            .ok_or_else(|| UnknownColumn(name.to_owned()))
    }

    fn field(self) -> Field {
        let (_, name) = Column::ALL[self as usize];
        let (kind, nullable) = match self {
            Column::Key | Column::Value => (DataType::Binary, true),
            Column::Topic => (DataType::Utf8, false),
            Column::Partition | Column::TimestampType => (DataType::Int32, false),
            Column::Offset => (DataType::Int64, false),
            Column::Timestamp => {
                let zone = Some(Arc::from(UTC));
                (DataType::Timestamp(TimeUnit::Microsecond, zone), true)
            }
            Column::Headers => (DataType::List(header_item()), true),
        };
        Field::new(name, kind, nullable)
    }
}

/// The fields of a header.
pub(crate) fn header_fields() -> Fields {
    Fields::from(vec![
        Field::new("key", DataType::Utf8, false),
        Field::new("value", DataType::Binary, true),
    ])
}

/// The element of the column of headers.
pub(crate) fn header_item() -> Arc<Field> {
    Arc::new(Field::new("item", DataType::Struct(header_fields()), false))
}

/// The columns that a scan builds, in order. Others cost nothing.
#[derive(Clone, Debug)]
pub struct Columns {
    list: Vec<Column>,
    schema: SchemaRef,
    wanted: [bool; 8],
    decoding: Option<Decoding>,
}

impl Columns {
    /// Each once; doubles are left out.
    pub fn new(columns: &[Column]) -> Columns {
        Columns::build(columns, None)
    }

    /// The same with values decoded to typed columns.
    pub fn decoded(columns: &[Column], decoding: Decoding) -> Columns {
        Columns::build(columns, Some(decoding))
    }

    fn build(columns: &[Column], decoding: Option<Decoding>) -> Columns {
        let mut wanted = [false; 8];
        let mut list = Vec::with_capacity(columns.len());
        for column in columns {
            if !std::mem::replace(&mut wanted[*column as usize], true) {
                list.push(*column);
            }
        }
        let field = |column: &Column| match (column, &decoding) {
            (Column::Value, Some(decoding)) => decoding.field("value"),
            _ => column.field(),
        };
        let fields: Vec<Field> = list.iter().map(field).collect();
        Columns {
            list,
            schema: Arc::new(Schema::new(fields)),
            wanted,
            decoding,
        }
    }

    /// In order.
    pub fn list(&self) -> &[Column] {
        &self.list
    }

    /// Their schema.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    pub(crate) fn decoding(&self) -> Option<&Decoding> {
        self.decoding.as_ref()
    }

    pub(crate) fn has(&self, column: Column) -> bool {
        self.wanted[column as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_find_their_columns() {
        for (column, name) in Column::ALL {
            assert_eq!(Column::from_name(name), Ok(column));
            assert_eq!(column.field().name(), name);
        }
        let error = Column::from_name("vlaue").unwrap_err().to_string();
        assert!(error.starts_with("there is no column 'vlaue'; the columns are key, value,"));
    }

    #[test]
    fn columns_keep_their_order_and_come_once() {
        let columns = Columns::new(&[Column::Offset, Column::Key, Column::Offset]);
        assert_eq!(columns.list(), [Column::Offset, Column::Key]);
        assert_eq!(columns.schema().fields().len(), 2);
        assert!(columns.has(Column::Key) && !columns.has(Column::Value));
    }
}
