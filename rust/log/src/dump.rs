//! Dumps a file of a log directory row by row, with the damage found in it.
//!
//! A row is a list of named values, `kind` first. Damage is a row as well (`kind` = "damage", with
//! `position`, `offset` and `message`); reading goes on behind it where possible. Only an
//! unreadable or unknown file is an error.
//!
//! A file is read in pieces, so a segment needs no more memory than its largest batch when expanded,
//! and the rows of some of its records.

mod batch_rows;
mod flipped_bit;
mod header_scan;
mod index_rows;
mod log_rows;
mod message_rows;
mod text_rows;
mod txn_rows;

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

use crate::disk::{Disk, DiskFile, OpenMode, RealDisk, read_exact_at, read_file};
use crate::names::{FileKind, LEADER_EPOCH_CHECKPOINT, file_kind, file_name, parse_segment_file};

/// Size limit of files other than segments, which are read whole.
const WHOLE_FILE_BYTES_MAX: u64 = 256 << 20;

/// Rows of records that are made at a time: many small records expand from few bytes.
const RECORDS_MAX: usize = 1000;
/// No more rows are made once their records have so many bytes.
const RECORD_BYTES_MAX: usize = 1 << 20;

/// A value of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Absent.
    Null,
    /// Yes or no.
    Bool(bool),
    /// Offsets, sizes, epochs, milliseconds.
    Int(i64),
    /// Text.
    Text(String),
    /// Keys and values of records.
    Bytes(Vec<u8>),
    /// Several values.
    List(Vec<Value>),
}

impl Value {
    fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    fn bytes(bytes: Option<&[u8]>) -> Self {
        bytes.map_or(Self::Null, |bytes| Self::Bytes(bytes.to_vec()))
    }

    fn int(value: Option<i64>) -> Self {
        value.map_or(Self::Null, Self::Int)
    }
}

/// Named values in display order.
pub type Row = Vec<(&'static str, Value)>;

/// What to show and check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Show the records of each batch.
    pub records: bool,
    /// Check records against headers and indexes against their segment. Checksums and order are
    /// always checked.
    pub verify: bool,
}

/// A file that cannot be dumped.
#[derive(Debug, Error)]
#[allow(missing_docs)] // The messages name variants and fields.
pub enum DumpError {
    /// The name is not one of a log directory's files.
    #[error("{} is not a file of a log directory that holds anything to show", .0.display())]
    UnknownFile(PathBuf),
    #[error("{} cannot be read: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
}

fn read_exact(file: &dyn DiskFile, position: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; len];
    read_exact_at(file, &mut buffer, position)?;
    Ok(buffer)
}

/// Reads all of a file that is not a segment.
fn read_whole(file: &dyn DiskFile) -> io::Result<Vec<u8>> {
    let len = file.len()?;
    if len > WHOLE_FILE_BYTES_MAX {
        let message = format!("{len} bytes are more than any such file has");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    read_exact(file, 0, len as usize)
}

/// A damage row at a byte of the file, and at an offset if known.
fn damage(position: u64, offset: Option<i64>, message: impl Into<String>) -> Row {
    vec![
        ("kind", Value::text("damage")),
        (
            "position",
            Value::Int(i64::try_from(position).unwrap_or(i64::MAX)),
        ),
        ("offset", Value::int(offset)),
        ("message", Value::text(message)),
    ]
}

/// Produces the rows of one kind of file, or of the records of a batch.
trait RowSource: Send {
    /// Adds the next rows; false when there are no more.
    fn next_rows(&mut self, rows: &mut VecDeque<Row>) -> io::Result<bool>;
}

impl RowSource for Vec<Row> {
    fn next_rows(&mut self, rows: &mut VecDeque<Row>) -> io::Result<bool> {
        rows.extend(std::mem::take(self));
        Ok(false)
    }
}

/// The rows of a file, read on demand. An error is the last item.
pub struct Dump {
    path: PathBuf,
    rows: VecDeque<Row>,
    source: Option<Box<dyn RowSource>>,
}

impl std::fmt::Debug for Dump {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dump")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Iterator for Dump {
    type Item = Result<Row, DumpError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(row) = self.rows.pop_front() {
                return Some(Ok(row));
            }
            match self.source.as_mut()?.next_rows(&mut self.rows) {
                Ok(true) => {}
                Ok(false) => self.source = None,
                Err(source) => {
                    self.source = None;
                    let path = self.path.clone();
                    return Some(Err(DumpError::Io { path, source }));
                }
            }
        }
    }
}

/// Other files of the folder, for the checks of `verify`.
#[derive(Default)]
pub struct Beside {
    /// The `.log` that an index belongs to.
    pub log: Option<Arc<dyn DiskFile>>,
    /// Content of `leader-epoch-checkpoint`.
    pub leader_epochs: Option<Vec<u8>>,
}

/// Opens a file whose kind its name tells, and with `verify` the files to check it against.
///
/// # Errors
/// [`DumpError`].
pub fn open(path: &Path, options: Options) -> Result<Dump, DumpError> {
    let disk = RealDisk;
    let name = path.file_name().and_then(|name| name.to_str());
    let Some(kind) = name.and_then(file_kind) else {
        return Err(DumpError::UnknownFile(path.to_owned()));
    };
    let io_error = |source| DumpError::Io {
        path: path.to_owned(),
        source,
    };
    let file = disk.open(path, OpenMode::Read).map_err(io_error)?;
    let mut beside = Beside::default();
    if options.verify && kind == FileKind::Log {
        let checkpoint = path.with_file_name(LEADER_EPOCH_CHECKPOINT);
        beside.leader_epochs = read_file(&disk, &checkpoint, WHOLE_FILE_BYTES_MAX).ok();
    } else if let Some(segment) = name.and_then(parse_segment_file).filter(|_| options.verify) {
        let log = file_name(segment.base_offset, FileKind::Log) + segment.suffix.text();
        beside.log = disk.open(&path.with_file_name(log), OpenMode::Read).ok();
    }
    dump(path, file, beside, options)
}

/// Dumps an open file; `path` tells its kind.
///
/// # Errors
/// [`DumpError`].
pub fn dump(
    path: &Path,
    file: Arc<dyn DiskFile>,
    beside: Beside,
    options: Options,
) -> Result<Dump, DumpError> {
    let unknown = || DumpError::UnknownFile(path.to_owned());
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .ok_or_else(unknown)?;
    let kind = file_kind(name)
        .filter(|kind| *kind != FileKind::Lock)
        .ok_or_else(unknown)?;
    let base_offset = parse_segment_file(name).map_or(0, |file| file.base_offset);
    let rows = match kind {
        FileKind::Log => log_rows::open(file, base_offset, beside.leader_epochs, options),
        FileKind::OffsetIndex => index_rows::offsets(&*file, beside.log, base_offset, options),
        FileKind::TimeIndex => index_rows::times(&*file, beside.log, base_offset, options),
        FileKind::TransactionIndex => txn_rows::open(&*file, beside.log, base_offset, options),
        other => text_rows::open(other, &path.display().to_string(), &*file),
    };
    let source = rows.map_err(|source| DumpError::Io {
        path: path.to_owned(),
        source,
    })?;
    Ok(Dump {
        path: path.to_owned(),
        rows: VecDeque::new(),
        source: Some(source),
    })
}

#[cfg(test)]
mod tests;
