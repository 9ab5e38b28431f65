//! Classes that are declared by their fields alone.

/// Declares a class around a Rust type: its keywords, which are the fields, with a conversion
/// behind `=`. The keywords of `with` make the fields behind its `=>`.
macro_rules! keyword_class {
    (
        $(#[$attribute:meta])*
        $name:ident($module:ident::$inner:ident) {
            $($field:ident: $type:ty $(= $value:expr)?,)*
        }
        $(with { $($part:ident: $part_type:ty,)* } => { $($whole:ident: $made:expr,)* })?
    ) => {
        $(#[$attribute])*
        #[pyo3::pyclass(frozen, module = "pyrklog._core")]
        pub struct $name(pub $module::$inner);

        #[pyo3::pymethods]
        impl $name {
            #[new]
            #[pyo3(signature = (*, $($field,)* $($($part,)*)?))]
            #[allow(clippy::too_many_arguments, reason = "one keyword a field, as in the stub")]
            fn new($($field: $type,)* $($($part: $part_type,)*)?) -> pyo3::PyResult<Self> {
                $($(let $field = $value;)?)*
                Ok(Self($module::$inner { $($field,)* $($($whole: $made,)*)? }))
            }
        }
    };
}

/// Declares the class of an event: its fields can be read, and taken by position in `match`
/// statements.
macro_rules! event_class {
    ($($(#[$attribute:meta])* $name:ident { $($field:ident: $type:ty,)* })*) => {$(
        $(#[$attribute])*
        #[pyo3::pyclass(frozen, get_all, module = "pyrklog._core")]
        pub struct $name {
            $(pub $field: $type,)*
        }

        #[pyo3::pymethods]
        impl $name {
            #[classattr]
            fn __match_args__(py: Python<'_>) -> PyResult<Py<pyo3::types::PyTuple>> {
                Ok(pyo3::types::PyTuple::new(py, [$(stringify!($field)),*])?.unbind())
            }
        }
    )*};
}

pub(crate) use {event_class, keyword_class};
