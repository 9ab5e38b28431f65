//! Whether a directory's files are as its last run left them. Sizes, times and inodes tell without
//! reading them: every write, truncation or replacement changes one of these.

use std::io;
use std::path::Path;

use pyrklog_arena::{CachedSegment, Fnv, Found, PartitionName};

use crate::disk::{DirEntry, Stamp, if_exists};
use crate::env::LogEnv;
use crate::log_dir::{LogDir, arena_marker};

use crate::names::{self, FileKind, Suffix};
use crate::open::TopicId;

const NO_ID: TopicId = [0; 16];

fn add_stamp(hash: &mut Fnv, name: &str, stamp: &Stamp) {
    hash.add(name.as_bytes());
    // No name contains it.
    hash.add(&[0]);
    hash.add(&stamp.inode.to_le_bytes());
    hash.add(&stamp.size.to_le_bytes());
    hash.add(&stamp.modified_ns.to_le_bytes());
    hash.add(&stamp.changed_ns.to_le_bytes());
}

pub(super) fn file_hash(env: &LogEnv, path: &Path) -> io::Result<u64> {
    let mut hash = Fnv::default();
    add_stamp(&mut hash, "", &env.disk().stamp(path)?);
    Ok(hash.finish())
}

impl LogDir {
    /// Identifies the state of a partition's files: name, size, times and inode of each, and the
    /// checkpoints' values; `None` if there is no such folder. Reads inodes only.
    ///
    /// # Errors
    /// A disk error; `Unsupported` if the file system has no stamps.
    pub fn files_hash(&self, topic: &str, partition: i32) -> io::Result<Option<u64>> {
        let folder = self.path.join(names::folder_name(topic, partition));
        let disk = self.env.disk();
        let Some(mut entries) = if_exists(disk.read_dir(&folder))? else {
            return Ok(None);
        };
        entries.sort();
        let mut hash = Fnv::default();
        for entry in entries {
            let stamp = disk.stamp(&folder.join(&entry.name))?;
            add_stamp(&mut hash, &entry.name, &stamp);
        }
        let state = self.open_state(topic, partition);
        for offset in [state.recovery_point, state.log_start_offset] {
            hash.add(&offset.to_le_bytes());
        }
        Ok(Some(hash.finish()))
    }

    /// Identifies the present clean-shutdown mark.
    ///
    /// # Errors
    /// A disk error, among them that there is none.
    pub fn clean_mark_now(&self) -> io::Result<u64> {
        file_hash(&self.env, &self.path.join(names::CLEAN_SHUTDOWN))
    }

    /// The same for the mark with which the directory was opened.
    pub fn clean_mark(&self) -> Option<u64> {
        self.clean_mark
    }

    /// Identifies the present arena marker.
    ///
    /// # Errors
    /// A disk error, among them that there is none.
    pub fn arena_marker_hash(&self) -> io::Result<u64> {
        file_hash(&self.env, &self.path.join(arena_marker::MARKER))
    }

    /// Whether files are older than the arena says, as in an older copy of the directory: half a
    /// sentence naming the first such file.
    pub fn lacks_written(&self, found: &Found) -> Option<String> {
        let mut partitions: Vec<_> = found.iter().collect();
        partitions.sort_by_key(|(name, _)| (&name.topic, name.partition));
        let mut partitions = partitions.into_iter();
        partitions.find_map(|(name, found)| {
            if self.has_other_topic(name) {
                return None;
            }
            let folder = names::folder_name(&name.topic, name.partition);
            let mut segments = found.segments.values();
            segments.find_map(|segment| self.lacks_bytes(&folder, segment))
        })
    }

    /// Whether the folder belongs to another topic of the name by now, so that it has no writes of
    /// this one.
    fn has_other_topic(&self, name: &PartitionName) -> bool {
        let stored = self.stored_topic_id(&name.topic, name.partition);
        let mut ids = stored.into_iter().filter(|id| *id != NO_ID);
        name.topic_id != NO_ID && ids.any(|id| id != name.topic_id)
    }

    fn lacks_bytes(&self, folder: &str, segment: &CachedSegment) -> Option<String> {
        let written = segment.unwritten_from().or(segment.end())?;
        let base_offset = segment.base_offset();
        let name = names::file_name(base_offset, FileKind::Log);
        match self
            .env
            .disk()
            .file_len(&self.path.join(folder).join(&name))
        {
            Ok(len) if len < u64::from(written) => Some(format!(
                "{folder}/{name} has {len} bytes, but {written} were written to it"
            )),
            Err(error) if error.kind() == io::ErrorKind::NotFound && written > 0 => {
                // Retention removes the oldest first and may have been killed before it freed their
                // blocks.
                let is_hole = self.has_segment_before(folder, base_offset);
                is_hole.then(|| format!("{folder}/{name} is missing"))
            }
            _ => None,
        }
    }

    fn has_segment_before(&self, folder: &str, base_offset: i64) -> bool {
        let entries = self.env.disk().read_dir(&self.path.join(folder));
        let is_before = |entry: &DirEntry| {
            names::parse_segment_file(&entry.name).is_some_and(|file| {
                let is_log = file.kind == FileKind::Log && file.suffix == Suffix::None;
                is_log && file.base_offset < base_offset
            })
        };
        entries.is_ok_and(|entries| entries.iter().any(is_before))
    }

    /// Whether an orderly shutdown now would mark a log as closed that no one has opened.
    pub fn is_left_closed(&self, topic: &str, partition: i32) -> bool {
        !self
            .env
            .not_closed()
            .contains(&(topic.to_owned(), partition))
    }
}
