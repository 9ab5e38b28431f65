//! The one table of errors: what each Rust error is in Python.

use std::io;
use std::path::Path;

use pyo3::create_exception;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyrklog_dataplane::image::ImageError;
use pyrklog_dataplane::{Closed, OpenError};
use pyrklog_log::config::UnknownOption;
use pyrklog_log::dump::DumpError;

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
        "``meta.properties`` names another cluster or broker, or a newer format.";
    PlaneClosedError(PyRuntimeError): "The plane was shut down.";
}

/// An unknown word for an option.
pub fn unknown_option(error: UnknownOption) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Why a plane cannot be opened.
pub fn open(error: OpenError) -> PyErr {
    match error {
        OpenError::Locked(text) => LogDirLockedError::new_err(text),
        OpenError::Foreign(text) => ForeignLogDirError::new_err(text),
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
