//! The producer of a scan's bad records.

use std::time::Duration;

use pyrklog_client::{Cancel, ClientConfig};
use pyrklog_produce::{ErrorKind, ProduceError, ProduceOptions, Producer};
use pyrklog_scan::{BAD_RECORD_COLUMNS, BadRecordSink, NotWritten, ScanError, cannot_write};
use pyrklog_wire::batch::Compression;

const BATCH_BYTES: usize = 512 << 10;
const MEMORY_BYTES: usize = 8 << 20;
const REQUEST_BYTES: usize = 1 << 20;
/// It has no transactions.
const TRANSACTION_TIMEOUT_MS: i32 = 60_000;

/// Gets a producer id, and finds the topic.
pub fn open(
    topic: String,
    client: ClientConfig,
    timeout: Duration,
    cancel: Cancel,
) -> Result<BadRecordSink, ScanError> {
    let options = ProduceOptions {
        client,
        topic: Some(topic.clone()),
        columns: BAD_RECORD_COLUMNS.map(String::from).to_vec(),
        codec: Compression::None,
        batch_bytes: BATCH_BYTES,
        memory_bytes: MEMORY_BYTES,
        request_bytes: REQUEST_BYTES,
        delivery_timeout: timeout,
        transactional_id: None,
        transaction_timeout_ms: TRANSACTION_TIMEOUT_MS,
        keeps_offsets: false,
    };
    let opened = Producer::open_until(options, cancel.clone())
        .and_then(|mut producer| producer.find().map(|()| producer));
    let mut producer = opened.map_err(|error| cannot_write(&topic, &error.text))?;
    Ok(BadRecordSink {
        topic,
        write: Box::new(move |records| {
            let sent = producer.send(records).and_then(|()| producer.flush());
            sent.map_err(not_written)
        }),
        cancel,
    })
}

fn not_written(error: ProduceError) -> NotWritten {
    NotWritten {
        is_too_large: error.kind == ErrorKind::TooLarge,
        text: error.text,
    }
}
