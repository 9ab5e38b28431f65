//! The one table of errors: what each Rust error is in Python.

use std::io;
use std::path::Path;

use arrow_schema::ArrowError;
use pyo3::create_exception;
use pyo3::exceptions::{
    PyException, PyKeyboardInterrupt, PyOSError, PyOverflowError, PyRuntimeError, PyValueError,
};
use pyo3::prelude::*;
use pyrklog_compression::DecompressError;
use pyrklog_dataplane::image::ImageError;
use pyrklog_dataplane::{Closed, OpenError};
use pyrklog_log::config::UnknownOption;
use pyrklog_log::dump::DumpError;
use pyrklog_produce::{ErrorKind as Kind, ProduceError as NotProduced};
use pyrklog_scan::{ErrorKind, ScanError as Failure};
use pyrklog_wire::DecodeError;

/// Declares exceptions: name, base and docstring.
macro_rules! exceptions {
    ($($name:ident($base:ident): $doc:literal;)+) => {
        $(create_exception!(pyrklog._core, $name, $base, $doc);)+
    };
}

exceptions! {
    LogDirError(PyOSError): "A log directory cannot be used; the message says which and what to do.";
    LogDirLockedError(LogDirError): "Another process holds the directory's ``.lock``.";
    ForeignLogDirError(LogDirError):
        "``meta.properties`` is of a newer format or damaged, or two directories contradict each other.";
    OtherClusterLogDirError(LogDirError): "``meta.properties`` names another cluster.";
    OtherBrokerLogDirError(LogDirError): "``meta.properties`` names another broker.";
    PlaneClosedError(PyRuntimeError): "The plane was shut down.";
    ScanError(PyException): "A scan cannot begin or go on; the message says why.";
    ScanClosedError(ScanError): "The scan was closed, or is read elsewhere.";
    UnknownTopicError(ScanError): "A topic or partition does not exist.";
    AuthenticationError(ScanError):
        "A broker refused the client's name or token, or one side the other's certificate.";
    NotAuthorizedError(ScanError): "The client may not read a topic.";
    OffsetOutOfRangeError(ScanError): "An offset was deleted, or was never in the log.";
    LogTruncatedError(ScanError): "Records that were read are no longer in the log (KIP-320).";
    TopicDeletedError(ScanError): "A topic was deleted, or created anew, during the scan.";
    LeaderNotAvailableError(ScanError): "A partition had no leader that answers in time.";
    BrokerNotAvailableError(ScanError): "No broker could be reached in time.";
    UnsupportedBrokerError(ScanError): "A broker is too old for what is asked.";
    BrokerProtocolError(ScanError): "A broker does not follow Kafka's protocol.";
    CorruptBatchError(ScanError): "Records do not hold together.";
    BadValueError(ScanError): "A value is not what the schema of a scan says.";
    BadRecordsError(ScanError):
        "Records whose values do not fit cannot be written to their topic.";
    RegistryNotAvailableError(ScanError): "A registry of schemas gave no answer in time.";
    BatchTooLargeError(ScanError): "A batch or record exceeds the limit.";
    ProduceError(PyException):
        "Records are not written, or a transaction is not ended; the message says why.";
    ProducerAuthenticationError(ProduceError):
        "A broker refused the client's name or token, or one side the other's certificate.";
    TransactionFencedError(ProduceError):
        "The transaction was ended by its coordinator or by another producer of its id.";
    ClusterUnavailableError(ProduceError): "Brokers did not answer in time, or did not take records.";
    UnsupportedClusterError(ProduceError): "A broker is too old for what is asked.";
    RecordTooLargeError(ProduceError): "A record is larger than its topic allows.";
    LogEndMovedError(ProduceError):
        "A log does not end where records with their own offsets are to follow.";
}

/// An unknown word for an option.
pub fn unknown_option(error: UnknownOption) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// A pattern that cannot be read, or is too large.
pub fn pattern(error: regex_lite::Error) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// A codec that does not exist.
pub fn codec(error: DecodeError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Bytes that cannot be expanded, or not within their bound.
pub fn decompress(error: DecompressError) -> PyErr {
    let text = error.to_string();
    match error {
        DecompressError::TooLarge { .. } => PyOverflowError::new_err(text),
        DecompressError::Corrupt { .. } => PyValueError::new_err(text),
    }
}

/// Why a plane cannot be opened.
pub fn open(error: OpenError) -> PyErr {
    match error {
        OpenError::Locked(text) => LogDirLockedError::new_err(text),
        OpenError::Foreign(text) => ForeignLogDirError::new_err(text),
        OpenError::OtherCluster(text) => OtherClusterLogDirError::new_err(text),
        OpenError::OtherBroker(text) => OtherBrokerLogDirError::new_err(text),
        OpenError::NoLogDir(text) => LogDirError::new_err(text),
        OpenError::Config(text) => PyValueError::new_err(text),
        OpenError::Io(source) => os(&source, None),
    }
}

/// An image that contradicts itself or the one in force.
pub fn image(error: ImageError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// A command after `shutdown`.
pub fn closed(error: Closed) -> PyErr {
    PlaneClosedError::new_err(error.to_string())
}

/// Why a scan ended.
pub fn scan(error: Failure) -> PyErr {
    let Failure { kind, text } = error;
    match kind {
        ErrorKind::Cancelled => ScanClosedError::new_err(text),
        ErrorKind::Interrupted => PyKeyboardInterrupt::new_err(text),
        ErrorKind::Argument => PyValueError::new_err(text),
        ErrorKind::UnknownTopic => UnknownTopicError::new_err(text),
        ErrorKind::Authentication => AuthenticationError::new_err(text),
        ErrorKind::NotAuthorized => NotAuthorizedError::new_err(text),
        ErrorKind::OffsetOutOfRange => OffsetOutOfRangeError::new_err(text),
        ErrorKind::LogTruncated => LogTruncatedError::new_err(text),
        ErrorKind::TopicDeleted => TopicDeletedError::new_err(text),
        ErrorKind::LeaderNotAvailable => LeaderNotAvailableError::new_err(text),
        ErrorKind::BrokerNotAvailable => BrokerNotAvailableError::new_err(text),
        ErrorKind::UnsupportedBroker => UnsupportedBrokerError::new_err(text),
        ErrorKind::Protocol => BrokerProtocolError::new_err(text),
        ErrorKind::CorruptBatch => CorruptBatchError::new_err(text),
        ErrorKind::BatchTooLarge => BatchTooLargeError::new_err(text),
        ErrorKind::BadValue => BadValueError::new_err(text),
        ErrorKind::BadRecords => BadRecordsError::new_err(text),
        ErrorKind::Registry => RegistryNotAvailableError::new_err(text),
        ErrorKind::Resources => PyOSError::new_err(text),
    }
}

/// Why records are not written, or a transaction is not ended.
pub fn produce(error: NotProduced) -> PyErr {
    let NotProduced { kind, text } = error;
    match kind {
        Kind::Argument => PyValueError::new_err(text),
        Kind::Authentication => ProducerAuthenticationError::new_err(text),
        Kind::Fenced => TransactionFencedError::new_err(text),
        Kind::TooLarge => RecordTooLargeError::new_err(text),
        Kind::Elsewhere => LogEndMovedError::new_err(text),
        Kind::Unavailable => ClusterUnavailableError::new_err(text),
        Kind::Unsupported => UnsupportedClusterError::new_err(text),
        Kind::Resources => PyOSError::new_err(text),
        Kind::UnknownTopic | Kind::NotAuthorized | Kind::Protocol | Kind::Refused => {
            ProduceError::new_err(text)
        }
    }
}

/// After a failure, or while another thread uses it.
pub fn produce_away() -> PyErr {
    ProduceError::new_err("the producer has failed, or is used by another thread: open another one")
}

/// A scan is read once.
pub fn scan_read() -> PyErr {
    ScanClosedError::new_err("the scan was read already, or is being read: open another one")
}

/// Data that Arrow's C interface cannot carry.
pub fn arrow(error: ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// `ValueError` for a file that is not a log directory's, else the `OSError` of reading it.
pub fn dump(error: DumpError) -> PyErr {
    match error {
        DumpError::Io { path, source } => os(&source, Some(&path)),
        DumpError::UnknownFile(_) => PyValueError::new_err(error.to_string()),
    }
}

/// Python chooses the subclass of `OSError` by the number: FileNotFoundError, PermissionError, ...
pub fn os(source: &io::Error, path: Option<&Path>) -> PyErr {
    let text = source.to_string();
    let Some(number) = source.raw_os_error() else {
        return PyOSError::new_err(text);
    };
    let reason = text
        .split(" (os error")
        .next()
        .unwrap_or_default()
        .to_owned();
    match path {
        Some(path) => PyOSError::new_err((number, reason, path.display().to_string())),
        None => PyOSError::new_err((number, reason)),
    }
}
