//! Logs whose segments may have messages of old formats where their leader epochs do not tell.
//!
//! Kafka clears its file of epochs only when it writes an old format to the log. A directory may
//! thus have epochs for a log whose older segments came otherwise. So the first opening of each log
//! that another broker left looks at the beginning of every segment. `.pyrklog-unseen` names the
//! folders of logs that were not opened since, one a line; without the file these are all.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use crate::checkpoint::FILE_BYTES_MAX;
use crate::disk;
use crate::env::LogEnv;
use crate::log_dir::{LogDir, PartitionFolder};
use crate::names;

const UNSEEN: &str = ".pyrklog-unseen";

type Name = (String, i32);

impl LogDir {
    /// Determines which logs were not opened since another broker left them. Call before any log is
    /// opened.
    ///
    /// # Errors
    /// A disk error; all logs count as such in this run.
    pub fn begin_seeing(&self, folders: &[PartitionFolder]) -> io::Result<()> {
        let name_of = |folder: &PartitionFolder| (folder.topic.clone(), folder.partition);
        let all: HashSet<Name> = folders.iter().map(name_of).collect();
        let content = disk::read_file(self.env.disk(), &self.path.join(UNSEEN), FILE_BYTES_MAX);
        let (unseen, result) = match disk::if_exists(content) {
            Ok(Some(content)) => match parse(&content) {
                Some(unseen) => (unseen.intersection(&all).cloned().collect(), Ok(())),
                // A malformed line may have been any log.
                None => (all, Ok(())),
            },
            // All that come later are ours.
            Ok(None) if all.is_empty() => (all, write(&self.env, &self.path, &[])),
            Ok(None) => (all, Ok(())),
            Err(error) => (all, Err(error)),
        };
        self.env.set_unseen(unseen);
        result
    }

    /// Records which logs are still as another broker left them. Call at an orderly end.
    ///
    /// # Errors
    /// A disk error, or the directory is poisoned.
    pub fn leave_unseen(&self) -> io::Result<()> {
        self.refuse_if_poisoned()?;
        match self.env.unseen() {
            unseen if unseen.is_empty() => Ok(()),
            unseen => write(&self.env, &self.path, &unseen),
        }
    }
}

fn parse(content: &[u8]) -> Option<HashSet<Name>> {
    let text = String::from_utf8_lossy(content);
    let name_of = |line: &str| {
        let folder = names::parse_folder(line)?;
        Some((folder.topic.to_owned(), folder.partition))
    };
    text.lines().map(name_of).collect()
}

fn write(env: &LogEnv, log_dir: &Path, unseen: &[Name]) -> io::Result<()> {
    let mut content = String::new();
    for (topic, partition) in unseen {
        content.push_str(&names::folder_name(topic, *partition));
        content.push('\n');
    }
    disk::replace_file(env.disk(), &log_dir.join(UNSEEN), content.as_bytes())
}

/// A log was opened, or deleted.
pub fn seen(env: &LogEnv, log_dir: &Path, topic: &str, partition: i32) {
    if env.seen(topic, partition) {
        // If it is not written, the next run looks more often than it must.
        let _written_or_not = write(env, log_dir, &[]);
    }
}
