//! The decoder alone, as a lane and its worker use it.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use pyrklog_client::{Cancel, ClientConfig};
use pyrklog_wire::fetch::AbortedTransaction;

use crate::bad_rows::{BadRecords, BadRows};
use crate::columns::{Column, Columns};
use crate::decode::{DecodeLimits, Decoder};
use crate::entries::position_after;
use crate::error::{ErrorKind, Result, ScanError};
use crate::large::LargeGate;
use crate::progress::{Progress, SplitProgress};
use crate::queue::{Popped, Queue};
use crate::registry::Registry;
use crate::rows::{BatchLimits, Rows};
use crate::split::{Cursor, Split};
use crate::typed::avro::Reader;
use crate::typed::{Decoding, OnBad};

/// How a test reads.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // As of a scan's options.
pub struct How {
    pub range: (i64, i64),
    pub batch_rows: usize,
    pub batch_bytes: usize,
    pub expanded_bytes: usize,
    pub large_bytes: usize,
    pub is_read_committed: bool,
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

/// Decodes what a broker sends for the start of the range, of partition 3 of the topic `topic`.
/// Returns the batches, and the offset to read on at.
///
/// # Errors
/// As of a scan: records that do not hold together or are too large.
///
/// # Panics
/// The lane and the decoder disagree about where to read on, or a batch is larger than allowed.
pub fn decode(
    how: How,
    columns: &[Column],
    records: &[u8],
    aborted: &[AbortedTransaction],
) -> Result<(Vec<RecordBatch>, i64)> {
    let (batches, progress) = decode_columns(how, Columns::new(columns), records, aborted)?;
    Ok((batches, progress.position))
}

/// The same for any columns, with the figures of the split.
///
/// # Errors
/// As [`decode`].
///
/// # Panics
/// As [`decode`].
pub fn decode_columns(
    how: How,
    columns: Columns,
    records: &[u8],
    aborted: &[AbortedTransaction],
) -> Result<(Vec<RecordBatch>, SplitProgress)> {
    let (batches, _, figures) = decode_all(how, columns, records, aborted, None)?;
    Ok((batches, figures))
}

/// The same with the records whose values did not fit, batch by batch.
///
/// # Errors
/// As [`decode`].
///
/// # Panics
/// As [`decode`].
pub fn decode_with_bad(
    how: How,
    columns: Columns,
    records: &[u8],
    client_id: &str,
) -> Result<(Vec<RecordBatch>, Vec<BadRecords>, SplitProgress)> {
    decode_all(how, columns, records, &[], Some(client_id))
}

fn decode_all(
    how: How,
    columns: Columns,
    records: &[u8],
    aborted: &[AbortedTransaction],
    client_id: Option<&str>,
) -> Result<(Vec<RecordBatch>, Vec<BadRecords>, SplitProgress)> {
    let split = Split {
        topic: Arc::from("topic"),
        topic_id: [1; 16],
        partition: 3,
        start: how.range.0,
        end: how.range.1,
        leader_epoch: -1,
        is_listed: false,
    };
    let cursor = Cursor::new(0, &split);
    let passed = position_after(records, cursor.position, cursor.end).map_err(|error| {
        let text = format!("partition topic-3 at offset {}: {error}", cursor.position);
        ScanError::new(ErrorKind::CorruptBatch, text)
    });
    let (position, _) = passed?;
    let progress = Arc::new(Progress::new(&[split]));
    let queue = Arc::new(Queue::new(usize::MAX, Arc::clone(&progress)));
    let bad = client_id.map(|client_id| BadRows::new(client_id.into()));
    let mut decoder = decoder(how, columns, &queue, bad);
    decoder.decode(&cursor, records, aborted)?;
    decoder.rows.flush()?;
    queue.end(Ok(()));
    let (mut batches, mut all_bad) = (Vec::new(), Vec::new());
    while let Popped::Batch(output) = queue.pop(Duration::ZERO) {
        assert!(output.batch.num_rows() <= how.batch_rows);
        batches.push(output.batch);
        all_bad.extend(output.bad);
        queue.delivered();
    }
    let figures = progress.read()[0];
    let reached = figures.position;
    let end = cursor.end.max(cursor.position);
    assert_eq!(reached, position.min(end), "the decoder's position");
    Ok((batches, all_bad, figures))
}

/// Avro values of all fields of `schema`, which name the schemas that they were written with.
///
/// # Errors
/// A sentence: as of a scan's options.
pub fn registered(
    schema: &str,
    registry: &str,
    config: &ClientConfig,
    cancel: &Cancel,
    on_bad: OnBad,
) -> Result<Decoding, String> {
    let registry = Registry::new(registry, config, cancel)?;
    Decoding::registered(Reader::new(schema, None)?, registry, on_bad)
}

fn decoder(how: How, columns: Columns, queue: &Arc<Queue>, bad: Option<BadRows>) -> Decoder {
    let limits = BatchLimits {
        rows: how.batch_rows,
        bytes: how.batch_bytes,
        record_bytes: how.large_bytes,
    };
    let rows = Rows::new(Arc::new(columns), limits, Arc::clone(queue), bad);
    let limits = DecodeLimits {
        expanded_bytes: how.expanded_bytes,
        large_bytes: how.large_bytes,
        check_crcs: true,
        is_read_committed: how.is_read_committed,
    };
    let gate = Arc::new(LargeGate::default());
    let cancel = Cancel::new().expect("a file descriptor");
    Decoder::new(rows, limits, 0, gate, cancel)
}
