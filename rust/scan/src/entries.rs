//! What lies in a fetched set of records: batches, and messages of before Kafka 0.11.

use pyrklog_wire::DecodeError;
use pyrklog_wire::batch::{BatchView, Batches, MAGIC};
use pyrklog_wire::message_set::{Message, next_len};
use thiserror::Error;

/// Where all formats have their number.
const MAGIC_AT: usize = 16;

/// A batch, or a message of format 0 or 1.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Entry<'a> {
    Batch(BatchView<'a>),
    Message(Message<'a>),
}

impl Entry<'_> {
    /// The offset behind it.
    pub fn next_offset(&self) -> i64 {
        match self {
            Entry::Batch(batch) => batch.header.next_offset(),
            // A compressed message has the offset of the last one in it.
            Entry::Message(message) => message.offset.saturating_add(1),
        }
    }
}

/// Iterates over fetched records. An incomplete entry at the end is normal, and ends it; one error
/// ends it. Neither checksums nor records are looked at.
#[derive(Clone, Debug)]
pub(crate) struct Entries<'a> {
    rest: &'a [u8],
}

impl<'a> Entries<'a> {
    pub fn new(records: &'a [u8]) -> Self {
        Entries { rest: records }
    }

    fn parse(&self) -> Result<Option<(Entry<'a>, usize)>, DecodeError> {
        let Some(len) = next_len(self.rest)? else {
            return Ok(None);
        };
        let Some(bytes) = self.rest.get(..len) else {
            return Ok(None);
        };
        // No format is shorter than the position of its number: `next_len` checked.
        if bytes[MAGIC_AT] as i8 == MAGIC {
            let batch = Batches::new(bytes).next().transpose()?;
            return Ok(batch.map(|batch| (Entry::Batch(batch), len)));
        }
        let message = Message::parse(bytes)?;
        Ok(message.map(|message| (Entry::Message(message), len)))
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.parse().transpose()? {
            Ok((entry, len)) => {
                self.rest = &self.rest[len..];
                Some(Ok(entry))
            }
            Err(error) => {
                self.rest = &[];
                Some(Err(error))
            }
        }
    }
}

/// Why fetched records cannot be passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum Unreadable {
    #[error(transparent)]
    Entry(#[from] DecodeError),
    #[error("the offsets of batches do not rise")]
    Order,
}

/// Where to read on after these records, and the greatest leader epoch of those below `end`:
/// `position` and -1 if they hold no whole entry.
///
/// # Errors
/// Bytes that are no entry; entries whose offsets do not rise, of which some would be passed over.
pub(crate) fn position_after(
    records: &[u8],
    position: i64,
    end: i64,
) -> Result<(i64, i32), Unreadable> {
    let (mut after, mut epoch) = (position, -1);
    let mut before = i64::MIN;
    for entry in Entries::new(records) {
        let entry = entry?;
        let next = entry.next_offset();
        if next <= before {
            return Err(Unreadable::Order);
        }
        before = next;
        after = after.max(next);
        // A record at or behind the end is not read: its epoch is not that of the one before.
        if let Entry::Batch(batch) = entry
            && batch.header.base_offset < end
        {
            epoch = epoch.max(batch.header.partition_leader_epoch);
        }
    }
    Ok((after, epoch))
}

/// The first entry that ends behind `offset`, if there is a whole one.
///
/// # Errors
/// Bytes that are no entry.
pub(crate) fn entry_behind(records: &[u8], offset: i64) -> Result<Option<Entry<'_>>, DecodeError> {
    let is_behind = |entry: &Result<Entry<'_>, DecodeError>| match entry {
        Ok(entry) => entry.next_offset() > offset,
        Err(_) => true,
    };
    Entries::new(records).find(is_behind).transpose()
}
