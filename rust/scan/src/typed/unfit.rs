//! Why a value has no columns.

use std::fmt;
use std::str::Utf8Error;

use crate::error::ScanError;

/// Why a value does not fit.
#[derive(Debug)]
pub(crate) enum Unfit {
    Utf8(Utf8Error),
    Json(serde_json::Error),
    Avro(String),
    Protobuf(String),
    /// The value may be good: the scan fails.
    Registry(ScanError),
}

impl Unfit {
    /// For the user, with the record's place.
    pub fn sentence(&self, topic: &str, partition: i32, offset: i64) -> String {
        format!(
            "topic {topic} partition {partition} offset {offset}: the value does not fit the \
             schema: {self}"
        )
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::Utf8(error) => write!(f, "not UTF-8 at byte {}", error.valid_up_to()),
            Unfit::Json(error) => write!(f, "{error}"),
            Unfit::Avro(reason) | Unfit::Protobuf(reason) => f.write_str(reason),
            Unfit::Registry(error) => write!(f, "{error}"),
        }
    }
}
