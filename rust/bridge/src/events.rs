//! The plane's events for Python: one frozen class each.

use std::path::Path;
use std::sync::Arc;

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use pyrklog_dataplane::seam::{self, Event, TicketOutcome};

use crate::digests::{self, ReplicaDigestDone};
use crate::event_class::events;
use crate::internal::{self, InternalReadDone};
use crate::member_requests::{Heartbeat, OffsetCommit};
use crate::transactions::{self, InternalLoaded, MarkersWritten, VerifyTransaction};

/// `seam::Session`.
#[pyclass(frozen, module = "pyrklog._core")]
pub struct Session {
    #[pyo3(get)]
    connection: u64,
    #[pyo3(get)]
    principal: String,
    #[pyo3(get)]
    host: String,
    #[pyo3(get)]
    port: u16,
    #[pyo3(get)]
    client_id: Option<String>,
    #[pyo3(get)]
    listener: String,
    software: Option<Arc<seam::Software>>,
}

// Few requests ask for these: the texts are made when they do.
#[pymethods]
impl Session {
    #[getter]
    fn software_name(&self) -> Option<&str> {
        self.software.as_deref().map(|software| &*software.name)
    }

    #[getter]
    fn software_version(&self) -> Option<&str> {
        self.software.as_deref().map(|software| &*software.version)
    }
}

/// (path, error code, total bytes, usable bytes, (topic, partition, size, offset lag) of each).
type LogDirUsage = (String, i16, i64, i64, Vec<(String, i32, i64, i64, bool)>);

events! {
    /// `seam::ControlRequest`.
    Request { id: u64, api_key: i16, api_version: i16, session: Py<Session>, body: Py<PyBytes> }
    /// `Event::TopicsMissing`.
    TopicsMissing { id: u64, topics: Vec<String>, session: Py<Session> }
    /// `Event::ClientGone`.
    ClientGone { id: u64 }
    /// `TicketOutcome::Partitions`.
    PartitionsDone { ticket: u64, errors: Vec<i16> }
    /// `TicketOutcome::DeleteRecords`.
    RecordsDeleted { ticket: u64, results: Vec<(i16, i64)> }
    /// `TicketOutcome::LogDirs`.
    LogDirsDescribed { ticket: u64, log_dirs: Vec<LogDirUsage> }
    /// `TicketOutcome::InternalAppended`.
    InternalAppended { ticket: u64, error: i16, base_offset: i64 }
    /// `TicketOutcome::Shutdown`.
    ShutdownDone { ticket: u64, clean: bool }
    /// `Event::FollowerCaughtUp`.
    FollowerCaughtUp {
        topic: String, partition: i32, leader_epoch: i32, broker: i32, broker_epoch: i64
    }
    /// `Event::FollowerLogStart`.
    FollowerLogStart { topic: String, partition: i32 }
    /// `Event::LogDirFailed`.
    LogDirFailed { path: String, reason: String, partitions: Vec<(String, i32)> }
    /// `Event::PartitionFailed`.
    PartitionFailed { topic: String, topic_id: Py<PyBytes>, partition: i32, reason: String }
    /// `Event::Notice`.
    Notice { event: &'static str, fields: Py<PyDict>, level: &'static str }
}

/// The return type of `drain_events`: the union of all event classes.
pub fn union(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let others = [
        py.get_type::<Heartbeat>(),
        py.get_type::<OffsetCommit>(),
        py.get_type::<TopicsMissing>(),
        py.get_type::<ClientGone>(),
        py.get_type::<PartitionsDone>(),
        py.get_type::<RecordsDeleted>(),
        py.get_type::<LogDirsDescribed>(),
        py.get_type::<InternalAppended>(),
        py.get_type::<InternalReadDone>(),
        py.get_type::<InternalLoaded>(),
        py.get_type::<MarkersWritten>(),
        py.get_type::<ReplicaDigestDone>(),
        py.get_type::<ShutdownDone>(),
        py.get_type::<FollowerCaughtUp>(),
        py.get_type::<FollowerLogStart>(),
        py.get_type::<LogDirFailed>(),
        py.get_type::<PartitionFailed>(),
        py.get_type::<VerifyTransaction>(),
        py.get_type::<Notice>(),
    ];
    let first = py.get_type::<Request>().into_any();
    others
        .iter()
        .try_fold(first, |union, class| union.bitor(class))
}

pub fn into_python(py: Python<'_>, event: Event) -> PyResult<Py<PyAny>> {
    match event {
        Event::Request(asked) => request(py, asked),
        Event::Heartbeat(heartbeat) => Heartbeat(*heartbeat).into_py_any(py),
        Event::OffsetCommit(commit) => OffsetCommit(commit).into_py_any(py),
        Event::TopicsMissing {
            id,
            topics,
            session: who,
        } => TopicsMissing {
            id,
            topics,
            session: session(py, who)?,
        }
        .into_py_any(py),
        Event::ClientGone { id } => ClientGone { id }.into_py_any(py),
        Event::Ticket { id, outcome } => ticket(py, id, outcome),
        Event::FollowerCaughtUp(told) => FollowerCaughtUp {
            topic: told.topic,
            partition: told.partition,
            leader_epoch: told.leader_epoch,
            broker: told.broker,
            broker_epoch: told.broker_epoch,
        }
        .into_py_any(py),
        Event::FollowerLogStart(topic, partition) => {
            FollowerLogStart { topic, partition }.into_py_any(py)
        }
        Event::LogDirFailed {
            path,
            reason,
            partitions,
        } => LogDirFailed {
            path: text(&path),
            reason,
            partitions,
        }
        .into_py_any(py),
        Event::PartitionFailed(failed) => PartitionFailed {
            topic: failed.topic,
            topic_id: PyBytes::new(py, &failed.topic_id).unbind(),
            partition: failed.partition,
            reason: failed.reason,
        }
        .into_py_any(py),
        Event::VerifyTransaction(asked) => transactions::verify(py, asked),
        Event::Notice {
            event,
            fields,
            level,
        } => notice(py, event, fields, level),
    }
}

fn request(py: Python<'_>, asked: seam::ControlRequest) -> PyResult<Py<PyAny>> {
    Request {
        id: asked.id,
        api_key: asked.api_key,
        api_version: asked.api_version,
        session: session(py, asked.session)?,
        body: PyBytes::new(py, &asked.body).unbind(),
    }
    .into_py_any(py)
}

fn notice(
    py: Python<'_>,
    event: &'static str,
    fields: Vec<(&'static str, String)>,
    level: &'static str,
) -> PyResult<Py<PyAny>> {
    let table = PyDict::new(py);
    for (name, value) in fields {
        table.set_item(name, value)?;
    }
    Notice {
        event,
        fields: table.unbind(),
        level,
    }
    .into_py_any(py)
}

fn ticket(py: Python<'_>, ticket: u64, outcome: TicketOutcome) -> PyResult<Py<PyAny>> {
    match outcome {
        TicketOutcome::Partitions(errors) => PartitionsDone { ticket, errors }.into_py_any(py),
        TicketOutcome::DeleteRecords(results) => RecordsDeleted { ticket, results }.into_py_any(py),
        TicketOutcome::LogDirs(found) => {
            let log_dirs = found.into_iter().map(usage).collect();
            LogDirsDescribed { ticket, log_dirs }.into_py_any(py)
        }
        TicketOutcome::InternalAppended {
            error_code,
            base_offset,
        } => InternalAppended {
            ticket,
            error: error_code,
            base_offset,
        }
        .into_py_any(py),
        TicketOutcome::InternalRead(read) => internal::read_done(py, ticket, read),
        TicketOutcome::InternalLoaded(loaded) => transactions::loaded(py, ticket, loaded),
        TicketOutcome::Markers(results) => transactions::written(py, ticket, results),
        TicketOutcome::ReplicaDigest(digest) => digests::digest_done(py, ticket, digest),
        TicketOutcome::Shutdown(clean) => ShutdownDone { ticket, clean }.into_py_any(py),
    }
}

pub fn session(py: Python<'_>, session: seam::Session) -> PyResult<Py<Session>> {
    Py::new(
        py,
        Session {
            connection: session.connection,
            principal: session.principal.to_string(),
            host: session.host.to_string(),
            port: session.port,
            client_id: session.client_id,
            listener: session.listener.to_string(),
            software: session.software,
        },
    )
}

fn usage(found: seam::LogDirDescription) -> LogDirUsage {
    (
        text(&found.path),
        found.error_code,
        found.total_bytes,
        found.usable_bytes,
        found.partitions,
    )
}

/// Paths of log directories come from Python as text, so nothing is lost.
pub fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
