//! A connection's produce request that waits for its log directory.

use std::sync::Arc;

use pyrklog_storage::log_dir::LogDirState;

/// A connection's parked request.
#[derive(Debug)]
pub struct Parked {
    /// Since when the connection has been held without its buffer becoming empty, monotonic
    /// milliseconds.
    pub since_ms: i64,
    /// Where the request waits, and until when.
    pub waits: Option<(Arc<LogDirState>, i64)>,
}
