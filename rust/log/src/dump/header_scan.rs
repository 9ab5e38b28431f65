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

/// What begins at a position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    pub last_offset: i64,
    /// Of an old format. Kafka made an index entry for several messages at once, with the offset of
    /// the last one.
    pub is_message: bool,
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
            self.next = header(&mut self.entries)?.map(|(header, _)| header);
        }
        Ok(self.next)
    }

    /// Goes on behind the header that [`HeaderScan::peek`] returned.
    pub fn skip(&mut self) {
        if let Some(header) = self.next.take() {
            self.entries.skip(header.total_len());
        }
    }

    /// What begins at a position; `None` where no whole batch or message does.
    pub fn at(&self, position: u64) -> io::Result<Option<Start>> {
        let mut entries = Entries::new(self.log.clone(), position, self.size, 0);
        Ok(header(&mut entries)?.map(|(header, is_message)| Start {
            last_offset: header.last_offset(),
            is_message,
        }))
    }
}

fn header(entries: &mut Entries) -> io::Result<Option<(BatchHeader, bool)>> {
    Ok(match entries.peek()? {
        Some(Entry::Batch(header)) => Some((header, false)),
        Some(Entry::Message { len, .. }) => {
            let message = Message::parse(entries.bytes(len)?).ok().flatten();
            message.map(|message| (of_message(&message), true))
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
