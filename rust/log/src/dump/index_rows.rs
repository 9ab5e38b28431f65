//! The rows of `.index` and `.timeindex`, checked against their segment.

use std::collections::VecDeque;
use std::io;

use super::header_scan::HeaderScan;
use super::{Options, Row, RowSource, Source, Value, damage, read_whole};
use crate::offset_index::{self, OffsetEntry, OffsetIndexView, used_bytes};
use crate::time_index::{self, NO_TIMESTAMP, TimeEntry, TimeIndexView};

/// Entries converted to rows at a time.
const ENTRIES_A_TURN: usize = 1024;

/// The segment to check against, or a damage row if missing.
fn open_log(
    log: Option<Box<dyn Source>>,
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

pub(super) fn offsets(
    file: &dyn Source,
    log: Option<Box<dyn Source>>,
    base_offset: i64,
    options: Options,
) -> io::Result<Box<dyn RowSource>> {
    let mut bytes = read_whole(file)?;
    let (log, mut first_rows) = open_log(log, options)?;
    first_rows.extend(partial_entry(&bytes, offset_index::ENTRY_BYTES));
    bytes.truncate(used_bytes(&bytes, offset_index::ENTRY_BYTES));
    Ok(Box::new(OffsetRows {
        bytes,
        base_offset,
        log,
        first_rows,
        next: 0,
        before: None,
    }))
}

struct OffsetRows {
    bytes: Vec<u8>,
    base_offset: i64,
    log: Option<HeaderScan>,
    first_rows: Vec<Row>,
    next: usize,
    before: Option<OffsetEntry>,
}

impl RowSource for OffsetRows {
    fn next_rows(&mut self, rows: &mut VecDeque<Row>) -> io::Result<bool> {
        rows.extend(std::mem::take(&mut self.first_rows));
        for _ in 0..ENTRIES_A_TURN {
            let view = OffsetIndexView::trusted(self.base_offset, &self.bytes);
            let Some(entry) = view.entry(self.next) else {
                return Ok(false);
            };
            let position = (self.next * offset_index::ENTRY_BYTES) as u64;
            rows.push_back(vec![
                ("kind", Value::text("index_entry")),
                ("entry", Value::Int(self.next as i64)),
                ("offset", Value::Int(entry.offset)),
                ("position", Value::Int(entry.position.into())),
            ]);
            let faults = [self.out_of_order(entry), self.mismatch(entry)?];
            for message in faults.into_iter().flatten() {
                rows.push_back(damage(position, Some(entry.offset), message));
            }
            self.before = Some(entry);
            self.next += 1;
        }
        Ok(true)
    }
}

impl OffsetRows {
    fn out_of_order(&self, entry: OffsetEntry) -> Option<String> {
        if entry.offset < self.base_offset {
            let base_offset = self.base_offset;
            return Some(format!(
                "offset {} is below the base offset {base_offset}",
                entry.offset
            ));
        }
        let before = self.before?;
        let rises = entry.offset > before.offset && entry.position > before.position;
        (!rises).then(|| {
            format!(
                "offset {} at {} does not rise above offset {} at {}",
                entry.offset, entry.position, before.offset, before.position
            )
        })
    }

    fn mismatch(&mut self, entry: OffsetEntry) -> io::Result<Option<String>> {
        let Some(log) = &mut self.log else {
            return Ok(None);
        };
        let (position, size) = (entry.position, log.size());
        let message = match log.at(position.into())? {
            Some((_, header)) if header.last_offset() == entry.offset => return Ok(None),
            Some((_, header)) => format!(
                "the batch at {position} ends at offset {}, the entry says {}",
                header.last_offset(),
                entry.offset
            ),
            None => format!("no batch begins at {position} of the .log, which has {size} bytes"),
        };
        Ok(Some(message))
    }
}

pub(super) fn times(
    file: &dyn Source,
    log: Option<Box<dyn Source>>,
    base_offset: i64,
    options: Options,
) -> io::Result<Box<dyn RowSource>> {
    let mut bytes = read_whole(file)?;
    let (log, mut first_rows) = open_log(log, options)?;
    first_rows.extend(partial_entry(&bytes, time_index::ENTRY_BYTES));
    // A single zero entry can be real: a record of 1970.
    if bytes.len() != time_index::ENTRY_BYTES {
        bytes.truncate(used_bytes(&bytes, time_index::ENTRY_BYTES));
    }
    let largest = (NO_TIMESTAMP, base_offset);
    Ok(Box::new(TimeRows {
        bytes,
        base_offset,
        log,
        first_rows,
        next: 0,
        before: None,
        largest,
    }))
}

struct TimeRows {
    bytes: Vec<u8>,
    base_offset: i64,
    log: Option<HeaderScan>,
    first_rows: Vec<Row>,
    next: usize,
    before: Option<TimeEntry>,
    /// (largest timestamp of the batches so far, last offset of the first batch with it).
    largest: (i64, i64),
}

impl RowSource for TimeRows {
    fn next_rows(&mut self, rows: &mut VecDeque<Row>) -> io::Result<bool> {
        rows.extend(std::mem::take(&mut self.first_rows));
        for _ in 0..ENTRIES_A_TURN {
            let view = TimeIndexView::trusted(self.base_offset, &self.bytes);
            let Some(entry) = view.entry(self.next) else {
                return Ok(false);
            };
            let position = (self.next * time_index::ENTRY_BYTES) as u64;
            rows.push_back(vec![
                ("kind", Value::text("time_index_entry")),
                ("entry", Value::Int(self.next as i64)),
                ("timestamp_ms", Value::Int(entry.timestamp)),
                ("offset", Value::Int(entry.offset)),
            ]);
            let faults = [self.out_of_order(entry), self.mismatch(entry)?];
            for message in faults.into_iter().flatten() {
                rows.push_back(damage(position, Some(entry.offset), message));
            }
            self.before = Some(entry);
            self.next += 1;
        }
        Ok(true)
    }
}

impl TimeRows {
    fn out_of_order(&self, entry: TimeEntry) -> Option<String> {
        if entry.offset < self.base_offset {
            let base_offset = self.base_offset;
            return Some(format!(
                "offset {} is below the base offset {base_offset}",
                entry.offset
            ));
        }
        let before = self.before?;
        let rises = entry.timestamp > before.timestamp && entry.offset >= before.offset;
        (!rises).then(|| {
            format!(
                "timestamp {} of offset {} does not rise above {} of offset {}",
                entry.timestamp, entry.offset, before.timestamp, before.offset
            )
        })
    }

    /// Walks the batches up to the entry's and compares their largest timestamp.
    fn mismatch(&mut self, entry: TimeEntry) -> io::Result<Option<String>> {
        let Some(log) = &mut self.log else {
            return Ok(None);
        };
        let mut last_offset = None;
        while let Some((_, header)) = log.peek()? {
            if header.last_offset() > entry.offset {
                break;
            }
            if header.max_timestamp > self.largest.0 {
                self.largest = (header.max_timestamp, header.last_offset());
            }
            last_offset = Some(header.last_offset());
            log.skip(&header);
        }
        let (timestamp, offset) = self.largest;
        if timestamp != entry.timestamp {
            return Ok(Some(format!(
                "up to offset {} the largest timestamp is {timestamp}, the entry says {}",
                entry.offset, entry.timestamp
            )));
        }
        let exact = offset == entry.offset || last_offset == Some(entry.offset);
        Ok((!exact).then(|| {
            format!(
                "no batch ends at offset {}; timestamp {timestamp} came with {offset}",
                entry.offset
            )
        }))
    }
}
