//! Walks a segment's headers to check references into it.

use std::io;
use std::sync::Arc;

use pyrklog_wire::batch::{BatchHeader, LENGTH_PREFIX_LEN, NO_PRODUCER_ID, NO_TIMESTAMP};
use pyrklog_wire::message_set::Message;

use crate::disk::DiskFile;
use crate::entries::{Entries, Entry};
use crate::segment::SegmentBytes;

const WINDOW_BYTES: usize = 64 * 1024;

/// Reads batch headers in order, through a window so that small batches cost few reads. A message
/// of an old format counts as a batch of one record.
pub(super) struct HeaderScan {
    log: SegmentBytes,
    size: u64,
    entries: Entries,
    /// Met and not skipped yet.
    next: Option<BatchHeader>,
}

/// How an offset of an index lies among the batches from a position on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// No whole batch begins at the position.
    NoBatch,
    /// A batch ends at the offset, or did before a cleaner removed its last records.
    End,
    /// No batch does.
    NoEnd,
}

impl HeaderScan {
    pub fn new(log: Arc<dyn DiskFile>) -> io::Result<Self> {
        let size = log.len()?;
        let log = SegmentBytes::of_file(log);
        let entries = Entries::new(log.clone(), 0, size, WINDOW_BYTES);
        Ok(Self {
            log,
            size,
            entries,
            next: None,
        })
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    /// The next header, without advancing; `None` at the end or where no whole batch follows.
    pub fn peek(&mut self) -> io::Result<Option<BatchHeader>> {
        if self.next.is_none() {
            self.next = header(&mut self.entries)?;
        }
        Ok(self.next)
    }

    /// Goes on behind the header that [`HeaderScan::peek`] returned.
    pub fn skip(&mut self) {
        if let Some(header) = self.next.take() {
            self.entries.skip(header.total_len());
        }
    }

    /// Looks for the batch that ends at `offset`, from the one that begins at `position` on, among
    /// those that begin before `until`.
    pub fn place(&self, offset: i64, position: u64, until: u64) -> io::Result<Place> {
        let mut entries = Entries::new(self.log.clone(), position, self.size, 0);
        let mut found = Place::NoBatch;
        while found == Place::NoBatch || entries.position() < until {
            let Some(header) = header(&mut entries)? else {
                break;
            };
            found = match header.last_offset() >= offset {
                true if ends_at(&header, offset) => return Ok(Place::End),
                true => return Ok(Place::NoEnd),
                false => Place::NoEnd,
            };
            entries.skip(header.total_len());
        }
        Ok(found)
    }
}

/// Whether an index entry with this offset can stand for the batch. Kafka's cleaner names the last
/// record that it kept, and lets the batch end where it ended before.
fn ends_at(header: &BatchHeader, offset: i64) -> bool {
    let has_gaps = header.record_count <= header.last_offset_delta;
    header.last_offset() == offset || (has_gaps && header.base_offset <= offset)
}

fn header(entries: &mut Entries) -> io::Result<Option<BatchHeader>> {
    Ok(match entries.peek()? {
        Some(Entry::Batch(header)) => Some(header),
        Some(Entry::Message { len, .. }) => {
            let message = Message::parse(entries.bytes(len)?).ok().flatten();
            message.map(|message| of_message(&message))
        }
        Some(Entry::Nothing) | None => None,
    })
}

fn of_message(message: &Message<'_>) -> BatchHeader {
    BatchHeader {
        base_offset: message.offset,
        batch_length: (message.bytes.len() - LENGTH_PREFIX_LEN) as i32,
        partition_leader_epoch: -1,
        crc: 0,
        attributes: 0,
        last_offset_delta: 0,
        base_timestamp: NO_TIMESTAMP,
        max_timestamp: message.timestamp,
        producer_id: NO_PRODUCER_ID,
        producer_epoch: -1,
        base_sequence: -1,
        record_count: 1,
    }
}
