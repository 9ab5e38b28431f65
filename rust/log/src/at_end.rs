//! A log that begins at the end of another one's, and lacks older records (`expansion.md`).
//!
//! Its folder has a file `partial`:
//!
//! ```text
//! 0                 version
//! 1200              where the log began
//! 0                 version
//! 2                 count of the other log's leader epochs
//! 0 0               epoch, first offset written in it
//! 3 900
//! ```
//!
//! Version 1 has a line more behind the second, once segments of a compacted log were joined:
//!
//! ```text
//! 2 -4611           the broker they come from, and which opening of its log
//! ```
//!
//! Written by the restart that begins the log; removed once the log is *whole*, that is, lacks
//! nothing that its leader has. Meanwhile `partition.metadata` keeps brokers away that do not know
//! such logs.

use std::io;
use std::sync::Arc;

use crate::disk::{self, Disk, missing_is_fine};
use crate::env::LogEnv;
use crate::folder::Folder;
use crate::leader_epochs::{EpochEntry, LeaderEpochs};
use crate::log::Log;
use crate::names::{self, FileKind};
use crate::partition_metadata::PartitionMetadata;
use crate::snapshot::{self, ProducerEntry};

/// Longer files are not read.
pub(crate) const PARTIAL_BYTES_MAX: u64 = 64 << 20;

/// A log as it is at its end.
#[derive(Clone, Debug)]
pub struct EndState {
    /// Log end offset.
    pub offset: i64,
    /// Log start offset.
    pub log_start: i64,
    /// Leader epochs with records.
    pub epochs: Vec<EpochEntry>,
    /// Its producers, in any order: [`snapshot::encode_sorted`] makes bytes of them.
    pub producers: Vec<ProducerEntry>,
}

/// Where and with what a log begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartAtEnd {
    offset: i64,
    epochs: LeaderEpochs,
    /// The bytes of a snapshot.
    producers: Vec<u8>,
}

impl StartAtEnd {
    /// Checks what another broker has sent: `epochs` are (epoch, first offset), `producers` a
    /// snapshot's bytes.
    ///
    /// # Errors
    /// What is wrong, in a sentence.
    pub fn received(
        offset: i64,
        epochs: impl IntoIterator<Item = (i32, i64)>,
        producers: &[u8],
    ) -> Result<StartAtEnd, String> {
        if offset < 0 {
            return Err(format!("a log cannot begin at {offset}"));
        }
        let mut known = LeaderEpochs::new();
        for (epoch, start_offset) in epochs {
            let before = known.entries().len();
            known.assign(epoch, start_offset);
            let follows = known.entries().len() > before && start_offset < offset;
            if !follows {
                return Err(format!("epoch {epoch} cannot begin at {start_offset}"));
            }
        }
        snapshot::decode(producers).map_err(|error| error.to_string())?;
        Ok(StartAtEnd {
            offset,
            epochs: known,
            producers: producers.to_vec(),
        })
    }

    /// Offset of the first record to come.
    pub fn offset(&self) -> i64 {
        self.offset
    }

    /// Writes the files of an empty folder. `partial` comes last: without it the log is empty.
    pub(crate) fn write(&self, disk: &dyn Disk, folder: &Folder) -> io::Result<()> {
        let snapshot = folder.segment_file(self.offset, FileKind::Snapshot);
        disk::replace_file(disk, &snapshot, &self.producers)?;
        let path = folder.file(names::LEADER_EPOCH_CHECKPOINT);
        disk::replace_file(disk, &path, self.epochs.encode().as_bytes())?;
        let partial = PartialFile {
            start: self.offset,
            origin: None,
            epochs: self.epochs.clone(),
        };
        let partial = partial.encode();
        disk::replace_file(disk, &folder.file(names::PARTIAL), partial.as_bytes())
    }
}

/// The log that the joined segments of a compacted log come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FillOrigin {
    /// The broker that has it.
    pub broker: i32,
    /// See [`Log::opening`].
    pub opening: i64,
}

/// The content of the file `partial`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartialFile {
    /// Where the log began.
    pub start: i64,
    pub origin: Option<FillOrigin>,
    /// Of the log at whose end it began.
    pub epochs: LeaderEpochs,
}

impl PartialFile {
    /// `None` if it cannot be read.
    pub fn parse(content: &[u8]) -> Option<PartialFile> {
        let (version, rest) = line(content)?;
        let (start, rest) = line(rest)?;
        let (origin, epochs) = match version {
            "0" => (None, rest),
            "1" => {
                let (origin, rest) = line(rest)?;
                let (broker, opening) = origin.split_once(' ')?;
                let (broker, opening) = (broker.parse().ok()?, opening.parse().ok()?);
                (Some(FillOrigin { broker, opening }), rest)
            }
            _ => return None,
        };
        if !epochs.ends_with(b"\n") {
            return None;
        }
        Some(PartialFile {
            start: start.parse().ok()?,
            origin,
            epochs: LeaderEpochs::parse(names::PARTIAL, epochs).ok()?,
        })
    }

    pub fn encode(&self) -> String {
        let (start, epochs) = (self.start, self.epochs.encode());
        match self.origin {
            None => format!("0\n{start}\n{epochs}"),
            Some(FillOrigin { broker, opening }) => {
                format!("1\n{start}\n{broker} {opening}\n{epochs}")
            }
        }
    }
}

/// The first line and what follows.
fn line(content: &[u8]) -> Option<(&str, &[u8])> {
    let end = content.iter().position(|byte| *byte == b'\n')?;
    let first = std::str::from_utf8(&content[..end]).ok()?;
    Some((first, &content[end + 1..]))
}

/// The leader epochs in the content of `partial`.
pub(crate) fn epochs_of(content: &[u8]) -> Option<LeaderEpochs> {
    PartialFile::parse(content).map(|partial| partial.epochs)
}

/// Removes the file `partial`.
#[derive(Debug)]
pub struct WholeJob {
    env: Arc<LogEnv>,
    folder: Arc<Folder>,
}

impl WholeJob {
    /// Durably. The caller must hold no lock.
    ///
    /// # Errors
    /// A disk error; the job may be repeated.
    pub fn execute(&self) -> io::Result<()> {
        let disk = self.env.disk();
        let metadata = self.folder.file(names::PARTITION_METADATA);
        PartitionMetadata::mark(disk, &metadata, false)?;
        missing_is_fine(disk.remove_file(&self.folder.file(names::PARTIAL)))?;
        disk.sync_dir(&self.folder.path())
    }
}

impl Log {
    /// What a replica needs to begin at this log's end. Takes time with the number of producers.
    pub fn end_state(&self) -> EndState {
        let entries = self.epochs.entries().iter();
        // An epoch without a record yet begins at the end.
        let with_records = entries.filter(|entry| entry.start_offset < self.end.offset);
        EndState {
            offset: self.end.offset,
            log_start: self.log_start,
            epochs: with_records.copied().collect(),
            producers: self.producers.entries_unsorted(),
        }
    }

    /// Whether it began at another log's end, and may lack what its leader has.
    pub fn is_partial(&self) -> bool {
        self.partial.is_some()
    }

    /// The log that joined segments of a compacted log come from, if there are any.
    pub fn fill_origin(&self) -> Option<FillOrigin> {
        PartialFile::parse(self.partial.as_deref()?)?.origin
    }

    /// A restart at another log's end was interrupted, or records were cut that it began with: what
    /// is left of a compacted log must not go on with records of its leader.
    pub fn ends_before_its_start(&self) -> bool {
        let start_of = |content: &[u8]| line(line(content)?.1)?.0.parse().ok();
        let start: Option<i64> = self.partial.as_deref().and_then(start_of);
        self.config.cleanup_compact && start.is_some_and(|start| self.end.offset < start)
    }

    /// It lacks nothing any more: the job says so on the disk. Then call [`Log::become_whole`].
    pub fn whole_job(&self) -> Option<WholeJob> {
        self.partial.as_ref().map(|_| WholeJob {
            env: Arc::clone(&self.env),
            folder: Arc::clone(&self.folder),
        })
    }

    /// The leader epochs of the log at whose end it began; none if the file cannot be read.
    pub(crate) fn others_epochs(&self) -> Option<LeaderEpochs> {
        epochs_of(self.partial.as_deref()?)
    }

    /// It is an ordinary log from now on. Nothing of it is clean.
    pub fn become_whole(&mut self) {
        self.partial = None;
        self.cleaned_at_open = 0;
        self.swapped_end = -1;
    }

    /// Below this offset it has of each key the newest record at most; 0 if nothing is clean.
    pub fn clean_below(&self) -> i64 {
        self.cleaned_at_open.max(self.swapped_end).max(0)
    }

    /// Changes when the log is opened, and when records were cut that others may have seen.
    pub fn opening(&self) -> i64 {
        self.opening
    }

    /// A copy in another log directory is as partial as its log.
    pub(crate) fn inherit_partial(&mut self, current: &Log) {
        self.partial.clone_from(&current.partial);
        match &self.partial {
            Some(content) => {
                let content = content.to_vec();
                self.tail.push_file(names::PARTIAL.to_owned(), content);
            }
            // An earlier try may have written it, and the log became whole since.
            None => self.tail.push_removal(names::PARTIAL.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_refused() {
        let producers = snapshot::encode(&[]);
        let received = |offset, epochs: &[(i32, i64)]| {
            StartAtEnd::received(offset, epochs.iter().copied(), &producers)
        };
        assert_eq!(received(7, &[(1, 0), (3, 5)]).unwrap().offset(), 7);
        assert!(received(0, &[]).is_ok());
        for (offset, epochs) in [
            (-1, &[] as &[_]),
            (7, &[(1, 0), (3, 7)]),
            (7, &[(3, 0), (1, 5)]),
            (7, &[(1, 5), (3, 5)]),
            (7, &[(-1, 0)]),
            (7, &[(1, -1)]),
        ] {
            assert!(received(offset, epochs).is_err(), "{offset} {epochs:?}");
        }
        assert!(StartAtEnd::received(7, [], &producers[1..]).is_err());
    }

    #[test]
    fn both_versions_of_the_file_are_read() {
        let mut epochs = LeaderEpochs::new();
        epochs.assign(0, 0);
        epochs.assign(3, 900);
        let mut partial = PartialFile {
            start: 1200,
            origin: None,
            epochs,
        };
        assert_eq!(partial.encode(), "0\n1200\n0\n2\n0 0\n3 900\n");
        assert_eq!(
            PartialFile::parse(partial.encode().as_bytes()),
            Some(partial.clone())
        );
        partial.origin = Some(FillOrigin {
            broker: 2,
            opening: -4611,
        });
        let content = partial.encode();
        assert_eq!(content, "1\n1200\n2 -4611\n0\n2\n0 0\n3 900\n");
        let found = PartialFile::parse(content.as_bytes());
        assert_eq!(found.as_ref(), Some(&partial));
        // The epochs may be missing, and are read from the batches then.
        partial.epochs = LeaderEpochs::new();
        for end in 0..content.len() {
            let found = PartialFile::parse(&content.as_bytes()[..end]);
            assert!(found.is_none_or(|found| found == partial), "{end}");
        }
        let later = content.replacen('1', "2", 1);
        assert_eq!(PartialFile::parse(later.as_bytes()), None);
    }
}
