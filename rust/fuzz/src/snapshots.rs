//! Producer snapshots. The checksum covers all but the version and itself, so every flipped bit
//! must be noticed; with a right checksum anything is parsed or refused.

use pyrklog_log::snapshot::{self, ProducerEntry};
use pyrklog_wire::batch::crc32c;

use crate::script::{Damage, Script};
use crate::{Verdict, expect, memory};

/// Ignores the checksum; believes the count of entries.
pub const PLANTED: &[&str] = &["checksum-ignored", "count-believed"];

const CRC_AT: usize = 2;
const COUNT_AT: usize = 6;
const MEMORY_FACTOR: usize = 16;

pub fn run(script: &mut Script<'_>, planted: Option<&str>) -> Verdict {
    let entries = script.list(5, |script| ProducerEntry {
        producer_id: script.i64(),
        epoch: script.i16(),
        last_sequence: script.i32(),
        last_offset: script.i64(),
        offset_delta: script.i32(),
        timestamp: script.i64(),
        coordinator_epoch: script.i32(),
        current_txn_first_offset: script.i64(),
        first_sequence: script.i32(),
    });
    let mut bytes = snapshot::encode(&entries);
    let damage = if script.bool() {
        script.damage(&mut bytes)
    } else {
        Damage::None
    };
    let is_mended = script.bool() && mend(&mut bytes);
    let decoded = memory::bounded(bytes.len(), MEMORY_FACTOR, || decode(&bytes, planted))?;
    match decoded {
        Ok(found) if damage == Damage::None => expect(found == entries, || {
            format!("written {entries:?}, read {found:?}")
        }),
        Ok(found) if damage == Damage::Changed && !is_mended => expect(found == entries, || {
            "changed bytes with an old checksum pass".into()
        }),
        Ok(_) => Ok(()),
        Err(error) => expect(damage != Damage::None, || {
            format!("what was written is refused: {error}")
        }),
    }
}

fn mend(bytes: &mut [u8]) -> bool {
    if bytes.len() < COUNT_AT {
        return false;
    }
    let crc = crc32c(&bytes[COUNT_AT..]);
    bytes[CRC_AT..COUNT_AT].copy_from_slice(&crc.to_be_bytes());
    true
}

fn decode(bytes: &[u8], planted: Option<&str>) -> Result<Vec<ProducerEntry>, String> {
    match planted {
        Some("checksum-ignored") => {
            let mut bytes = bytes.to_vec();
            mend(&mut bytes);
            snapshot::decode(&bytes).map_err(|error| error.to_string())
        }
        Some("count-believed") => {
            if let Some(count) = bytes.get(COUNT_AT..COUNT_AT + 4) {
                let count = u32::from_be_bytes(count.try_into().unwrap_or_default());
                let room: Vec<ProducerEntry> = Vec::with_capacity(count.min(1 << 24) as usize);
                std::hint::black_box(room);
            }
            snapshot::decode(bytes).map_err(|error| error.to_string())
        }
        _ => snapshot::decode(bytes).map_err(|error| error.to_string()),
    }
}
