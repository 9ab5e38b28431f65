//! Converts one segment.
//!
//! 1. Its entries become batches in `.cleaned` files: one new segment, or several where one would
//!    exceed 2 GiB. They are synced.
//! 2. `.cleaned` -> `.swap`, the last segment first, so that a `.cleaned` file below says that the
//!    set is incomplete; the directory is synced. From here on the new segments count.
//! 3. The old files go and the new ones take their names, as after an interrupted compaction
//!    (`files::finish_interrupted`).
//!
//! Before step 2 a kill leaves the old segment as it was.
//!
//! Everything stays within the offsets of the segment, since step 3 removes what the new segments
//! reach over. Entries that cannot be batches become batches that cannot be read, of the same bytes:
//! compaction, recovery and consumers treat them as any other. What is no entry is kept in a file
//! beside the segment.

use std::collections::VecDeque;
use std::io;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use pyrklog_wire::batch::{BatchHeader, Compression};
use pyrklog_wire::message_set::Message;

use super::batches::{self, Group, Wrappers};
use super::large;
use super::search::{self, MAGIC_END};
use crate::cleaner::CleanError;
use crate::cleaner::copy::{Copier, name, remove};
use crate::config::LogConfig;
use crate::disk::{self, DiskFile, OpenMode, missing_is_fine, sync_failed};
use crate::entries::{Entries, Entry};
use crate::env::LogEnv;
use crate::folder::Folder;
use crate::names::{FileKind, INDEX_FILES, Suffix, cut_path};
use crate::open::OpenError;
use crate::scan::{BatchFacts, WALK_CHUNK_BYTES};
use crate::segment::SegmentBytes;
use crate::transaction_index::{AbortedTxn, TransactionIndex};

/// Larger ones are not read.
const TRANSACTION_INDEX_BYTES_MAX: u64 = i32::MAX as u64;

/// A segment to convert.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    pub env: &'a Arc<LogEnv>,
    pub folder: &'a Arc<Folder>,
    pub config: &'a LogConfig,
    pub base_offset: i64,
    /// Where the next segment begins.
    pub limit: i64,
    /// Of a new segment.
    pub output_bytes_max: u64,
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Converted {
    /// Base offsets of the new segments, ascending.
    pub outputs: Vec<i64>,
    /// The greatest leader epoch of its batches.
    pub epoch: i32,
    /// Bytes at the end that were no entry.
    pub cut_bytes: u64,
    messages: u64,
    broken: u64,
    /// Why the first broken one is.
    reason: Option<String>,
    bytes_before: u64,
    bytes_after: u64,
}

impl Converted {
    /// Sums up.
    pub fn add(&mut self, other: &Converted) {
        self.messages += other.messages;
        self.broken += other.broken;
        self.bytes_before += other.bytes_before;
        self.bytes_after += other.bytes_after;
        if self.reason.is_none() {
            self.reason.clone_from(&other.reason);
        }
    }

    /// What the operator should know of these segments.
    pub fn note(&self, segments: usize, notes: &mut Vec<String>) {
        notes.push(format!(
            "converted {segments} segments of old message formats: {} messages, compressed ones counted once, {} bytes became {}",
            self.messages, self.bytes_before, self.bytes_after
        ));
        if let Some(reason) = &self.reason {
            notes.push(format!(
                "{} of them cannot be read, and stay as damaged batches at their offsets; the first one: {reason}",
                self.broken
            ));
        }
    }
}

/// Writes the new segments as `.cleaned` files. `epoch` is the leader epoch of messages before any
/// batch.
///
/// # Errors
/// [`OpenError`]; nothing is left of them then, unless the disk fails.
pub(super) fn convert(source: &Source<'_>, epoch: i32) -> Result<Converted, OpenError> {
    let discard = |base_offset: i64| {
        // What stays is removed by the next opening.
        let _removed = remove(source.env, source.folder, base_offset, Suffix::Cleaned);
    };
    let mut work = Work::new(source, epoch).inspect_err(|_| discard(source.base_offset))?;
    let done = work.run();
    if done.is_err() {
        work.done.outputs.iter().copied().for_each(discard);
    }
    done.map(|()| work.done)
}

/// Steps 2 and, in part, 3.
///
/// # Errors
/// A disk error.
pub(super) fn install(source: &Source<'_>, outputs: &[i64]) -> io::Result<()> {
    let disk = source.env.disk();
    for base_offset in outputs.iter().rev() {
        for kind in INDEX_FILES.into_iter().chain([FileKind::Log]) {
            let path = |suffix| source.folder.file(&name(*base_offset, kind, suffix));
            missing_is_fine(disk.rename(&path(Suffix::Cleaned), &path(Suffix::Swap)))?;
        }
    }
    disk.sync_dir(&source.folder.path()).map_err(sync_failed)
}

struct Work<'a> {
    source: &'a Source<'a>,
    file: Arc<dyn DiskFile>,
    size: u64,
    modified_ms: i64,
    /// `None` after the last one.
    output: Option<Copier>,
    /// Its base offset.
    output_base: i64,
    group: Group,
    /// The offset after the last batch.
    next_offset: i64,
    searches_left: usize,
    /// Of the source, not in a new segment yet.
    aborted: VecDeque<AbortedTxn>,
    done: Converted,
}

impl<'a> Work<'a> {
    fn new(source: &'a Source<'a>, epoch: i32) -> Result<Self, OpenError> {
        let disk = source.env.disk();
        let base_offset = source.base_offset;
        let path = source.folder.segment_file(base_offset, FileKind::Log);
        let file = disk.open(&path, OpenMode::Read)?;
        let size = file.len()?;
        Ok(Self {
            source,
            file,
            size,
            modified_ms: disk.modified_ms(&path)?,
            // It removes what an earlier try left.
            output: Some(Copier::new(
                source.env,
                source.folder,
                base_offset,
                Suffix::Cleaned,
                source.config,
            )?),
            output_base: base_offset,
            group: Group::default(),
            next_offset: base_offset,
            searches_left: search::SEARCHES_MAX,
            aborted: aborted(source)?,
            done: Converted {
                outputs: vec![base_offset],
                epoch,
                bytes_before: size,
                ..Converted::default()
            },
        })
    }

    fn run(&mut self) -> Result<(), OpenError> {
        let bytes = SegmentBytes::of_file(Arc::clone(&self.file));
        let mut entries = Entries::new(bytes, 0, self.size, WALK_CHUNK_BYTES);
        while let Some(entry) = entries.peek()? {
            if !self.source.env.may_convert() {
                return Err(OpenError::Stopped);
            }
            let len = match entry {
                Entry::Message { len, .. } => len,
                Entry::Batch(header) => header.total_len(),
                Entry::Nothing => {
                    let position = entries.position();
                    if let Some(damaged) = self.damaged_until_next(position)? {
                        self.done.messages += 1;
                        self.broken(&damaged, "its size is damaged", false)?;
                        entries.skip(damaged.len());
                        continue;
                    }
                    self.keep_rest(position)?;
                    break;
                }
            };
            let alone = large::lock_for(len);
            let position = entries.position();
            let bytes = entries.bytes(len)?;
            let taken = match entry {
                Entry::Batch(header) => self.batch(&header, bytes).map(|()| len)?,
                _ => self.message_at(position, bytes, alone.is_some())?,
            };
            entries.skip(taken);
            if alone.is_some() {
                // No group takes more than such a message.
                self.end_group()?;
                entries.forget();
            }
        }
        self.end_group()?;
        self.end_output(i64::MAX, None)
    }

    /// Returns how many bytes it takes: others than its size says, if that is damaged.
    fn message_at(
        &mut self,
        position: u64,
        bytes: &[u8],
        is_alone: bool,
    ) -> Result<usize, OpenError> {
        let message = Message::parse(bytes).ok().flatten();
        let is_sound = message.is_some_and(|message| message.verify_crc().is_ok());
        let end = position + bytes.len() as u64;
        if !is_sound
            && self.searches_left > 0
            && !search::goes_on(&*self.file, end, self.size)?
            && let Some(damaged) = self.damaged_until_next(position)?
        {
            self.done.messages += 1;
            self.broken(&damaged, "its size is damaged", false)?;
            return Ok(damaged.len());
        }
        self.message(bytes, is_alone)?;
        Ok(bytes.len())
    }

    /// The bytes from a damaged entry to the next sound one with a greater offset. Messages within a
    /// wrapper count from zero, and are no such ones.
    fn damaged_until_next(&mut self, position: u64) -> Result<Option<Vec<u8>>, OpenError> {
        self.end_group()?;
        if self.searches_left == 0 || self.size - position < MAGIC_END as u64 {
            return Ok(None);
        }
        self.searches_left -= 1;
        let mut head = [0; 8];
        disk::read_exact_at(&*self.file, &mut head, position)?;
        let within = self.next_offset..self.source.limit;
        let stored = Some(i64::from_be_bytes(head)).filter(|offset| within.contains(offset));
        let above = stored.unwrap_or(self.next_offset).saturating_add(1);
        let offsets = above..self.source.limit;
        Ok(search::next_sound(
            &*self.file,
            position,
            self.size,
            offsets,
        )?)
    }

    fn message(&mut self, bytes: &[u8], is_alone: bool) -> Result<(), OpenError> {
        self.done.messages += 1;
        let message = match Message::parse(bytes) {
            Ok(Some(message)) => message,
            Ok(None) => return self.broken(bytes, "it is cut off", false),
            Err(error) => return self.broken(bytes, &error.to_string(), false),
        };
        if let Err(error) = message.verify_crc() {
            return self.broken(bytes, &error.to_string(), false);
        }
        match message.compression() {
            Ok(Compression::None) if !self.holds(message.offset..=message.offset) => {
                self.broken(bytes, "its offset is not of its segment", true)
            }
            Ok(Compression::None) => {
                if !self.group.takes(&message) {
                    self.end_group()?;
                }
                self.group.push(&message);
                Ok(())
            }
            Ok(codec) => self.wrapper(&message, codec, is_alone),
            Err(error) => self.broken(bytes, &error.to_string(), true),
        }
    }

    fn wrapper(
        &mut self,
        message: &Message<'_>,
        codec: Compression,
        is_alone: bool,
    ) -> Result<(), OpenError> {
        self.end_group()?;
        let how = Wrappers {
            levels: self.source.config.compression_levels,
            epoch: self.done.epoch,
            from: self.source.base_offset,
            is_alone,
        };
        let batch = batches::of_wrapper(message, codec, how);
        let checked = batch.and_then(|batch| {
            let header = BatchHeader::parse(&batch).map_err(|error| error.to_string())?;
            match self.holds(header.base_offset..=header.last_offset()) {
                true => Ok((header, batch)),
                false => Err("its offsets are not of its segment".to_owned()),
            }
        });
        match checked {
            Ok((header, batch)) => self.add(&header, &batch),
            Err(reason) => self.broken(message.bytes, &reason, true),
        }
    }

    fn batch(&mut self, header: &BatchHeader, bytes: &[u8]) -> Result<(), OpenError> {
        self.end_group()?;
        let is_ours =
            header.last_offset_delta >= 0 && self.holds(header.base_offset..=header.last_offset());
        if !is_ours {
            return self.broken(
                bytes,
                "the offsets of a batch are not of its segment",
                false,
            );
        }
        self.done.epoch = self.done.epoch.max(header.partition_leader_epoch);
        self.add(header, bytes)
    }

    /// Whether the segment may have these offsets.
    fn holds(&self, offsets: RangeInclusive<i64>) -> bool {
        *offsets.start() >= self.output_base && *offsets.end() < self.source.limit
    }

    fn end_group(&mut self) -> Result<(), OpenError> {
        match self.group.take(self.done.epoch) {
            None => Ok(()),
            Some(Ok(batch)) => self.add_ours(&batch),
            Some(Err(reason)) => Err(OpenError::Corrupt(reason)),
        }
    }

    /// `is_intact`: its checksum is right.
    fn broken(&mut self, bytes: &[u8], reason: &str, is_intact: bool) -> Result<(), OpenError> {
        self.end_group()?;
        let stored = bytes
            .first_chunk::<8>()
            .map(|offset| i64::from_be_bytes(*offset));
        let within = self.output_base..self.source.limit;
        let offset = stored.filter(|offset| *offset >= self.next_offset && within.contains(offset));
        let offset = offset.unwrap_or(self.next_offset.min(within.end - 1));
        self.done.broken += 1;
        let reason = || format!("offset {offset}: {reason}");
        self.done.reason.get_or_insert_with(reason);
        let batch = batches::broken(bytes, offset, self.done.epoch, is_intact);
        self.add_ours(&batch.map_err(OpenError::Corrupt)?)
    }

    fn add_ours(&mut self, batch: &[u8]) -> Result<(), OpenError> {
        let header = BatchHeader::parse(batch);
        let header = header.map_err(|error| OpenError::Corrupt(error.to_string()))?;
        self.add(&header, batch)
    }

    fn add(&mut self, header: &BatchHeader, batch: &[u8]) -> Result<(), OpenError> {
        let last_offset = header.last_offset();
        let bytes = self.output.as_ref().map_or(0, Copier::size) + batch.len() as u64;
        let is_full = bytes > self.source.output_bytes_max
            || i32::try_from(last_offset - self.output_base).is_err();
        if is_full && header.base_offset >= self.next_offset.max(self.output_base + 1) {
            self.end_output(header.base_offset, Some(header.base_offset))?;
        }
        let facts = BatchFacts {
            size: batch.len() as u32,
            last_offset,
            max_timestamp: header.max_timestamp,
        };
        if let Some(output) = &mut self.output {
            output.add(batch, facts).map_err(clean_error)?;
        }
        self.done.bytes_after += batch.len() as u64;
        self.next_offset = self.next_offset.max(header.next_offset());
        Ok(())
    }

    /// Completes the new segment, whose offsets lie below `end`, and begins the next one.
    fn end_output(&mut self, end: i64, next: Option<i64>) -> Result<(), OpenError> {
        if let Some(mut output) = self.output.take() {
            while let Some(txn) = self.aborted.front().filter(|txn| txn.last_offset < end) {
                output.add_aborted(*txn).map_err(clean_error)?;
                self.aborted.pop_front();
            }
            output.finish(self.modified_ms).map_err(clean_error)?;
        }
        if let Some(base_offset) = next {
            let Source {
                env,
                folder,
                config,
                ..
            } = *self.source;
            self.done.outputs.push(base_offset);
            self.output_base = base_offset;
            self.output = Some(Copier::new(
                env,
                folder,
                base_offset,
                Suffix::Cleaned,
                config,
            )?);
        }
        Ok(())
    }

    /// Copies what is no entry to a file beside the segment, unless it is zeros.
    fn keep_rest(&mut self, position: u64) -> Result<(), OpenError> {
        self.done.cut_bytes = self.size - position;
        if is_zero(&*self.file, position..self.size)? {
            return Ok(());
        }
        let Source {
            env,
            folder,
            base_offset,
            ..
        } = *self.source;
        let path = cut_path(&folder.segment_file(base_offset, FileKind::Log));
        let kept = env.disk().open(&path, OpenMode::Truncate)?;
        each_piece(&*self.file, position..self.size, |at, piece| {
            kept.write_all_at(piece, at - position)?;
            Ok(true)
        })?;
        Ok(kept.sync_data().map_err(sync_failed)?)
    }
}

fn clean_error(error: CleanError) -> OpenError {
    match error {
        CleanError::Io(error) => error.into(),
        error => OpenError::Corrupt(error.to_string()),
    }
}

/// The aborted transactions in the source's index. A damaged index is taken over as it is, so that
/// it is rebuilt as always.
fn aborted(source: &Source<'_>) -> Result<VecDeque<AbortedTxn>, OpenError> {
    let base_offset = source.base_offset;
    let path = source
        .folder
        .segment_file(base_offset, FileKind::TransactionIndex);
    let content = disk::read_file(source.env.disk(), &path, TRANSACTION_INDEX_BYTES_MAX);
    let Some(content) = disk::if_exists(content)? else {
        return Ok(VecDeque::new());
    };
    if let Ok(index) = TransactionIndex::load(base_offset, &content) {
        return Ok(index.entries().iter().copied().collect());
    }
    let taken_over = name(base_offset, FileKind::TransactionIndex, Suffix::Cleaned);
    let path = source.folder.file(&taken_over);
    let file = source.env.disk().open(&path, OpenMode::Truncate)?;
    file.write_all_at(&content, 0)?;
    file.sync_data().map_err(sync_failed)?;
    Ok(VecDeque::new())
}

fn is_zero(file: &dyn DiskFile, range: Range<u64>) -> io::Result<bool> {
    let mut is_zero = true;
    each_piece(file, range, |_, piece| {
        is_zero = piece.iter().all(|byte| *byte == 0);
        Ok(is_zero)
    })?;
    Ok(is_zero)
}

/// Reads a range in pieces until `take` says no.
fn each_piece(
    file: &dyn DiskFile,
    range: Range<u64>,
    mut take: impl FnMut(u64, &[u8]) -> io::Result<bool>,
) -> io::Result<()> {
    let mut piece = vec![0; WALK_CHUNK_BYTES.min((range.end - range.start) as usize)];
    let mut at = range.start;
    while at < range.end {
        let wanted = piece.len().min((range.end - at) as usize);
        let count = match file.read_at(&mut piece[..wanted], at)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => count,
        };
        if !take(at, &piece[..count])? {
            return Ok(());
        }
        at += count as u64;
    }
    Ok(())
}
