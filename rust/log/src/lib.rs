//! One partition's commit log in Kafka's file formats, and the directory that holds many.
//!
//! No sockets, no clock (time comes as `now_ms`), files only through [`disk::Disk`]. A [`Log`] lies
//! behind its partition's mutex. Its methods work in memory and return jobs ([`WriteJob`],
//! [`SyncJob`], [`Location`], [`TimeQuery`], ...) whose `execute`/`resolve` does I/O without the
//! mutex.

#![forbid(unsafe_code)]

pub mod batch_info;
pub mod checkpoint;
pub mod cleaner;
pub mod config;
pub mod disk;
pub mod down_convert;
pub mod dump;
pub mod invariants;
pub mod leader_epochs;
pub mod meta_properties;
pub mod names;
pub mod offset_index;
pub mod partition_metadata;
pub mod position;
pub mod producer_state;
pub mod record_search;
pub mod snapshot;
pub mod sparse_index;
pub mod time_index;
pub mod transaction_index;
pub mod validate;

pub use pyrklog_compression as compression;

mod aborted;
mod append;
mod at_end;
mod cache;
mod cached_write;
mod close;
mod conversion;
mod digest;
mod dir_cache;
mod entries;
mod env;
mod fill_source;
mod folder;
mod join;
mod kept_pages;
mod leave;
mod log;
mod log_dir;
mod moving;
mod open;
mod opening;
mod page_bytes;
mod read;
mod retention;
mod scan;
mod segment;
mod segment_handle;
mod segment_starts;
mod sync_job;
mod sync_state;
mod syncing;
mod tail;
mod time_query;
mod truncation;
mod wait;
mod windows;
mod write_behind;

pub use aborted::{AbortedFile, AbortedSearch, AbortedStep};
pub use append::{AppendError, Appended};
pub use at_end::{EndState, FillOrigin, StartAtEnd, WholeJob};
pub use batch_info::BatchInfo;
pub use config::{Compression, LogConfig, TimestampType};
pub use conversion::ConversionListener;
pub use digest::BatchDigest;
pub use disk::{Disk, DiskFile, OpenMode, RealDisk, Space};
pub use env::{DIRECT_MIN_BYTES, LogEnv};
pub use fill_source::{ABORTED_PAGE, FillSource};
#[cfg(feature = "sim")]
pub use join::InjectedFaults;
pub use join::{Fill, FillError, FillPlan, JoinJob};
pub use kept_pages::set_kept_pages_max_bytes;
pub use leave::MoveId;
pub use log::Log;
pub use log_dir::{
    ArenaMarker, Checkpoint, Conflict, DeletedFolder, FutureFolder, Identity, KeptMark, Leaving,
    Left, Listing, LogDir, LogDirError, Newest, PartitionFolder, Places, decide, hex, parse_id,
};
pub use open::{OpenError, OpenReport, OpenRequest, OpenState, TopicId};
pub use position::SegmentPosition;
pub use producer_state::Origin;
pub use read::{Isolation, Location, ReadError, Slice};
pub use retention::{RemovedSegments, Retention, RetentionCandidates};
pub use segment::{BytesPlace, SegmentBytes};
pub use segment_starts::SegmentStarts;
pub use sync_job::SyncJob;
pub use syncing::SyncScope;
pub use tail::Unwritten;
pub use time_query::{TimeOffset, TimeQuery, TimeSpec};
pub use transaction_index::AbortedTxn;
pub use truncation::{TruncateError, TruncateJob};
pub use wait::Wait;
pub use windows::Window;
pub use write_behind::{Completed, WriteJob};
