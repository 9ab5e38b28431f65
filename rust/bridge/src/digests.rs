//! Digests of replicas, for Python.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyrklog_dataplane::seam;

/// (base offset, last offset, leader epoch, CRC).
pub type Batch = (i64, i64, i32, u32);

pub fn row(batch: seam::DigestedBatch) -> Batch {
    (
        batch.base_offset,
        batch.last_offset,
        batch.leader_epoch,
        batch.crc,
    )
}

/// (error code, leader epoch, log start offset, high watermark, log end offset, next offset,
/// digest, batches, damaged offset, first batch, compacted end).
type Digest = (
    i16,
    i32,
    i64,
    i64,
    i64,
    i64,
    i64,
    i64,
    i64,
    Option<Batch>,
    i64,
);

/// `TicketOutcome::ReplicaDigest`.
#[pyclass(frozen, get_all, module = "pyrklog._core")]
pub struct ReplicaDigestDone {
    ticket: u64,
    digest: Digest,
}

pub fn digest_done(
    py: Python<'_>,
    ticket: u64,
    digest: seam::ReplicaDigest,
) -> PyResult<Py<PyAny>> {
    let first = digest.first.map(row);
    let digest = (
        digest.error_code,
        digest.leader_epoch,
        digest.log_start_offset,
        digest.high_watermark,
        digest.log_end_offset,
        digest.next_offset,
        digest.digest,
        digest.batches,
        digest.damaged_offset,
        first,
        digest.compacted_end,
    );
    ReplicaDigestDone { ticket, digest }.into_py_any(py)
}
