//! A log directory: lock, identity, checkpoints, partition folders.
//!
//! ```text
//! .lock                              fcntl lock of the broker that uses the directory
//! meta.properties                    whose data this is
//! .pyrklog-arena                     block cache that holds records missing in the files
//! .pyrklog-reserve                   space for those records if the volume is full
//! .pyrklog-leaving                   logs that are giving way to their copies elsewhere
//! .kafka_cleanshutdown               only between an orderly shutdown and the next start
//! recovery-point-offset-checkpoint   below: synced
//! log-start-offset-checkpoint        below: deleted
//! replication-offset-checkpoint      high watermarks
//! cleaner-offset-checkpoint          below: compacted
//! <topic>-<partition>/               one log
//! <topic>-<partition>.<uuid>-future/ a copy that moves here from another log directory
//! <topic>-<partition>.<uuid>-delete/ a log that is being removed
//! ```

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::checkpoint::{self, FILE_BYTES_MAX};
use crate::disk::{self, LockGuard, Space};
use crate::env::LogEnv;
use crate::log::Log;
use crate::meta_properties::MetaProperties;
use crate::names::{self, FolderState};
use crate::open::{OpenState, TopicId};
use crate::partition_metadata::PartitionMetadata;

mod arena_marker;
mod cleaned;
mod file_stamps;
mod futures;
mod leaving;
mod leaving_file;
mod offsets;
mod places;
pub(crate) mod recovering;
pub(crate) mod reserve;
pub(crate) mod unseen;
pub use arena_marker::{ArenaMarker, KeptMark, Left, hex, parse_id};
pub use futures::FutureFolder;
pub use leaving::{Leaving, Newest};
pub use offsets::Checkpoint;
use offsets::OffsetTable;
pub use places::{Conflict, Listing, Places, decide};

/// The broker was never registered, or an older version did not record the epoch.
const NO_BROKER_EPOCH: i64 = -1;

/// Whose data a directory must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster.
    pub cluster_id: String,
    /// The broker.
    pub node_id: i32,
}

/// Why a log directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages name variants and fields.
pub enum LogDirError {
    #[error("{path} is in use by another broker; stop that one, or choose another directory")]
    Locked { path: String },
    /// Its `meta.properties` is of a newer format, or damaged.
    #[error("{0}")]
    Foreign(String),
    #[error("{path} holds data of cluster {found}, but this broker's is {own}")]
    OtherCluster {
        path: String,
        found: String,
        own: String,
    },
    #[error("{path} holds data of broker {found}, but this broker is {own}")]
    OtherBroker { path: String, found: i32, own: i32 },
    #[error("{path}: {error}")]
    Io { path: String, error: io::Error },
}

/// A partition's folder that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionFolder {
    /// Topic name.
    pub topic: String,
    /// Partition index.
    pub partition: i32,
    /// From `partition.metadata`; `None` if missing or unreadable.
    pub topic_id: Option<TopicId>,
}

/// A folder that was renamed for deletion.
#[derive(Debug)]
pub struct DeletedFolder {
    env: Arc<LogEnv>,
    /// Its new path, for [`crate::Log::folder_moved`].
    pub path: PathBuf,
}

impl DeletedFolder {
    /// Removes it with its content. May take long.
    pub fn remove(&self) -> io::Result<()> {
        disk::missing_is_fine(self.env.disk().remove_dir_all(&self.path))
    }
}

/// A log directory in use by this process, locked until dropped.
#[derive(Debug)]
pub struct LogDir {
    env: Arc<LogEnv>,
    path: PathBuf,
    clean_epoch: Option<i64>,
    /// Identifies the clean-shutdown mark that was found, before its removal.
    clean_mark: Option<u64>,
    notes: Vec<String>,
    /// By [`Checkpoint`].
    tables: Vec<Mutex<OffsetTable>>,
    /// How far each log is compacted.
    cleaned: Mutex<OffsetTable>,
    /// Logs that are giving way to their copies.
    leaving: Mutex<Vec<Leaving>>,
    /// Logs that were closed in this run with unsynced data.
    closed_unsynced: Mutex<HashSet<(String, i32)>>,
    /// The arena's marker, until a broker has registered with it.
    unregistered: Mutex<Option<ArenaMarker>>,
    _lock: Box<dyn LockGuard>,
}

impl LogDir {
    /// Creates the directory if missing, locks it, checks or writes `meta.properties`, reads the
    /// checkpoints, and removes the clean-shutdown marker.
    ///
    /// # Errors
    /// [`LogDirError`].
    pub fn open(env: Arc<LogEnv>, path: &Path, identity: &Identity) -> Result<Self, LogDirError> {
        let failed = |error| io_error(path, error);
        env.disk().create_dir_all(path).map_err(failed)?;
        let lock = match env.disk().lock(&path.join(names::LOCK)) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(LogDirError::Locked {
                    path: path.display().to_string(),
                });
            }
            Err(error) => return Err(failed(error)),
        };
        check_identity(&env, path, identity)?;
        let mut notes = Vec::new();
        let mut tables = Vec::new();
        for checkpoint in Checkpoint::ALL {
            let table = OffsetTable::read(&env, path, checkpoint.file_name(), &mut notes)
                .map_err(failed)?;
            tables.push(Mutex::new(table));
        }
        let cleaned = OffsetTable::read(&env, path, names::CLEANER_CHECKPOINT, &mut notes);
        let cleaned = Mutex::new(cleaned.map_err(failed)?);
        let leaving = Mutex::new(leaving::read(&env, path).map_err(failed)?);
        let marker = path.join(names::CLEAN_SHUTDOWN);
        let content = disk::read_file(env.disk(), &marker, FILE_BYTES_MAX);
        let clean_epoch = disk::if_exists(content)
            .map_err(failed)?
            .map(|content| checkpoint::parse_clean_shutdown(&content).unwrap_or(NO_BROKER_EPOCH));
        let clean_mark = file_stamps::file_hash(&env, &marker).ok();
        if clean_epoch.is_some() {
            env.disk().remove_file(&marker).map_err(failed)?;
            env.disk().sync_dir(path).map_err(failed)?;
        }
        Ok(Self {
            env,
            path: path.to_owned(),
            clean_epoch,
            clean_mark,
            notes,
            tables,
            cleaned,
            leaving,
            closed_unsynced: Mutex::default(),
            unregistered: Mutex::default(),
            _lock: lock,
        })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What its logs share.
    pub fn env(&self) -> &Arc<LogEnv> {
        &self.env
    }

    /// Whether the last shutdown was orderly.
    pub fn was_clean(&self) -> bool {
        self.clean_epoch.is_some()
    }

    /// The broker epoch of the last orderly shutdown, -1 if unknown; `None` after any other end.
    pub fn clean_epoch(&self) -> Option<i64> {
        self.clean_epoch
    }

    /// Messages for the operator about opening it, one sentence each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The partitions' folders by topic and partition. Reads only `partition.metadata` of each.
    pub fn partitions(&self) -> io::Result<Vec<PartitionFolder>> {
        let mut found = Vec::new();
        for entry in self.env.disk().read_dir(&self.path)? {
            let Some(folder) = names::parse_folder(&entry.name).filter(|_| entry.is_dir) else {
                continue;
            };
            if folder.state == FolderState::Current {
                found.push(PartitionFolder {
                    topic: folder.topic.to_owned(),
                    partition: folder.partition,
                    topic_id: self.topic_id(&entry.name)?,
                });
            }
        }
        found.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
        Ok(found)
    }

    /// The topic id in a partition's folder; `None` if missing or unreadable.
    pub fn stored_topic_id(&self, topic: &str, partition: i32) -> Option<TopicId> {
        let folder = names::folder_name(topic, partition);
        self.topic_id(&folder).ok().flatten()
    }

    fn topic_id(&self, folder: &str) -> io::Result<Option<TopicId>> {
        let path = self.path.join(folder).join(names::PARTITION_METADATA);
        Ok(PartitionMetadata::stored(self.env.disk(), &path)?.map(|metadata| metadata.topic_id))
    }

    /// The checkpoints' values for one log.
    pub fn open_state(&self, topic: &str, partition: i32) -> OpenState {
        let get = |checkpoint| self.row(checkpoint, topic, partition).unwrap_or(0);
        let key = (topic.to_owned(), partition);
        OpenState {
            clean: self.was_clean()
                && !self.env.must_recover(topic, partition)
                && !self.closed_unsynced.lock().contains(&key),
            recovery_point: get(Checkpoint::RecoveryPoint),
            cleaned_end: self.cleaned_end(topic, partition).unwrap_or(0),
            log_start_offset: get(Checkpoint::LogStart),
            high_watermark: get(Checkpoint::HighWatermark),
        }
    }

    /// A log was closed with [`crate::Log::close_cleanly`] before the directory is. If it is opened
    /// again before [`LogDir::sync_all`], unsynced data must not count as synced: the log is
    /// recovered.
    pub fn closed(&self, topic: &str, partition: i32, log: &Log) {
        let key = (topic.to_owned(), partition);
        let mut closed = self.closed_unsynced.lock();
        if log.is_synced() {
            closed.remove(&key);
        } else {
            closed.insert(key);
        }
    }

    fn table(&self, checkpoint: Checkpoint) -> MutexGuard<'_, OffsetTable> {
        self.tables[checkpoint as usize].lock()
    }

    fn row(&self, checkpoint: Checkpoint, topic: &str, partition: i32) -> Option<i64> {
        self.table(checkpoint).get(topic, partition)
    }

    /// Writes a checkpoint's rows of some logs; rows of others stay. Writes nothing if nothing
    /// changed.
    ///
    /// # Errors
    /// A disk error, or the directory is poisoned.
    pub fn write_checkpoint(
        &self,
        checkpoint: Checkpoint,
        rows: &[(&str, i32, i64)],
    ) -> io::Result<()> {
        self.refuse_if_poisoned()?;
        let mut table = self.table(checkpoint);
        for &(topic, partition, offset) in rows {
            match checkpoint {
                Checkpoint::LogStart if offset <= 0 => table.remove(topic, partition),
                _ => table.set(topic, partition, offset),
            }
        }
        table.write(&self.env, &self.path)
    }

    /// Lowers a log's high watermark row to `high_watermark`, if it is higher.
    ///
    /// # Errors
    /// A disk error, or the directory is poisoned.
    pub fn lower_high_watermark(
        &self,
        topic: &str,
        partition: i32,
        high_watermark: i64,
    ) -> io::Result<()> {
        let row = self.row(Checkpoint::HighWatermark, topic, partition);
        if row.is_none_or(|row| row <= high_watermark) {
            return Ok(());
        }
        let rows = [(topic, partition, high_watermark)];
        self.write_checkpoint(Checkpoint::HighWatermark, &rows)
    }

    /// Called after a log that ends at `log_end` was opened, before any append. After a loss of
    /// unsynced data the high watermark row may lie beyond `log_end`. Once as much was appended
    /// again, the row would count records as committed that need not be.
    ///
    /// The first such row is lowered in the file at once, and the file then has no row of any
    /// unopened log, so that thousands of them do not cost a write each. A log without a row begins
    /// at its log start offset and learns its high watermark from other replicas.
    ///
    /// # Errors
    /// A disk error, or the directory is poisoned; call again then.
    pub fn lower_high_watermark_row(
        &self,
        topic: &str,
        partition: i32,
        log_end: i64,
    ) -> io::Result<()> {
        let mut table = self.table(Checkpoint::HighWatermark);
        if table.opened(topic, partition, log_end) {
            self.refuse_if_poisoned()?;
            table.write(&self.env, &self.path)?;
        }
        Ok(())
    }

    /// Renames a partition's folder to `<topic>-<partition>.<unique>-delete`, where `unique` is 16
    /// random bytes. `None` if there is no such folder. Does I/O.
    ///
    /// # Errors
    /// A disk error, or the directory is poisoned.
    pub fn delete_folder(
        &self,
        topic: &str,
        partition: i32,
        unique: u128,
    ) -> io::Result<Option<DeletedFolder>> {
        let name = names::folder_name(topic, partition);
        self.delete_named(&name, topic, partition, unique)
    }

    /// [`LogDir::delete_folder`] of a log whose copy has taken its place: others may still read it, and
    /// find its files under the new name at once.
    ///
    /// # Errors
    /// A disk error, or the directory is poisoned.
    pub fn leave_folder(
        &self,
        topic: &str,
        partition: i32,
        unique: u128,
        log: &Log,
    ) -> io::Result<Option<DeletedFolder>> {
        let name = names::folder_name(topic, partition);
        let renamed = |path: &Path| log.folder_moved(path);
        let Some(folder) = self.rename_away(&name, topic, partition, unique, renamed)? else {
            return Ok(None);
        };
        self.forget_deleted(folder, topic, partition).map(Some)
    }

    /// The same for a folder of any name.
    fn delete_named(
        &self,
        name: &str,
        topic: &str,
        partition: i32,
        unique: u128,
    ) -> io::Result<Option<DeletedFolder>> {
        let renamed = self.rename_away(name, topic, partition, unique, |_| {});
        let deleted = match renamed {
            Ok(Some(folder)) => self.forget_deleted(folder, topic, partition).map(Some),
            other => other,
        };
        if deleted.as_ref().is_err_and(disk::is_exhausted) {
            // Another try shall find it. It forgets what this one did not.
            let to = names::delete_folder_name(topic, partition, unique);
            let (from, to) = (self.path.join(name), self.path.join(to));
            disk::missing_is_fine(self.env.disk().rename(&to, &from))?;
        }
        deleted
    }

    fn forget_deleted(
        &self,
        folder: DeletedFolder,
        topic: &str,
        partition: i32,
    ) -> io::Result<DeletedFolder> {
        recovering::settled(&self.env, &self.path, topic, partition);
        unseen::seen(&self.env, &self.path, topic, partition);
        match self.forget_rows(topic, partition) {
            Err(error) if disk::is_full(&error) => {
                // Removing the folder frees space.
                folder.remove()?;
                self.forget_rows(topic, partition)?;
            }
            result => result?,
        }
        Ok(folder)
    }

    fn rename_away(
        &self,
        name: &str,
        topic: &str,
        partition: i32,
        unique: u128,
        renamed: impl FnOnce(&Path),
    ) -> io::Result<Option<DeletedFolder>> {
        self.refuse_if_poisoned()?;
        let to = names::delete_folder_name(topic, partition, unique);
        let (from, to) = (self.path.join(name), self.path.join(to));
        if disk::if_exists(self.env.disk().rename(&from, &to))?.is_none() {
            return Ok(None);
        }
        renamed(&to);
        self.env.disk().sync_dir(&self.path)?;
        Ok(Some(DeletedFolder {
            env: self.env.clone(),
            path: to,
        }))
    }

    /// Removes what the directory knows of a log besides its folder: a later one of the name must
    /// not inherit it.
    ///
    /// # Errors
    /// A disk error.
    pub fn forget_rows(&self, topic: &str, partition: i32) -> io::Result<()> {
        let key = (topic.to_owned(), partition);
        self.closed_unsynced.lock().remove(&key);
        for table in self.tables.iter().chain([&self.cleaned]) {
            let mut table = table.lock();
            table.remove(topic, partition);
            table.write(&self.env, &self.path)?;
        }
        Ok(())
    }

    /// Folders whose removal an earlier run did not finish.
    pub fn deleted_folders(&self) -> io::Result<Vec<DeletedFolder>> {
        let entries = self.env.disk().read_dir(&self.path)?;
        let is_deleted = |name: &str| {
            names::parse_folder(name).is_some_and(|folder| folder.state == FolderState::Delete)
        };
        let deleted = entries
            .into_iter()
            .filter(|entry| entry.is_dir && is_deleted(&entry.name));
        Ok(deleted
            .map(|entry| DeletedFolder {
                env: self.env.clone(),
                path: self.path.join(entry.name),
            })
            .collect())
    }

    /// Makes everything on the directory's volume durable: the second step of an orderly shutdown.
    /// The steps: [`crate::Log::close_cleanly`] of every log; this; [`crate::Log::all_synced`] of
    /// every log; the three checkpoints; [`LogDir::mark_clean`].
    ///
    /// # Errors
    /// A disk error, or the directory is poisoned.
    pub fn sync_all(&self) -> io::Result<()> {
        self.refuse_if_poisoned()?;
        self.env.disk().sync_file_system(&self.path)
    }

    /// Writes the marker that lets the next start trust the files, only after all other steps
    /// succeeded. `broker_epoch` is -1 if unknown.
    ///
    /// # Errors
    /// A disk error, or the directory is poisoned.
    pub fn mark_clean(&self, broker_epoch: i64) -> io::Result<()> {
        self.refuse_if_poisoned()?;
        let content = checkpoint::encode_clean_shutdown(broker_epoch);
        let path = self.path.join(names::CLEAN_SHUTDOWN);
        disk::replace_file(self.env.disk(), &path, content.as_bytes())
    }

    /// The volume's sizes.
    pub fn space(&self) -> io::Result<Space> {
        self.env.disk().space(&self.path)
    }

    fn refuse_if_poisoned(&self) -> io::Result<()> {
        match self.env.poisoned() {
            Some(reason) => Err(io::Error::other(reason.to_owned())),
            None => Ok(()),
        }
    }
}

fn io_error(path: &Path, error: io::Error) -> LogDirError {
    LogDirError::Io {
        path: path.display().to_string(),
        error,
    }
}

fn check_identity(env: &LogEnv, directory: &Path, identity: &Identity) -> Result<(), LogDirError> {
    let path = directory.join(names::META_PROPERTIES);
    let failed = |error| io_error(&path, error);
    let content = disk::read_file(env.disk(), &path, FILE_BYTES_MAX);
    let Some(content) = disk::if_exists(content).map_err(failed)? else {
        let fresh = MetaProperties {
            version: 0,
            node_id: Some(identity.node_id),
            cluster_id: Some(identity.cluster_id.clone()),
            directory_id: None,
        };
        return disk::replace_file(env.disk(), &path, fresh.encode().as_bytes()).map_err(failed);
    };
    let found = MetaProperties::parse(&path.to_string_lossy(), &content)
        .map_err(|error| LogDirError::Foreign(error.to_string()))?;
    let path = directory.display().to_string();
    match (found.cluster_id, found.node_id) {
        (Some(cluster_id), _) if cluster_id != identity.cluster_id => {
            Err(LogDirError::OtherCluster {
                path,
                found: cluster_id,
                own: identity.cluster_id.clone(),
            })
        }
        (_, Some(node_id)) if node_id != identity.node_id => Err(LogDirError::OtherBroker {
            path,
            found: node_id,
            own: identity.node_id,
        }),
        _ => Ok(()),
    }
}
