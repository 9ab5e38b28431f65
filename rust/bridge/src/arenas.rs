//! Arenas of the block cache, for operators.

use std::path::PathBuf;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyrklog_dataplane::arena_tools;

/// Path, log directory, state, size in bytes, bytes of records, kept since (ms), partitions with
/// unwritten records, their bytes, damage.
type Row = (
    PathBuf,
    String,
    &'static str,
    u64,
    Option<u64>,
    Option<i64>,
    Option<usize>,
    Option<u64>,
    Option<String>,
);

/// `pyrklog_dataplane::arena_tools::list`.
#[pyfunction]
pub fn list_arenas(py: Python<'_>, directory: PathBuf) -> PyResult<Vec<Row>> {
    let rows = py.detach(|| arena_tools::list(&directory))?;
    let rows = rows.into_iter().map(|row| {
        (
            row.path,
            row.log_dir,
            row.state,
            row.size_bytes,
            row.held_bytes,
            row.kept_since_ms,
            row.partitions,
            row.unwritten_bytes,
            row.reason,
        )
    });
    Ok(rows.collect())
}

/// `pyrklog_dataplane::arena_tools::memory_bytes`.
#[pyfunction]
pub fn memory_bytes() -> u64 {
    arena_tools::memory_bytes()
}

/// `pyrklog_dataplane::arena_tools::drain`.
#[pyfunction]
pub fn drain_arena(py: Python<'_>, log_dir: PathBuf) -> PyResult<(usize, u64)> {
    let drained = py.detach(|| arena_tools::drain(&log_dir));
    let drained = drained.map_err(|error| PyOSError::new_err(error.to_string()))?;
    Ok((drained.partitions, drained.bytes))
}

/// `pyrklog_dataplane::arena_tools::drop_kept`.
#[pyfunction]
pub fn drop_arenas(
    py: Python<'_>,
    directory: PathBuf,
    log_dir: Option<PathBuf>,
) -> PyResult<(usize, u64)> {
    let dropped = py.detach(|| arena_tools::drop_kept(&directory, log_dir.as_deref()))?;
    Ok((dropped.arenas, dropped.bytes))
}

/// `pyrklog_dataplane::arena_tools::remove`.
#[pyfunction]
#[pyo3(signature = (path, *, force))]
pub fn remove_arena(py: Python<'_>, path: PathBuf, force: bool) -> PyResult<()> {
    py.detach(|| arena_tools::remove(&path, force))
        .map_err(PyValueError::new_err)
}
