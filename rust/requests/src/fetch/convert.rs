//! A partition's records as messages of an old format, made by a reader.

use pyrklog_log::Wait;
use pyrklog_log::down_convert::{DownConvert, DownConvertError, down_convert};
use pyrklog_wire::ErrorCode;

use crate::cold_reads::ColdPart;
use crate::fetch::read::{ABORTED_MAX, Amount, PartitionRead, View, read_partition};

/// Log bytes that are passed over because nothing of them can be shown, transaction markers. Kafka
/// passes over none: its old clients stop in front of them.
const PASSED_MAX_BYTES: usize = 64 * 1024 * 1024;

/// How to convert.
#[derive(Clone, Copy, Debug)]
pub struct Convert {
    /// What the fetch may see.
    pub view: View,
    /// The format.
    pub magic: i8,
    /// Limit of a batch's expansion.
    pub expanded_bytes_max: usize,
    /// How to wait for the disk.
    pub wait: Wait,
}

impl Convert {
    /// Reads and converts one part; `on_step` is called before each batch.
    pub fn run(&self, part: &mut ColdPart, mut on_step: impl FnMut()) {
        let mut target = part.target.clone();
        let mut passed_bytes = 0;
        loop {
            let (view, wait) = (self.view, self.wait);
            // A first batch is read whole: its messages may fit where it does not.
            let amount = Amount {
                max_bytes: part.max_bytes,
                min_one: true,
                aborted_max: ABORTED_MAX,
            };
            part.read = read_partition(&part.partition, &target, view, amount, wait);
            let Some(slice) = part.read.slice.take() else {
                return;
            };
            let wanted = DownConvert {
                magic: self.magic,
                first_offset: target.fetch_offset,
                max_bytes: part.max_bytes,
                expanded_bytes_max: self.expanded_bytes_max,
            };
            match down_convert(&slice, wanted, wait, &mut on_step) {
                Err(error) => {
                    part.read = PartitionRead::failed(code_of(&error));
                    return;
                }
                Ok(converted) if converted.messages.is_empty() => {
                    passed_bytes += slice.len();
                    let has_moved = converted.next_offset > target.fetch_offset;
                    part.read.give_up_records();
                    if !has_moved || passed_bytes > PASSED_MAX_BYTES {
                        return;
                    }
                    target.fetch_offset = converted.next_offset;
                }
                Ok(converted) => {
                    part.read.available_bytes = converted.messages.len();
                    part.read.messages = Some(converted.messages);
                    return;
                }
            }
        }
    }
}

fn code_of(error: &DownConvertError) -> ErrorCode {
    match error {
        DownConvertError::Io(_) => ErrorCode::KAFKA_STORAGE_ERROR,
        DownConvertError::Zstd => ErrorCode::UNSUPPORTED_COMPRESSION_TYPE,
        DownConvertError::TooLarge { .. } => ErrorCode::MESSAGE_TOO_LARGE,
        DownConvertError::Corrupt { .. } => ErrorCode::CORRUPT_MESSAGE,
    }
}
