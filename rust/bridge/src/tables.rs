//! The tables of APIs and features, for Python.

use pyo3::prelude::*;
use pyrklog_dataplane::latency::BOUNDS_NS;
use pyrklog_wire::api::{Owner, TABLE};
use pyrklog_wire::features::{FEATURES, FeatureRow};

/// One row of `pyrklog_wire::api::TABLE`.
#[pyclass(frozen, get_all, module = "pyrklog._core")]
pub struct ApiRow {
    key: i16,
    name: &'static str,
    min_version: i16,
    max_version: i16,
    flexible_since: i16,
    owner: &'static str,
}

/// `pyrklog_wire::features::FEATURES`: name, lowest and highest version, finalized version.
#[pyfunction]
pub fn feature_table() -> Vec<(&'static str, i16, i16, i16)> {
    let row = |row: &FeatureRow| (row.name, row.min_version, row.max_version, row.finalized);
    FEATURES.iter().map(row).collect()
}

/// Every API that is advertised, by key.
#[pyfunction]
pub fn api_table() -> Vec<ApiRow> {
    let row = |row: &pyrklog_wire::api::ApiRow| ApiRow {
        key: row.key,
        name: row.name,
        min_version: row.min_version,
        max_version: row.max_version,
        flexible_since: row.flexible_since,
        owner: match row.owner {
            Owner::Rust => "rust",
            Owner::Python => "python",
        },
    };
    TABLE.iter().map(row).collect()
}

/// `pyrklog_wire::java_hash`.
#[pyfunction]
pub fn java_hash(utf16: &[u8]) -> i32 {
    pyrklog_wire::java_hash::java_hash(utf16)
}

/// The bounds of all histograms of times.
#[pyfunction]
pub fn time_bounds_ns() -> Vec<u64> {
    BOUNDS_NS.to_vec()
}
