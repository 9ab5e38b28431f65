//! The decoder beside a plain one, and beside bytes that lie.

mod decode;
mod hostile;
mod old_formats;

use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, RecordBatch};
use pyrklog_client::Cancel;
use pyrklog_compression::compress;
use pyrklog_wire::batch::Compression;
use pyrklog_wire::builder::BatchBuilder;
use pyrklog_wire::fetch::AbortedTransaction;

use crate::columns::{Column, Columns};
use crate::decode::{DecodeLimits, Decoder};
use crate::error::Result;
use crate::large::LargeGate;
use crate::progress::Progress;
use crate::queue::{Popped, Queue};
use crate::rows::{BatchLimits, Rows};
use crate::split::{Cursor, Split};

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

/// How a test reads.
#[derive(Clone, Copy)]
struct How {
    range: (i64, i64),
    batch_rows: usize,
    batch_bytes: usize,
    expanded_bytes: usize,
    large_bytes: usize,
    is_read_committed: bool,
}

impl Default for How {
    fn default() -> Self {
        How {
            range: (0, i64::MAX),
            batch_rows: 1000,
            batch_bytes: 1 << 20,
            expanded_bytes: 64 << 10,
            large_bytes: 8 << 20,
            is_read_committed: true,
        }
    }
}

fn split((start, end): (i64, i64)) -> Split {
    Split {
        topic: Arc::from("topic"),
        topic_id: [1; 16],
        partition: 3,
        start,
        end,
        leader_epoch: -1,
    }
}

fn all_columns() -> Vec<Column> {
    let names = Column::names();
    names
        .iter()
        .map(|name| Column::from_name(name).unwrap())
        .collect()
}

/// Decodes what a broker sends; the batches, and the offset behind them.
fn decode(
    how: How,
    columns: &[Column],
    records: &[u8],
    aborted: &[AbortedTransaction],
) -> Result<(Vec<RecordBatch>, i64)> {
    let splits = [split(how.range)];
    let progress = Arc::new(Progress::new(&splits));
    let queue = Arc::new(Queue::new(usize::MAX, Arc::clone(&progress)));
    let limits = BatchLimits {
        rows: how.batch_rows,
        bytes: how.batch_bytes,
        record_bytes: how.large_bytes,
    };
    let rows = Rows::new(Arc::new(Columns::new(columns)), limits, Arc::clone(&queue));
    let limits = DecodeLimits {
        expanded_bytes: how.expanded_bytes,
        large_bytes: how.large_bytes,
        check_crcs: true,
        is_read_committed: how.is_read_committed,
    };
    let gate = Arc::new(LargeGate::default());
    let cancel = Cancel::new().unwrap();
    let mut decoder = Decoder::new(rows, limits, 0, gate, cancel);
    decoder.decode(&Cursor::new(0, &splits[0]), records, aborted)?;
    decoder.rows.flush()?;
    queue.end(Ok(()));
    let mut batches = Vec::new();
    while let Popped::Batch(output) = queue.pop(Duration::ZERO) {
        assert!(output.batch.num_rows() <= how.batch_rows);
        batches.push(output.batch);
    }
    Ok((batches, progress.read()[0].position))
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
