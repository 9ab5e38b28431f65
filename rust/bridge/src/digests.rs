//! Digests of replicas, for Python.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyrklog_dataplane::api;

/// (base offset, last offset, leader epoch, CRC).
pub type Batch = (i64, i64, i32, u32);

/// One as its Python object.
pub fn row(batch: api::DigestedBatch) -> Batch {
    (
        batch.base_offset,
        batch.last_offset,
        batch.leader_epoch,
        batch.crc,
    )
}

/// `TicketOutcome::ReplicaDigest`.
#[pyclass(frozen, get_all, module = "pyrklog._core")]
pub struct ReplicaDigestDone {
    ticket: u64,
    error: i16,
    leader_epoch: i32,
    log_start_offset: i64,
    high_watermark: i64,
    log_end_offset: i64,
    next_offset: i64,
    digest: i64,
    batches: i64,
    damaged_offset: i64,
    first: Option<Batch>,
}

/// A digest as its Python object.
pub fn digest_done(py: Python<'_>, ticket: u64, digest: api::ReplicaDigest) -> PyResult<Py<PyAny>> {
    ReplicaDigestDone {
        ticket,
        error: digest.error_code,
        leader_epoch: digest.leader_epoch,
        log_start_offset: digest.log_start_offset,
        high_watermark: digest.high_watermark,
        log_end_offset: digest.log_end_offset,
        next_offset: digest.next_offset,
        digest: digest.digest,
        batches: digest.batches,
        damaged_offset: digest.damaged_offset,
        first: digest.first.map(row),
    }
    .into_py_any(py)
}
