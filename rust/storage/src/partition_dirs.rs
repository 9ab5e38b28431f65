//! Which log directory holds which partition's folder.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use crate::log_dir_state::LogDirState;
use pyrklog_base::clock::mono_ms;
use pyrklog_control::seam::FoundPartition;

type Key = (String, i32);

/// See the module.
#[derive(Debug, Default)]
pub struct PartitionDirs {
    folders: Mutex<HashMap<Key, Folder>>,
}

#[derive(Debug)]
struct Folder {
    dir: usize,
    topic_id: Option<[u8; 16]>,
}

impl Folder {
    /// A folder in `dir`, counted there.
    fn placed(dir: &LogDirState, topic_id: Option<[u8; 16]>) -> Folder {
        dir.partitions.fetch_add(1, Ordering::Relaxed);
        Folder {
            dir: dir.index,
            topic_id,
        }
    }
}

impl PartitionDirs {
    /// Adds a folder that was found at start.
    pub fn found(
        &self,
        topic: String,
        partition: i32,
        topic_id: Option<[u8; 16]>,
        dir: &LogDirState,
    ) {
        let folder = Folder::placed(dir, topic_id);
        self.folders.lock().insert((topic, partition), folder);
    }

    /// All folders, sorted by topic and partition, for `DataPlane::found_partitions`.
    pub fn list(&self, dirs: &[Arc<LogDirState>]) -> Vec<FoundPartition> {
        let folders = self.folders.lock();
        let mut found: Vec<FoundPartition> = folders
            .iter()
            .map(|((topic, partition), folder)| FoundPartition {
                topic: topic.clone(),
                partition: *partition,
                topic_id: folder.topic_id,
                log_dir: dirs[folder.dir].path().to_owned(),
            })
            .collect();
        found.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
        found
    }

    /// Index of the directory that holds a partition's folder.
    pub fn dir_of(&self, topic: &str, partition: i32) -> Option<usize> {
        self.folders
            .lock()
            .get(&(topic.to_owned(), partition))
            .map(|folder| folder.dir)
    }

    /// Chooses the directory with the fewest partitions for a new one and adds it. A read-only or
    /// hanging directory comes last.
    pub fn choose<'a>(
        &self,
        topic: &str,
        partition: i32,
        dirs: &'a [Arc<LogDirState>],
    ) -> Option<&'a Arc<LogDirState>> {
        let now_ms = mono_ms();
        let mut folders = self.folders.lock();
        let dir = dirs
            .iter()
            .filter(|dir| !dir.has_failed())
            .min_by_key(|dir| {
                let takes_none = dir.is_read_only() || dir.writer.is_hanging(now_ms);
                (takes_none, dir.partitions.load(Ordering::Relaxed))
            })?;
        folders.insert((topic.to_owned(), partition), Folder::placed(dir, None));
        Some(dir)
    }

    /// Adds a new partition to the directory that was asked for.
    pub fn place(&self, topic: &str, partition: i32, dir: &LogDirState) {
        let folder = Folder::placed(dir, None);
        self.folders
            .lock()
            .insert((topic.to_owned(), partition), folder);
    }

    /// A partition's folder is in another directory now.
    pub fn moved(&self, topic: &str, partition: i32, from: &LogDirState, to: &LogDirState) {
        let mut folders = self.folders.lock();
        let folder = folders.get_mut(&(topic.to_owned(), partition));
        if let Some(folder) = folder.filter(|folder| folder.dir == from.index) {
            folder.dir = to.index;
            from.partitions.fetch_sub(1, Ordering::Relaxed);
            to.partitions.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sets the topic id of an opened log.
    pub fn opened(&self, topic: &str, partition: i32, topic_id: [u8; 16]) {
        if let Some(folder) = self.folders.lock().get_mut(&(topic.to_owned(), partition)) {
            folder.topic_id = Some(topic_id);
        }
    }

    /// Removes a folder that is about to be deleted; returns its directory. A later partition of
    /// the name is placed anew.
    pub fn release<'a>(
        &self,
        topic: &str,
        partition: i32,
        dirs: &'a [Arc<LogDirState>],
    ) -> Option<&'a Arc<LogDirState>> {
        let key = (topic.to_owned(), partition);
        let folder = self.folders.lock().remove(&key)?;
        let dir = &dirs[folder.dir];
        dir.partitions.fetch_sub(1, Ordering::Relaxed);
        Some(dir)
    }

    /// Adds a folder back that could not be deleted, unless its name was placed anew.
    pub fn kept(&self, topic: &str, partition: i32, dir: &LogDirState) {
        let mut folders = self.folders.lock();
        let folder = folders.entry((topic.to_owned(), partition));
        folder.or_insert_with(|| Folder::placed(dir, None));
    }
}
