//! `partition.metadata`: the topic id of a partition's folder (KIP-516).
//!
//! ```text
//! version: 0
//! topic_id: AAAAAAAAAAAAAAAAAAAAAQ
//! ```
//!
//! The id is 16 bytes as unpadded base64url. No line end follows the second line. A newer version
//! is accepted if it begins with these two lines, which Kafka guarantees.
//!
//! While the log is partial (`expansion.md`, section 9), the id's bits are inverted and a third line
//! says `partial: true`. Brokers that do not know partial logs then refuse the folder: it is another
//! topic's to them. Otherwise such a replica could lead, and the others delete what it lacks.

use std::io;
use std::path::Path;

use thiserror::Error;

use crate::checkpoint::FILE_BYTES_MAX;
use crate::disk::{self, Disk};

/// Characters of an id: 16 bytes, 6 bits each.
const UUID_CHARS: usize = 22;
const PARTIAL_LINE: &str = "partial: true";
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The topic id in a partition's folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionMetadata {
    /// Version of the file, 0 when written here.
    pub version: i32,
    /// The topic's id, never all zero.
    pub topic_id: [u8; 16],
    /// Only brokers that know partial logs may open it.
    pub is_partial: bool,
}

/// A `partition.metadata` that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{path}, line {line}: {reason}. Restore the file from a backup or from another replica")]
pub struct PartitionMetadataError {
    /// The file, as the caller named it.
    pub path: String,
    /// Line number, from 1.
    pub line: usize,
    /// What is wrong there.
    pub reason: String,
}

impl PartitionMetadata {
    /// Parses the file; `path` is for error messages.
    ///
    /// # Errors
    /// [`PartitionMetadataError`] for anything but the two lines, and for an id of zeros.
    pub fn parse(path: &str, bytes: &[u8]) -> Result<Self, PartitionMetadataError> {
        let fail = |line: usize, reason: &str| PartitionMetadataError {
            path: path.to_owned(),
            line,
            reason: reason.to_owned(),
        };
        let text = std::str::from_utf8(bytes).map_err(|_| fail(1, "the file is not text"))?;
        let mut lines = text.lines();
        let version = lines
            .next()
            .and_then(|line| value_of(line, "version"))
            .and_then(|value| value.parse::<i32>().ok())
            .filter(|version| *version >= 0)
            .ok_or_else(|| fail(1, "\"version: 0\" is expected"))?;
        let topic_id = lines
            .next()
            .and_then(|line| value_of(line, "topic_id"))
            .and_then(parse_uuid)
            .ok_or_else(|| fail(2, "\"topic_id: \" and 22 characters are expected"))?;
        let is_partial = lines.next() == Some(PARTIAL_LINE);
        let topic_id = match is_partial {
            true => topic_id.map(|byte| !byte),
            false => topic_id,
        };
        if topic_id == [0; 16] {
            return Err(fail(2, "a topic id of zeros belongs to no topic"));
        }
        Ok(Self {
            version,
            topic_id,
            is_partial,
        })
    }

    /// What the file says, if there is one that can be read.
    pub(crate) fn stored(disk: &dyn Disk, path: &Path) -> io::Result<Option<Self>> {
        let content = disk::if_exists(disk::read_file(disk, path, FILE_BYTES_MAX))?;
        Ok(content.and_then(|content| Self::parse(&path.to_string_lossy(), &content).ok()))
    }

    /// Makes an existing file say whether the log is partial; durably, except for its folder.
    pub(crate) fn mark(disk: &dyn Disk, path: &Path, is_partial: bool) -> io::Result<()> {
        match Self::stored(disk, path)? {
            Some(stored) if stored.is_partial != is_partial => {
                let marked = Self {
                    is_partial,
                    ..stored
                };
                disk::replace_file(disk, path, marked.encode().as_bytes())
            }
            _ => Ok(()),
        }
    }

    /// The file's text, in version 0.
    pub fn encode(&self) -> String {
        let (version, topic_id) = (self.version, &self.topic_id);
        match self.is_partial {
            true => {
                let hidden = encode_uuid(&topic_id.map(|byte| !byte));
                format!("version: {version}\ntopic_id: {hidden}\n{PARTIAL_LINE}")
            }
            false => format!("version: {version}\ntopic_id: {}", encode_uuid(topic_id)),
        }
    }
}

fn value_of<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (key, value) = line.split_once(':')?;
    (key == name && value.starts_with(char::is_whitespace)).then(|| value.trim())
}

/// 16 bytes as 22 characters of unpadded base64url, Kafka's text form of an id.
pub fn encode_uuid(id: &[u8; 16]) -> String {
    let value = u128::from_be_bytes(*id);
    let letter = |i| {
        // 128 bits and 4 of padding; the last character carries two bits of the id.
        let bits = match i + 1 {
            UUID_CHARS => value << 4,
            behind => value >> (128 - 6 * behind),
        };
        char::from(ALPHABET[(bits & 63) as usize])
    };
    (0..UUID_CHARS).map(letter).collect()
}

/// Parses Kafka's text form of an id; `None` unless it is 22 characters of base64url with zero
/// padding bits. Padding characters are accepted, as by Java's decoder.
pub fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let text = text.strip_suffix("==").unwrap_or(text);
    if text.len() != UUID_CHARS {
        return None;
    }
    let mut value: u128 = 0;
    for (i, byte) in text.bytes().enumerate() {
        let bits = ALPHABET.iter().position(|letter| *letter == byte)? as u128;
        if i + 1 < UUID_CHARS {
            value = value << 6 | bits;
        } else if bits & 15 == 0 {
            value = value << 2 | bits >> 4;
        } else {
            return None;
        }
    }
    Some(value.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_text_is_kafkas() {
        let mut topic_id = [0; 16];
        topic_id[15] = 1;
        let metadata = PartitionMetadata {
            version: 0,
            topic_id,
            is_partial: false,
        };
        assert_eq!(
            metadata.encode(),
            "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
        );
        assert_eq!(
            PartitionMetadata::parse("f", metadata.encode().as_bytes()),
            Ok(metadata)
        );
    }

    #[test]
    fn ids_are_base64url() {
        assert_eq!(encode_uuid(&[0xff; 16]), "_____________________w");
        assert_eq!(encode_uuid(&[0xfb; 16]), "-_v7-_v7-_v7-_v7-_v7-w");
        let counting = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
        assert_eq!(encode_uuid(&counting), "AAECAwQFBgcICQoLDA0ODw");
        assert_eq!(parse_uuid("AAECAwQFBgcICQoLDA0ODw=="), Some(counting));
        for text in [
            "",
            "AAECAwQFBgcICQoLDA0OD",
            "AAECAwQFBgcICQoLDA0OD+",
            "AAECAwQFBgcICQoLDA0ODx",
        ] {
            assert_eq!(parse_uuid(text), None, "{text}");
        }
    }

    #[test]
    fn a_newer_version_is_read_if_it_begins_alike() {
        let text = "version: 3\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\nmore: yes\n";
        let metadata =
            PartitionMetadata::parse("f", text.as_bytes()).expect("two lines are enough");
        assert_eq!((metadata.version, metadata.topic_id[15]), (3, 1));
    }

    #[test]
    fn damage_is_refused_with_file_and_line() {
        for (text, line) in [
            ("", 1),
            ("version 0\n", 1),
            ("version: -1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ", 1),
            ("version: x\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ", 1),
            ("version: 0", 2),
            ("version: 0\ntopic: AAAAAAAAAAAAAAAAAAAAAQ", 2),
            ("version: 0\ntopic_id: AAAA", 2),
            ("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", 2),
        ] {
            let error = PartitionMetadata::parse("d/f", text.as_bytes()).expect_err(text);
            assert_eq!((error.path.as_str(), error.line), ("d/f", line), "{text:?}");
        }
    }

    #[test]
    fn a_partial_log_is_another_topics_to_those_who_do_not_know_it() {
        let metadata = PartitionMetadata {
            version: 0,
            topic_id: [7; 16],
            is_partial: true,
        };
        let text = metadata.encode();
        assert_eq!(
            text,
            "version: 0\ntopic_id: -Pj4-Pj4-Pj4-Pj4-Pj4-A\npartial: true"
        );
        assert_eq!(PartitionMetadata::parse("f", text.as_bytes()), Ok(metadata));
        // They read two lines.
        let (known, _) = text.rsplit_once('\n').unwrap();
        let known = PartitionMetadata::parse("f", known.as_bytes()).unwrap();
        assert_ne!(known.topic_id, metadata.topic_id);
    }

    proptest! {
        #[test]
        fn ids_round_trip(id in any::<[u8; 16]>()) {
            let text = encode_uuid(&id);
            prop_assert_eq!(text.len(), 22);
            prop_assert_eq!(parse_uuid(&text), Some(id));
        }
    }
}
