//! Copies that move here from another log directory (`moving-replicas.md`).

use std::io;
use std::path::PathBuf;

use crate::disk;
use crate::log_dir::{DeletedFolder, LogDir};
use crate::names::{self, FolderState};
use crate::open::TopicId;
use crate::partition_metadata::PartitionMetadata;

/// A `-future` folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FutureFolder {
    /// The folder's name.
    pub name: String,
    /// Topic name.
    pub topic: String,
    /// Partition index.
    pub partition: i32,
    /// From `partition.metadata`; `None` if missing or unreadable.
    pub topic_id: Option<TopicId>,
}

impl LogDir {
    /// The copies by topic, partition and name. Reads only `partition.metadata` of each.
    pub fn futures(&self) -> io::Result<Vec<FutureFolder>> {
        let mut found = Vec::new();
        for entry in self.env.disk().read_dir(&self.path)? {
            let Some(folder) = names::parse_folder(&entry.name).filter(|_| entry.is_dir) else {
                continue;
            };
            if folder.state == FolderState::Future {
                found.push(FutureFolder {
                    topic: folder.topic.to_owned(),
                    partition: folder.partition,
                    topic_id: self.topic_id(&entry.name)?,
                    name: entry.name.clone(),
                });
            }
        }
        found.sort_by(|a, b| {
            (&a.topic, a.partition, &a.name).cmp(&(&b.topic, b.partition, &b.name))
        });
        Ok(found)
    }

    /// Makes an empty folder for a copy. The directory must hold no log of the partition, whose rows
    /// in the checkpoints are the copy's from now on. Not durable.
    ///
    /// # Errors
    /// A disk error, or the directory is poisoned.
    pub fn make_future(&self, future: &FutureFolder) -> io::Result<()> {
        self.refuse_if_poisoned()?;
        self.forget_rows(&future.topic, future.partition)?;
        let path = self.path.join(&future.name);
        self.env.disk().create_dir_all(&path)?;
        let Some(topic_id) = future.topic_id.filter(|id| *id != [0; 16]) else {
            return Ok(());
        };
        let content = PartitionMetadata {
            version: 0,
            topic_id,
            is_partial: false,
        };
        disk::replace_file_unsynced(
            self.env.disk(),
            &path.join(names::PARTITION_METADATA),
            content.encode().as_bytes(),
        )
    }

    /// Renames a copy's folder for its removal; as [`LogDir::delete_folder`]. Beside the
    /// partition's log the rows are the log's, and stay.
    ///
    /// # Errors
    /// A disk error, or the directory is poisoned.
    pub fn delete_future(
        &self,
        future: &FutureFolder,
        unique: u128,
    ) -> io::Result<Option<DeletedFolder>> {
        let (topic, partition) = (&future.topic, future.partition);
        if self.is_installed(future)? {
            return self.rename_away(&future.name, topic, partition, unique, |_| {});
        }
        self.delete_named(&future.name, topic, partition, unique)
    }

    /// Makes a copy the partition's log, durably. Returns the folder's path, for
    /// [`crate::Log::folder_moved`].
    ///
    /// # Errors
    /// A disk error, or the directory is poisoned. The folder may have either name, now or after a
    /// crash.
    pub fn install_future(&self, future: &FutureFolder) -> io::Result<PathBuf> {
        self.refuse_if_poisoned()?;
        let from = self.path.join(&future.name);
        let to = self.current_path(future);
        self.env.disk().rename(&from, &to)?;
        self.env.disk().sync_dir(&self.path)?;
        Ok(to)
    }

    /// Whether the partition's folder is here, as after [`LogDir::install_future`].
    ///
    /// # Errors
    /// A disk error.
    pub fn is_installed(&self, future: &FutureFolder) -> io::Result<bool> {
        self.env.disk().exists(&self.current_path(future))
    }

    fn current_path(&self, future: &FutureFolder) -> PathBuf {
        let name = names::folder_name(&future.topic, future.partition);
        self.path.join(name)
    }
}
