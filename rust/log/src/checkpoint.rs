//! Checkpoint files: a version, a count, and one entry a line.
//!
//! ```text
//! 0                 version
//! 2                 count of entries
//! orders 0 1200     topic, partition, offset
//! orders 1 7
//! ```
//!
//! The `…-offset-checkpoint` files of a log directory have these entries, `leader-epoch-checkpoint`
//! others ([`crate::leader_epochs`]). An offset is a lower bound, since the files are written
//! periodically. A malformed file is refused as a whole. An empty one holds nothing: a crash may
//! leave it so before its first content.

use std::fmt::Write as _;

use thiserror::Error;

/// Longer files are not read; 100,000 partitions need far less.
pub(crate) const FILE_BYTES_MAX: u64 = 256 << 20;

const VERSION: i32 = 0;

/// A checkpoint file that cannot be used. The text names the file, the line, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{path}, line {line}: {reason}. {advice}")]
pub struct CheckpointError {
    /// The file, as the caller named it.
    pub path: String,
    /// Line number, from 1.
    pub line: usize,
    /// What is wrong there.
    pub reason: String,
    /// What the operator can do.
    pub advice: &'static str,
}

const RESTORE: &str = "Restore the file from a backup, or move it away: what it holds is rebuilt";
const NEWER: &str = "A newer broker wrote it; start that version";

/// Parses a checkpoint; `entry` gets each line's fields.
///
/// # Errors
/// [`CheckpointError`] for a foreign version, a wrong count, or an error of `entry`.
pub(crate) fn parse<T>(
    path: &str,
    bytes: &[u8],
    mut entry: impl FnMut(&[&str]) -> Result<T, &'static str>,
) -> Result<Vec<T>, CheckpointError> {
    let fail = |line, reason: String, advice| {
        let path = path.to_owned();
        Err(CheckpointError {
            path,
            line,
            reason,
            advice,
        })
    };
    let Ok(text) = std::str::from_utf8(bytes) else {
        return fail(1, "the file is not text".to_owned(), RESTORE);
    };
    let mut lines = text.lines();
    let Some(version) = lines.next() else {
        return Ok(Vec::new());
    };
    match version.parse::<i32>() {
        Ok(VERSION) => {}
        Ok(other) => return fail(1, format!("version {other} is unknown"), NEWER),
        Err(_) => return fail(1, format!("\"{version}\" is not a version"), RESTORE),
    }
    let Some(count) = lines.next() else {
        return Ok(Vec::new());
    };
    let Ok(expected) = count.parse::<usize>() else {
        return fail(2, format!("\"{count}\" is not a count of entries"), RESTORE);
    };
    let mut entries = Vec::new();
    for (i, line) in lines.enumerate() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        match entry(&fields) {
            Ok(value) => entries.push(value),
            Err(wanted) => return fail(i + 3, format!("\"{line}\" is not {wanted}"), RESTORE),
        }
    }
    if entries.len() != expected {
        let reason = format!("{expected} entries are announced, {} follow", entries.len());
        return fail(2, reason, RESTORE);
    }
    Ok(entries)
}

pub(crate) fn encode<T>(entries: &[T], mut entry: impl FnMut(&mut String, &T)) -> String {
    let mut text = format!("{VERSION}\n{}\n", entries.len());
    for value in entries {
        entry(&mut text, value);
        text.push('\n');
    }
    text
}

/// One line of an offset checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetRow {
    /// Topic name.
    pub topic: String,
    /// Partition index, never negative.
    pub partition: i32,
    /// Its meaning depends on the file.
    pub offset: i64,
}

/// Parses an `…-offset-checkpoint` file; `path` is for error messages.
///
/// # Errors
/// [`CheckpointError`].
pub fn parse_offsets(path: &str, bytes: &[u8]) -> Result<Vec<OffsetRow>, CheckpointError> {
    parse(path, bytes, |fields| {
        let wanted = "\"topic partition offset\"";
        let [topic, partition, offset] = fields else {
            return Err(wanted);
        };
        let partition = partition
            .parse::<i32>()
            .ok()
            .filter(|partition| *partition >= 0);
        Ok(OffsetRow {
            topic: (*topic).to_owned(),
            partition: partition.ok_or(wanted)?,
            offset: offset.parse().map_err(|_| wanted)?,
        })
    })
}

/// The text of an offset checkpoint.
pub fn encode_offsets(rows: &[OffsetRow]) -> String {
    encode(rows, |text, row| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{} {} {}", row.topic, row.partition, row.offset);
    })
}

/// The content of `.kafka_cleanshutdown`. The file's presence says that the logs need no recovery.
/// The controller compares the broker epoch (KIP-966), -1 if unknown.
pub fn encode_clean_shutdown(broker_epoch: i64) -> String {
    format!("{{\"version\":0,\"brokerEpoch\":{broker_epoch}}}")
}

/// The broker epoch in `.kafka_cleanshutdown`; older brokers leave the file empty.
pub fn parse_clean_shutdown(bytes: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(bytes).ok()?.trim();
    let fields = text.strip_prefix('{')?.strip_suffix('}')?;
    fields.split(',').find_map(|field| {
        let (name, value) = field.split_once(':')?;
        (name.trim() == "\"brokerEpoch\"").then(|| value.trim().parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn row(topic: &str, partition: i32, offset: i64) -> OffsetRow {
        OffsetRow {
            topic: topic.to_owned(),
            partition,
            offset,
        }
    }

    #[test]
    fn the_text_is_kafkas() {
        let rows = [row("orders", 0, 1200), row("a.b-c", 17, 0)];
        let text = encode_offsets(&rows);
        assert_eq!(text, "0\n2\norders 0 1200\na.b-c 17 0\n");
        assert_eq!(parse_offsets("f", text.as_bytes()), Ok(rows.to_vec()));
        assert_eq!(encode_offsets(&[]), "0\n0\n");
    }

    #[test]
    fn files_cut_short_before_their_first_entry_hold_nothing() {
        for text in ["", "0\n", "0", "0\n0\n", "0\n0"] {
            assert_eq!(
                parse_offsets("f", text.as_bytes()),
                Ok(Vec::new()),
                "{text:?}"
            );
        }
    }

    #[test]
    fn windows_line_ends_and_runs_of_blanks_are_read() {
        let rows = parse_offsets("f", b"0\r\n1\r\norders\t0   5\r\n");
        assert_eq!(rows, Ok(vec![row("orders", 0, 5)]));
    }

    #[test]
    fn damage_is_refused_with_file_and_line() {
        for (text, line, reason) in [
            ("x\n", 1, "\"x\" is not a version"),
            ("1\n0\n", 1, "version 1 is unknown"),
            ("0\nmany\n", 2, "\"many\" is not a count of entries"),
            ("0\n-1\n", 2, "\"-1\" is not a count of entries"),
            ("0\n2\na 0 1\n", 2, "2 entries are announced, 1 follow"),
            (
                "0\n1\na 0 1\nb 0 1\n",
                2,
                "1 entries are announced, 2 follow",
            ),
            (
                "0\n1\na 0\n",
                3,
                "\"a 0\" is not \"topic partition offset\"",
            ),
            (
                "0\n1\na 0 1 2\n",
                3,
                "\"a 0 1 2\" is not \"topic partition offset\"",
            ),
            (
                "0\n2\na 0 1\nb -1 1\n",
                4,
                "\"b -1 1\" is not \"topic partition offset\"",
            ),
            (
                "0\n1\na 0 99999999999999999999\n",
                3,
                "is not \"topic partition offset\"",
            ),
            ("0\n1\n\n", 3, "\"\" is not \"topic partition offset\""),
        ] {
            let error = parse_offsets("dir/f", text.as_bytes()).expect_err(text);
            assert_eq!(
                (error.path.as_str(), error.line),
                ("dir/f", line),
                "{text:?}"
            );
            assert!(error.reason.contains(reason), "{text:?}: {}", error.reason);
        }
        let error = parse_offsets("dir/f", &[0x30, 0x0a, 0xff]).expect_err("not UTF-8");
        assert_eq!(
            error.to_string(),
            "dir/f, line 1: the file is not text. Restore the file from a backup, or move it away: \
             what it holds is rebuilt"
        );
    }

    #[test]
    fn a_huge_count_allocates_nothing() {
        assert!(parse_offsets("f", b"0\n18446744073709551615\na 0 1\n").is_err());
    }

    #[test]
    fn the_clean_shutdown_marker_may_hold_a_broker_epoch() {
        assert_eq!(
            encode_clean_shutdown(-1),
            "{\"version\":0,\"brokerEpoch\":-1}"
        );
        assert_eq!(
            parse_clean_shutdown(encode_clean_shutdown(42).as_bytes()),
            Some(42)
        );
        assert_eq!(
            parse_clean_shutdown(b" { \"brokerEpoch\" : 7 , \"x\":1 }\n"),
            Some(7)
        );
        for content in ["", "{}", "{\"version\":0,\"brokerEpoch\":null}", "garbage"] {
            assert_eq!(
                parse_clean_shutdown(content.as_bytes()),
                None,
                "{content:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn offsets_round_trip(
            rows in proptest::collection::vec(("[a-zA-Z0-9._-]{1,30}", 0..i32::MAX, any::<i64>()), 0..30),
        ) {
            let rows: Vec<_> = rows.into_iter().map(|(t, p, o)| row(&t, p, o)).collect();
            prop_assert_eq!(parse_offsets("f", encode_offsets(&rows).as_bytes()), Ok(rows));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = parse_offsets("f", &bytes);
            let _ = parse_clean_shutdown(&bytes);
        }
    }
}
