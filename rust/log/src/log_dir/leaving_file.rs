//! Changes `.pyrklog-leaving`, durably.

use std::io;

use crate::disk::{self, OpenMode, missing_is_fine};
use crate::log_dir::LogDir;
use crate::log_dir::leaving::{LEAVING, Leaving};

impl LogDir {
    /// Logs that were giving way, and those that are.
    pub fn leaving(&self) -> Vec<Leaving> {
        self.leaving.lock().clone()
    }

    /// Writes that a log gives way to its copy, durably. It must not take records from now on.
    ///
    /// # Errors
    /// A disk error, or the directory is poisoned. The line may be there or not; after an error
    /// that may pass ([`disk::may_pass`]) it is not.
    pub fn begin_leaving(&self, leaving: Leaving) -> io::Result<()> {
        self.refuse_if_poisoned()?;
        let mut all = self.leaving.lock();
        all.retain(|other| !other.is(&leaving.topic, leaving.partition));
        // Known before it is written: after an error `end_leaving` has something to remove.
        all.push(leaving);
        let written = self.write_leaving(&all);
        if written.as_ref().is_err_and(disk::may_pass) {
            // It failed before the file had its name.
            all.pop();
        }
        written
    }

    /// The log has given way, or stays: removes its line, durably. Writes nothing without one.
    ///
    /// # Errors
    /// A disk error, or the directory is poisoned. The line may be there or not.
    pub fn end_leaving(&self, topic: &str, partition: i32) -> io::Result<()> {
        let mut all = self.leaving.lock();
        if !all.iter().any(|leaving| leaving.is(topic, partition)) {
            return Ok(());
        }
        self.refuse_if_poisoned()?;
        let mut next = all.clone();
        next.retain(|other| !other.is(topic, partition));
        self.write_leaving(&next)?;
        *all = next;
        Ok(())
    }

    fn write_leaving(&self, all: &[Leaving]) -> io::Result<()> {
        let disk = self.env.disk();
        let path = self.path.join(LEAVING);
        if all.is_empty() {
            missing_is_fine(disk.remove_file(&path))?;
            return disk.sync_dir(&self.path);
        }
        let content: String = all.iter().map(Leaving::line).collect();
        let temporary = disk::temporary_name(&path);
        let file = disk.open(&temporary, OpenMode::Truncate)?;
        file.write_all_at(content.as_bytes(), 0)?;
        file.sync_data()?;
        disk.rename(&temporary, &path)?;
        // Even a lack of descriptors does not pass: the file is there.
        disk.sync_dir(&self.path).map_err(disk::sync_failed)
    }
}
