//! Committed offsets as records of `__consumer_offsets`, byte for byte Kafka's.
//!
//! A key has version 1, a value version 3. With its own time to live a value has version 1 and no
//! leader epoch, as in Kafka. All are classic forms with strings of up to 32,767 bytes.
//! `python/pyrklog/protocol/group_records.py` reads all records of the topic.
#![allow(missing_docs)] // Docs say what the protocol's own names do not.

use crate::writer::Writer;

/// The longest string of a record, in bytes.
pub const STRING_MAX_BYTES: usize = i16::MAX as usize;

/// `expire_ms` of an offset that the broker's retention counts for.
pub const NO_EXPIRY: i64 = -1;

const KEY_VERSION: i16 = 1;
const VALUE_VERSION: i16 = 3;
const VALUE_WITH_EXPIRY_VERSION: i16 = 1;

/// Appends the key of a group's offset. Panics for a string beyond [`STRING_MAX_BYTES`].
pub fn encode_key(group_id: &str, topic: &str, partition: i32, out: &mut Vec<u8>) {
    let mut writer = Writer::new(out, false);
    writer.i16(KEY_VERSION);
    writer.string(group_id);
    writer.string(topic);
    writer.i32(partition);
}

/// A committed offset. Times are milliseconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetValue<'a> {
    pub offset: i64,
    /// Leader epoch of the last record consumed, -1 unknown.
    pub leader_epoch: i32,
    /// The client's own note.
    pub metadata: &'a str,
    /// When it was committed.
    pub commit_ms: i64,
    /// When it expires, or [`NO_EXPIRY`].
    pub expire_ms: i64,
}

impl OffsetValue<'_> {
    /// Appends the value. Panics for a note beyond [`STRING_MAX_BYTES`].
    pub fn encode(&self, out: &mut Vec<u8>) {
        let expires = self.expire_ms != NO_EXPIRY;
        let mut writer = Writer::new(out, false);
        writer.i16(if expires {
            VALUE_WITH_EXPIRY_VERSION
        } else {
            VALUE_VERSION
        });
        writer.i64(self.offset);
        if !expires {
            writer.i32(self.leader_epoch);
        }
        writer.string(self.metadata);
        writer.i64(self.commit_ms);
        if expires {
            writer.i64(self.expire_ms);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_kafkas() {
        let mut key = Vec::new();
        encode_key("g", "tt", 3, &mut key);
        assert_eq!(key, b"\0\x01\0\x01g\0\x02tt\0\0\0\x03");
        let mut value = OffsetValue {
            offset: 9,
            leader_epoch: 2,
            metadata: "m",
            commit_ms: 5,
            expire_ms: NO_EXPIRY,
        };
        let mut out = Vec::new();
        value.encode(&mut out);
        let wanted = b"\0\x03\0\0\0\0\0\0\0\x09\0\0\0\x02\0\x01m\0\0\0\0\0\0\0\x05";
        assert_eq!(out, wanted);
        value.expire_ms = 8;
        out.clear();
        value.encode(&mut out);
        let wanted = b"\0\x01\0\0\0\0\0\0\0\x09\0\x01m\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x08";
        assert_eq!(out, wanted);
    }
}
