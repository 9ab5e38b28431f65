//! A produce request whose batches are validated elsewhere, and what its partitions need of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyrklog_base::ids::Place;

/// The least time to wait for this broker's own write, whatever the client's time-out: Kafka does
/// not wait at all there, so a time-out would tell of a failure where there is none.
const ACK_MIN_WAIT_MS: i64 = 1000;

/// The same for acks=1, which Kafka never times out.
const ACK_LEADER_MIN_WAIT_MS: i64 = 30_000;

/// The parts of a request that its partitions need.
#[derive(Clone, Copy, Debug)]
pub struct ProduceParams {
    /// API version.
    pub api_version: i16,
    /// For the response header.
    pub correlation_id: i32,
    /// `acks`.
    pub acks: i16,
    /// It names a transactional id.
    pub has_transactional_id: bool,
    /// It may write to internal topics.
    pub may_write_internal: bool,
    /// Whose it is.
    pub place: Place,
    /// Its number on its connection.
    pub sequence: u64,
    /// When it came, and how long it may take; ms.
    pub since_ms: i64,
    /// How long it may take.
    pub patience_ms: i64,
    /// Its batches were validated some time ago.
    pub is_late: bool,
}

impl ProduceParams {
    /// How long to wait for acknowledgements at least.
    pub fn least_ms(&self) -> i64 {
        if self.acks == 1 {
            ACK_LEADER_MIN_WAIT_MS
        } else {
            ACK_MIN_WAIT_MS
        }
    }
}

/// A request whose batches are validated elsewhere, as its connection knows it.
#[derive(Debug)]
pub struct Validating {
    /// Number of the wait on the connection.
    pub wait: u64,
    /// What its partitions need of it.
    pub params: ProduceParams,
    /// Nobody waits for it any more.
    pub is_abandoned: Arc<AtomicBool>,
}

impl Drop for Validating {
    fn drop(&mut self) {
        self.is_abandoned.store(true, Ordering::Relaxed);
    }
}
