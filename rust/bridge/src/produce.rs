//! Writing Arrow batches, and ending transactions: `pyrklog_produce` for Python.

use std::sync::Mutex;
use std::time::Duration;

use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyrklog_client::{Address, ClientConfig};
use pyrklog_produce::{LeftOpen, Outcome, ProduceOptions, Producer as Inner, Transactions as Ends};
use pyrklog_wire::batch::Compression;

use crate::errors;
use crate::fields::{field, read};
use crate::security::security;

/// (transactional id, producer id, epoch, partitions by topic).
type OpenRow = (String, i64, i16, Vec<(String, Vec<i32>)>);

/// A value that one thread uses at a time. It is gone after a failure.
struct Shared<T>(Mutex<Option<T>>);

impl<T: Send> Shared<T> {
    fn new(value: T) -> Self {
        Shared(Mutex::new(Some(value)))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<T>> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Without the GIL. `keeps` says whether the value can be used after a failure.
    fn with<R: Send>(
        &self,
        py: Python<'_>,
        keeps: bool,
        work: impl FnOnce(&mut T) -> PyResult<R> + Send,
    ) -> PyResult<R> {
        let mut value = self.lock().take().ok_or_else(errors::produce_away)?;
        let result = py.detach(|| work(&mut value));
        if keeps || result.is_ok() {
            *self.lock() = Some(value);
        }
        result
    }
}

/// Writes rows; see `producing/producer.py`.
#[pyclass(frozen, module = "pyrklog._core")]
pub struct Producer {
    inner: Shared<Inner>,
    id: (i64, i16),
}

/// Connects, and gets a producer id.
#[pyfunction]
pub fn open_producer(py: Python<'_>, settings: &Bound<'_, PyAny>) -> PyResult<Producer> {
    let options = options(settings)?;
    let inner = py
        .detach(|| Inner::open(options))
        .map_err(errors::produce)?;
    Ok(Producer {
        id: inner.id(),
        inner: Shared::new(inner),
    })
}

#[pymethods]
impl Producer {
    /// (producer id, epoch).
    fn producer_id(&self) -> (i64, i16) {
        self.id
    }

    /// Encodes and sends the batches of a `pyarrow.RecordBatchReader`.
    fn send(&self, py: Python<'_>, reader: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut stream = FFI_ArrowArrayStream::empty();
        // pyarrow fills the structure at this address, which lives until the reader takes it.
        let address = std::ptr::from_mut(&mut stream) as usize;
        reader.call_method1(pyo3::intern!(py, "_export_to_c"), (address,))?;
        let batches = RecordBatchStreamReader::try_new(stream).map_err(errors::arrow)?;
        self.inner.with(py, false, |producer| {
            for batch in batches {
                let batch = batch.map_err(errors::arrow)?;
                producer.send(&batch).map_err(errors::produce)?;
            }
            Ok(())
        })
    }

    /// Where a partition's log ends, for rows with their own offsets.
    fn follow(&self, py: Python<'_>, topic: &str, partition: i32, end: i64) -> PyResult<()> {
        self.inner.with(py, false, |producer| {
            producer
                .follow(topic, partition, end)
                .map_err(errors::produce)
        })
    }

    /// Waits for all acknowledgements.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.inner.with(py, false, |producer| {
            producer.flush().map_err(errors::produce)
        })
    }

    /// Commits or aborts.
    fn end(&self, py: Python<'_>, commit: bool) -> PyResult<()> {
        self.inner.with(py, false, |producer| {
            producer.end(commit).map_err(errors::produce)
        })
    }

    /// (topic, partition, acknowledged records).
    fn written(&self, py: Python<'_>) -> PyResult<Vec<(String, i32, u64)>> {
        let written = self
            .inner
            .with(py, true, |producer| Ok(producer.written()))?;
        let rows = written.into_iter();
        Ok(rows
            .map(|one| (one.topic, one.partition, one.records))
            .collect())
    }

    /// Bytes of acknowledged batches.
    fn acknowledged_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        self.inner
            .with(py, true, |producer| Ok(producer.acknowledged_bytes()))
    }
}

/// Ends transactions of other producers; see `producing/transactions.py`.
#[pyclass(frozen, module = "pyrklog._core")]
pub struct Transactions {
    inner: Shared<Ends>,
}

/// Connects with the first question.
#[pyfunction]
pub fn open_transactions(settings: &Bound<'_, PyAny>) -> PyResult<Transactions> {
    let timeout = millis(settings, "delivery_timeout_ms")?;
    let ends = Ends::new(client(settings)?, timeout).map_err(errors::produce)?;
    Ok(Transactions {
        inner: Shared::new(ends),
    })
}

#[pymethods]
impl Transactions {
    /// (producer id, epoch) after ending what is open.
    fn init(&self, py: Python<'_>, id: &str, timeout_ms: i32) -> PyResult<(i64, i16)> {
        self.with(py, |ends| ends.init(id, timeout_ms))
    }

    /// Of each, why it is not open; None if it is.
    fn check(&self, py: Python<'_>, all: Vec<OpenRow>) -> PyResult<Vec<Option<String>>> {
        let all = left_open(all);
        Ok(codes(self.with(py, |ends| ends.check(&all))?))
    }

    /// Of each, why it could not be ended so; None if it is.
    fn end(
        &self,
        py: Python<'_>,
        all: Vec<OpenRow>,
        commit: bool,
    ) -> PyResult<Vec<Option<String>>> {
        let all = left_open(all);
        Ok(codes(self.with(py, |ends| ends.end(&all, commit))?))
    }

    /// Transactional ids with this prefix that have an open transaction.
    fn open_with_prefix(&self, py: Python<'_>, prefix: &str) -> PyResult<Vec<String>> {
        self.with(py, |ends| ends.open_with_prefix(prefix))
    }
}

impl Transactions {
    fn with<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Ends) -> pyrklog_produce::Result<R> + Send,
    ) -> PyResult<R> {
        self.inner
            .with(py, true, |ends| work(ends).map_err(errors::produce))
    }
}

fn left_open(rows: Vec<OpenRow>) -> Vec<LeftOpen> {
    let rows = rows.into_iter();
    rows.map(|(id, producer_id, producer_epoch, partitions)| LeftOpen {
        id,
        producer_id,
        producer_epoch,
        partitions,
    })
    .collect()
}

fn codes(outcomes: Vec<Outcome>) -> Vec<Option<String>> {
    let outcomes = outcomes.into_iter();
    outcomes
        .map(|one| match one {
            Outcome::Done => None,
            Outcome::Fenced(code) => Some(code),
        })
        .collect()
}

/// Reads `ProducerSettings`.
fn options(settings: &Bound<'_, PyAny>) -> PyResult<ProduceOptions> {
    let name: String = field(settings, pyo3::intern!(settings.py(), "codec"))?;
    let codec = Compression::from_name(&name)
        .ok_or_else(|| PyValueError::new_err(format!("unknown codec '{name}'")))?;
    Ok(read!(settings => ProduceOptions {
        topic, columns, batch_bytes, memory_bytes, request_bytes, transactional_id,
        transaction_timeout_ms, keeps_offsets
    } with {
        client: client(settings)?,
        codec: codec,
        delivery_timeout: millis(settings, "delivery_timeout_ms")?,
    }))
}

fn client(settings: &Bound<'_, PyAny>) -> PyResult<ClientConfig> {
    let py = settings.py();
    let servers: String = field(settings, pyo3::intern!(py, "bootstrap_servers"))?;
    let bootstrap = Address::parse_list(&servers);
    Ok(ClientConfig {
        bootstrap: bootstrap.map_err(|error| PyValueError::new_err(error.to_string()))?,
        client_id: field(settings, pyo3::intern!(py, "client_id"))?,
        connect_timeout: millis(settings, "connect_timeout_ms")?,
        request_timeout: millis(settings, "request_timeout_ms")?,
        security: security(settings)?,
    })
}

fn millis(settings: &Bound<'_, PyAny>, name: &str) -> PyResult<Duration> {
    let ms: u64 = field(settings, &pyo3::types::PyString::new(settings.py(), name))?;
    Ok(Duration::from_millis(ms))
}
