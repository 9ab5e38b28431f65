//! `Scan`: a scan as Python sees it. Arrow's data goes out by PyCapsules, without pyarrow.

use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{Array, StructArray};
use arrow_schema::ffi::Flags;
use arrow_schema::{Field, Fields};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use pyrklog_client::{Address, Cancel, ClientConfig, Isolation};
use pyrklog_scan::{
    BadRecordSink, Column, Columns, Decode, ErrorKind, Format, Interrupt, LeftOut, Missing, Next,
    OnBad, Plan, Position, ScanError, ScanOptions, ScanReader, Status, TopicPartitions, Unanswered,
    given, plan,
};

use crate::bad_records;
use crate::errors;
use crate::fields::{field, read};
use crate::interruptible::interruptible;
use crate::security::security;

const STREAM: &CStr = c"arrow_array_stream";
const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";

/// (kind, value, leader epoch).
type Place = (String, i64, i32);
/// (topic, partition, topic id, start, end).
type SplitRow = (String, i32, [u8; 16], i64, i64);
/// (topic, partition, why).
type LeftOutRow = (String, i32, String);
/// (position, leader epoch, records, bytes, skipped, bad).
type ProgressRow = (i64, i32, u64, u64, u64, u64);

/// A batch: (schema, array).
type Capsules<'py> = (Bound<'py, PyCapsule>, Bound<'py, PyCapsule>);

/// What the reader's thread met while it read.
type Pending = Arc<Met>;

/// See [`Pending`].
#[derive(Default)]
struct Met {
    /// An exception of Python.
    error: parking::Slot,
    /// The reader was given away as a C stream, which cannot carry the exception.
    is_stream: AtomicBool,
}

enum State {
    Planned(Box<(Plan, Option<BadRecordSink>)>),
    Reading(Box<ScanReader>),
    /// The stream went to somebody else, or the scan is over.
    Away,
}

/// A planned scan, read once.
#[pyclass(frozen, module = "pyrklog._core")]
pub struct Scan {
    state: std::sync::Mutex<State>,
    columns: Arc<Columns>,
    splits: Vec<SplitRow>,
    left_out: Vec<LeftOutRow>,
    cancel: Cancel,
    status: std::sync::OnceLock<Status>,
    pending: Pending,
}

/// A place for an exception between threads.
mod parking {
    use std::sync::{Mutex, PoisonError};

    use pyo3::PyErr;

    #[derive(Default)]
    pub struct Slot(Mutex<Option<PyErr>>);

    impl Slot {
        pub fn put(&self, error: PyErr) {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }

        pub fn take(&self) -> Option<PyErr> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
        }
    }
}

/// Asks the cluster what there is to read.
#[pyfunction]
pub fn open_scan(py: Python<'_>, settings: &Bound<'_, PyAny>) -> PyResult<Scan> {
    let options = options(settings)?;
    let bad_topic: Option<String> = field(settings, pyo3::intern!(py, "bad_records"))?;
    let cancel = Cancel::new().map_err(|error| errors::os(&error, None))?;
    let bad_cancel = Cancel::new().map_err(|error| errors::os(&error, None))?;
    let (of_plan, of_sink) = (cancel.clone(), bad_cancel.clone());
    let planned = interruptible(py, "scan-plan", &[&cancel, &bad_cancel], move || {
        let (client, timeout) = (options.client.clone(), options.timeout);
        let plan = plan(options, of_plan)?;
        let open = |topic| bad_records::open(topic, client, timeout, of_sink);
        Ok::<_, ScanError>((plan, bad_topic.map(open).transpose()?))
    })?;
    let (plan, bad_records) = planned.map_err(errors::scan)?;
    let columns = plan.columns();
    let splits = plan.splits.iter().map(|split| {
        let (start, end) = (split.start, split.end);
        let topic = split.topic.to_string();
        (topic, split.partition, split.topic_id, start, end)
    });
    Ok(Scan {
        splits: splits.collect(),
        left_out: left_out_rows(&plan.left_out),
        state: std::sync::Mutex::new(State::Planned(Box::new((plan, bad_records)))),
        columns,
        cancel,
        status: std::sync::OnceLock::new(),
        pending: Pending::default(),
    })
}

/// The names of all topics, sorted; of the settings of a scan those of its client are read.
#[pyfunction]
pub fn topic_names(py: Python<'_>, settings: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    let options = options(settings)?;
    let cancel = Cancel::new().map_err(|error| errors::os(&error, None))?;
    let of_thread = cancel.clone();
    let names = interruptible(py, "scan-names", &[&cancel], move || {
        pyrklog_scan::topic_names(options.client, options.timeout, of_thread)
    })?;
    names.map_err(errors::scan)
}

#[pymethods]
impl Scan {
    /// Splits: (topic, partition, topic id, start, end).
    fn splits(&self) -> Vec<SplitRow> {
        self.splits.clone()
    }

    /// Of each split, what was delivered: (position, leader epoch, records, bytes, skipped, bad).
    fn progress(&self) -> Vec<ProgressRow> {
        match self.status.get() {
            None => self
                .splits
                .iter()
                .map(|row| (row.3, -1, 0, 0, 0, 0))
                .collect(),
            Some(status) => status
                .progress()
                .into_iter()
                .map(|one| {
                    (
                        one.position,
                        one.leader_epoch,
                        one.records,
                        one.bytes,
                        one.skipped,
                        one.bad,
                    )
                })
                .collect(),
        }
    }

    /// Partitions whose leaders did not answer: (topic, partition, why).
    fn left_out(&self) -> Vec<LeftOutRow> {
        match self.status.get() {
            None => self.left_out.clone(),
            Some(status) => left_out_rows(&status.left_out()),
        }
    }

    /// A capsule of the C data interface.
    fn schema_capsule<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(&*self.columns.schema()).map_err(errors::arrow)?;
        PyCapsule::new_with_value(py, schema, SCHEMA)
    }

    /// A capsule of the C stream interface, once.
    fn stream_capsule<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let reader = match std::mem::replace(&mut *self.lock(), State::Away) {
            State::Planned(planned) => self.start(py, *planned)?,
            State::Reading(reader) => *reader,
            State::Away => return Err(errors::scan_read()),
        };
        self.pending.is_stream.store(true, Ordering::Relaxed);
        let stream = FFI_ArrowArrayStream::new(Box::new(reader));
        PyCapsule::new_with_value(py, stream, STREAM)
    }

    /// The next batch as capsules of the C data interface (schema, array), and whether the scan has
    /// ended. Without a batch it has, or none came within so many milliseconds.
    fn next_batch<'py>(
        &self,
        py: Python<'py>,
        most_ms: Option<u64>,
    ) -> PyResult<(Option<Capsules<'py>>, bool)> {
        // Away meanwhile: a second thread that reads as well is refused.
        let mut reader = match std::mem::replace(&mut *self.lock(), State::Away) {
            State::Planned(planned) => Box::new(self.start(py, *planned)?),
            State::Reading(reader) => reader,
            State::Away => return Err(errors::scan_read()),
        };
        let next = py.detach(|| match most_ms {
            Some(most) => reader.next_within(Duration::from_millis(most)),
            None => reader
                .next_batch()
                .map(|next| next.map_or(Next::End, Next::Batch)),
        });
        *self.lock() = State::Reading(reader);
        let batch = match next {
            Ok(Next::Batch(batch)) => batch,
            Ok(Next::End) => return Ok((None, true)),
            Ok(Next::Nothing) => return Ok((None, false)),
            Err(error) => {
                let met = self.pending.error.take();
                return Err(met.unwrap_or_else(|| errors::scan(error)));
            }
        };
        let array = FFI_ArrowArray::new(&StructArray::from(batch).into_data());
        let array = PyCapsule::new_with_value(py, array, ARRAY)?;
        Ok((Some((self.schema_capsule(py)?, array)), false))
    }

    /// The exception that ended the scan, or None.
    fn failure(&self) -> Option<PyErr> {
        let failure = self.status.get()?.failure()?;
        (failure.kind != ErrorKind::Cancelled).then(|| errors::scan(failure))
    }

    /// Ends the scan.
    fn close(&self) {
        self.cancel.cancel();
        if let Some(status) = self.status.get() {
            status.close();
        }
    }
}

impl Scan {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn start(
        &self,
        py: Python<'_>,
        (plan, bad_records): (Plan, Option<BadRecordSink>),
    ) -> PyResult<ScanReader> {
        let interrupt = interrupt(py, Arc::clone(&self.pending))?;
        let reader = ScanReader::start(plan, bad_records, interrupt).map_err(errors::scan)?;
        self.status.get_or_init(|| reader.status());
        Ok(reader)
    }
}

/// Looks at Python's signals, on the main thread alone: another thread would wait for the GIL, which
/// the one that waits for it may hold.
fn interrupt(py: Python<'_>, pending: Pending) -> PyResult<Option<Interrupt>> {
    let threading = py.import("threading")?;
    let current = threading.call_method0("current_thread")?;
    if !current.is(threading.call_method0("main_thread")?) {
        return Ok(None);
    }
    let main = thread::current().id();
    Ok(Some(Box::new(move || {
        thread::current().id() == main
            && Python::attach(|py| match py.check_signals() {
                Ok(()) => false,
                Err(error) => {
                    // A reader of the C stream raises an error of its own; the signal comes again.
                    match pending.is_stream.load(Ordering::Relaxed) {
                        false => pending.error.put(error),
                        true => come_again(py),
                    }
                    true
                }
            })
    })))
}

/// Has the main thread interrupted once it runs Python again.
fn come_again(py: Python<'_>) {
    if let Ok(module) = py.import("_thread") {
        module.call_method0("interrupt_main").ok();
    }
}

fn left_out_rows(all: &[LeftOut]) -> Vec<LeftOutRow> {
    let row = |one: &LeftOut| (one.topic.to_string(), one.partition, one.reason.clone());
    all.iter().map(row).collect()
}

/// Reads `ScanSettings`.
fn options(settings: &Bound<'_, PyAny>) -> PyResult<ScanOptions> {
    let py = settings.py();
    let text =
        |name: &str| -> PyResult<String> { field(settings, &pyo3::types::PyString::new(py, name)) };
    let millis = |name: &str| -> PyResult<Duration> {
        let ms: u64 = field(settings, &pyo3::types::PyString::new(py, name))?;
        Ok(Duration::from_millis(ms))
    };
    let names: Vec<String> = field(settings, pyo3::intern!(py, "columns"))?;
    let columns: Result<Vec<Column>, _> =
        names.iter().map(|name| Column::from_name(name)).collect();
    let columns = columns.map_err(|error| PyValueError::new_err(error.to_string()))?;
    let topics: Vec<(String, Option<Vec<i32>>)> = field(settings, pyo3::intern!(py, "topics"))?;
    let topics = topics
        .into_iter()
        .map(|(topic, partitions)| TopicPartitions { topic, partitions });
    let topic_ids: Vec<(String, [u8; 16])> = field(settings, pyo3::intern!(py, "topic_ids"))?;
    let bootstrap = Address::parse_list(&text("bootstrap_servers")?);
    let client = ClientConfig {
        bootstrap: bootstrap.map_err(|error| PyValueError::new_err(error.to_string()))?,
        client_id: text("client_id")?,
        connect_timeout: millis("connect_timeout_ms")?,
        request_timeout: millis("request_timeout_ms")?,
        security: security(settings)?,
    };
    let starts: Vec<(String, i32, Place)> = field(settings, pyo3::intern!(py, "starts"))?;
    let ends: Vec<(String, i32, Place)> = field(settings, pyo3::intern!(py, "ends"))?;
    let start: Place = field(settings, pyo3::intern!(py, "start"))?;
    let end: Place = field(settings, pyo3::intern!(py, "end"))?;
    let isolation = match text("isolation")?.as_str() {
        "read_uncommitted" => Isolation::ReadUncommitted,
        "read_committed" => Isolation::ReadCommitted,
        other => return Err(unknown("isolation", other)),
    };
    let missing = match text("missing")?.as_str() {
        "fail" => Missing::Fail,
        "skip" => Missing::Skip,
        other => return Err(unknown("missing", other)),
    };
    let unanswered = match text("unanswered")?.as_str() {
        "fail" => Unanswered::Fail,
        "leave" => Unanswered::Leave,
        other => return Err(unknown("unanswered", other)),
    };
    let decoding: Option<Bound<'_, PyAny>> = field(settings, pyo3::intern!(py, "decode"))?;
    Ok(read!(settings => ScanOptions {
        rack, threads, batch_rows, batch_bytes, memory_bytes, large_bytes, check_crcs
    } with {
        client: client,
        topics: topics.collect(),
        topic_ids: topic_ids.into_iter().collect(),
        start: position(start)?,
        end: position(end)?,
        starts: positions(starts)?,
        ends: positions(ends)?,
        columns: Arc::new(Columns::new(&columns)),
        decode: decoding.as_ref().map(decode).transpose()?,
        isolation: isolation,
        missing: missing,
        unanswered: unanswered,
        timeout: millis("timeout_ms")?,
    }))
}

/// The column of decoded values as a capsule of the C data interface; None if its schema would be made
/// from a sample.
#[pyfunction]
pub fn decoded_schema<'py>(
    settings: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyCapsule>>> {
    let Some(decoding) = given(&decode(settings)?).map_err(errors::scan)? else {
        return Ok(None);
    };
    let schema = FFI_ArrowSchema::try_from(decoding.field("value").data_type());
    let schema = schema.map_err(errors::arrow)?;
    PyCapsule::new_with_value(settings.py(), schema, SCHEMA).map(Some)
}

/// How to decode values: reads `CoreDecode`.
fn decode(settings: &Bound<'_, PyAny>) -> PyResult<Decode> {
    let py = settings.py();
    let on_bad: String = field(settings, pyo3::intern!(py, "on_bad"))?;
    let on_bad = match on_bad.as_str() {
        "null" => OnBad::Null,
        "fail" => OnBad::Fail,
        "drop" => OnBad::Drop,
        other => return Err(unknown("on_bad", other)),
    };
    Ok(Decode {
        format: format(settings)?,
        fields: field(settings, pyo3::intern!(py, "fields"))?,
        on_bad,
    })
}

/// What values are.
fn format(settings: &Bound<'_, PyAny>) -> PyResult<Format> {
    let py = settings.py();
    let word: String = field(settings, pyo3::intern!(py, "format"))?;
    let schema: Option<String> = field(settings, pyo3::intern!(py, "avro_schema"))?;
    let registry: Option<String> = field(settings, pyo3::intern!(py, "registry"))?;
    match (word.as_str(), registry, schema) {
        ("json", ..) => Ok(Format::Json {
            schema: json_schema(settings)?,
        }),
        ("avro", Some(registry), schema) => Ok(Format::Registered { schema, registry }),
        ("avro", None, Some(schema)) => Ok(Format::Avro {
            schema,
            writer: field(settings, pyo3::intern!(py, "writer_schema"))?,
        }),
        ("protobuf", ..) => Ok(Format::Protobuf {
            descriptors: field(settings, pyo3::intern!(py, "descriptors"))?,
            message: field(settings, pyo3::intern!(py, "message"))?,
            is_framed: field(settings, pyo3::intern!(py, "is_framed"))?,
        }),
        ("avro", None, None) => Err(PyValueError::new_err("there is no schema")),
        (other, ..) => Err(unknown("decode", other)),
    }
}

/// The fields of JSON objects, if they are given.
fn json_schema(settings: &Bound<'_, PyAny>) -> PyResult<Option<Fields>> {
    let py = settings.py();
    let given: Option<Vec<Bound<'_, PyAny>>> = field(settings, pyo3::intern!(py, "schema"))?;
    let one = |found: &Bound<'_, PyAny>| {
        let schema = field_of(found)?;
        Field::try_from(&schema).map_err(errors::arrow)
    };
    given
        .map(|given| given.iter().map(one).collect())
        .transpose()
}

/// A field as Arrow's C data interface has it: `CoreField` of `scanning/schemas.py`.
fn field_of(found: &Bound<'_, PyAny>) -> PyResult<FFI_ArrowSchema> {
    let (format, name, flags, children): (String, String, i64, Vec<Bound<'_, PyAny>>) =
        found.extract()?;
    let children: PyResult<Vec<_>> = children.iter().map(field_of).collect();
    FFI_ArrowSchema::try_new(&format, children?, None)
        .and_then(|schema| schema.with_name(&name))
        .and_then(|schema| schema.with_flags(Flags::from_bits_truncate(flags)))
        .map_err(errors::arrow)
}

fn positions(places: Vec<(String, i32, Place)>) -> PyResult<HashMap<(String, i32), Position>> {
    places
        .into_iter()
        .map(|(topic, partition, place)| Ok(((topic, partition), position(place)?)))
        .collect()
}

fn position((kind, value, leader_epoch): Place) -> PyResult<Position> {
    Ok(match kind.as_str() {
        "earliest" => Position::Earliest,
        "latest" => Position::Latest,
        "timestamp" => Position::Timestamp(value),
        "offset" if value >= 0 => Position::Offset {
            offset: value,
            leader_epoch,
        },
        "listed" if value >= 0 => Position::Listed {
            offset: value,
            leader_epoch,
        },
        "offset" | "listed" => {
            return Err(PyValueError::new_err(format!("there is no offset {value}")));
        }
        other => return Err(unknown("position", other)),
    })
}

fn unknown(option: &str, word: &str) -> PyErr {
    PyValueError::new_err(format!("unknown {option} '{word}'"))
}
