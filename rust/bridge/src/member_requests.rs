//! Decoded requests of group members: in Python, requests with additional methods.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use pyrklog_dataplane as dataplane;

use crate::events::{self, Session};

/// `Event::Heartbeat`.
#[pyclass(frozen, module = "pyrklog._core")]
pub struct Heartbeat(pub dataplane::Heartbeat);

/// `Event::OffsetCommit`.
#[pyclass(frozen, module = "pyrklog._core")]
pub struct OffsetCommit(pub Arc<dataplane::OffsetCommit>);

/// The methods of such a request: those of any request, of its member, and its own.
macro_rules! member_request {
    ($class:ident { $($own:tt)* }) => {
        #[pymethods]
        impl $class {
            #[classattr]
            fn __match_args__(py: Python<'_>) -> PyResult<Py<PyTuple>> {
                let fields = ["id", "api_key", "api_version", "session", "body"];
                Ok(PyTuple::new(py, fields)?.unbind())
            }

            #[getter]
            fn id(&self) -> u64 {
                self.0.request.id
            }

            #[getter]
            fn api_key(&self) -> i16 {
                self.0.request.api_key
            }

            #[getter]
            fn api_version(&self) -> i16 {
                self.0.request.api_version
            }

            #[getter]
            fn session(&self, py: Python<'_>) -> PyResult<Py<Session>> {
                events::session(py, self.0.request.session.clone())
            }

            #[getter]
            fn body<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
                PyBytes::new(py, &self.0.request.body)
            }

            #[getter]
            fn group_id(&self) -> &str {
                self.0.membership().group_id
            }

            #[getter]
            fn generation(&self) -> i32 {
                self.0.membership().generation
            }

            #[getter]
            fn member_id(&self) -> &str {
                self.0.membership().member_id
            }

            #[getter]
            fn instance_id(&self) -> Option<&str> {
                self.0.membership().instance_id
            }

            $($own)*
        }
    };
}

member_request!(Heartbeat {});

member_request!(OffsetCommit {
    #[getter]
    fn metadata_units(&self) -> usize {
        self.0.metadata_units()
    }

    #[getter]
    fn size_bytes(&self) -> usize {
        self.0.size_bytes()
    }
});
