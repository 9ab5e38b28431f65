//! The Python module pyrklog._core: the only crate that knows pyo3. No logic.
