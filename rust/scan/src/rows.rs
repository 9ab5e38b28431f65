//! A worker's rows: gathered to batches, which go to the queue.

use std::sync::Arc;

use pyrklog_wire::records::Record;

use crate::bad_rows::BadRows;
use crate::builder::{BatchBuilder, Fit, Row};
use crate::columns::Columns;
use crate::error::{ErrorKind, Result, ScanError};
use crate::progress::Delivered;
use crate::queue::{Output, Queue};
use crate::split::Cursor;
use crate::typed::Unfit;

/// Of one batch: splits without a visible record count as well.
const PARTS_MAX: usize = 4096;

/// When a batch is full.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchLimits {
    pub rows: usize,
    pub bytes: usize,
    /// Of one record.
    pub record_bytes: usize,
}

/// Rows of one split after the other, in order.
#[derive(Debug)]
pub(crate) struct Rows {
    builder: BatchBuilder,
    limits: BatchLimits,
    queue: Arc<Queue>,
    parts: Vec<Delivered>,
    /// Leader epoch of the log's batch that is being appended.
    batch_epoch: i32,
    /// The same once a record of it was pushed.
    pushed_epoch: Option<i32>,
}

impl Rows {
    /// Records whose values do not fit are kept if there is `bad`.
    pub fn new(
        columns: Arc<Columns>,
        limits: BatchLimits,
        queue: Arc<Queue>,
        bad: Option<BadRows>,
    ) -> Rows {
        Rows {
            builder: BatchBuilder::new(columns, limits.record_bytes, bad),
            limits,
            queue,
            parts: Vec::new(),
            batch_epoch: -1,
            pushed_epoch: None,
        }
    }

    /// Whether something waits to be flushed.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// What follows is of this split, from `position` on.
    ///
    /// # Errors
    /// The scan was closed.
    pub fn begin(&mut self, cursor: &Cursor, position: i64) -> Result<()> {
        if self.parts.len() >= PARTS_MAX {
            self.flush()?;
        }
        self.builder.begin(&cursor.topic, cursor.partition);
        if self
            .parts
            .last()
            .is_none_or(|last| last.split != cursor.split)
        {
            self.parts.push(Delivered {
                split: cursor.split,
                position,
                leader_epoch: cursor.known_epoch(),
                records: 0,
                bytes: 0,
                bad: 0,
            });
        }
        Ok(())
    }

    /// What follows is of a batch of the log, or a message, of this leader epoch.
    pub fn begin_entry(&mut self, leader_epoch: i32) {
        self.batch_epoch = leader_epoch;
        self.pushed_epoch = None;
    }

    /// Appends a record.
    ///
    /// # Errors
    /// The scan was closed; a record above the limit; a value that does not fit.
    #[inline]
    pub fn push(&mut self, row: Row, record: &Record<'_>) -> Result<()> {
        let cost = self.builder.cost(record);
        if self.builder.rows() >= self.limits.rows
            || self.builder.bytes() + cost > self.limits.bytes
        {
            self.make_room(row.offset, cost)?;
        }
        let fit = self.builder.push(row, record);
        self.count(row.offset, fit)
    }

    /// The same for a message of format 0 or 1.
    ///
    /// # Errors
    /// As [`Rows::push`].
    pub fn push_message(
        &mut self,
        row: Row,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
    ) -> Result<()> {
        let cost = key.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len);
        if self.builder.rows() >= self.limits.rows
            || self.builder.bytes() + cost > self.limits.bytes
        {
            self.make_room(row.offset, cost)?;
        }
        let fit = self.builder.push_message(row, key, value);
        self.count(row.offset, fit)
    }

    #[inline]
    fn count(&mut self, offset: i64, fit: Result<Fit, Box<Unfit>>) -> Result<()> {
        let fit = fit.map_err(|unfit| self.bad_value(offset, &unfit))?;
        if let Some(part) = self.parts.last_mut() {
            part.records += u64::from(fit != Fit::Dropped);
            part.bad += u64::from(fit != Fit::Good);
        }
        self.pushed_epoch = Some(self.batch_epoch);
        Ok(())
    }

    #[cold]
    fn bad_value(&self, offset: i64, unfit: &Unfit) -> ScanError {
        let (topic, partition) = self.builder.place();
        let place = format!("topic {topic} partition {partition} offset {offset}");
        match unfit {
            Unfit::Registry(error) if error.kind == ErrorKind::Cancelled => error.clone(),
            Unfit::Registry(error) => ScanError::new(error.kind, format!("{place}: {error}")),
            _ => {
                let text = unfit.sentence(topic, partition, offset);
                ScanError::new(ErrorKind::BadValue, text)
            }
        }
    }

    /// All up to `position` of the split begun last is in the rows.
    pub fn reached(&mut self, position: i64, leader_epoch: i32, bytes: usize) {
        if let Some(part) = self.parts.last_mut() {
            part.position = position;
            part.leader_epoch = leader_epoch;
            part.bytes += bytes as u64;
        }
    }

    #[cold]
    fn make_room(&mut self, offset: i64, cost: usize) -> Result<()> {
        let limit = self.limits.record_bytes;
        if cost > limit {
            let text = format!(
                "the record at offset {offset} takes {cost} bytes, {limit} are allowed (twice \
                 large_bytes)"
            );
            return Err(ScanError::new(ErrorKind::BatchTooLarge, text));
        }
        if self.builder.is_empty() {
            return Ok(());
        }
        let Some(last) = self.parts.last().copied() else {
            return Ok(());
        };
        // That of the record before this one, which may be of the same batch.
        let leader_epoch = self.pushed_epoch.unwrap_or(last.leader_epoch);
        self.reached(offset, leader_epoch, 0);
        self.flush()?;
        self.parts.push(Delivered {
            split: last.split,
            position: offset,
            leader_epoch,
            records: 0,
            bytes: 0,
            bad: 0,
        });
        Ok(())
    }

    /// Gives the rows to the caller, waiting for room.
    ///
    /// # Errors
    /// The scan was closed.
    pub fn flush(&mut self) -> Result<()> {
        if self.parts.is_empty() {
            return Ok(());
        }
        let (bytes, is_empty) = (self.builder.bytes(), self.builder.is_empty());
        let (batch, bad) = self.builder.finish().map_err(|error| {
            // Not expected: the builder keeps Arrow's rules.
            ScanError::new(
                ErrorKind::CorruptBatch,
                format!("rows without a batch: {error}"),
            )
        })?;
        let parts = std::mem::take(&mut self.parts);
        if is_empty {
            return self.queue.pass(parts);
        }
        self.queue.push(Output {
            batch,
            bad,
            bytes,
            parts,
        })
    }
}
