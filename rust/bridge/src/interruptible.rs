//! Questions that a signal of Python ends.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyrklog_client::Cancel;

use crate::errors;

/// How often Python's signals are looked at.
const LOOK: Duration = Duration::from_millis(100);

/// What `work` gives, on a thread of its own and without the GIL. On a signal `cancels` are used;
/// they must end `work`.
pub fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    name: &str,
    cancels: &[&Cancel],
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    let (sender, mut receiver) = channel();
    let thread = thread::Builder::new().name(name.into());
    thread
        .spawn(move || {
            // Nobody waits after a signal.
            sender.send(work()).ok();
        })
        .map_err(|error| errors::os(&error, None))?;
    loop {
        // Borrowed for itself: a receiver may not be shared between threads.
        let only = &mut receiver;
        match py.detach(move || only.recv_timeout(LOOK)) {
            Ok(found) => return Ok(found),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err(format!("{name} was lost")));
            }
        }
        if let Err(error) = py.check_signals() {
            for cancel in cancels {
                cancel.cancel();
            }
            return Err(error);
        }
    }
}
