//! Opens the log directories of a plane.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pyrklog_log::disk::Disk;
use pyrklog_log::{
    Conflict, DeletedFolder, FutureFolder, Identity, Leaving, Listing, LogDir, LogDirError, LogEnv,
    PartitionFolder,
};

use crate::net::connection_limits::connections_max;
use crate::plane::OpenError;
use pyrklog_base::unguessable::Unguessable;
use pyrklog_control::seam::{Event, PlaneConfig};
use pyrklog_storage::block_cache;
use pyrklog_storage::log_dir_state::LogDirState;
use pyrklog_storage::log_manager::{LogDirs, LogManager};
use pyrklog_storage::moves::Moves;
use pyrklog_storage::muted_queue::MutedQueue;
use pyrklog_storage::partition_dirs::PartitionDirs;
use pyrklog_storage::syncer_queue::Deletion;

/// Segments of a directory that may have files open only for reading, three each; and their share
/// of the process's descriptors, over all directories.
const OPEN_SEGMENTS_MAX: usize = 4096;
const OPEN_SEGMENTS_SHARE: usize = 16;

/// A log directory whose folders are known, without its block cache.
#[derive(Debug)]
struct Listed {
    path: PathBuf,
    files: LogDir,
    listing: Listing,
    /// Folders whose removal an earlier run did not finish.
    deleted: Vec<DeletedFolder>,
    /// Logs that are not to be served, since a newer copy may lie in an unreadable directory.
    withheld: Vec<Leaving>,
    notes: Vec<block_cache::Note>,
}

/// A note about a directory, with its path.
pub type DirNote = (PathBuf, block_cache::Note);

/// Opens the log directories: first all of them are listed, since one may hold what moved from
/// another.
///
/// # Errors
/// A directory is locked or foreign, two have the log of one partition, or none can be used.
pub fn open_dirs(
    config: &PlaneConfig,
    disk: &Arc<dyn Disk>,
) -> Result<(LogDirs, Vec<DirNote>), OpenError> {
    let mut unusable: Vec<(PathBuf, String)> = Vec::new();
    let mut listed: Vec<Listed> = Vec::new();
    for path in &config.log_dirs {
        let error = match list_dir(config, disk, path) {
            Ok(one) => {
                listed.push(one);
                continue;
            }
            Err(error) => error,
        };
        let refused = match error {
            LogDirError::Locked { .. } => OpenError::Locked(error.to_string()),
            LogDirError::Foreign(reason) => OpenError::Foreign(reason),
            LogDirError::OtherCluster { .. } => OpenError::OtherCluster(error.to_string()),
            LogDirError::OtherBroker { .. } => OpenError::OtherBroker(error.to_string()),
            LogDirError::Io { .. } => {
                unusable.push((path.clone(), error.to_string()));
                continue;
            }
        };
        block_cache::leave_again(listed.iter().map(|one| &one.files));
        return Err(refused);
    }
    match settle_places(&mut listed, unusable.is_empty()) {
        Ok(failed) => unusable.extend(failed),
        Err(conflict) => {
            block_cache::leave_again(listed.iter().map(|one| &one.files));
            return Err(OpenError::Foreign(conflict.to_string()));
        }
    }
    use_dirs(config, listed, unusable)
}

fn use_dirs(
    config: &PlaneConfig,
    listed: Vec<Listed>,
    unusable: Vec<(PathBuf, String)>,
) -> Result<(LogDirs, Vec<DirNote>), OpenError> {
    let mut dirs = LogDirs {
        usable: Vec::new(),
        unusable,
        partition_dirs: PartitionDirs::default(),
        moves: Moves::default(),
    };
    let mut all_notes = Vec::new();
    for one in listed {
        let path = one.path.clone();
        let index = dirs.usable.len();
        match open_dir(config, one, index, &dirs.partition_dirs, &dirs.moves) {
            Ok((dir, notes)) => {
                all_notes.extend(notes.into_iter().map(|note| (path.clone(), note)));
                dirs.usable.push(dir);
            }
            Err(error) => dirs.unusable.push((path, error.to_string())),
        }
    }
    if dirs.usable.is_empty() {
        let reasons: Vec<String> = dirs
            .unusable
            .into_iter()
            .map(|(_, reason)| reason)
            .collect();
        return Err(OpenError::NoLogDir(reasons.join("; ")));
    }
    Ok((dirs, all_notes))
}

/// Locks a log directory, and lists its folders.
///
/// # Errors
/// It is locked, foreign, or cannot be read.
fn list_dir(
    config: &PlaneConfig,
    disk: &Arc<dyn Disk>,
    path: &Path,
) -> Result<Listed, LogDirError> {
    let descriptors = connections_max(usize::MAX);
    let segments = descriptors / OPEN_SEGMENTS_SHARE / config.log_dirs.len();
    let env = LogEnv::new(Arc::clone(disk), segments.min(OPEN_SEGMENTS_MAX));
    let identity = Identity {
        cluster_id: config.cluster_id.clone(),
        node_id: config.node_id,
    };
    let files = LogDir::open(env, path, &identity)?;
    let listed = list(&files).map_err(|error| io_error(path, error));
    let (listing, deleted) = match listed {
        Ok(listed) => listed,
        Err(error) => {
            block_cache::leave_again([&files]);
            return Err(error);
        }
    };
    Ok(Listed {
        path: path.to_owned(),
        files,
        listing,
        deleted,
        withheld: Vec::new(),
        notes: Vec::new(),
    })
}

fn list(files: &LogDir) -> io::Result<(Listing, Vec<DeletedFolder>)> {
    let listing = Listing {
        path: files.path().to_string_lossy().into_owned(),
        folders: files.partitions()?,
        futures: files.futures()?,
        leaving: files.leaving(),
        grown: files.grown()?,
    };
    Ok((listing, files.deleted_folders()?))
}

/// Decides which folders are logs, where an earlier run or Kafka was moving some between
/// directories. `is_all`: none of the directories is unusable. Returns directories whose folders
/// could not be renamed, with the reasons.
///
/// # Errors
/// Two directories have the log of one partition.
fn settle_places(
    listed: &mut Vec<Listed>,
    is_all: bool,
) -> Result<Vec<(PathBuf, String)>, Conflict> {
    let listings: Vec<Listing> = listed.iter().map(|one| one.listing.clone()).collect();
    let places = pyrklog_log::decide(&listings, is_all)?;
    let names = Unguessable::default();
    let mut failed: Vec<(usize, String)> = Vec::new();
    let mut note = |dir: usize, result: io::Result<()>| {
        if let Err(error) = result {
            failed.push((dir, error.to_string()));
        }
    };
    for (dir, log) in places.replaced {
        note(dir, listed[dir].replace(&log, names.unique()));
    }
    for (dir, future) in places.worthless {
        note(dir, listed[dir].discard(&future, names.unique()));
    }
    for (dir, future) in places.lonely {
        let told = format!("{} is a copy of a log that is not there", future.name);
        listed[dir].notes.push(("warning", told));
    }
    for (dir, leaving) in places.withheld {
        listed[dir].withhold(leaving);
    }
    for (dir, leaving) in places.settled {
        // A folder that kept its name keeps its line.
        if !failed.iter().any(|(other, _)| *other == dir) {
            let files = &listed[dir].files;
            let ended = files.end_leaving(&leaving.topic, leaving.partition);
            if let Err(error) = ended {
                failed.push((dir, error.to_string()));
            }
        }
    }
    failed.sort();
    failed.dedup_by_key(|(dir, _)| *dir);
    let taken_out = failed.into_iter().rev().map(|(dir, reason)| {
        let one = listed.remove(dir);
        block_cache::leave_again([&one.files]);
        (one.path, reason)
    });
    Ok(taken_out.collect())
}

impl Listed {
    /// The partition's log is elsewhere.
    fn replace(&mut self, log: &PartitionFolder, unique: u128) -> io::Result<()> {
        let (topic, partition) = (&log.topic, log.partition);
        let deleted = self.files.delete_folder(topic, partition, unique)?;
        self.deleted.extend(deleted);
        self.listing.folders.retain(|other| other != log);
        let told = format!("removed {topic}-{partition}, which had moved to another directory");
        self.notes.push(("info", told));
        Ok(())
    }

    /// The copy leads nowhere.
    fn discard(&mut self, future: &FutureFolder, unique: u128) -> io::Result<()> {
        let deleted = self.files.delete_future(future, unique)?;
        self.deleted.extend(deleted);
        self.listing.futures.retain(|other| other != future);
        let told = format!("removed {}, a copy that leads nowhere", future.name);
        self.notes.push(("info", told));
        Ok(())
    }

    /// The log may be older than its copy.
    fn withhold(&mut self, leaving: Leaving) {
        let (topic, partition) = (&leaving.topic, leaving.partition);
        let told = format!(
            "{topic}-{partition} was moving to {} when the broker ended, and is not served until \
             that directory can be read again",
            leaving.destination
        );
        self.notes.push(("error", told));
        self.withheld.push(leaving);
    }

    /// Logs and copies: what a kill may have left unfinished.
    fn all_folders(&self) -> Vec<PartitionFolder> {
        let copy = |future: &FutureFolder| PartitionFolder {
            topic: future.topic.clone(),
            partition: future.partition,
            topic_id: future.topic_id,
        };
        let copies = self.listing.futures.iter().map(copy);
        self.listing.folders.iter().cloned().chain(copies).collect()
    }

    fn is_withheld(&self, folder: &PartitionFolder) -> bool {
        let is_it = |leaving: &Leaving| {
            leaving.topic == folder.topic && leaving.partition == folder.partition
        };
        self.withheld.iter().any(is_it)
    }
}

/// Opens a log directory for use, and says what became of its block cache.
///
/// # Errors
/// It cannot be read.
fn open_dir(
    config: &PlaneConfig,
    listed: Listed,
    index: usize,
    partition_dirs: &PartitionDirs,
    moves: &Moves,
) -> Result<(Arc<LogDirState>, Vec<block_cache::Note>), LogDirError> {
    let files = &listed.files;
    let share_bytes = block_cache::share_bytes(&config.cache, config.log_dirs.len());
    let mut notes = listed.notes.clone();
    let cache_notes = block_cache::open(&config.cache, files, &listed.all_folders(), share_bytes)?;
    notes.extend(cache_notes);
    files
        .env()
        .set_direct_min_bytes(config.cache.direct_min_bytes);
    block_cache::forget_missing(files, &listed.listing.folders);
    let muted = MutedQueue::new(config.receive_buffers_max_bytes, config.log_dirs.len());
    let mut served = listed.listing.folders.clone();
    served.retain(|folder| !listed.is_withheld(folder));
    let dir = LogDirState::new(index, listed.files, config, muted);
    for folder in served {
        partition_dirs.found(folder.topic, folder.partition, folder.topic_id, &dir);
    }
    for future in listed.listing.futures {
        moves.found(index, future);
    }
    for folder in listed.deleted {
        dir.syncer.delete_later(0, Deletion::Folder(folder));
    }
    Ok((dir, notes))
}

fn io_error(path: &Path, error: io::Error) -> LogDirError {
    LogDirError::Io {
        path: path.display().to_string(),
        error,
    }
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
