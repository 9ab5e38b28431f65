//! Threads of a scan.

use std::thread;

use crate::error::{ErrorKind, Result, ScanError};

pub(crate) const STACK_BYTES: usize = 1 << 20;

/// Starts a thread that nobody joins.
///
/// # Errors
/// The system has none left.
pub(crate) fn start(name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = thread::Builder::new().name(name.to_owned());
    let thread = thread.stack_size(STACK_BYTES);
    thread.spawn(run).map(|_| ()).map_err(resources)
}

/// The system has no thread or file descriptor left.
pub(crate) fn resources(error: std::io::Error) -> ScanError {
    let text = format!("cannot start a scan: {error}");
    ScanError::new(ErrorKind::Resources, text)
}
