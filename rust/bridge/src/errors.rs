//! The one table of errors: what each Rust error is in Python.

use pyo3::create_exception;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyrklog_log::config::UnknownOption;

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
