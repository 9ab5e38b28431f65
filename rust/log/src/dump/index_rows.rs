//! The rows of `.index` and `.timeindex`, checked against their segment.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use super::header_scan::{HeaderScan, Place};
use super::{Options, Row, RowSource, Value, damage, read_whole};
use crate::disk::DiskFile;
use crate::offset_index::OffsetEntry;
use crate::sparse_index::{IndexEntry, IndexView, used_bytes};
use crate::time_index::TimeEntry;

const ENTRIES_A_TURN: usize = 1024;

/// The segment to check against, or a damage row if missing.
pub(super) fn open_log(
    log: Option<Arc<dyn DiskFile>>,
    options: Options,
) -> io::Result<(Option<HeaderScan>, Vec<Row>)> {
    match log {
        _ if !options.verify => Ok((None, Vec::new())),
        Some(log) => Ok((Some(HeaderScan::new(log)?), Vec::new())),
        None => {
            let message = "the .log beside the index is missing, so it cannot be checked";
            Ok((None, vec![damage(0, None, message)]))
        }
    }
}

/// A damage row if the file ends inside an entry.
fn partial_entry(bytes: &[u8], entry_bytes: usize) -> Option<Row> {
    let rest = bytes.len() % entry_bytes;
    let start = (bytes.len() - rest) as u64;
    let message = format!("the file ends with {rest} bytes, less than an entry of {entry_bytes}");
    (rest != 0).then(|| damage(start, None, message))
}

/// An index entry as its rows show and check it.
trait DumpedEntry: IndexEntry + Send + 'static {
    const KIND: &'static str;

    fn values(&self) -> [(&'static str, Value); 2];

    /// Why the entry must not follow `before`.
    fn order_fault(&self, before: &Self) -> String;

    /// What contradicts the segment. `next` is the entry behind; `seen` is the largest timestamp of
    /// the batches looked at so far, with the last offset of the last one.
    fn mismatch(
        &self,
        next: Option<Self>,
        log: &mut HeaderScan,
        seen: &mut TimeEntry,
    ) -> io::Result<Option<String>>;
}

struct IndexRows<T> {
    bytes: Vec<u8>,
    base_offset: i64,
    log: Option<HeaderScan>,
    first_rows: Vec<Row>,
    next: usize,
    before: Option<T>,
    seen: TimeEntry,
}

impl<T: DumpedEntry> IndexRows<T> {
    fn open(
        file: &dyn DiskFile,
        log: Option<Arc<dyn DiskFile>>,
        base_offset: i64,
        options: Options,
    ) -> io::Result<Self> {
        let bytes = read_whole(file)?;
        let (log, mut first_rows) = open_log(log, options)?;
        first_rows.extend(partial_entry(&bytes, T::BYTES));
        Ok(IndexRows {
            bytes,
            base_offset,
            log,
            first_rows,
            next: 0,
            before: None,
            seen: TimeEntry::none(base_offset - 1),
        })
    }

    fn cut_zeros(mut self) -> Box<dyn RowSource> {
        self.bytes.truncate(used_bytes(&self.bytes, T::BYTES));
        Box::new(self)
    }

    fn out_of_order(&self, entry: T) -> Option<String> {
        let (offset, base_offset) = (entry.offset(), self.base_offset);
        if offset < base_offset {
            return Some(format!(
                "offset {offset} is below the base offset {base_offset}"
            ));
        }
        let before = self.before?;
        (!entry.rises_above(&before)).then(|| entry.order_fault(&before))
    }
}

impl<T: DumpedEntry> RowSource for IndexRows<T> {
    fn next_rows(&mut self, rows: &mut VecDeque<Row>) -> io::Result<bool> {
        rows.extend(std::mem::take(&mut self.first_rows));
        for _ in 0..ENTRIES_A_TURN {
            let view = IndexView::<T>::trusted(self.base_offset, &self.bytes);
            let Some(entry) = view.entry(self.next) else {
                return Ok(false);
            };
            let mut row = vec![
                ("kind", Value::text(T::KIND)),
                ("entry", Value::Int(self.next as i64)),
            ];
            row.extend(entry.values());
            rows.push_back(row);
            let mismatch = match &mut self.log {
                Some(log) => entry.mismatch(view.entry(self.next + 1), log, &mut self.seen)?,
                None => None,
            };
            let position = (self.next * T::BYTES) as u64;
            for message in self.out_of_order(entry).into_iter().chain(mismatch) {
                rows.push_back(damage(position, Some(entry.offset()), message));
            }
            self.before = Some(entry);
            self.next += 1;
        }
        Ok(true)
    }
}

pub(super) fn offsets(
    file: &dyn DiskFile,
    log: Option<Arc<dyn DiskFile>>,
    base_offset: i64,
    options: Options,
) -> io::Result<Box<dyn RowSource>> {
    let rows = IndexRows::<OffsetEntry>::open(file, log, base_offset, options)?;
    Ok(rows.cut_zeros())
}

impl DumpedEntry for OffsetEntry {
    const KIND: &'static str = "index_entry";

    fn values(&self) -> [(&'static str, Value); 2] {
        [
            ("offset", Value::Int(self.offset)),
            ("position", Value::Int(self.position.into())),
        ]
    }

    fn order_fault(&self, before: &Self) -> String {
        format!(
            "offset {} at {} does not rise above offset {} at {}",
            self.offset, self.position, before.offset, before.position
        )
    }

    /// An entry stands for one append, of several batches perhaps: it has the last offset of the
    /// last one and the position of the first.
    fn mismatch(
        &self,
        next: Option<Self>,
        log: &mut HeaderScan,
        _seen: &mut TimeEntry,
    ) -> io::Result<Option<String>> {
        let (offset, position, size) = (self.offset, u64::from(self.position), log.size());
        let until = next.filter(|next| next.position > self.position);
        let until = until.map_or(size, |next| next.position.into());
        Ok(match log.place(offset, position, until)? {
            Place::End => None,
            Place::NoEnd => Some(format!(
                "no batch from {position} to {until} ends at offset {offset}"
            )),
            Place::NoBatch => Some(format!(
                "no batch begins at {position} of the .log, which has {size} bytes"
            )),
        })
    }
}

pub(super) fn times(
    file: &dyn DiskFile,
    log: Option<Arc<dyn DiskFile>>,
    base_offset: i64,
    options: Options,
) -> io::Result<Box<dyn RowSource>> {
    let rows = IndexRows::<TimeEntry>::open(file, log, base_offset, options)?;
    // A single zero entry can be real: a record of 1970.
    match rows.bytes.len() == TimeEntry::BYTES {
        true => Ok(Box::new(rows)),
        false => Ok(rows.cut_zeros()),
    }
}

impl DumpedEntry for TimeEntry {
    const KIND: &'static str = "time_index_entry";

    fn values(&self) -> [(&'static str, Value); 2] {
        [
            ("timestamp_ms", Value::Int(self.timestamp)),
            ("offset", Value::Int(self.offset)),
        ]
    }

    fn order_fault(&self, before: &Self) -> String {
        format!(
            "timestamp {} of offset {} does not rise above {} of offset {}",
            self.timestamp, self.offset, before.timestamp, before.offset
        )
    }

    /// Walks the batches up to the one with the entry's offset and compares their largest
    /// timestamp. The offset is the last one of a batch; leaders up to Kafka 3.6 name the first
    /// record with the timestamp.
    fn mismatch(
        &self,
        _next: Option<Self>,
        log: &mut HeaderScan,
        seen: &mut TimeEntry,
    ) -> io::Result<Option<String>> {
        while let Some(header) = log.peek()? {
            if header.base_offset > self.offset {
                break;
            }
            seen.timestamp = seen.timestamp.max(header.max_timestamp);
            seen.offset = header.last_offset();
            log.skip();
        }
        let TimeEntry { timestamp, offset } = *seen;
        Ok(if timestamp != self.timestamp {
            Some(format!(
                "up to offset {} the largest timestamp is {timestamp}, the entry says {}",
                self.offset, self.timestamp
            ))
        } else if offset < self.offset {
            Some(format!("no batch holds offset {}", self.offset))
        } else {
            None
        })
    }
}
