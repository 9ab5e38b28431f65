//! A plane driven by tests/sim: `pyrklog_dataplane::sim`.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pyrklog_dataplane::sim::{self, FetchTurn};
use pyrklog_log::disk::testing;

use crate::config::plane_config;
use crate::digests;
use crate::errors;
use crate::plane::DataPlane;

/// A disk in memory that outlives its plane.
#[pyclass(frozen, module = "pyrklog._core")]
pub struct MemDisk(testing::MemDisk);

#[pymethods]
impl MemDisk {
    #[new]
    fn new() -> Self {
        Self(testing::MemDisk::default())
    }

    /// The process dies: its writes stay.
    fn kill_process(&self) {
        self.0.kill_process();
    }

    /// A power failure: unsynced data is partly lost or torn, depending on `seed`.
    fn reboot(&self, seed: u64) {
        self.0.reboot(seed);
    }

    /// Whether a file exists.
    fn has(&self, path: &str) -> bool {
        self.0.content(path.as_ref()).is_some()
    }
}

/// `sim::set_now_ms`.
#[pyfunction]
pub fn set_now_ms(now_ms: i64) {
    sim::set_now_ms(now_ms);
}

/// `sim::plant`.
#[pyfunction]
pub fn plant(names: Vec<String>) -> PyResult<()> {
    let unknown = |name| PyValueError::new_err(format!("no bug {name} can be planted here"));
    sim::plant(&names).map_err(unknown)
}

/// `sim::SimPlane`.
#[pyclass(unsendable, module = "pyrklog._core")]
pub struct SimPlane(sim::SimPlane);

type Answers = Vec<(u64, Option<Py<PyBytes>>)>;
type Offsets = (i64, i64, i64, i64);

#[pymethods]
impl SimPlane {
    #[new]
    fn new(settings: &Bound<'_, PyAny>, disk: &Bound<'_, MemDisk>) -> PyResult<Self> {
        let config = plane_config(settings)?;
        let opened = sim::SimPlane::open(config, &disk.get().0);
        opened.map(Self).map_err(errors::open)
    }

    fn plane(&self) -> DataPlane {
        DataPlane::from(self.0.plane())
    }

    /// `DataPlane::break_invariant`.
    fn break_invariant(&self, topic: &str, partition: i32) {
        self.0.plane().break_invariant(topic, partition);
    }

    fn connect(&mut self) -> u64 {
        self.0.clients.connect()
    }

    /// False if the connection is gone.
    fn send(&mut self, connection: u64, frame: &[u8]) -> bool {
        self.0.clients.send(connection, frame)
    }

    fn disconnect(&mut self, connection: u64) {
        self.0.clients.disconnect(connection);
    }

    fn run_network(&mut self) {
        self.0.clients.run();
    }

    fn due_ms(&self) -> Option<i64> {
        self.0.due_ms()
    }

    fn take_answers(&mut self, py: Python<'_>) -> Answers {
        let answers = self.0.clients.take_replies().into_iter();
        let bytes = |frame: Vec<u8>| PyBytes::new(py, &frame).unbind();
        answers
            .map(|(connection, frame)| (connection, frame.map(bytes)))
            .collect()
    }

    fn has_commands(&self) -> bool {
        self.0.has_commands()
    }

    fn run_command(&mut self) -> bool {
        self.0.run_command()
    }

    fn has_reads(&self) -> bool {
        self.0.has_reads()
    }

    fn run_read(&mut self) -> bool {
        self.0.run_read()
    }

    fn has_writes(&self) -> bool {
        self.0.has_writes()
    }

    fn write(&mut self) -> bool {
        self.0.write()
    }

    fn begin_writes(&mut self) {
        self.0.begin_writes();
    }

    fn writes_return(&mut self) {
        self.0.writes_return();
    }

    fn sync(&mut self) -> PyResult<()> {
        self.0.sync().map_err(PyValueError::new_err)
    }

    fn fetchers(&self) -> Vec<(i32, usize)> {
        self.0.fetchers()
    }

    fn has_mail(&self, fetcher: (i32, usize)) -> bool {
        self.0.has_mail(fetcher)
    }

    /// A frame to send, the time to ask again, or None when nothing is followed any more.
    fn begin_fetch(
        &mut self,
        py: Python<'_>,
        fetcher: (i32, usize),
    ) -> PyResult<Option<Py<PyAny>>> {
        use pyo3::IntoPyObjectExt;
        match self.0.begin_fetch(fetcher) {
            FetchTurn::Send(frame) => Some(PyBytes::new(py, &frame).into_py_any(py)).transpose(),
            FetchTurn::Later(due_ms) => Some(due_ms.into_py_any(py)).transpose(),
            FetchTurn::Idle => Ok(None),
        }
    }

    fn fetch_answered(
        &mut self,
        py: Python<'_>,
        fetcher: (i32, usize),
        frame: Vec<u8>,
        exchange: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let exchange = |asked: Vec<u8>| -> Option<Vec<u8>> {
            exchange
                .call1((PyBytes::new(py, &asked),))
                .and_then(|answer| answer.extract())
                .ok()
                .flatten()
        };
        let taken = self.0.fetch_answered(fetcher, frame, exchange);
        taken.map_err(PyValueError::new_err)
    }

    fn fetch_failed(&mut self, fetcher: (i32, usize)) {
        self.0.fetch_failed(fetcher);
    }

    /// Role, leader epoch, (log start, high watermark, durable end, log end) and the replicas that
    /// the high watermark waits for.
    fn partition(
        &self,
        topic: &str,
        index: i32,
    ) -> Option<(String, i32, Option<Offsets>, Vec<i32>)> {
        let view = self.0.partition(topic, index)?;
        let role = format!("{:?}", view.role);
        Some((role, view.leader_epoch, view.offsets, view.members))
    }

    /// (base offset, last offset, leader epoch, checksum) of each batch.
    fn batches(&self, topic: &str, index: i32) -> PyResult<Vec<digests::Batch>> {
        let batches = self
            .0
            .batches(topic, index)
            .map_err(PyValueError::new_err)?;
        Ok(batches.into_iter().map(digests::row).collect())
    }

    fn shut_down(&mut self) -> bool {
        self.0.shut_down()
    }

    fn kill(&mut self, writes: bool) {
        self.0.kill(writes);
    }
}
