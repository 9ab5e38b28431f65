//! A thread that writes bad records, so that the caller, who waits, can be interrupted.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use arrow_array::RecordBatch;
use pyrklog_client::Cancel;

use crate::bad_rows::BadRecords;
use crate::error::{ErrorKind, Result, ScanError};
use crate::threads;

/// Why records are not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotWritten {
    /// A sentence.
    pub text: String,
    /// One of them is larger than its topic allows.
    pub is_too_large: bool,
}

/// Writes records with [`crate::BAD_RECORD_COLUMNS`]; returns once they are acknowledged.
pub type Write = Box<dyn FnMut(&RecordBatch) -> std::result::Result<(), NotWritten> + Send>;

/// Where a scan's bad records go.
pub struct BadRecordSink {
    /// The topic's name.
    pub topic: String,
    /// Called by one thread.
    pub write: Write,
    /// Ends a write.
    pub cancel: Cancel,
}

impl std::fmt::Debug for BadRecordSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BadRecordSink").finish_non_exhaustive()
    }
}

/// The caller's side of the thread, which ends with it.
#[derive(Debug)]
pub(crate) struct BadWriter {
    batches: Sender<BadRecords>,
    answers: Receiver<Result<()>>,
}

impl BadWriter {
    /// # Errors
    /// The system has no thread left.
    pub fn start(sink: BadRecordSink) -> Result<BadWriter> {
        let (batches, orders) = channel();
        let (done, answers) = channel();
        threads::start("scan-bad-records", move || run(sink, &orders, &done))?;
        Ok(BadWriter { batches, answers })
    }

    /// One at a time: the answer to the last one has come.
    pub fn send(&self, records: BadRecords) {
        // Without the thread there is no answer, which tells it.
        self.batches.send(records).ok();
    }

    /// The answer, if it comes in time.
    pub fn answer(&self, most: Duration) -> Option<Result<()>> {
        match self.answers.recv_timeout(most) {
            Ok(answer) => Some(answer),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Err(ScanError::cancelled())),
        }
    }
}

fn run(mut sink: BadRecordSink, orders: &Receiver<BadRecords>, done: &Sender<Result<()>>) {
    while let Ok(bad) = orders.recv() {
        let written = (sink.write)(&bad.records);
        let answer = written.map_err(|error| match sink.cancel.is_cancelled() {
            true => ScanError::cancelled(),
            false => failed(&sink.topic, &bad, error),
        });
        if done.send(answer).is_err() {
            return;
        }
    }
}

fn failed(topic: &str, bad: &BadRecords, error: NotWritten) -> ScanError {
    match error.is_too_large {
        true => {
            let NotWritten { text, .. } = error;
            cannot_write(
                topic,
                &format!("{text}; the largest of them, {}", bad.largest),
            )
        }
        false => cannot_write(topic, &error.text),
    }
}

/// A topic cannot take bad records.
pub fn cannot_write(topic: &str, reason: &str) -> ScanError {
    let text =
        format!("records whose values do not fit cannot be written to topic {topic}: {reason}");
    ScanError::new(ErrorKind::BadRecords, text)
}
