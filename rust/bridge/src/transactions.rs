//! Transactions and the live records of internal topics, for Python.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use pyrklog_dataplane::seam;

use crate::event_class::events;

events! {
    /// `TicketOutcome::Markers`.
    MarkersWritten { ticket: u64, results: Vec<(i16, i64)> }
    /// `Event::VerifyTransaction`.
    VerifyTransaction {
        id: u64,
        transactional_id: String,
        producer_id: i64,
        producer_epoch: i16,
        partitions: Vec<(String, i32)>,
        enrols: bool,
    }
    /// `TicketOutcome::InternalLoaded`.
    InternalLoaded { ticket: u64, error: i16, records: Option<Py<LiveRecords>> }
}

/// Topic, partition, producer id and epoch, coordinator epoch, is commit, transaction version.
pub type Marker = (String, i32, i64, i16, i32, bool, i16);

pub fn marker(fields: Marker) -> seam::Marker {
    let (topic, partition, producer_id, producer_epoch, coordinator_epoch, is_commit, version) =
        fields;
    seam::Marker {
        topic,
        partition,
        producer_id,
        producer_epoch,
        coordinator_epoch,
        is_commit,
        transaction_version: version,
    }
}

/// Id, epoch, last sequence, last timestamp, coordinator epoch, first offset of its transaction.
pub type ActiveProducer = (i64, i16, i32, i64, i32, i64);

pub fn active_producer(found: &seam::ActiveProducer) -> ActiveProducer {
    (
        found.id,
        found.epoch,
        found.last_sequence,
        found.last_timestamp,
        found.coordinator_epoch,
        found.txn_start_offset,
    )
}

pub fn written(py: Python<'_>, ticket: u64, results: Vec<(i16, i64)>) -> PyResult<Py<PyAny>> {
    MarkersWritten { ticket, results }.into_py_any(py)
}

pub fn verify(py: Python<'_>, asked: seam::VerifyTransaction) -> PyResult<Py<PyAny>> {
    VerifyTransaction {
        id: asked.id,
        transactional_id: asked.transactional_id,
        producer_id: asked.producer_id,
        producer_epoch: asked.producer_epoch,
        partitions: asked.partitions,
        enrols: asked.enrols,
    }
    .into_py_any(py)
}

pub fn loaded(
    py: Python<'_>,
    ticket: u64,
    outcome: Result<seam::LiveRecords, i16>,
) -> PyResult<Py<PyAny>> {
    let (error, records) = match outcome {
        Ok(records) => (0, Some(Py::new(py, LiveRecords(records))?)),
        Err(error) => (error, None),
    };
    InternalLoaded {
        ticket,
        error,
        records,
    }
    .into_py_any(py)
}

/// `seam::LiveRecords`.
#[pyclass(frozen, module = "pyrklog._core")]
pub struct LiveRecords(seam::LiveRecords);

#[pymethods]
impl LiveRecords {
    fn __len__(&self) -> usize {
        self.0.count()
    }

    #[getter]
    fn end_offset(&self) -> i64 {
        self.0.end_offset
    }

    #[getter]
    fn read(&self) -> u64 {
        self.0.read
    }

    #[getter]
    fn damaged(&self) -> Vec<(i64, String)> {
        self.0.damaged.clone()
    }

    #[getter]
    fn damaged_count(&self) -> u64 {
        self.0.damaged_count
    }

    fn take<'py>(&self, py: Python<'py>, max: usize) -> PyResult<Bound<'py, PyList>> {
        let page = self.0.take(max);
        let records = page
            .into_iter()
            .map(|(offset, key, value)| (offset, PyBytes::new(py, &key), PyBytes::new(py, &value)));
        PyList::new(py, records.collect::<Vec<_>>())
    }

    fn open_transactions(&self) -> Vec<(i64, i16, usize)> {
        self.0.open_transactions()
    }

    fn take_open<'py>(
        &self,
        py: Python<'py>,
        producer_id: i64,
        max: usize,
    ) -> PyResult<Bound<'py, PyList>> {
        let page = self.0.take_open(producer_id, max);
        let records = page.into_iter().map(|(offset, key, value)| {
            let value = value.map(|value| PyBytes::new(py, &value));
            (offset, PyBytes::new(py, &key), value)
        });
        PyList::new(py, records.collect::<Vec<_>>())
    }
}
