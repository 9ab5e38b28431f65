//! The time of day of a broker that was started for tests.

use pyo3::prelude::*;

/// `pyrklog_dataplane::set_ahead_ms`.
#[pyfunction]
pub fn set_clock_ahead_ms(ahead_ms: i64) {
    pyrklog_dataplane::set_ahead_ms(ahead_ms);
}
