//! Waiting for writers.

use std::sync::Arc;
use std::time::Duration;

use crate::log_manager::LogManager;

/// Gives the writers `moment` to work; a simulation has them write everything.
pub fn await_writers(logs: &Arc<LogManager>, moment: Duration) {
    #[cfg(feature = "sim")]
    if logs.is_simulated() {
        return crate::writer::simulated::write_all(logs);
    }
    #[cfg(not(feature = "sim"))]
    let _ = logs;
    std::thread::sleep(moment);
}
