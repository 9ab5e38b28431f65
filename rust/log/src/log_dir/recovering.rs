//! Logs whose files are still to be checked since the life that wrote to them did not close them.
//!
//! Logs are opened one by one, when the cluster says what they are for, and the process may end, in
//! order or not, before the last one. Neither an orderly end nor an arena of the same boot then says
//! anything about the files of a log that nobody has opened. `.pyrklog-recovering` is there until all
//! have been: the folder names of these logs, one a line; empty, it stands for all folders.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use crate::checkpoint::FILE_BYTES_MAX;
use crate::disk::{self, missing_is_fine};
use crate::env::LogEnv;
use crate::log_dir::{LogDir, PartitionFolder};
use crate::names;

const RECOVERING: &str = ".pyrklog-recovering";

/// Topic and partition.
type Name = (String, i32);

impl LogDir {
    /// To be called before any log is opened, and before the directory gets a new arena: finds out
    /// which logs an earlier life has left to be recovered. `may_lack` says that this one begins
    /// with files of which it is not known that they are as they were written.
    ///
    /// # Errors
    /// The disk's. This life recovers the logs all the same.
    pub fn begin_recovery(&self, folders: &[PartitionFolder], may_lack: bool) -> io::Result<()> {
        let name_of = |folder: &PartitionFolder| (folder.topic.clone(), folder.partition);
        let all: HashSet<Name> = folders.iter().map(name_of).collect();
        if !self.was_clean() {
            self.env.left_open(all.clone());
        }
        let path = self.path.join(RECOVERING);
        let (left, error) = match self.left_to_recover() {
            Ok(left) => (left, None),
            // Perhaps all of them are.
            Err(error) => (Some(HashSet::new()), Some(error)),
        };
        let wanted = match &left {
            _ if may_lack => all,
            None => return Ok(()),
            Some(some) if some.is_empty() => all,
            Some(some) => some.intersection(&all).cloned().collect(),
        };
        let is_empty = wanted.is_empty();
        self.env.recover(wanted);
        if let Some(error) = error {
            return Err(error);
        }
        let says_all = left.is_some_and(|some| some.is_empty());
        match is_empty {
            true => missing_is_fine(self.env.disk().remove_file(&path)),
            false if may_lack && !says_all => disk::replace_file(self.env.disk(), &path, b""),
            false => Ok(()),
        }
    }

    /// What `.pyrklog-recovering` names; an empty set stands for all, `None` for no log.
    fn left_to_recover(&self) -> io::Result<Option<HashSet<Name>>> {
        let path = self.path.join(RECOVERING);
        let content = match disk::read_file(self.env.disk(), &path, FILE_BYTES_MAX) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let name_of = |line: &str| {
            let folder = names::parse_folder(line)?;
            Some((folder.topic.to_owned(), folder.partition))
        };
        let text = String::from_utf8_lossy(&content);
        // A line that makes no sense may have been any of them.
        let names: Option<HashSet<Name>> = text.lines().map(name_of).collect();
        Ok(Some(names.unwrap_or_default()))
    }

    /// A step of an orderly shutdown, before [`LogDir::mark_clean`]: writes down which logs nobody
    /// has opened since an end without order, so that the mark is not taken for theirs.
    ///
    /// # Errors
    /// The disk's, or that the directory is poisoned.
    pub fn leave_to_recover(&self) -> io::Result<()> {
        self.refuse_if_poisoned()?;
        let mut names: Vec<Name> = self.env.not_closed().into_iter().collect();
        if names.is_empty() {
            return Ok(());
        }
        names.sort();
        let mut content = String::new();
        for (topic, partition) in names {
            content.push_str(&names::folder_name(&topic, partition));
            content.push('\n');
        }
        let path = self.path.join(RECOVERING);
        disk::replace_file(self.env.disk(), &path, content.as_bytes())
    }
}

/// A log was recovered, or deleted.
pub fn settled(env: &LogEnv, log_dir: &Path, topic: &str, partition: i32) {
    if env.recovered(topic, partition) {
        // If it stays, the next life recovers more than it must.
        let _gone_or_not = missing_is_fine(env.disk().remove_file(&log_dir.join(RECOVERING)));
    }
}
