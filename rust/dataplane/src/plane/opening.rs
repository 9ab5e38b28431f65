//! Opens the log directories of a plane.

use std::path::Path;
use std::sync::Arc;

use pyrklog_log::disk::Disk;
use pyrklog_log::{Identity, LogDir, LogDirError, LogEnv};

use crate::net::connection_limits::connections_max;
use pyrklog_control::seam::{Event, PlaneConfig};
use pyrklog_storage::block_cache;
use pyrklog_storage::log_dir_state::LogDirState;
use pyrklog_storage::log_manager::LogManager;
use pyrklog_storage::muted_queue::MutedQueue;
use pyrklog_storage::partition_dirs::PartitionDirs;
use pyrklog_storage::syncer_queue::Deletion;

/// Segments of a directory that may have files open only for reading, three each; and their share
/// of the process's descriptors, over all directories.
const OPEN_SEGMENTS_MAX: usize = 4096;
const OPEN_SEGMENTS_SHARE: usize = 16;

/// Opens a log directory, lists its partitions, and says what became of its block cache.
///
/// # Errors
/// It is locked, foreign, or cannot be read.
pub fn open_dir(
    config: &PlaneConfig,
    disk: &Arc<dyn Disk>,
    path: &Path,
    index: usize,
    partition_dirs: &PartitionDirs,
) -> Result<(Arc<LogDirState>, Vec<block_cache::Note>), LogDirError> {
    let descriptors = connections_max(usize::MAX);
    let segments = descriptors / OPEN_SEGMENTS_SHARE / config.log_dirs.len();
    let env = LogEnv::new(Arc::clone(disk), segments.min(OPEN_SEGMENTS_MAX));
    let identity = Identity {
        cluster_id: config.cluster_id.clone(),
        node_id: config.node_id,
    };
    let files = LogDir::open(env, path, &identity)?;
    let io_error = |error| LogDirError::Io {
        path: path.display().to_string(),
        error,
    };
    let folders = files.partitions().map_err(io_error)?;
    let deleted = files.deleted_folders().map_err(io_error)?;
    let share_bytes = block_cache::share_bytes(&config.cache, config.log_dirs.len());
    let notes = block_cache::open(&config.cache, &files, &folders, share_bytes)?;
    files
        .env()
        .set_direct_min_bytes(config.cache.direct_min_bytes);
    block_cache::forget_missing(&files, &folders);
    let muted = MutedQueue::new(config.receive_buffers_max_bytes, config.log_dirs.len());
    let dir = LogDirState::new(index, files, config, muted);
    for folder in folders {
        partition_dirs.found(folder.topic, folder.partition, folder.topic_id, &dir);
    }
    for folder in deleted {
        dir.syncer.delete_later(0, Deletion::Folder(folder));
    }
    Ok((dir, notes))
}

/// Reports unusable directories, and the notes about the others, to the control plane.
pub fn tell_of_opening(logs: &LogManager) {
    for (path, reason) in &logs.unusable_dirs {
        let (path, reason) = (path.clone(), reason.clone());
        logs.events.push(Event::LogDirFailed {
            path,
            reason,
            partitions: Vec::new(),
        });
    }
    for dir in &logs.dirs {
        for note in dir.files.notes() {
            logs.dir_notice(dir, "log_dir_note", "warning", note.clone());
        }
    }
}
