//! Questions to a registry of schemas.

use std::time::Duration;

use pyo3::prelude::*;
use pyrklog_client::Cancel;

use crate::errors;
use crate::interruptible::interruptible;

/// The latest schema of a subject; see `scanning/registry.py`.
#[pyfunction]
pub fn latest_schema(
    py: Python<'_>,
    registry: String,
    subject: String,
    connect_timeout_ms: u64,
    request_timeout_ms: u64,
) -> PyResult<String> {
    let cancel = Cancel::new().map_err(|error| errors::os(&error, None))?;
    let of_thread = cancel.clone();
    let question = Duration::from_millis(connect_timeout_ms);
    let timeout = Duration::from_millis(request_timeout_ms);
    let found = interruptible(py, "registry", &[&cancel], move || {
        pyrklog_scan::latest_schema(&registry, &subject, question, timeout, &of_thread)
    })?;
    found.map_err(errors::scan)
}
