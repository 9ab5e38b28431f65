//! What classes of events have in common.

/// Declares classes of events. Their fields are attributes, which `match` statements take by
/// position.
macro_rules! events {
    ($($(#[$doc:meta])+ $class:ident { $($field:ident: $type:ty),+ $(,)? })+) => {$(
        $(#[$doc])+
        #[pyclass(frozen, get_all, module = "pyrklog._core")]
        pub struct $class { $($field: $type),+ }

        #[pymethods]
        impl $class {
            #[classattr]
            fn __match_args__(py: Python<'_>) -> PyResult<Py<PyTuple>> {
                Ok(PyTuple::new(py, [$(stringify!($field)),+])?.unbind())
            }
        }
    )+};
}
pub(crate) use events;
