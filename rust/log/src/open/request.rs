//! Request and result of opening a log.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::config::LogConfig;
use crate::disk;
use crate::env::LogEnv;

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

/// The checkpoints' values for a log, from [`crate::LogDir::open_state`]. The default is those of a
/// log without a row in any checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenState {
    /// The directory was shut down in order, so the files are complete.
    pub clean: bool,
    /// Everything below was synced.
    pub recovery_point: i64,
    /// Everything below was compacted, so that offsets may be missing.
    pub cleaned_end: i64,
    /// Records below were deleted.
    pub log_start_offset: i64,
    /// The last known high watermark.
    pub high_watermark: i64,
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
    /// Segments of old message formats that were converted.
    pub converted_segments: usize,
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
    /// A segment has a message of an old format where none was looked for.
    #[error("a message of format {magic} at position {position} of {path} was not converted")]
    OldFormat {
        path: String,
        magic: i8,
        position: u64,
    },
    #[error("the conversion of old segments was stopped")]
    Stopped,
    /// A copy has segments of old formats, which its log no longer has.
    #[error("{0} has messages of old formats")]
    Outdated(String),
    /// There is no room for a converted segment beside the old one. Unlike other logs without
    /// space, this one needs much of it, so that the directory does not wait for it.
    #[error("{0}")]
    NoRoom(String),
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

    /// Whether a later opening, perhaps of the next run, may find the block cache as it is.
    pub(crate) fn keeps_cache(&self) -> bool {
        self.may_pass() || matches!(self, Self::Stopped | Self::NoRoom(_))
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
