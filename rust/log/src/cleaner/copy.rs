//! Writes the files of one new segment, under names that an opening removes.

use std::io::{self, IoSlice};
use std::sync::Arc;

use crate::cleaner::CleanError;
use crate::config::LogConfig;
use crate::disk::{DiskFile, OpenMode, missing_is_fine, sync_failed};
use crate::env::LogEnv;
use crate::folder::Folder;
use crate::names::{FileKind, INDEX_FILES, Suffix, file_name};
use crate::scan::BatchFacts;
use crate::segment::{Segment, SegmentIndexes};
use crate::transaction_index::{AbortedTxn, TransactionIndex};

/// Bytes written at once.
const WRITE_BYTES: usize = 1 << 20;

/// A new segment whose files are complete and durable, with their suffix.
#[derive(Debug)]
pub(crate) struct Copied {
    pub segment: Arc<Segment>,
    pub aborted: TransactionIndex,
}

/// The files of a new segment while batches are added.
#[derive(Debug)]
pub(crate) struct Copier {
    env: Arc<LogEnv>,
    folder: Arc<Folder>,
    base_offset: i64,
    suffix: Suffix,
    interval: u32,
    file: Arc<dyn DiskFile>,
    written: u64,
    /// Of the sources, not copied yet.
    expected: u64,
    buffer: Vec<u8>,
    indexes: SegmentIndexes,
    aborted: TransactionIndex,
}

/// The path's last part of a segment's file in a state.
pub(crate) fn name(base_offset: i64, kind: FileKind, suffix: Suffix) -> String {
    format!("{}{}", file_name(base_offset, kind), suffix.text())
}

/// Removes what is left of an unfinished new segment.
pub(crate) fn remove(
    env: &LogEnv,
    folder: &Folder,
    base_offset: i64,
    suffix: Suffix,
) -> io::Result<()> {
    [FileKind::Log]
        .into_iter()
        .chain(INDEX_FILES)
        .try_for_each(|kind| {
            let path = folder.file(&name(base_offset, kind, suffix));
            missing_is_fine(env.disk().remove_file(&path))
        })
}

impl Copier {
    pub fn new(
        env: &Arc<LogEnv>,
        folder: &Arc<Folder>,
        base_offset: i64,
        suffix: Suffix,
        config: &LogConfig,
    ) -> io::Result<Self> {
        // Not in a folder that takes this one's name meanwhile.
        let file = folder.in_place(|| {
            remove(env, folder, base_offset, suffix)?;
            let path = folder.file(&name(base_offset, FileKind::Log, suffix));
            env.disk().open(&path, OpenMode::Truncate)
        })?;
        Ok(Self {
            file,
            env: Arc::clone(env),
            folder: Arc::clone(folder),
            base_offset,
            suffix,
            interval: config.index_interval_bytes,
            written: 0,
            expected: 0,
            buffer: Vec::with_capacity(WRITE_BYTES),
            indexes: SegmentIndexes::new(base_offset, config.segment_index_bytes),
            aborted: TransactionIndex::new(base_offset),
        })
    }

    /// So many bytes of sources follow.
    pub fn expect(&mut self, bytes: u64) {
        self.expected = bytes;
    }

    /// A batch of the sources is about to be added, or left out.
    pub fn passed(&mut self, bytes: usize) {
        self.expected = self.expected.saturating_sub(bytes as u64);
    }

    /// Bytes of the batches so far.
    pub fn size(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// By how many bytes a batch may grow so that the rest of the sources still fits.
    pub fn room_bytes(&self) -> u64 {
        let needed = self.size() + self.expected;
        (i32::MAX as u64).saturating_sub(needed)
    }

    /// Adds a batch.
    pub fn add(&mut self, bytes: &[u8], facts: BatchFacts) -> Result<(), CleanError> {
        let position = self.size();
        let end = position + bytes.len() as u64;
        if i32::try_from(end).is_err() {
            let base_offset = self.base_offset;
            return Err(CleanError::Corrupt(format!(
                "segment {base_offset} would have {end} bytes after its cleaning"
            )));
        }
        self.indexes.add(facts, position as u32, self.interval);
        if self.buffer.len() + bytes.len() > WRITE_BYTES {
            self.flush()?;
        }
        if bytes.len() > WRITE_BYTES {
            self.write(bytes)?;
        } else {
            self.buffer.extend_from_slice(bytes);
        }
        Ok(())
    }

    /// The marker of this transaction was added.
    pub fn add_aborted(&mut self, txn: AbortedTxn) -> Result<(), CleanError> {
        let added = self.aborted.append(txn);
        added
            .map(|_| ())
            .map_err(|error| CleanError::Corrupt(error.to_string()))
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let written = match buffer.is_empty() {
            true => Ok(()),
            false => self.write(&buffer),
        };
        buffer.clear();
        self.buffer = buffer;
        written
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file
            .write_slices_at(&[IoSlice::new(bytes)], self.written, true)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Completes the files and makes them durable. Retention goes by the age of the sources, not
    /// by that of the copy: `modified_ms` is the last one's.
    pub fn finish(mut self, modified_ms: i64) -> Result<Copied, CleanError> {
        self.flush()?;
        let path = self
            .folder
            .file(&name(self.base_offset, FileKind::Log, self.suffix));
        self.env.disk().set_modified_ms(&path, modified_ms)?;
        self.file.sync_data().map_err(sync_failed)?;
        self.file.no_more_writes();
        self.indexes.add_largest(true);
        let (offsets, times) = (&self.indexes.offsets, &self.indexes.times);
        self.write_index(FileKind::OffsetIndex, offsets.as_bytes())?;
        self.write_index(FileKind::TimeIndex, times.as_bytes())?;
        if !self.aborted.is_empty() {
            self.write_index(FileKind::TransactionIndex, &self.aborted.to_bytes())?;
        }
        let synced = self.env.disk().sync_dir(&self.folder.path());
        // It concerns other files too, whatever becomes of these.
        synced.map_err(|error| io::Error::other(error.to_string()))?;
        let segment = Segment::new(
            &self.env,
            &self.folder,
            self.base_offset,
            self.written,
            true,
        );
        segment.set_largest(self.indexes.largest);
        Ok(Copied {
            segment,
            aborted: self.aborted,
        })
    }

    fn write_index(&self, kind: FileKind, content: &[u8]) -> io::Result<()> {
        let name = name(self.base_offset, kind, self.suffix);
        let open = || {
            let path = self.folder.file(&name);
            self.env.disk().open(&path, OpenMode::Truncate)
        };
        let file = self.folder.in_place(open)?;
        file.write_all_at(content, 0)?;
        file.sync_data().map_err(sync_failed)
    }
}
