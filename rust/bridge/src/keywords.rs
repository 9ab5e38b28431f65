//! Classes that Python makes from one keyword a field.

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

pub(crate) use keyword_class;
