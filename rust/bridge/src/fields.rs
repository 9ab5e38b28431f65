//! Reads Rust values from Python objects by the names of their fields.
//!
//! Python declares each once, as a `NamedTuple` (`plane/values.py`, `plane/seam.py`,
//! `config/resolved.py`); Rust once, in `pyrklog_control`.

use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// Reads the attribute `name` of `object`. An error keeps its type and names the field.
pub fn field<'py, T: FromPyObjectOwned<'py>>(
    object: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> PyResult<T> {
    let value = object.getattr(name)?;
    value
        .extract::<T>()
        .map_err(|error| named(object.py(), &error.into(), name))
}

fn named(py: Python<'_>, error: &PyErr, name: &Bound<'_, PyString>) -> PyErr {
    PyErr::from_type(
        error.get_type(py),
        format!("argument '{name}': {}", error.value(py)),
    )
}

/// Reads each element of a sequence in the attribute `name` of `object`.
pub fn fields<'py, T>(
    object: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
    read: impl FnMut(&Bound<'py, PyAny>) -> PyResult<T>,
) -> PyResult<Vec<T>> {
    each(&field::<Vec<Bound<'py, PyAny>>>(object, name)?, read)
}

/// Reads each of these objects.
pub fn each<'py, T>(
    objects: &[Bound<'py, PyAny>],
    read: impl FnMut(&Bound<'py, PyAny>) -> PyResult<T>,
) -> PyResult<Vec<T>> {
    objects.iter().map(read).collect()
}

/// 16 bytes of a topic id.
pub fn topic_id(id: &[u8]) -> PyResult<pyrklog_dataplane::seam::TopicId> {
    id.try_into()
        .map_err(|_| PyValueError::new_err(format!("a topic id has 16 bytes, not {}", id.len())))
}

/// `read!(object => Type { a, b } with { c: value })`: a struct whose fields `a` and `b` are read
/// from attributes of the same names.
macro_rules! read {
    ($object:expr => $target:path {
        $($name:ident),* $(,)?
    } $(with { $($other:ident: $value:expr),* $(,)? })?) => {{
        let object = $object;
        $target {
            $($name: $crate::fields::field(
                object,
                pyo3::intern!(object.py(), stringify!($name)),
            )?,)*
            $($($other: $value,)*)?
        }
    }};
}
pub(crate) use read;
