//! Logs whose files are still to be checked since the machine may have gone down.
//!
//! Logs are opened one by one, when the cluster says what they are for, and the process may end, in
//! order or not, before the last one. Neither an orderly end nor an arena of the same boot then says
//! anything about the files of a log that nobody has opened. `.pyrklog-recovering`, an empty file, is
//! there until all have been.

use std::io;
use std::path::Path;

use crate::disk::{self, missing_is_fine};
use crate::env::LogEnv;
use crate::log_dir::{LogDir, PartitionFolder};

const RECOVERING: &str = ".pyrklog-recovering";

impl LogDir {
    /// To be called before any log is opened, and before the directory gets a new arena: finds out
    /// which logs an earlier life has left to be recovered. `may_lack` says that this one begins
    /// with files of which it is not known that they are as they were written.
    ///
    /// # Errors
    /// The disk's. This life recovers the logs all the same.
    pub fn begin_recovery(&self, folders: &[PartitionFolder], may_lack: bool) -> io::Result<()> {
        let path = self.path.join(RECOVERING);
        let is_under_way = self.env.disk().exists(&path)?;
        if folders.is_empty() || !(may_lack || is_under_way) {
            return Ok(());
        }
        let names = folders
            .iter()
            .map(|folder| (folder.topic.clone(), folder.partition));
        self.env.recover(names.collect());
        match is_under_way {
            true => Ok(()),
            false => disk::replace_file(self.env.disk(), &path, b""),
        }
    }
}

/// A log was recovered, or deleted.
pub fn settled(env: &LogEnv, log_dir: &Path, topic: &str, partition: i32) {
    if env.recovered(topic, partition) {
        // If it stays, the next life recovers more than it must.
        let _gone_or_not = missing_is_fine(env.disk().remove_file(&log_dir.join(RECOVERING)));
    }
}
