//! One checkpoint file of a log directory, in memory.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use crate::checkpoint::{self, FILE_BYTES_MAX, OffsetRow};
use crate::disk;
use crate::env::LogEnv;
use crate::names;

/// A checkpoint file with one offset a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checkpoint {
    /// [`crate::Log::recovery_point`].
    RecoveryPoint,
    /// [`crate::Log::log_start_offset`]. A log that starts at 0 has no row.
    LogStart,
    /// [`crate::Log::high_watermark`].
    HighWatermark,
}

impl Checkpoint {
    /// All of them.
    pub const ALL: [Checkpoint; 3] = [
        Checkpoint::RecoveryPoint,
        Checkpoint::LogStart,
        Checkpoint::HighWatermark,
    ];

    pub(super) fn file_name(self) -> &'static str {
        match self {
            Checkpoint::RecoveryPoint => names::RECOVERY_POINT_CHECKPOINT,
            Checkpoint::LogStart => names::LOG_START_CHECKPOINT,
            Checkpoint::HighWatermark => names::REPLICATION_CHECKPOINT,
        }
    }
}

/// Offsets by topic and partition. The file is always written whole: rows of unopened logs stay,
/// unless they may be too high.
#[derive(Debug)]
pub(super) struct OffsetTable {
    name: &'static str,
    rows: BTreeMap<String, BTreeMap<i32, Row>>,
    changed: bool,
    /// Rows of unopened logs are omitted from the file: some row lay beyond its log's end, so
    /// others may as well.
    leaves_unopened_out: bool,
    /// The file was written since then.
    unopened_are_left_out: bool,
    /// The file has a row beyond its log's end.
    is_due: bool,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    offset: i64,
    /// From an earlier run, and the log has not been opened in this one.
    is_unopened: bool,
}

impl OffsetTable {
    /// Reads a checkpoint. As in Kafka an unreadable one counts as empty, with a note: the logs
    /// tell its content, or the defaults are safe.
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
            leaves_unopened_out: false,
            unopened_are_left_out: false,
            is_due: false,
        };
        let content = disk::read_file(env.disk(), &path, FILE_BYTES_MAX);
        let Some(content) = disk::if_exists(content)? else {
            return Ok(table);
        };
        match checkpoint::parse_offsets(&path.to_string_lossy(), &content) {
            Ok(rows) => {
                for OffsetRow {
                    topic,
                    partition,
                    offset,
                } in rows
                {
                    let row = Row {
                        offset,
                        is_unopened: true,
                    };
                    table.rows.entry(topic).or_default().insert(partition, row);
                }
            }
            Err(error) => notes.push(format!("ignored the offsets of a checkpoint: {error}")),
        }
        Ok(table)
    }

    pub fn get(&self, topic: &str, partition: i32) -> Option<i64> {
        Some(self.rows.get(topic)?.get(&partition)?.offset)
    }

    pub fn set(&mut self, topic: &str, partition: i32, offset: i64) {
        let partitions = match self.rows.get_mut(topic) {
            Some(partitions) => partitions,
            None => self.rows.entry(topic.to_owned()).or_default(),
        };
        let row = Row {
            offset,
            is_unopened: false,
        };
        let before = partitions.insert(partition, row);
        self.changed |= before.is_none_or(|before| {
            before.offset != offset || (before.is_unopened && self.leaves_unopened_out)
        });
    }

    /// A log that ends at `log_end` was opened: lowers its row to that. True if the file must be
    /// written before anything is appended.
    pub fn opened(&mut self, topic: &str, partition: i32, log_end: i64) -> bool {
        let row = self.rows.get_mut(topic);
        if let Some(row) = row.and_then(|partitions| partitions.get_mut(&partition)) {
            let was_unopened = std::mem::replace(&mut row.is_unopened, false);
            self.changed |= was_unopened && self.leaves_unopened_out;
            if row.offset > log_end {
                row.offset = log_end;
                self.changed = true;
                self.leaves_unopened_out = true;
                self.is_due |= !(was_unopened && self.unopened_are_left_out);
            }
        }
        self.is_due
    }

    pub fn remove(&mut self, topic: &str, partition: i32) {
        if let Some(partitions) = self.rows.get_mut(topic) {
            self.changed |= partitions.remove(&partition).is_some();
            if partitions.is_empty() {
                self.rows.remove(topic);
            }
        }
    }

    pub fn write(&mut self, env: &LogEnv, directory: &Path) -> io::Result<()> {
        if !self.changed {
            return Ok(());
        }
        let rows: Vec<_> = self
            .rows
            .iter()
            .flat_map(|(topic, partitions)| partitions.iter().map(move |row| (topic, row)))
            .filter(|(_, (_, row))| !(row.is_unopened && self.leaves_unopened_out))
            .map(|(topic, (partition, row))| OffsetRow {
                topic: topic.clone(),
                partition: *partition,
                offset: row.offset,
            })
            .collect();
        let content = checkpoint::encode_offsets(&rows);
        disk::replace_file(env.disk(), &directory.join(self.name), content.as_bytes())?;
        self.changed = false;
        self.unopened_are_left_out = self.leaves_unopened_out;
        self.is_due = false;
        Ok(())
    }
}
