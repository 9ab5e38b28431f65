//! Segments with messages of formats 0 and 1 become segments of record batches when a log is
//! opened: once, one after the other, by the files of a compaction (`old-clients.md`, "Directories
//! of old formats").
//!
//! Which segments have such messages is told by the leader epochs. Messages of old formats have
//! none, and Kafka removes its file of epochs where it writes an old format. So segments that begin
//! before the first known epoch are looked through. Converted messages have an epoch, so that a later
//! opening looks through none.
//!
//! Versions of Kafka had epochs for a log whose older segments had none (KAFKA-7415, KAFKA-7897). So
//! the first bytes of all segments are looked at as well when a log that another broker left is
//! opened the first time (`log_dir/unseen.rs`), and all segments are looked through if recovery meets
//! an old message. Not found are old messages behind batches of a segment that has epochs and was
//! closed in order: Kafka never wrote them there.

use std::io;

use pyrklog_wire::message_set::Message;

use crate::disk::{self, OpenMode};
use crate::entries::{Entries, Entry};
use crate::leader_epochs::LeaderEpochs;
use crate::log_dir::reserve;
use crate::names::FileKind;
use crate::open::files::{self, FolderFiles};
use crate::open::{Loader, OpenError, OpenReport, OpenState};
use crate::scan::LOOK_UP_CHUNK_BYTES;
use crate::segment::SegmentBytes;

mod batches;
mod large;
mod search;
mod segment;

use search::{MAGIC_END, has_old_magic};
use segment::{Converted, Source, convert, install};

/// The leader epoch of converted messages that no batch precedes: the lowest, as if the partition's
/// first leader had written them. Without any, a follower of Apache Kafka would refuse the batches.
const FIRST_EPOCH: i32 = 0;

/// A segment that was looked through.
#[derive(Clone, Copy, Debug)]
struct Looked {
    base_offset: i64,
    size: u64,
    is_old: bool,
    /// The greatest of its batches, up to its first old message.
    epoch: i32,
}

impl Loader<'_> {
    /// Converts the segments that need it, of those that begin before the first of the `known`
    /// epochs; of all without these. Returns the folder's files afterwards.
    ///
    /// # Errors
    /// [`OpenError`]; converted segments stay converted, and the others are as before. `Stopped` if
    /// the listener says so, `NoRoom` for lack of space, `Outdated` if none is to be converted.
    pub(super) fn convert_old_segments(
        &self,
        mut files: FolderFiles,
        state: &OpenState,
        known: Option<&LeaderEpochs>,
        report: &mut OpenReport,
    ) -> Result<FolderFiles, OpenError> {
        // The cache's positions count in the segments as they are; the next opening will convert.
        if self.has_unwritten() {
            return Ok(files);
        }
        let bases: Vec<i64> = files.logs().iter().copied().collect();
        let looked = self.look_through(&bases, state, known)?;
        let old = looked.iter().filter(|segment| segment.is_old);
        let (count, bytes) = old.fold((0, 0), |(count, bytes), segment| {
            (count + 1, bytes + segment.size)
        });
        if count == 0 {
            return Ok(files);
        }
        if !self.converts {
            let path = self.folder.path();
            return Err(OpenError::Outdated(path.display().to_string()));
        }
        self.env
            .conversion_begins(&self.folder.path(), count, bytes);
        let mut total = Converted::default();
        let mut epoch = FIRST_EPOCH;
        for segment in &looked {
            let at = known.and_then(|known| known.epoch_for_offset(segment.base_offset));
            epoch = epoch.max(segment.epoch).max(at.unwrap_or(epoch));
            if !segment.is_old {
                continue;
            }
            let source = Source {
                env: self.env,
                folder: self.folder,
                config: self.config,
                base_offset: segment.base_offset,
                limit: behind(&bases, segment.base_offset).unwrap_or_else(|| {
                    // As far as a segment's indexes reach. Kafka ends a segment there, and no
                    // checksum vouches for an offset.
                    segment.base_offset.saturating_add(i64::from(i32::MAX) + 1)
                }),
                output_bytes_max: i32::MAX as u64,
            };
            // Others of the directory wait, unless it ends.
            let alone = self.env.converting.lock();
            let converted = self.convert_segment(&source, segment.size, epoch, report)?;
            epoch = epoch.max(converted.epoch);
            files = files::finish_interrupted(self.env, self.folder, &mut Vec::new())?;
            drop(alone);
            total.add(&converted);
        }
        report.converted_segments = count;
        total.note(count, &mut report.notes);
        Ok(files)
    }

    fn convert_segment(
        &self,
        source: &Source<'_>,
        size: u64,
        epoch: i32,
        report: &mut OpenReport,
    ) -> Result<Converted, OpenError> {
        if !self.env.may_convert() {
            return Err(OpenError::Stopped);
        }
        let path = self.folder.segment_file(source.base_offset, FileKind::Log);
        let (usable, kept) = self.space()?;
        let no_room = |why: &str| {
            let path = path.display();
            OpenError::NoRoom(format!(
                "converting {path} from an old message format takes about {size} bytes beside it, and {usable} were free, {kept} of them for the reserve{why}; make room and restart"
            ))
        };
        if size.saturating_add(kept) > usable {
            return Err(no_room(""));
        }
        let is_full = |error: &io::Error| disk::is_full(error) || disk::is_full_at_sync(error);
        let converted = convert(source, epoch).map_err(|error| match error {
            OpenError::Io(error) if is_full(&error) => no_room(&format!(": {error}")),
            error => error,
        })?;
        install(source, &converted.outputs)?;
        if converted.cut_bytes > 0 {
            report.truncated_bytes += converted.cut_bytes;
            report.notes.push(format!(
                "cut {} bytes from {}: no whole message begins there",
                converted.cut_bytes,
                path.display()
            ));
        }
        Ok(converted)
    }

    /// Bytes that are free, and how many of them the directory's reserve will take.
    fn space(&self) -> io::Result<(u64, u64)> {
        let folder = self.folder.path();
        let kept = match folder.parent() {
            Some(log_dir) => reserve::missing_bytes(self.env, log_dir)?,
            None => 0,
        };
        Ok((self.env.disk().space(&folder)?.usable_bytes, kept))
    }

    /// The segments that may have old messages, in order.
    fn look_through(
        &self,
        bases: &[i64],
        state: &OpenState,
        known: Option<&LeaderEpochs>,
    ) -> Result<Vec<Looked>, OpenError> {
        let suspected = self.without_epoch(bases, state, known)?;
        let mut looked = Vec::new();
        for (i, base) in bases.iter().enumerate() {
            if i < suspected || (self.is_unseen && self.begins_with_old_message(*base)?) {
                looked.push(self.look_at(*base)?);
            }
        }
        Ok(looked)
    }

    /// How many segments, the first ones of the log, begin before the first known epoch.
    fn without_epoch(
        &self,
        bases: &[i64],
        state: &OpenState,
        known: Option<&LeaderEpochs>,
    ) -> Result<usize, OpenError> {
        let Some(&first) = bases.first() else {
            return Ok(0);
        };
        let earliest = known.and_then(LeaderEpochs::earliest);
        let known_from = earliest.map_or(i64::MAX, |epoch| epoch.start_offset);
        if known_from <= first {
            return Ok(0);
        }
        // Of a segment in which the log begins, epochs know what is left.
        let begins_within = known_from <= state.log_start_offset;
        if begins_within && !self.begins_with_old_message(first)? {
            return Ok(0);
        }
        Ok(bases.partition_point(|base| *base < known_from))
    }

    /// Reads a few bytes; a damaged size does not matter.
    fn begins_with_old_message(&self, base_offset: i64) -> Result<bool, OpenError> {
        let (mut entries, size) = self.entries(base_offset, MAGIC_END)?;
        Ok(size >= MAGIC_END as u64 && has_old_magic(entries.bytes(MAGIC_END)?))
    }

    fn look_at(&self, base_offset: i64) -> Result<Looked, OpenError> {
        let (mut entries, size) = self.entries(base_offset, LOOK_UP_CHUNK_BYTES)?;
        let mut looked = Looked {
            base_offset,
            size,
            is_old: false,
            epoch: -1,
        };
        loop {
            match entries.peek()? {
                Some(Entry::Batch(header)) => {
                    looked.epoch = looked.epoch.max(header.partition_leader_epoch);
                    entries.skip(header.total_len());
                }
                Some(Entry::Message { len, .. }) => {
                    // Behind batches it may as well be what a crash left.
                    let is_first = entries.position() == 0;
                    looked.is_old = is_first || begins_soundly(entries, len)?;
                    return Ok(looked);
                }
                Some(Entry::Nothing) if entries.position() == 0 && size >= MAGIC_END as u64 => {
                    // A message whose size is damaged.
                    looked.is_old = has_old_magic(entries.bytes(MAGIC_END)?);
                    return Ok(looked);
                }
                Some(Entry::Nothing) | None => return Ok(looked),
            }
        }
    }

    fn entries(&self, base_offset: i64, chunk: usize) -> Result<(Entries, u64), OpenError> {
        let path = self.folder.segment_file(base_offset, FileKind::Log);
        let file = self.env.disk().open(&path, OpenMode::Read)?;
        let size = file.len()?;
        let bytes = SegmentBytes::of_file(file);
        Ok((Entries::new(bytes, 0, size, chunk), size))
    }
}

/// Where the next segment begins.
fn behind(bases: &[i64], base_offset: i64) -> Option<i64> {
    let next = bases.partition_point(|base| *base <= base_offset);
    bases.get(next).copied()
}

/// Whether the next entry, a message of `len` bytes, is whole.
fn begins_soundly(mut entries: Entries, len: usize) -> io::Result<bool> {
    let alone = large::lock_for(len);
    let message = Message::parse(entries.bytes(len)?).ok().flatten();
    let is_sound = message.is_some_and(|message| message.verify_crc().is_ok());
    drop(entries);
    drop(alone);
    Ok(is_sound)
}

/// The format of a sound message of format 0 or 1 at `position`, if there is one.
pub(super) fn sound_message(
    bytes: SegmentBytes,
    position: u64,
    limit: u64,
) -> Result<Option<i8>, OpenError> {
    let mut entries = Entries::new(bytes, position, limit, LOOK_UP_CHUNK_BYTES);
    match entries.peek()? {
        Some(Entry::Message { magic, len }) => Ok(begins_soundly(entries, len)?.then_some(magic)),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests;
