//! The rows of `.index` and `.timeindex`, checked against their segment.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use super::header_scan::HeaderScan;
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

    /// What contradicts the segment. `largest` is the largest timestamp of the batches so far, with
    /// the last offset of the first batch that has it.
    fn mismatch(&self, log: &mut HeaderScan, largest: &mut TimeEntry)
    -> io::Result<Option<String>>;
}

struct IndexRows<T> {
    bytes: Vec<u8>,
    base_offset: i64,
    log: Option<HeaderScan>,
    first_rows: Vec<Row>,
    next: usize,
    before: Option<T>,
    largest: TimeEntry,
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
            largest: TimeEntry::none(base_offset),
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
                Some(log) => entry.mismatch(log, &mut self.largest)?,
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

    fn mismatch(
        &self,
        log: &mut HeaderScan,
        _largest: &mut TimeEntry,
    ) -> io::Result<Option<String>> {
        let (position, size) = (self.position, log.size());
        let message = match log.at(position.into())? {
            Some(start) if start.last_offset == self.offset => return Ok(None),
            Some(start) if start.is_message && start.last_offset < self.offset => return Ok(None),
            Some(start) => format!(
                "the batch at {position} ends at offset {}, the entry says {}",
                start.last_offset, self.offset
            ),
            None => format!("no batch begins at {position} of the .log, which has {size} bytes"),
        };
        Ok(Some(message))
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

    /// Walks the batches up to the entry's and compares their largest timestamp.
    fn mismatch(
        &self,
        log: &mut HeaderScan,
        largest: &mut TimeEntry,
    ) -> io::Result<Option<String>> {
        let mut last_offset = None;
        while let Some(header) = log.peek()? {
            if header.last_offset() > self.offset {
                break;
            }
            if header.max_timestamp > largest.timestamp {
                largest.timestamp = header.max_timestamp;
                largest.offset = header.last_offset();
            }
            last_offset = Some(header.last_offset());
            log.skip();
        }
        let TimeEntry { timestamp, offset } = *largest;
        if timestamp != self.timestamp {
            return Ok(Some(format!(
                "up to offset {} the largest timestamp is {timestamp}, the entry says {}",
                self.offset, self.timestamp
            )));
        }
        let exact = offset == self.offset || last_offset == Some(self.offset);
        Ok((!exact).then(|| {
            format!(
                "no batch ends at offset {}; timestamp {timestamp} came with {offset}",
                self.offset
            )
        }))
    }
}
