//! A produce request that waits for its log directory, as its connection knows it.

use std::sync::Arc;

use pyrklog_storage::log_dir::LogDirState;

/// What a connection that has a parked request remembers.
#[derive(Debug)]
pub struct Parked {
    /// Since when the connection has been held back, without an empty buffer since; ms.
    pub since_ms: i64,
    /// Where the request waits now, and until when.
    pub waits: Option<(Arc<LogDirState>, i64)>,
}
