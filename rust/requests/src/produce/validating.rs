//! A produce request at the validators, and its parameters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::reply_header::ReplyHeader;
use pyrklog_base::ids::Place;

/// Minimum wait for this broker's own write, whatever the client's time-out. Kafka does not wait
/// there, so a time-out would report a failure where there is none.
const ACK_MIN_WAIT_MS: i64 = 1000;

/// The same for acks=1, which Kafka never times out.
const ACK_LEADER_MIN_WAIT_MS: i64 = 30_000;

/// A request's parameters for its partitions.
#[derive(Clone, Copy, Debug)]
pub struct ProduceParams {
    /// Of its reply.
    pub header: ReplyHeader,
    /// `acks`.
    pub acks: i16,
    /// It names a transactional id.
    pub has_transactional_id: bool,
    /// It may write to internal topics.
    pub may_write_internal: bool,
    /// Its connection.
    pub place: Place,
    /// Its number on its connection.
    pub sequence: u64,
    /// When it arrived, monotonic milliseconds.
    pub since_ms: i64,
    /// How long it may take.
    pub patience_ms: i64,
    /// Its batches were validated earlier.
    pub is_late: bool,
}

impl ProduceParams {
    /// Minimum wait for acknowledgements.
    pub fn least_ms(&self) -> i64 {
        if self.acks == 1 {
            ACK_LEADER_MIN_WAIT_MS
        } else {
            ACK_MIN_WAIT_MS
        }
    }
}

/// A connection's request at the validators.
#[derive(Debug)]
pub struct Validating {
    /// Number of the wait on its connection.
    pub wait: u64,
    /// Its parameters.
    pub params: ProduceParams,
    /// The request no longer waits.
    pub is_abandoned: Arc<AtomicBool>,
}

impl Drop for Validating {
    fn drop(&mut self) {
        self.is_abandoned.store(true, Ordering::Relaxed);
    }
}
