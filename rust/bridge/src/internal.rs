//! Records of internal topics: borrowed from Python on the way down, plain tuples on the way up.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyList, PyTuple};
use pyrklog_dataplane::seam;

use crate::event_class::events;

/// Key, value and headers, whose bytes stay Python's.
pub type Record = (
    PyBackedBytes,
    Option<PyBackedBytes>,
    Vec<(PyBackedBytes, PyBackedBytes)>,
);

/// The same for the plane.
pub fn borrowed((key, value, headers): &Record) -> seam::NewRecord<'_> {
    seam::NewRecord {
        key,
        value: value.as_deref(),
        headers: headers
            .iter()
            .map(|(key, value)| (&key[..], Some(&value[..])))
            .collect(),
    }
}

/// (base offset, last offset, producer id, is transactional, is control, (offset, key, value) of
/// each record, damage).
type InternalBatch<'py> = (
    i64,
    i64,
    i64,
    bool,
    bool,
    Bound<'py, PyList>,
    Option<String>,
);

events! {
    /// `TicketOutcome::InternalRead`.
    InternalReadDone {
        ticket: u64, error: i16, batches: Py<PyList>, next_offset: i64, end_offset: i64
    }
}

pub fn read_done(py: Python<'_>, ticket: u64, read: seam::InternalRead) -> PyResult<Py<PyAny>> {
    let batches = PyList::empty(py);
    for found in read.batches {
        batches.append(batch(py, found)?)?;
    }
    InternalReadDone {
        ticket,
        error: read.error_code,
        batches: batches.unbind(),
        next_offset: read.next_offset,
        end_offset: read.end_offset,
    }
    .into_py_any(py)
}

fn batch(py: Python<'_>, found: seam::InternalBatch) -> PyResult<InternalBatch<'_>> {
    let records = PyList::empty(py);
    for (offset, key, value) in found.records() {
        let key = key.map(|bytes| PyBytes::new(py, bytes));
        let value = value.map(|bytes| PyBytes::new(py, bytes));
        records.append((offset, key, value))?;
    }
    Ok((
        found.base_offset,
        found.last_offset,
        found.producer_id,
        found.is_transactional,
        found.is_control,
        records,
        found.damage,
    ))
}
