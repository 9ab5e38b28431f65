//! Records of internal topics: borrowed from Python on the way down, plain tuples on the way up.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyList};
use pyrklog_dataplane::api;

use crate::classes::event_class;

/// Key, value and headers, whose bytes stay Python's.
pub type Record = (
    PyBackedBytes,
    Option<PyBackedBytes>,
    Vec<(PyBackedBytes, PyBackedBytes)>,
);

/// The same for the plane.
pub fn borrowed((key, value, headers): &Record) -> api::NewRecord<'_> {
    api::NewRecord {
        key,
        value: value.as_deref(),
        headers: headers
            .iter()
            .map(|(key, value)| (&key[..], Some(&value[..])))
            .collect(),
    }
}

/// `api::InternalBatch`.
#[pyclass(frozen, get_all, module = "pyrklog._core")]
pub struct InternalBatch {
    base_offset: i64,
    last_offset: i64,
    producer_id: i64,
    is_transactional: bool,
    is_control: bool,
    records: Py<PyList>,
    damage: Option<String>,
}

event_class! {
    /// `TicketOutcome::InternalRead`.
    InternalReadDone {
        ticket: u64,
        error: i16,
        batches: Py<PyList>,
        next_offset: i64,
        end_offset: i64,
    }
}

/// The result of a read as its Python object.
pub fn read_done(py: Python<'_>, ticket: u64, read: api::InternalRead) -> PyResult<Py<PyAny>> {
    let batches = PyList::empty(py);
    for found in read.batches {
        batches.append(Py::new(py, batch(py, found)?)?)?;
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

fn batch(py: Python<'_>, found: api::InternalBatch) -> PyResult<InternalBatch> {
    let records = PyList::empty(py);
    for (offset, key, value) in found.records() {
        let key = key.map(|bytes| PyBytes::new(py, bytes));
        let value = value.map(|bytes| PyBytes::new(py, bytes));
        records.append((offset, key, value))?;
    }
    Ok(InternalBatch {
        base_offset: found.base_offset,
        last_offset: found.last_offset,
        producer_id: found.producer_id,
        is_transactional: found.is_transactional,
        is_control: found.is_control,
        records: records.unbind(),
        damage: found.damage,
    })
}
