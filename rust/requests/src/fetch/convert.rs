//! A partition's records as messages of an old format, made by a reader.
//!
//! Little in the log may be much work: batches that expand, and markers that are passed over. So
//! what a reader does for a fetch in one [`Turn`] is bounded; what is [`Left`] comes to the readers
//! again, behind the others' reads.

use pyrklog_log::Wait;
use pyrklog_log::down_convert::{DownConvert, DownConvertError, SMALL_BYTES, down_convert};
use pyrklog_wire::ErrorCode;

use crate::cold_reads::ColdPart;
use crate::fetch::read::{ABORTED_MAX, Amount, PartitionRead, View, read_partition};

/// Limit of a fetch's record bytes that are converted to an old format, except for a larger last
/// message: they are in memory until they are sent.
pub const CONVERTED_MAX_BYTES: usize = 1024 * 1024;

/// Log bytes that are read in a turn: a batch is read whole, however little is made of it, and
/// nothing of transaction markers. Kafka passes over no markers: its old clients stop in front of
/// them.
const READ_BYTES: usize = 4 << 20;

/// Log bytes that are read at once when something was passed over, whatever the fetch's limit.
const PIECE_BYTES: usize = 1 << 20;

/// What a reading counts at least, since each may be one of the disk. Short segments end a piece.
const READING_MIN_BYTES: usize = 64 << 10;

/// A first batch that is larger, or that becomes more, is converted alone, at the queue for large
/// batches, and only within reply memory.
const ALONE_BYTES: usize = 2 * CONVERTED_MAX_BYTES;

/// What a fetch holds at most besides the room of large batches: it is below its limit, and at one
/// queue at a time, until a last message is beyond it.
pub const HELD_MAX_BYTES: usize = CONVERTED_MAX_BYTES + ALONE_BYTES;

/// What a part needs besides a turn at a fetch queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Left {
    /// Nothing: it has been read.
    #[default]
    Nothing,
    /// Another turn.
    Turn,
    /// A turn at the queue for large batches.
    Large,
    /// Reply memory of so many bytes, and then the same.
    Room(usize),
}

/// What a reader has done for a fetch without serving others.
#[derive(Debug, Default)]
pub struct Turn {
    messages_bytes: usize,
    expanded_bytes: usize,
    read_bytes: usize,
}

impl Turn {
    /// A turn of a fetch that has `messages_bytes` from other turns.
    pub fn after(messages_bytes: usize) -> Turn {
        Turn {
            messages_bytes,
            ..Turn::default()
        }
    }

    fn is_over(&self) -> bool {
        self.messages_left() == 0
            || self.expanded_bytes >= SMALL_BYTES
            || self.read_bytes >= READ_BYTES
    }

    fn note_reading(&mut self, bytes: usize) {
        self.read_bytes += bytes.max(READING_MIN_BYTES);
    }

    fn messages_left(&self) -> usize {
        CONVERTED_MAX_BYTES.saturating_sub(self.messages_bytes)
    }
}

/// How to convert.
#[derive(Clone, Copy, Debug)]
pub struct Convert {
    /// What the fetch may see.
    pub view: View,
    /// The format.
    pub magic: i8,
    /// Limit of a batch's expansion.
    pub expanded_bytes_max: usize,
    /// Whether large batches may be expanded here.
    pub may_be_large: bool,
    /// How to wait for the disk.
    pub wait: Wait,
}

impl Convert {
    /// Reads and converts one part as far as the turn goes. `on_step` is called before each step;
    /// if it returns false, the result is no longer needed.
    pub fn run(&self, part: &mut ColdPart, turn: &mut Turn, mut on_step: impl FnMut() -> bool) {
        let mut least_bytes = 0;
        loop {
            if turn.is_over() {
                part.read = self.read(part, 0, true);
                part.left = Left::Turn;
                return;
            }
            part.left = Left::Nothing;
            part.read = self.read(part, part.max_bytes.max(least_bytes), false);
            let Some(slice) = part.read.slice.take() else {
                return;
            };
            if slice.len() > ALONE_BYTES && part.room_bytes == 0 {
                part.left = Left::Room(slice.len());
                part.read = self.read(part, 0, true);
                return;
            }
            turn.note_reading(slice.len());
            let wanted = DownConvert {
                magic: self.magic,
                first_offset: part.target.fetch_offset,
                max_bytes: part.max_bytes.min(turn.messages_left()),
                expanded_bytes_max: self.expanded_bytes_max,
                may_be_large: self.may_be_large,
                room_bytes: part.room_bytes.max(ALONE_BYTES),
            };
            let converted = match down_convert(&slice, wanted, self.wait, &mut on_step) {
                Ok(converted) => converted,
                Err(error) => return self.fail(part, turn, &error),
            };
            turn.expanded_bytes += converted.expanded_bytes;
            // More could be had than was made.
            let goes_on = part.read.goes_on || converted.expanded_bytes >= SMALL_BYTES;
            part.read.give_up_records();
            if !converted.messages.is_empty() {
                turn.messages_bytes += converted.messages.len();
                part.read.available_bytes = converted.messages.len();
                part.read.goes_on = goes_on;
                part.read.messages = Some(converted.messages);
                return;
            }
            if converted.next_offset <= part.target.fetch_offset {
                return;
            }
            part.target.fetch_offset = converted.next_offset;
            least_bytes = PIECE_BYTES;
        }
    }

    fn read(&self, part: &ColdPart, max_bytes: usize, marks_only: bool) -> PartitionRead {
        let view = View {
            marks_only,
            ..self.view
        };
        // A first batch is read whole: its messages may fit where it does not.
        let amount = Amount {
            max_bytes,
            min_one: true,
            aborted_max: ABORTED_MAX,
        };
        read_partition(&part.partition, &part.target, view, amount, self.wait)
    }

    fn fail(&self, part: &mut ColdPart, turn: &mut Turn, error: &DownConvertError) {
        if !matches!(error, DownConvertError::Io(_) | DownConvertError::Zstd) {
            // It may be known only after as much was expanded.
            turn.expanded_bytes += SMALL_BYTES;
        }
        match error {
            DownConvertError::Large { .. } => {
                part.read.give_up_records();
                part.left = Left::Large;
            }
            DownConvertError::NoRoom { bytes, .. } => {
                part.read.give_up_records();
                part.left = Left::Room(*bytes);
            }
            error => part.read = PartitionRead::failed(code_of(error)),
        }
    }
}

fn code_of(error: &DownConvertError) -> ErrorCode {
    match error {
        DownConvertError::Io(_) => ErrorCode::KAFKA_STORAGE_ERROR,
        DownConvertError::Zstd => ErrorCode::UNSUPPORTED_COMPRESSION_TYPE,
        DownConvertError::TooLarge { .. } | DownConvertError::Large { .. } => {
            ErrorCode::MESSAGE_TOO_LARGE
        }
        // Nobody sees it.
        DownConvertError::GivenUp | DownConvertError::NoRoom { .. } => ErrorCode::REQUEST_TIMED_OUT,
        DownConvertError::Corrupt { .. } => ErrorCode::CORRUPT_MESSAGE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_ends_with_what_is_read_even_if_nothing_is_made_of_it() {
        for (bytes, readings) in [(1 << 20, 4), (900_000, 5), (10, 64)] {
            let mut turn = Turn::default();
            for _ in 0..readings {
                assert!(!turn.is_over());
                turn.note_reading(bytes);
            }
            assert!(turn.is_over(), "{bytes}");
        }
    }
}
