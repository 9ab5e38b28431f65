//! What is asked for when a log is opened, and what that gives.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::config::LogConfig;
use crate::disk;
use crate::env::LogEnv;

/// Small text files of a folder.
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
    /// What the checkpoints say.
    pub state: OpenState,
    /// Now.
    pub now_ms: i64,
    /// `producer.id.expiration.ms`.
    pub producer_id_expiration_ms: i64,
}

/// What the log directory's checkpoints say of a log; [`crate::LogDir::open_state`] gives it.
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
    /// A log of which no checkpoint speaks.
    fn default() -> Self {
        Self {
            clean: false,
            recovery_point: 0,
            log_start_offset: 0,
            high_watermark: 0,
        }
    }
}

/// What opening a log took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// The folder was not there.
    pub created: bool,
    /// Segments that were walked and checked.
    pub recovered_segments: usize,
    /// Bytes of sound batches in them.
    pub scanned_bytes: u64,
    /// Bytes that were cut off or removed because they were not sound.
    pub truncated_bytes: u64,
    /// Indexes of the active segment that had to be built anew.
    pub rebuilt_indexes: usize,
    /// The checkpoints are wrong: the recovery point lies behind the log's end, which was cut, or the rows
    /// are of an earlier log of the name. They have to be written before anything is appended.
    pub checkpoint_is_stale: bool,
    /// What else an operator may want to read, one sentence each.
    pub notes: Vec<String>,
}

/// Why a log could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The disk: the directory should be taken as failed. All other errors concern this log alone.
    #[error(transparent)]
    Io(io::Error),
    /// The folder belongs to another topic of the same name.
    #[error(
        "{path} belongs to topic id {found}, not {expected}; move it away, or restore the metadata it belongs to"
    )]
    TopicIdMismatch {
        /// The folder.
        path: String,
        /// The id in its `partition.metadata`.
        found: String,
        /// The id asked for.
        expected: String,
    },
    /// Message format 0 or 1.
    #[error(
        "message format {magic} at position {position} is older than any that is served; convert the log with Kafka 3.x first"
    )]
    Unsupported {
        /// The format.
        magic: i8,
        /// Byte position in the segment.
        position: u64,
    },
    /// A file of the folder makes no sense, and only an operator can say what to do.
    #[error("{0}")]
    Corrupt(String),
    /// The log directory failed earlier.
    #[error("{0}")]
    Poisoned(String),
}

impl OpenError {
    /// There is no space left, no descriptor or no memory: the log may be opened when there is some.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Io(error) if disk::may_pass(error))
    }
}

impl From<io::Error> for OpenError {
    /// Content that makes no sense says nothing about the disk under it.
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::InvalidData => Self::Corrupt(error.to_string()),
            _ => Self::Io(error),
        }
    }
}
