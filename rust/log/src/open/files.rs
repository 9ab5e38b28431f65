//! The files of a partition's folder at opening, including leftovers of an interrupted run.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::ops::Range;

use crate::disk::{Disk, OpenMode};
use crate::entries::{Entries, Entry};
use crate::env::LogEnv;
use crate::folder::Folder;
use crate::names::{self, FileKind, INDEX_FILES, SegmentFile, Suffix};
use crate::scan::LOOK_UP_CHUNK_BYTES;
use crate::segment::SegmentBytes;

/// The files that belong to the log.
#[derive(Debug, Default)]
pub(super) struct FolderFiles {
    /// Base offsets of segments' files.
    bases: HashMap<FileKind, BTreeSet<i64>>,
    pub has_epochs: bool,
    pub is_partial: bool,
    pub was_truncating: bool,
}

impl FolderFiles {
    /// The base offsets of the segments.
    pub fn logs(&self) -> &BTreeSet<i64> {
        static NONE: BTreeSet<i64> = BTreeSet::new();
        self.bases.get(&FileKind::Log).unwrap_or(&NONE)
    }

    /// The base offsets of a kind of segments' files.
    pub fn take(&mut self, kind: FileKind) -> BTreeSet<i64> {
        self.bases.remove(&kind).unwrap_or_default()
    }
}

/// Finishes interrupted operations by Kafka's rules and lists the folder: `.deleted` and `.cleaned`
/// files go. A `.swap` file is a complete compaction, or conversion, and replaces its source
/// segments, unless a `.cleaned` file beside it shows that the set of swap files is incomplete.
/// Index files without a `.log` go.
pub(super) fn finish_interrupted(
    env: &LogEnv,
    folder: &Folder,
    notes: &mut Vec<String>,
) -> io::Result<FolderFiles> {
    let disk = env.disk();
    let mut found = Vec::new();
    let mut files = FolderFiles::default();
    for entry in disk.read_dir(&folder.path())? {
        if entry.is_dir {
            continue;
        }
        match entry.name.as_str() {
            names::LEADER_EPOCH_CHECKPOINT => files.has_epochs = true,
            names::PARTIAL => files.is_partial = true,
            names::TRUNCATION => files.was_truncating = true,
            name if name.ends_with(".tmp") => disk.remove_file(&folder.file(name))?,
            name => {
                if let Some(file) = names::parse_segment_file(name) {
                    found.push((entry.name, file));
                }
            }
        }
    }
    finish_swaps(disk, folder, &mut found, notes)?;
    for (name, file) in found {
        if file.suffix != Suffix::None {
            disk.remove_file(&folder.file(&name))?;
        } else {
            let bases = files.bases.entry(file.kind).or_default();
            bases.insert(file.base_offset);
        }
    }
    remove_orphans(disk, folder, &mut files, notes)?;
    Ok(files)
}

fn finish_swaps(
    disk: &dyn Disk,
    folder: &Folder,
    found: &mut Vec<(String, SegmentFile)>,
    notes: &mut Vec<String>,
) -> io::Result<()> {
    let cleaned = found
        .iter()
        .filter(|(_, file)| file.suffix == Suffix::Cleaned);
    let whole_below = cleaned
        .map(|(_, file)| file.base_offset)
        .min()
        .unwrap_or(i64::MAX);
    let is_swap =
        |file: &SegmentFile| file.suffix == Suffix::Swap && file.base_offset < whole_below;
    let (mut lowest, mut first, mut end) = (i64::MAX, i64::MAX, i64::MIN);
    for (name, file) in found.iter().filter(|(_, file)| is_swap(file)) {
        lowest = lowest.min(file.base_offset);
        if file.kind != FileKind::Log {
            continue;
        }
        // Of several new segments the first `.log`s may have their names already.
        first = first.min(file.base_offset);
        // Without entries it still takes the place of the segment of its name.
        match end_of_entries(disk, folder, name) {
            Ok(offset) => end = end.max(offset.unwrap_or(0)).max(file.base_offset + 1),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                // Neither it nor its set replaces anything.
                notes.push(format!(
                    "removed {name}, which nothing has completed: {error}"
                ));
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
    if lowest == i64::MAX {
        return Ok(());
    }
    notes.push(match end > first {
        true => format!("finished an interrupted swap of segments, offsets {first} to {end}"),
        false => format!("finished an interrupted swap of segments from offset {lowest} on"),
    });
    remove_replaced(disk, folder, found, first..end)?;
    // The `.log`s first, and durably: without one the others are orphans.
    for renames_logs in [true, false] {
        let is_due = |file: &SegmentFile| (file.kind == FileKind::Log) == renames_logs;
        for (name, file) in found.iter_mut().filter(|(_, f)| is_swap(f) && is_due(f)) {
            let regular = names::file_name(file.base_offset, file.kind);
            disk.rename(&folder.file(name), &folder.file(&regular))?;
            *name = regular;
            file.suffix = Suffix::None;
        }
        disk.sync_dir(&folder.path())?;
    }
    Ok(())
}

/// Removes the segments that swap files replace, durably: beside the renamed files they would be
/// taken for a part of the log.
fn remove_replaced(
    disk: &dyn Disk,
    folder: &Folder,
    found: &mut Vec<(String, SegmentFile)>,
    replaced: Range<i64>,
) -> io::Result<()> {
    let mut result = Ok(());
    found.retain(|(name, file)| {
        let is_replaced = file.suffix == Suffix::None
            && file.kind != FileKind::Snapshot
            && replaced.contains(&file.base_offset);
        if is_replaced && result.is_ok() {
            result = disk.remove_file(&folder.file(name));
        }
        !is_replaced
    });
    result?;
    disk.sync_dir(&folder.path())
}

/// The offset after the last entry of a file. Kafka's compaction leaves messages of old formats as
/// they are, so that its `.swap` files may have some.
///
/// # Errors
/// A disk error; `InvalidData` if the file does not consist of whole entries.
fn end_of_entries(disk: &dyn Disk, folder: &Folder, name: &str) -> io::Result<Option<i64>> {
    let file = disk.open(&folder.file(name), OpenMode::Read)?;
    let len = file.len()?;
    let mut entries = Entries::new(SegmentBytes::of_file(file), 0, len, LOOK_UP_CHUNK_BYTES);
    let mut end = None;
    while let Some(entry) = entries.peek()? {
        let (next_offset, len) = match entry {
            Entry::Batch(header) => (header.next_offset(), header.total_len()),
            // A wrapper has the offset of its last message.
            Entry::Message { len, .. } => (entries.offset()?.saturating_add(1), len),
            Entry::Nothing => {
                let reason = format!("no batch or message at position {}", entries.position());
                return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
            }
        };
        end = Some(next_offset);
        entries.skip(len);
    }
    Ok(end)
}

fn remove_orphans(
    disk: &dyn Disk,
    folder: &Folder,
    files: &mut FolderFiles,
    notes: &mut Vec<String>,
) -> io::Result<()> {
    let logs = files.take(FileKind::Log);
    for kind in INDEX_FILES {
        let bases = files.bases.entry(kind).or_default();
        for base_offset in bases.difference(&logs) {
            notes.push(format!(
                "removed {}, which has no .log",
                names::file_name(*base_offset, kind)
            ));
            disk.remove_file(&folder.segment_file(*base_offset, kind))?;
        }
        bases.retain(|base_offset| logs.contains(base_offset));
    }
    files.bases.insert(FileKind::Log, logs);
    Ok(())
}
