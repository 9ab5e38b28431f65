//! `cleaner-offset-checkpoint`: below which offset each log is compacted.

use std::io;

use crate::log_dir::LogDir;

impl LogDir {
    /// The offset below which the log is compacted; `None` if it never was.
    pub fn cleaned_end(&self, topic: &str, partition: i32) -> Option<i64> {
        self.cleaned.lock().get(topic, partition)
    }

    /// Writes that the log is compacted below `offset`.
    ///
    /// # Errors
    /// A disk error, or the directory is poisoned.
    pub fn write_cleaned_end(&self, topic: &str, partition: i32, offset: i64) -> io::Result<()> {
        self.refuse_if_poisoned()?;
        let mut cleaned = self.cleaned.lock();
        cleaned.set(topic, partition, offset);
        cleaned.write(&self.env, &self.path)
    }

    /// The log was cut, so that it ends at `log_end`: what follows there is not compacted. Writes
    /// nothing if the row is below.
    ///
    /// # Errors
    /// A disk error, or the directory is poisoned.
    pub fn lower_cleaned_end(&self, topic: &str, partition: i32, log_end: i64) -> io::Result<()> {
        match self.cleaned_end(topic, partition) {
            Some(offset) if offset > log_end => self.write_cleaned_end(topic, partition, log_end),
            _ => Ok(()),
        }
    }
}
