//! The API table, for Python.

use pyo3::prelude::*;
use pyrklog_wire::api::{Owner, TABLE};

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
