//! Rows become an Arrow record batch: each record's bytes are copied once, into the batch.

use std::sync::Arc;

use arrow_array::types::{Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{
    ArrayRef, ListArray, PrimitiveArray, RecordBatch, RecordBatchOptions, StringArray, StructArray,
};
use arrow_buffer::{Buffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::ArrowError;
use pyrklog_wire::batch::NO_TIMESTAMP;
use pyrklog_wire::records::Record;

use crate::bad_rows::{BadRecords, BadRow, BadRows};
use crate::bytes_builder::{BytesBuilder, take};
use crate::columns::{Column, Columns, UTC, header_fields, header_item};
use crate::typed::{OnBad, Typed, Unfit};

/// What a row takes besides keys, values, headers and the topic's name: offsets, numbers, nulls.
const ROW_BYTES: usize = 40;
/// What a header takes besides its key and value.
const HEADER_BYTES: usize = 12;
/// A header's key takes more if it is not UTF-8: each wrong byte becomes three.
const HEADER_KEY_GROWTH: usize = 3;

/// What a record's place says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub offset: i64,
    /// Milliseconds, -1 = none.
    pub timestamp: i64,
    /// 0 CreateTime, 1 LogAppendTime, -1 none.
    pub timestamp_type: i32,
}

/// A record as it was read.
#[derive(Clone, Copy, Debug)]
struct Raw<'a> {
    row: Row,
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
    /// None of old formats.
    record: Option<&'a Record<'a>>,
}

/// What became of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    Good,
    /// Its value did not fit, and is null.
    Nulled,
    /// Its value did not fit, and there is no row.
    Dropped,
}

#[derive(Debug)]
struct HeadersBuilder {
    offsets: Vec<i32>,
    nulls: NullBufferBuilder,
    keys: BytesBuilder,
    values: BytesBuilder,
}

impl HeadersBuilder {
    fn new() -> Self {
        HeadersBuilder {
            offsets: vec![0],
            nulls: NullBufferBuilder::new(0),
            keys: BytesBuilder::new(),
            values: BytesBuilder::new(),
        }
    }

    /// Appends a row; returns its bytes.
    fn push(&mut self, record: Option<&Record<'_>>) -> usize {
        let mut bytes = 0;
        for header in record.into_iter().flat_map(|record| record.headers()) {
            let before = self.keys.bytes() + self.values.bytes();
            // What is not UTF-8 is replaced, as Java's clients do.
            let key = String::from_utf8_lossy(header.key);
            self.keys.push(Some(key.as_bytes()));
            self.values.push(header.value);
            bytes += HEADER_BYTES + self.keys.bytes() + self.values.bytes() - before;
        }
        self.nulls.append(bytes > 0);
        self.offsets.push(self.keys.len() as i32);
        bytes
    }

    fn finish(&mut self) -> Result<ListArray, ArrowError> {
        let (offsets, data, _) = self.keys.finish();
        let keys = StringArray::try_new(offsets, data, None)?;
        let values = self.values.finish_binary()?;
        let columns: Vec<ArrayRef> = vec![Arc::new(keys), Arc::new(values)];
        let items = StructArray::try_new(header_fields(), columns, None)?;
        let offsets = std::mem::replace(&mut self.offsets, vec![0]);
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        ListArray::try_new(header_item(), offsets, Arc::new(items), self.nulls.finish())
    }
}

/// Consecutive rows of one partition.
#[derive(Debug)]
struct Run {
    topic: Arc<str>,
    partition: i32,
    rows: usize,
}

/// The rows of one record batch.
#[derive(Debug)]
pub(crate) struct BatchBuilder {
    columns: Arc<Columns>,
    has_key: bool,
    has_value: bool,
    has_offset: bool,
    has_timestamp: bool,
    has_type: bool,
    has_headers: bool,
    rows: usize,
    bytes: usize,
    row_bytes: usize,
    runs: Vec<Run>,
    keys: BytesBuilder,
    values: BytesBuilder,
    /// Instead of `values`.
    typed: Option<Typed>,
    offsets: Vec<i64>,
    timestamps: Vec<i64>,
    timestamp_nulls: NullBufferBuilder,
    types: Vec<i32>,
    headers: HeadersBuilder,
    /// Records whose values did not fit, if they are kept.
    bad: Option<BadRows>,
}

impl BatchBuilder {
    /// No value takes more than `value_bytes` as typed columns.
    pub fn new(columns: Arc<Columns>, value_bytes: usize, bad: Option<BadRows>) -> Self {
        let decoding = columns.decoding().filter(|_| columns.has(Column::Value));
        let typed = decoding.map(|decoding| Typed::new(decoding, value_bytes));
        BatchBuilder {
            typed,
            has_key: columns.has(Column::Key),
            has_value: columns.has(Column::Value) && columns.decoding().is_none(),
            has_offset: columns.has(Column::Offset),
            has_timestamp: columns.has(Column::Timestamp),
            has_type: columns.has(Column::TimestampType),
            has_headers: columns.has(Column::Headers),
            columns,
            rows: 0,
            bytes: 0,
            row_bytes: ROW_BYTES,
            runs: Vec::new(),
            keys: BytesBuilder::new(),
            values: BytesBuilder::new(),
            offsets: Vec::new(),
            timestamps: Vec::new(),
            timestamp_nulls: NullBufferBuilder::new(0),
            types: Vec::new(),
            headers: HeadersBuilder::new(),
            bad,
        }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Without a row, and without a bad record.
    pub fn is_empty(&self) -> bool {
        self.rows == 0 && self.bad.as_ref().is_none_or(BadRows::is_empty)
    }

    /// Of the batch in memory, about, with its bad records.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The rows that follow are of this partition.
    pub fn begin(&mut self, topic: &Arc<str>, partition: i32) {
        self.row_bytes = ROW_BYTES + self.typed.as_ref().map_or(0, Typed::width);
        if self.columns.has(Column::Topic) {
            self.row_bytes += topic.len();
        }
        if let Some(last) = self.runs.last()
            && last.partition == partition
            && last.topic == *topic
        {
            return;
        }
        self.runs.push(Run {
            topic: Arc::clone(topic),
            partition,
            rows: 0,
        });
    }

    /// How much the batch would grow by a record, at most.
    #[inline]
    pub fn cost(&self, record: &Record<'_>) -> usize {
        let mut cost = self.row_bytes;
        if self.has_key {
            cost += record.key.map_or(0, <[u8]>::len);
        }
        if self.has_value || self.typed.is_some() {
            cost += record.value.map_or(0, <[u8]>::len);
        }
        if self.has_headers && record.header_count > 0 {
            cost += headers_cost(record);
        }
        cost
    }

    /// Topic and partition begun last.
    pub fn place(&self) -> (&str, i32) {
        place(&self.runs)
    }

    /// Appends a row of the partition begun last.
    ///
    /// # Errors
    /// A value that does not fit is to end the scan ([`OnBad::Fail`]), or its schema is not to be
    /// had.
    #[inline]
    pub fn push(&mut self, row: Row, record: &Record<'_>) -> Result<Fit, Box<Unfit>> {
        let fit = match self.typed {
            None => Fit::Good,
            Some(_) => self.push_typed(&Raw {
                row,
                key: record.key,
                value: record.value,
                record: Some(record),
            })?,
        };
        if fit == Fit::Dropped {
            return Ok(fit);
        }
        self.push_fields(row, record.key, record.value);
        if self.has_headers {
            self.bytes += self.headers.push(Some(record));
        }
        Ok(fit)
    }

    /// Appends a row without headers.
    ///
    /// # Errors
    /// As [`BatchBuilder::push`].
    pub fn push_message(
        &mut self,
        row: Row,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
    ) -> Result<Fit, Box<Unfit>> {
        let record = None;
        let fit = self.push_typed(&Raw {
            row,
            key,
            value,
            record,
        })?;
        if fit == Fit::Dropped {
            return Ok(fit);
        }
        self.push_fields(row, key, value);
        if self.has_headers {
            self.headers.push(None);
        }
        Ok(fit)
    }

    /// Decodes a value first: without a row nothing else of its record is kept.
    #[inline(never)]
    fn push_typed(&mut self, raw: &Raw<'_>) -> Result<Fit, Box<Unfit>> {
        let Some(typed) = &mut self.typed else {
            return Ok(Fit::Good);
        };
        match typed.push(raw.value) {
            Ok(bytes) => {
                self.bytes += bytes;
                Ok(Fit::Good)
            }
            // Not the value's fault: a null would be a loss.
            Err(unfit @ Unfit::Registry(_)) => Err(Box::new(unfit)),
            Err(unfit) => {
                let fit = match typed.on_bad {
                    OnBad::Fail => return Err(Box::new(unfit)),
                    OnBad::Drop => Fit::Dropped,
                    OnBad::Null => {
                        typed.push_null();
                        Fit::Nulled
                    }
                };
                self.keep_bad(raw, &unfit);
                Ok(fit)
            }
        }
    }

    #[cold]
    fn keep_bad(&mut self, raw: &Raw<'_>, unfit: &Unfit) {
        let Some(bad) = &mut self.bad else {
            return;
        };
        let (topic, partition) = place(&self.runs);
        let offset = raw.row.offset;
        self.bytes += bad.push(&BadRow {
            topic,
            partition,
            offset,
            timestamp: raw.row.timestamp,
            key: raw.key,
            value: raw.value,
            record: raw.record,
            sentence: &unfit.sentence(topic, partition, offset),
        });
    }

    #[inline]
    fn push_fields(&mut self, row: Row, key: Option<&[u8]>, value: Option<&[u8]>) {
        self.rows += 1;
        self.bytes += self.row_bytes;
        if let Some(run) = self.runs.last_mut() {
            run.rows += 1;
        }
        if self.has_key {
            self.bytes += key.map_or(0, <[u8]>::len);
            self.keys.push(key);
        }
        if self.has_value {
            self.bytes += value.map_or(0, <[u8]>::len);
            self.values.push(value);
        }
        if self.has_offset {
            self.offsets.push(row.offset);
        }
        if self.has_timestamp {
            self.timestamp_nulls.append(row.timestamp != NO_TIMESTAMP);
            self.timestamps.push(row.timestamp.saturating_mul(1000));
        }
        if self.has_type {
            self.types.push(row.timestamp_type);
        }
    }

    /// The batch and its bad records, and an empty builder.
    ///
    /// # Errors
    /// None that is expected: Arrow checks what was built.
    pub fn finish(&mut self) -> Result<(RecordBatch, Option<BadRecords>), ArrowError> {
        let columns = Arc::clone(&self.columns);
        let mut arrays = Vec::with_capacity(columns.list().len());
        for column in columns.list() {
            arrays.push(self.array(*column)?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        self.rows = 0;
        self.bytes = 0;
        // The rows that follow may be of the same partition.
        let last = self.runs.pop().map(|run| Run { rows: 0, ..run });
        self.runs.clear();
        self.runs.extend(last);
        let bad = self.bad.as_mut().map_or(Ok(None), BadRows::finish)?;
        let batch = RecordBatch::try_new_with_options(columns.schema(), arrays, &options)?;
        Ok((batch, bad))
    }

    fn array(&mut self, column: Column) -> Result<ArrayRef, ArrowError> {
        Ok(match column {
            Column::Key => Arc::new(self.keys.finish_binary()?),
            Column::Value => match &mut self.typed {
                Some(typed) => typed.finish()?,
                None => Arc::new(self.values.finish_binary()?),
            },
            Column::Topic => Arc::new(self.topics()?),
            Column::Partition => {
                let runs = self.runs.iter();
                let all = runs.flat_map(|run| std::iter::repeat_n(run.partition, run.rows));
                let all: Vec<i32> = all.collect();
                Arc::new(PrimitiveArray::<Int32Type>::new(all.into(), None))
            }
            Column::Offset => {
                let all = take(&mut self.offsets);
                Arc::new(PrimitiveArray::<Int64Type>::new(all.into(), None))
            }
            Column::Timestamp => {
                let all = take(&mut self.timestamps);
                let nulls = self.timestamp_nulls.finish();
                let array = PrimitiveArray::<TimestampMicrosecondType>::new(all.into(), nulls);
                Arc::new(array.with_timezone(UTC))
            }
            Column::TimestampType => {
                let all = take(&mut self.types);
                Arc::new(PrimitiveArray::<Int32Type>::new(all.into(), None))
            }
            Column::Headers => Arc::new(self.headers.finish()?),
        })
    }

    fn topics(&self) -> Result<StringArray, ArrowError> {
        let bytes = self.runs.iter().map(|run| run.topic.len() * run.rows).sum();
        let mut data = Vec::with_capacity(bytes);
        let mut offsets = Vec::with_capacity(self.rows + 1);
        offsets.push(0);
        for run in &self.runs {
            for _ in 0..run.rows {
                data.extend_from_slice(run.topic.as_bytes());
                offsets.push(data.len() as i32);
            }
        }
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        StringArray::try_new(offsets, Buffer::from_vec(data), None)
    }
}

/// Topic and partition begun last.
fn place(runs: &[Run]) -> (&str, i32) {
    let last = runs.last();
    last.map_or(("", -1), |run| (&*run.topic, run.partition))
}

#[cold]
fn headers_cost(record: &Record<'_>) -> usize {
    let headers = record.headers();
    headers
        .map(|header| {
            let value = header.value.map_or(0, <[u8]>::len);
            HEADER_BYTES + HEADER_KEY_GROWTH * header.key.len() + value
        })
        .sum()
}
