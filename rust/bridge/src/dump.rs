//! `dump_file`: rows of one file of a log directory, one at a time.

use std::path::PathBuf;
use std::sync::Mutex;

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use pyrklog_log::dump::{self, Dump, Options, Value};

use crate::errors;

/// Iterates over `pyrklog_log::dump::Dump`.
#[pyclass(frozen, module = "pyrklog._core")]
pub struct DumpRows(Mutex<Dump>);

#[pymethods]
impl DumpRows {
    fn __iter__(rows: PyRef<'_, Self>) -> PyRef<'_, Self> {
        rows
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyDict>>> {
        let next = py.detach(|| {
            let mut rows = self
                .0
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            rows.next()
        });
        let Some(row) = next else { return Ok(None) };
        let table = PyDict::new(py);
        for (name, value) in row.map_err(errors::dump)? {
            table.set_item(name, object(py, value)?)?;
        }
        Ok(Some(table.unbind()))
    }
}

/// Opens a file; its name tells the kind.
#[pyfunction]
#[pyo3(signature = (path, *, records, verify))]
pub fn dump_file(py: Python<'_>, path: PathBuf, records: bool, verify: bool) -> PyResult<DumpRows> {
    let rows = py.detach(|| dump::open(&path, Options { records, verify }));
    rows.map(|rows| DumpRows(Mutex::new(rows)))
        .map_err(errors::dump)
}

fn object(py: Python<'_>, value: Value) -> PyResult<Py<PyAny>> {
    match value {
        Value::Null => Ok(py.None()),
        Value::Bool(one) => one.into_py_any(py),
        Value::Int(one) => one.into_py_any(py),
        Value::Text(one) => one.into_py_any(py),
        Value::Bytes(one) => PyBytes::new(py, &one).into_py_any(py),
        Value::List(all) => {
            let list = PyList::empty(py);
            for one in all {
                list.append(object(py, one)?)?;
            }
            list.into_py_any(py)
        }
    }
}
