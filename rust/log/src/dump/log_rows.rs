//! The rows of a `.log`: batch after batch, resuming after damage.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use pyrklog_wire::DecodeError;
use pyrklog_wire::batch::{BatchHeader, HEADER_LEN, LENGTH_PREFIX_LEN, verify_crc};
use pyrklog_wire::message_set::Message;

use super::message_rows::{self, Run};
use super::{Options, Row, RowSource, Value, batch_rows, damage, read_exact};
use crate::disk::DiskFile;
use crate::entries::{Entries, Entry};
use crate::leader_epochs::LeaderEpochs;
use crate::names::LEADER_EPOCH_CHECKPOINT;
use crate::segment::SegmentBytes;

/// A longer batch is damage.
const BATCH_BYTES_MAX: u64 = 256 << 20;
/// Bytes read at a time of messages of old formats.
const MESSAGES_BYTES: usize = 64 * 1024;
/// Bytes searched at a time for the next good batch.
const SEARCH_BYTES: usize = 256 * 1024;
/// Position of a header's format number.
const MAGIC_AT: usize = 16;

pub(super) fn open(
    source: Arc<dyn DiskFile>,
    base_offset: i64,
    leader_epochs: Option<Vec<u8>>,
    options: Options,
) -> io::Result<Box<dyn RowSource>> {
    let size = source.len()?;
    let epochs = leader_epochs
        .and_then(|bytes| LeaderEpochs::parse(LEADER_EPOCH_CHECKPOINT, &bytes).ok())
        .unwrap_or_default();
    Ok(Box::new(LogRows {
        source,
        size,
        base_offset,
        options,
        epochs,
        position: 0,
        next_offset: base_offset,
        leader_epoch: -1,
        records: None,
    }))
}

struct LogRows {
    source: Arc<dyn DiskFile>,
    size: u64,
    base_offset: i64,
    options: Options,
    /// From the checkpoint beside the segment; empty without one.
    epochs: LeaderEpochs,
    /// Where the next batch should begin.
    position: u64,
    /// Lower bound of later base offsets.
    next_offset: i64,
    /// Lower bound of later leader epochs.
    leader_epoch: i32,
    /// Of the batch or message before `position`, as far as their rows have not been made.
    records: Option<Box<dyn RowSource>>,
}

impl RowSource for LogRows {
    fn next_rows(&mut self, rows: &mut VecDeque<Row>) -> io::Result<bool> {
        if let Some(records) = &mut self.records {
            if !records.next_rows(rows)? {
                self.records = None;
            }
            return Ok(true);
        }
        if self.position >= self.size {
            return Ok(false);
        }
        match self.header()? {
            Ok(header) => {
                self.check_order(rows, &header);
                let batch = read_exact(&*self.source, self.position, header.total_len())?;
                let (good, records) =
                    batch_rows::add(rows, self.position, &header, batch, self.options);
                self.records = records.map(|records| Box::new(records) as Box<dyn RowSource>);
                self.position += header.total_len() as u64;
                // A header with a wrong checksum or implausible offsets must not make later batches
                // look wrong.
                if good && self.is_near(&header) {
                    self.next_offset = self.next_offset.max(header.next_offset());
                    self.leader_epoch = self.leader_epoch.max(header.partition_leader_epoch);
                }
                Ok(true)
            }
            Err(reason) => match self.messages(rows)? {
                true => Ok(true),
                false => self.resume(rows, reason),
            },
        }
    }
}

impl LogRows {
    /// The header at the current position, or why there is none.
    fn header(&self) -> io::Result<Result<BatchHeader, String>> {
        let left = self.size - self.position;
        let len = left.min(HEADER_LEN as u64) as usize;
        let bytes = read_exact(&*self.source, self.position, len)?;
        let header = match BatchHeader::parse(&bytes) {
            Ok(header) => header,
            Err(DecodeError::Truncated { .. }) => {
                return Ok(Err(format!(
                    "the file ends with {left} bytes, less than a batch"
                )));
            }
            Err(error) => return Ok(Err(error.to_string())),
        };
        let total_len = header.total_len() as u64;
        if total_len > left || total_len > BATCH_BYTES_MAX {
            let reason = format!("a batch announces {total_len} bytes, the file has {left} more");
            return Ok(Err(reason));
        }
        Ok(Ok(header))
    }

    /// Adds the row of messages of an old format, and goes on behind them; false without any.
    fn messages(&mut self, rows: &mut VecDeque<Row>) -> io::Result<bool> {
        let bytes = SegmentBytes::of_file(Arc::clone(&self.source));
        let mut entries = Entries::new(bytes, self.position, self.size, MESSAGES_BYTES);
        let mut run: Option<Run> = None;
        while let Some(Entry::Message { len, .. }) = entries.peek()? {
            let position = entries.position();
            let Ok(Some(message)) = Message::parse(entries.bytes(len)?) else {
                break;
            };
            if !Run::may_have(&message) {
                if run.is_none() {
                    self.check_message(rows, position, message.offset);
                    let (is_good, inner) =
                        message_rows::add(rows, position, &message, self.options);
                    self.records = inner.map(|inner| Box::new(inner) as Box<dyn RowSource>);
                    self.passed(position + len as u64, message.offset, is_good);
                    return Ok(true);
                }
                break;
            }
            let current = run.get_or_insert_with(|| Run::new(position, &message));
            if position != self.position && !current.takes(&message) {
                break;
            }
            if position == self.position {
                self.check_message(rows, position, message.offset);
            }
            current.push(&message, self.options);
            entries.skip(len);
        }
        let Some(run) = run else {
            return Ok(false);
        };
        let last_offset = run.end(rows);
        self.passed(entries.position(), last_offset, true);
        Ok(true)
    }

    fn check_message(&self, rows: &mut VecDeque<Row>, position: u64, offset: i64) {
        let expected = self.next_offset;
        if offset < expected {
            let fault = format!("the offset is {offset}, at least {expected} is expected");
            rows.push_back(damage(position, Some(offset), fault));
        }
    }

    fn passed(&mut self, position: u64, last_offset: i64, is_good: bool) {
        self.position = position;
        if is_good && last_offset.saturating_sub(self.base_offset) <= i64::from(i32::MAX) {
            self.next_offset = self.next_offset.max(last_offset.saturating_add(1));
        }
    }

    fn check_order(&self, rows: &mut VecDeque<Row>, header: &BatchHeader) {
        let (offset, expected) = (header.base_offset, self.next_offset);
        let mut fault = |message: String| {
            rows.push_back(damage(self.position, Some(offset), message));
        };
        if offset < expected {
            fault(format!(
                "the base offset is {offset}, at least {expected} is expected"
            ));
        } else if offset.saturating_sub(self.base_offset) > i64::from(i32::MAX) {
            fault(format!(
                "offset {offset} is too far from the segment's {}",
                self.base_offset
            ));
        }
        let epoch = header.partition_leader_epoch;
        let known = self.epochs.epoch_for_offset(offset);
        if epoch < self.leader_epoch {
            fault(format!(
                "leader epoch {epoch} follows {}",
                self.leader_epoch
            ));
        } else if let Some(known) = known.filter(|known| *known != epoch) {
            fault(format!(
                "the leader epoch is {epoch}, {LEADER_EPOCH_CHECKPOINT} says {known}"
            ));
        }
        if self.options.verify && offset > expected && self.position > 0 {
            rows.push_back(vec![
                ("kind", Value::text("gap")),
                ("position", Value::Int(self.position as i64)),
                ("first_offset", Value::Int(expected)),
                ("last_offset", Value::Int(offset - 1)),
                (
                    "message",
                    Value::text("offsets are missing: compaction, or a damaged offset"),
                ),
            ]);
        }
    }

    /// Whether the batch's offsets can belong to this segment.
    fn is_near(&self, header: &BatchHeader) -> bool {
        header.last_offset().saturating_sub(self.base_offset) <= i64::from(i32::MAX)
    }

    /// Reports a damaged range and continues at the next good batch.
    fn resume(&mut self, rows: &mut VecDeque<Row>, reason: String) -> io::Result<bool> {
        let start = self.position;
        let offset = Some(self.next_offset);
        let Some(next) = self.find_batch(start + 1)? else {
            let what = match self.is_zero_to_the_end(start)? {
                true => "nothing but zeros follows".to_owned(),
                false => "no batch follows".to_owned(),
            };
            let message = format!("{reason}; {what} up to the end at {}", self.size);
            rows.push_back(damage(start, offset, message));
            self.position = self.size;
            return Ok(false);
        };
        let message = format!("{reason}; the next good batch begins at {next}");
        rows.push_back(damage(start, offset, message));
        self.position = next;
        Ok(true)
    }

    /// The first position from `start` on where a batch with a valid checksum begins.
    fn find_batch(&self, start: u64) -> io::Result<Option<u64>> {
        let mut position = start;
        while self.size.saturating_sub(position) >= HEADER_LEN as u64 {
            let len = (self.size - position).min(SEARCH_BYTES as u64) as usize;
            let window = read_exact(&*self.source, position, len)?;
            let candidates = window.len() + 1 - HEADER_LEN;
            for i in 0..candidates {
                if window[i + MAGIC_AT] == 2 && self.is_batch(position + i as u64, &window[i..])? {
                    return Ok(Some(position + i as u64));
                }
            }
            position += candidates as u64;
        }
        Ok(None)
    }

    fn is_batch(&self, position: u64, bytes: &[u8]) -> io::Result<bool> {
        let Ok(header) = BatchHeader::parse(bytes) else {
            return Ok(false);
        };
        let total_len = header.total_len() as u64;
        let plausible = header.base_offset >= self.base_offset
            && self.is_near(&header)
            && header.last_offset_delta >= 0
            && total_len <= BATCH_BYTES_MAX
            && total_len <= self.size - position;
        if !plausible {
            return Ok(false);
        }
        let batch = read_exact(
            &*self.source,
            position,
            LENGTH_PREFIX_LEN.max(total_len as usize),
        )?;
        Ok(verify_crc(&batch).is_ok())
    }

    fn is_zero_to_the_end(&self, start: u64) -> io::Result<bool> {
        let mut position = start;
        while position < self.size {
            let len = (self.size - position).min(SEARCH_BYTES as u64) as usize;
            if read_exact(&*self.source, position, len)?
                .iter()
                .any(|byte| *byte != 0)
            {
                return Ok(false);
            }
            position += len as u64;
        }
        Ok(true)
    }
}
