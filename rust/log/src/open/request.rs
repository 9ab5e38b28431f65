//! Request and result of opening a log.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::config::LogConfig;
use crate::disk;
use crate::env::LogEnv;

/// Limit of small text files in a folder.
pub(crate) const SMALL_FILE_BYTES_MAX: u64 = 64 << 20;

/// 16 bytes of a topic id (KIP-516).
pub type TopicId = [u8; 16];

/// Which log to open, and how.
#[derive(Clone, Debug)]
pub struct OpenRequest<'a> {
    /// What the logs of the directory share.
    pub env: Arc<LogEnv>,
    /// The log directory, in which the partition's folder lies.
    pub log_dir: &'a Path,
    /// Topic name.
    pub topic: &'a str,
    /// Partition index.
    pub partition: i32,
    /// Topic id; checked against the folder's, or stored there.
    pub topic_id: Option<TopicId>,
    /// The log's options.
    pub config: Arc<LogConfig>,
    /// The checkpoints' values.
    pub state: OpenState,
    /// Now.
    pub now_ms: i64,
    /// `producer.id.expiration.ms`.
    pub producer_id_expiration_ms: i64,
}

/// The checkpoints' values for a log, from [`crate::LogDir::open_state`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenState {
    /// The directory was shut down in order, so the files are complete.
    pub clean: bool,
    /// Everything below was synced.
    pub recovery_point: i64,
    /// Records below were deleted.
    pub log_start_offset: i64,
    /// The last known high watermark.
    pub high_watermark: i64,
}

impl Default for OpenState {
    /// A log without a row in any checkpoint.
    fn default() -> Self {
        Self {
            clean: false,
            recovery_point: 0,
            log_start_offset: 0,
            high_watermark: 0,
        }
    }
}

/// Result of opening a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// The folder did not exist.
    pub created: bool,
    /// Segments that were walked and checked.
    pub recovered_segments: usize,
    /// Bytes of sound batches in them.
    pub scanned_bytes: u64,
    /// Bytes that were cut or removed as unsound.
    pub truncated_bytes: u64,
    /// Indexes of the active segment that were rebuilt.
    pub rebuilt_indexes: usize,
    /// The checkpoints must be written before anything is appended: the recovery point lies behind
    /// the log's end, which was cut, or the rows belong to an earlier log of the name.
    pub checkpoint_is_stale: bool,
    /// Messages for the operator, one sentence each.
    pub notes: Vec<String>,
}

/// Why a log could not be opened.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages name variants and fields.
pub enum OpenError {
    /// A disk error: the directory counts as failed. All other errors concern this log alone.
    #[error(transparent)]
    Io(io::Error),
    /// The folder belongs to another topic of the same name.
    #[error(
        "{path} belongs to topic id {found}, not {expected}; move it away, or restore the metadata it belongs to"
    )]
    TopicIdMismatch {
        path: String,
        found: String,
        expected: String,
    },
    #[error(
        "message format {magic} at position {position} is older than any that is served; convert the log with Kafka 3.x first"
    )]
    Unsupported { magic: i8, position: u64 },
    #[error("{0}")]
    Corrupt(String),
    #[error("{0}")]
    Poisoned(String),
}

impl OpenError {
    /// A lack of space, descriptors or memory: the log may be opened later.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Io(error) if disk::may_pass(error))
    }
}

impl From<io::Error> for OpenError {
    /// Malformed content is no error of the disk.
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::InvalidData => Self::Corrupt(error.to_string()),
            _ => Self::Io(error),
        }
    }
}
