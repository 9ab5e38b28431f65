//! Records whose values did not fit, as they are written to a topic of their own.

use std::sync::Arc;

use arrow_array::types::TimestampMillisecondType;
use arrow_array::{ArrayRef, ListArray, PrimitiveArray, RecordBatch, StructArray};
use arrow_buffer::{NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use pyrklog_wire::records::Record;

use crate::bytes_builder::BytesBuilder;

/// Of a sentence in a header.
const SENTENCE_CHARS: usize = 1000;
/// What a record takes besides keys, values and headers.
const RECORD_BYTES: usize = 32;
/// What a header takes besides its key and value.
const HEADER_BYTES: usize = 12;

/// The columns of bad records, by the names that a producer has for them.
pub const BAD_RECORD_COLUMNS: [&str; 4] = ["key", "value", "headers", "timestamp"];

// Of Kafka Connect's `DeadLetterQueueReporter`; where the same is meant, the same is said.
const TOPIC: &str = "__connect.errors.topic";
const PARTITION: &str = "__connect.errors.partition";
const OFFSET: &str = "__connect.errors.offset";
const CONNECTOR: &str = "__connect.errors.connector.name";
const STAGE: &str = "__connect.errors.stage";
const CLASS: &str = "__connect.errors.exception.class.name";
const MESSAGE: &str = "__connect.errors.exception.message";
/// Connect's for values that a converter does not take.
const VALUE_STAGE: &str = "VALUE_CONVERTER";
/// What Python raises for such a value.
const VALUE_CLASS: &str = "pyrklog.scanning.BadValueError";

/// Bad records of a batch.
#[derive(Clone, Debug)]
pub struct BadRecords {
    /// [`BAD_RECORD_COLUMNS`].
    pub records: RecordBatch,
    /// Place and bytes of the largest, in words.
    pub largest: String,
}

/// A record, and why it is bad.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BadRow<'a> {
    pub topic: &'a str,
    pub partition: i32,
    pub offset: i64,
    /// Milliseconds; below 0 none.
    pub timestamp: i64,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    /// With headers; none of old formats.
    pub record: Option<&'a Record<'a>>,
    pub sentence: &'a str,
}

/// Gathers bad records.
#[derive(Debug)]
pub(crate) struct BadRows {
    /// Who reads.
    client_id: Arc<str>,
    schema: SchemaRef,
    keys: BytesBuilder,
    values: BytesBuilder,
    header_ends: Vec<i32>,
    header_keys: BytesBuilder,
    header_values: BytesBuilder,
    timestamps: Vec<i64>,
    timestamp_nulls: NullBufferBuilder,
    largest: (usize, String),
}

impl BadRows {
    pub fn new(client_id: Arc<str>) -> BadRows {
        BadRows {
            client_id,
            schema: Arc::new(schema()),
            keys: BytesBuilder::new(),
            values: BytesBuilder::new(),
            header_ends: vec![0],
            header_keys: BytesBuilder::new(),
            header_values: BytesBuilder::new(),
            timestamps: Vec::new(),
            timestamp_nulls: NullBufferBuilder::new(0),
            largest: (0, String::new()),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.timestamps.is_empty()
    }

    /// Appends a record; its bytes.
    pub fn push(&mut self, bad: &BadRow<'_>) -> usize {
        let mut bytes = RECORD_BYTES;
        for (column, cell) in [(&mut self.keys, bad.key), (&mut self.values, bad.value)] {
            bytes += cell.map_or(0, <[u8]>::len);
            column.push(cell);
        }
        for header in bad.record.into_iter().flat_map(|record| record.headers()) {
            bytes += self.header(header.key, header.value);
        }
        let (partition, offset) = (bad.partition.to_string(), bad.offset.to_string());
        let client_id = Arc::clone(&self.client_id);
        let sentence = shortened(bad.sentence);
        for (name, text) in [
            (TOPIC, bad.topic),
            (PARTITION, partition.as_str()),
            (OFFSET, offset.as_str()),
            (CONNECTOR, &*client_id),
            (STAGE, VALUE_STAGE),
            (CLASS, VALUE_CLASS),
            (MESSAGE, sentence),
        ] {
            bytes += self.header(name.as_bytes(), Some(text.as_bytes()));
        }
        self.header_ends.push(self.header_keys.len() as i32);
        let has_time = bad.timestamp >= 0;
        self.timestamps.push(bad.timestamp);
        self.timestamp_nulls.append(has_time);
        if bytes > self.largest.0 {
            let BadRow { topic, .. } = bad;
            let place = format!("topic {topic} partition {partition} offset {offset}");
            self.largest = (bytes, format!("{place}, has about {bytes} bytes"));
        }
        bytes
    }

    fn header(&mut self, key: &[u8], value: Option<&[u8]>) -> usize {
        self.header_keys.push(Some(key));
        self.header_values.push(value);
        HEADER_BYTES + key.len() + value.map_or(0, <[u8]>::len)
    }

    /// The records, if there are any; nothing is kept of them.
    ///
    /// # Errors
    /// None that is expected: Arrow checks what was built.
    pub fn finish(&mut self) -> Result<Option<BadRecords>, ArrowError> {
        if self.is_empty() {
            return Ok(None);
        }
        let empty = BadRows::new(Arc::clone(&self.client_id));
        let mut full = std::mem::replace(self, empty);
        let headers: Vec<ArrayRef> = vec![
            Arc::new(full.header_keys.finish_binary()?),
            Arc::new(full.header_values.finish_binary()?),
        ];
        let headers = ListArray::try_new(
            header_item(),
            OffsetBuffer::new(ScalarBuffer::from(full.header_ends)),
            Arc::new(StructArray::try_new(header_fields(), headers, None)?),
            None,
        )?;
        let times = PrimitiveArray::<TimestampMillisecondType>::new(
            full.timestamps.into(),
            full.timestamp_nulls.finish(),
        );
        let columns: Vec<ArrayRef> = vec![
            Arc::new(full.keys.finish_binary()?),
            Arc::new(full.values.finish_binary()?),
            Arc::new(headers),
            Arc::new(times),
        ];
        Ok(Some(BadRecords {
            records: RecordBatch::try_new(full.schema, columns)?,
            largest: full.largest.1,
        }))
    }
}

fn schema() -> Schema {
    let kinds = [
        DataType::Binary,
        DataType::Binary,
        DataType::List(header_item()),
        DataType::Timestamp(TimeUnit::Millisecond, None),
    ];
    let fields = BAD_RECORD_COLUMNS.iter().zip(kinds);
    Schema::new(
        fields
            .map(|(name, kind)| Field::new(*name, kind, true))
            .collect::<Vec<_>>(),
    )
}

/// Keys too are bytes: what is not UTF-8 stays as it is.
fn header_fields() -> Fields {
    Fields::from(vec![
        Field::new("key", DataType::Binary, false),
        Field::new("value", DataType::Binary, true),
    ])
}

fn header_item() -> Arc<Field> {
    Arc::new(Field::new("item", DataType::Struct(header_fields()), false))
}

fn shortened(sentence: &str) -> &str {
    match sentence.char_indices().nth(SENTENCE_CHARS) {
        Some((end, _)) => &sentence[..end],
        None => sentence,
    }
}
