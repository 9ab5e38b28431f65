//! `meta.properties`: whose data a log directory holds.
//!
//! Version 0 (ZooKeeper mode) has `broker.id` and `cluster.id`, version 1 (KRaft) `node.id`,
//! `cluster.id` and perhaps `directory.id`. A broker with other ids must refuse the directory. The
//! file is never overwritten with other ids, and nothing can rebuild it.
//!
//! The text is in Java's properties format: ISO 8859-1 with `\uXXXX`, comments after `#` or `!`, a
//! key, then `=`, `:` or blanks, then the value; `\` at a line's end continues it.

use std::fmt::Write as _;

use thiserror::Error;

use crate::partition_metadata::{encode_uuid, parse_uuid};

/// The file's content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetaProperties {
    /// 0 or 1.
    pub version: i32,
    /// `broker.id` in version 0, where it is optional; `node.id` in version 1.
    pub node_id: Option<i32>,
    /// `cluster.id`; optional in version 0.
    pub cluster_id: Option<String>,
    /// `directory.id` (KIP-858).
    pub directory_id: Option<[u8; 16]>,
}

/// A `meta.properties` that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{path}: {reason}. {advice}")]
pub struct MetaPropertiesError {
    /// The file, as the caller named it.
    pub path: String,
    /// What is wrong.
    pub reason: String,
    /// What the operator can do.
    pub advice: &'static str,
}

const RESTORE: &str =
    "Restore the file from a backup, or from the ids in the broker's configuration";
const NEWER: &str = "A newer broker wrote it; start that version, or another directory";

impl MetaProperties {
    /// Parses the file; `path` is for error messages. Unknown keys are ignored.
    ///
    /// # Errors
    /// [`MetaPropertiesError`] for a version above 1, an invalid id, a missing one that the version
    /// requires, or a file with something else in it.
    pub fn parse(path: &str, bytes: &[u8]) -> Result<Self, MetaPropertiesError> {
        let fail = |reason: String, advice| MetaPropertiesError {
            path: path.to_owned(),
            reason,
            advice,
        };
        let properties = parse_properties(bytes).map_err(|reason| fail(reason, RESTORE))?;
        let get = |key: &str| {
            // As in Java, the last of equal keys counts.
            properties
                .iter()
                .rev()
                .find(|(name, _)| name == key)
                .map(|(_, value)| value.as_str())
        };
        let number = |key: &str| match get(key) {
            None => Ok(None),
            Some(text) => match text.trim().parse::<i32>() {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(fail(format!("{key}={text} is not a number"), RESTORE)),
            },
        };
        let missing = |key: &str| fail(format!("{key} is missing"), RESTORE);
        let version = number("version")?.unwrap_or(0);
        let cluster_id = get("cluster.id").map(str::to_owned);
        let directory_id = match get("directory.id") {
            None => None,
            Some(text) => Some(parse_uuid(text).ok_or_else(|| {
                fail(
                    format!("directory.id={text} is not an id of 22 characters"),
                    RESTORE,
                )
            })?),
        };
        let node_id = match version {
            0 => {
                let node_id = number("broker.id")?;
                // An empty file is taken, as by Kafka.
                let names_nobody = node_id.is_none() && cluster_id.is_none();
                if names_nobody && !properties.is_empty() {
                    return Err(missing("broker.id"));
                }
                node_id
            }
            1 => {
                cluster_id.as_ref().ok_or_else(|| missing("cluster.id"))?;
                Some(number("node.id")?.ok_or_else(|| missing("node.id"))?)
            }
            other => return Err(fail(format!("version {other} is unknown"), NEWER)),
        };
        Ok(Self {
            version,
            node_id,
            cluster_id,
            directory_id,
        })
    }

    /// The file's text.
    pub fn encode(&self) -> String {
        let node_key = if self.version == 0 {
            "broker.id"
        } else {
            "node.id"
        };
        let mut text = String::from("#\n");
        encode_property(&mut text, "version", &self.version.to_string());
        if let Some(cluster_id) = &self.cluster_id {
            encode_property(&mut text, "cluster.id", cluster_id);
        }
        if let Some(node_id) = self.node_id {
            encode_property(&mut text, node_key, &node_id.to_string());
        }
        if let Some(directory_id) = &self.directory_id {
            encode_property(&mut text, "directory.id", &encode_uuid(directory_id));
        }
        text
    }
}

fn encode_property(text: &mut String, key: &str, value: &str) {
    text.push_str(key);
    text.push('=');
    for (i, letter) in value.chars().enumerate() {
        match letter {
            '\t' => text.push_str("\\t"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\u{c}' => text.push_str("\\f"),
            ' ' if i > 0 => text.push(' '),
            ' ' | '\\' | '=' | ':' | '#' | '!' => {
                text.push('\\');
                text.push(letter);
            }
            ' '..='~' => text.push(letter),
            _ => {
                let mut units = [0; 2];
                for unit in letter.encode_utf16(&mut units) {
                    // Writing to a String cannot fail.
                    let _ = write!(text, "\\u{unit:04X}");
                }
            }
        }
    }
    text.push('\n');
}

/// Keys and values of a properties file in order, by the rules of `java.util.Properties.load`.
///
/// # Errors
/// A sentence for a malformed `\u` escape.
pub fn parse_properties(bytes: &[u8]) -> Result<Vec<(String, String)>, String> {
    let text: Vec<char> = bytes.iter().map(|byte| char::from(*byte)).collect();
    let mut properties = Vec::new();
    for line in logical_lines(&text) {
        let key_end = key_end(&line);
        let mut value_start = key_end + count(&line[key_end..], is_blank);
        if matches!(line.get(value_start), Some('=' | ':')) {
            value_start += 1;
            value_start += count(&line[value_start..], is_blank);
        }
        properties.push((unescape(&line[..key_end])?, unescape(&line[value_start..])?));
    }
    Ok(properties)
}

fn is_blank(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\u{c}')
}

fn count(text: &[char], holds: impl Fn(char) -> bool) -> usize {
    text.iter().take_while(|letter| holds(**letter)).count()
}

/// Lines without comments, blank lines and leading blanks; a line that ends with an odd number of
/// backslashes is joined with the next.
fn logical_lines(text: &[char]) -> Vec<Vec<char>> {
    let mut lines = Vec::new();
    let mut joined: Option<Vec<char>> = None;
    for natural in text.split(|letter| matches!(letter, '\n' | '\r')) {
        let line = &natural[count(natural, is_blank)..];
        if joined.is_none() && matches!(line.first(), None | Some('#' | '!')) {
            continue;
        }
        let mut whole = joined.take().unwrap_or_default();
        whole.extend_from_slice(line);
        let backslashes = whole
            .iter()
            .rev()
            .take_while(|letter| **letter == '\\')
            .count();
        if backslashes % 2 == 1 {
            whole.pop();
            joined = Some(whole);
        } else {
            lines.push(whole);
        }
    }
    lines.extend(joined.filter(|line| !line.is_empty()));
    lines
}

/// Where the key ends: at the first unescaped `=`, `:` or blank.
fn key_end(line: &[char]) -> usize {
    let mut escaped = false;
    for (i, letter) in line.iter().enumerate() {
        if !escaped && (is_blank(*letter) || matches!(letter, '=' | ':')) {
            return i;
        }
        escaped = !escaped && *letter == '\\';
    }
    line.len()
}

fn unescape(text: &[char]) -> Result<String, String> {
    // UTF-16 units, since two `\u` escapes may form one character.
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut letters = text.iter();
    while let Some(letter) = letters.next() {
        let plain = match letter {
            '\\' => match letters.next() {
                None => break,
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('f') => '\u{c}',
                Some('u') => {
                    let digits: String = letters.by_ref().take(4).collect();
                    let whole = digits.len() == 4 && digits.bytes().all(|b| b.is_ascii_hexdigit());
                    let unit = u16::from_str_radix(&digits, 16).ok().filter(|_| whole);
                    units.push(unit.ok_or_else(|| format!("\\u{digits} is not an escape"))?);
                    continue;
                }
                Some(other) => *other,
            },
            other => *other,
        };
        units.extend_from_slice(plain.encode_utf16(&mut [0; 2]));
    }
    Ok(String::from_utf16_lossy(&units))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn version_0(node_id: i32, cluster_id: &str) -> MetaProperties {
        MetaProperties {
            version: 0,
            node_id: Some(node_id),
            cluster_id: Some(cluster_id.to_owned()),
            directory_id: None,
        }
    }

    #[test]
    fn both_versions_round_trip() {
        let old = version_0(7, "Gz6d-lC0QXuPOUJ2ky4cUw");
        let text = "#\nversion=0\ncluster.id=Gz6d-lC0QXuPOUJ2ky4cUw\nbroker.id=7\n";
        assert_eq!(old.encode(), text);
        assert_eq!(MetaProperties::parse("f", text.as_bytes()), Ok(old.clone()));
        let new = MetaProperties {
            version: 1,
            directory_id: Some([7; 16]),
            ..old
        };
        let text = "#\nversion=1\ncluster.id=Gz6d-lC0QXuPOUJ2ky4cUw\nnode.id=7\n\
                    directory.id=BwcHBwcHBwcHBwcHBwcHBw\n";
        assert_eq!(new.encode(), text);
        assert_eq!(MetaProperties::parse("f", text.as_bytes()), Ok(new));
    }

    #[test]
    fn java_properties_are_read() {
        let text =
            "#\n#Fri Nov 20 23:40:00 UTC 2026\nbroker.id=3\nversion=0\ncluster.id=a\\:b\\=c\n";
        assert_eq!(
            MetaProperties::parse("f", text.as_bytes()),
            Ok(version_0(3, "a:b=c"))
        );
        assert_eq!(
            MetaProperties::parse("f", b""),
            Ok(MetaProperties::default())
        );
    }

    #[test]
    fn the_syntax_of_properties_files() {
        for (text, expected) in [
            ("a=b", vec![("a", "b")]),
            ("  a : b \r\n! no\n# no\n\n", vec![("a", "b ")]),
            ("a b c", vec![("a", "b c")]),
            ("a", vec![("a", "")]),
            ("a\\ b=c", vec![("a b", "c")]),
            ("a=b\\\n   c", vec![("a", "bc")]),
            ("a=b\\\\\nc=d", vec![("a", "b\\"), ("c", "d")]),
            ("a=\\u00e9\\uD83D\\uDE00\\t\\q", vec![("a", "é😀\tq")]),
            ("a=b=c", vec![("a", "b=c")]),
        ] {
            let found = parse_properties(text.as_bytes()).expect(text);
            let expected: Vec<_> = expected
                .into_iter()
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .collect();
            assert_eq!(found, expected, "{text:?}");
        }
        assert!(parse_properties(b"a=\\u00g0").is_err());
        assert!(parse_properties(b"a=\\u00").is_err());
        assert_eq!(
            parse_properties(b"a=\xe9"),
            Ok(vec![("a".to_owned(), "é".to_owned())])
        );
    }

    #[test]
    fn unusable_meta_properties_are_refused_with_advice() {
        for (text, reason, advice) in [
            ("foo", "broker.id is missing", RESTORE),
            ("version=2", "version 2 is unknown", NEWER),
            ("version=x", "version=x is not a number", RESTORE),
            ("broker.id=x", "broker.id=x is not a number", RESTORE),
            ("version=1\ncluster.id=c", "node.id is missing", RESTORE),
            ("version=1\nnode.id=1", "cluster.id is missing", RESTORE),
            (
                "directory.id=c",
                "directory.id=c is not an id of 22 characters",
                RESTORE,
            ),
        ] {
            let error = MetaProperties::parse("d/f", text.as_bytes()).expect_err(text);
            assert_eq!((error.reason.as_str(), error.advice), (reason, advice));
            assert!(error.to_string().starts_with("d/f: "));
        }
    }

    proptest! {
        #[test]
        fn any_cluster_id_round_trips(cluster_id in any::<String>(), node_id in any::<i32>()) {
            let properties = version_0(node_id, &cluster_id);
            prop_assert_eq!(MetaProperties::parse("f", properties.encode().as_bytes()), Ok(properties));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = MetaProperties::parse("f", &bytes);
        }
    }
}
