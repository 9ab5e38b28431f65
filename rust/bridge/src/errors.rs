//! The one table of errors: what each Rust error is in Python.

use std::io;
use std::path::Path;

use pyo3::create_exception;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyrklog_log::config::UnknownOption;
use pyrklog_log::dump::DumpError;

create_exception!(
    pyrklog._core,
    LogDirError,
    PyOSError,
    "A log directory cannot be used; the message says which and what to do."
);
create_exception!(
    pyrklog._core,
    LogDirLockedError,
    LogDirError,
    "Another process holds the directory's ``.lock``."
);
create_exception!(
    pyrklog._core,
    ForeignLogDirError,
    LogDirError,
    "``meta.properties`` names another cluster or broker, or a newer format."
);
create_exception!(
    pyrklog._core,
    PlaneClosedError,
    PyRuntimeError,
    "The plane was shut down."
);

/// A word that is not in an option's list.
pub fn unknown_option(error: UnknownOption) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// A file that cannot be dumped: `ValueError` for one that is none of a log directory's, else the
/// `OSError` of reading it.
pub fn dump(error: DumpError) -> PyErr {
    match error {
        DumpError::Io { path, source } => os_error(&source, &path),
        DumpError::UnknownFile(_) => PyValueError::new_err(error.to_string()),
    }
}

/// Python picks the subclass by the number: FileNotFoundError, PermissionError, ...
fn os_error(source: &io::Error, path: &Path) -> PyErr {
    match source.raw_os_error() {
        Some(number) => {
            let text = source.to_string();
            let reason = text
                .split(" (os error")
                .next()
                .unwrap_or_default()
                .to_owned();
            PyOSError::new_err((number, reason, path.display().to_string()))
        }
        None => PyOSError::new_err(format!("{}: {source}", path.display())),
    }
}
