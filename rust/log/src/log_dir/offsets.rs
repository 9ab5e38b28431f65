//! One checkpoint file of a log directory, in memory.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use crate::checkpoint::{self, OffsetRow};
use crate::disk;
use crate::env::LogEnv;
use crate::log_dir::FILE_BYTES_MAX;

/// Offsets by topic and partition, as the file has them or is about to. Rows of logs that nobody
/// has opened yet stay, since the file is always written whole.
#[derive(Debug)]
pub(super) struct OffsetTable {
    name: &'static str,
    rows: BTreeMap<String, BTreeMap<i32, i64>>,
    changed: bool,
}

impl OffsetTable {
    /// Reads a checkpoint. One that cannot be read counts as empty, as in Kafka, with a note: what
    /// it said can be found out from the logs or is on the safe side.
    pub fn read(
        env: &LogEnv,
        directory: &Path,
        name: &'static str,
        notes: &mut Vec<String>,
    ) -> io::Result<Self> {
        let path = directory.join(name);
        let mut table = Self {
            name,
            rows: BTreeMap::new(),
            changed: false,
        };
        let content = match disk::read_file(env.disk(), &path, FILE_BYTES_MAX) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(table),
            Err(error) => return Err(error),
        };
        match checkpoint::parse_offsets(&path.to_string_lossy(), &content) {
            Ok(rows) => {
                for OffsetRow {
                    topic,
                    partition,
                    offset,
                } in rows
                {
                    table
                        .rows
                        .entry(topic)
                        .or_default()
                        .insert(partition, offset);
                }
            }
            Err(error) => notes.push(format!("started without the offsets of {error}")),
        }
        Ok(table)
    }

    pub fn get(&self, topic: &str, partition: i32) -> Option<i64> {
        self.rows.get(topic)?.get(&partition).copied()
    }

    pub fn set(&mut self, topic: &str, partition: i32, offset: i64) {
        let partitions = match self.rows.get_mut(topic) {
            Some(partitions) => partitions,
            None => self.rows.entry(topic.to_owned()).or_default(),
        };
        self.changed |= partitions.insert(partition, offset) != Some(offset);
    }

    pub fn remove(&mut self, topic: &str, partition: i32) {
        if let Some(partitions) = self.rows.get_mut(topic) {
            self.changed |= partitions.remove(&partition).is_some();
            if partitions.is_empty() {
                self.rows.remove(topic);
            }
        }
    }

    /// Replaces the file, durably, if anything changed since it was last written.
    pub fn write(&mut self, env: &LogEnv, directory: &Path) -> io::Result<()> {
        if !self.changed {
            return Ok(());
        }
        let rows: Vec<_> = self
            .rows
            .iter()
            .flat_map(|(topic, partitions)| {
                partitions.iter().map(|(partition, offset)| OffsetRow {
                    topic: topic.clone(),
                    partition: *partition,
                    offset: *offset,
                })
            })
            .collect();
        let content = checkpoint::encode_offsets(&rows);
        disk::replace_file(env.disk(), &directory.join(self.name), content.as_bytes())?;
        self.changed = false;
        Ok(())
    }
}
