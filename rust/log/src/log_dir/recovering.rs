//! Logs that still need recovery, since the run that wrote them did not close them.
//!
//! Logs are opened one by one, when the cluster assigns them, and the process may end before the
//! last one. Neither an orderly shutdown nor an arena of the same boot then vouches for the files
//! of unopened logs. `.pyrklog-recovering` exists until all are opened: their folder names, one a
//! line; empty, it means all folders.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use crate::checkpoint::FILE_BYTES_MAX;
use crate::disk::{self, missing_is_fine};
use crate::env::LogEnv;
use crate::log_dir::{LogDir, PartitionFolder};
use crate::names;

const RECOVERING: &str = ".pyrklog-recovering";

type Name = (String, i32);

impl LogDir {
    /// Determines which logs an earlier run left to recover. Call before any log is opened and
    /// before the directory gets a new arena. `may_lack` says that files may lack written data.
    ///
    /// # Errors
    /// A disk error; the logs are recovered in this run all the same.
    pub fn begin_recovery(&self, folders: &[PartitionFolder], may_lack: bool) -> io::Result<()> {
        let name_of = |folder: &PartitionFolder| (folder.topic.clone(), folder.partition);
        let all: HashSet<Name> = folders.iter().map(name_of).collect();
        if !self.was_clean() {
            self.env.left_open(all.clone());
        }
        let path = self.path.join(RECOVERING);
        let (left, error) = match self.left_to_recover() {
            Ok(left) => (left, None),
            // Unknown, so all of them.
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

    /// The logs in `.pyrklog-recovering`; an empty set means all, `None` none.
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
        // A malformed line may have been any log.
        let names: Option<HashSet<Name>> = text.lines().map(name_of).collect();
        Ok(Some(names.unwrap_or_default()))
    }

    /// Records the logs that were not opened since an unclean end, so that the clean-shutdown mark
    /// does not cover them. Call before [`LogDir::mark_clean`].
    ///
    /// # Errors
    /// A disk error, or the directory is poisoned.
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
        // If it stays, the next run recovers more than it must.
        let _gone_or_not = missing_is_fine(env.disk().remove_file(&log_dir.join(RECOVERING)));
    }
}
