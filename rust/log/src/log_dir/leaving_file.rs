//! Changes `.pyrklog-leaving`, durably.

use std::io;

use crate::disk::{self, OpenMode, missing_is_fine};
use crate::log_dir::LogDir;
use crate::log_dir::leaving::{LEAVING, Leaving, Newest};
use crate::names::{self, FileKind, Suffix};

impl LogDir {
    /// Logs that were giving way, and those that are.
    pub fn leaving(&self) -> Vec<Leaving> {
        self.leaving.lock().clone()
    }

    /// Whether the log of this name gives way, or was to.
    pub fn is_leaving(&self, topic: &str, partition: i32) -> bool {
        let all = self.leaving.lock();
        all.iter().any(|leaving| leaving.is(topic, partition))
    }

    /// The lines whose logs took records since, by others than this broker.
    ///
    /// # Errors
    /// A disk error.
    pub fn grown(&self) -> io::Result<Vec<Leaving>> {
        let mut grown = self.leaving();
        let mut failed = None;
        grown.retain(|leaving| {
            let newest = self.newest_segment(&leaving.topic, leaving.partition);
            let newest = newest.map_err(|error| failed = Some(error)).ok();
            newest.flatten().is_some_and(|now| now > leaving.newest)
        });
        failed.map_or(Ok(grown), Err)
    }

    /// `None` without a folder, or a segment in it.
    fn newest_segment(&self, topic: &str, partition: i32) -> io::Result<Option<Newest>> {
        let (disk, folder) = (self.env.disk(), names::folder_name(topic, partition));
        let folder = self.path.join(folder);
        let entries = disk::if_exists(disk.read_dir(&folder))?.unwrap_or_default();
        let logs = entries.iter().filter_map(|entry| {
            let file = names::parse_segment_file(&entry.name)?;
            let is_log = file.kind == FileKind::Log && file.suffix == Suffix::None;
            is_log.then_some((file.base_offset, &entry.name))
        });
        let Some((base_offset, name)) = logs.max() else {
            return Ok(None);
        };
        let bytes = disk.file_len(&folder.join(name))?;
        Ok(Some(Newest { base_offset, bytes }))
    }

    /// Writes that a log gives way to its copy, durably. It must not take records from now on, and
    /// all of it is in its files. `copy`: the name of the copy's folder; `destination`: the path of
    /// its directory.
    ///
    /// # Errors
    /// A disk error, or the directory is poisoned. The line may be there or not; after an error
    /// that may pass ([`disk::may_pass`]) it is not.
    pub fn begin_leaving(
        &self,
        topic: &str,
        partition: i32,
        copy: &str,
        destination: String,
    ) -> io::Result<()> {
        self.refuse_if_poisoned()?;
        let leaving = Leaving {
            topic: topic.to_owned(),
            partition,
            copy: copy.to_owned(),
            newest: self.newest_segment(topic, partition)?.unwrap_or_default(),
            destination,
        };
        let mut all = self.leaving.lock();
        all.retain(|other| !other.is(topic, partition));
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
