//! `run_load`: the load generator, for `pyrklog bench`.

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyrklog_loadgen::program::{Trouble, execute};

/// Runs a command line of the generator.
#[pyfunction]
pub fn run_load(py: Python<'_>, arguments: Vec<String>) -> PyResult<String> {
    match py.detach(|| execute(arguments)) {
        Ok(ended) => Ok(ended.text),
        Err(Trouble::Usage(error)) => Err(PyValueError::new_err(error.to_string())),
        Err(Trouble::Run(failure)) => Err(PyRuntimeError::new_err(failure.to_string())),
    }
}
