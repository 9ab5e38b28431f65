//! `.pyrklog-leaving`: logs that are giving way to their copies in other directories.
//!
//! A log takes no records from before its line is written until either the line or its folder is
//! gone, durably. So a start that finds both the log and its copy knows that they are equal, or that
//! the copy was used since; and one that cannot read the copy's directory does not serve the log.
//!
//! A line is the folder's name, the name that the copy's folder had, the newest segment's base offset
//! and bytes, and the path of the directory that gets the copy, in which backslashes and line ends
//! are escaped; with a space between them.

use std::io;
use std::path::Path;

use crate::checkpoint::FILE_BYTES_MAX;
use crate::disk;
use crate::env::LogEnv;
use crate::names::{self, FolderState};

pub(super) const LEAVING: &str = ".pyrklog-leaving";

/// A log that gives way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// Topic name.
    pub topic: String,
    /// Partition index.
    pub partition: i32,
    /// Name of the copy's folder, before it gets the log's.
    pub copy: String,
    /// The log's newest segment then. Others than this broker may take records into the log.
    pub newest: Newest,
    /// Path of the directory that gets the copy, as in `log.dirs`.
    pub destination: String,
}

/// A log's newest segment. It grows with whatever is appended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Newest {
    /// Its base offset.
    pub base_offset: i64,
    /// Size of its file.
    pub bytes: u64,
}

impl Leaving {
    pub(super) fn is(&self, topic: &str, partition: i32) -> bool {
        self.topic == topic && self.partition == partition
    }

    pub(super) fn line(&self) -> String {
        let folder = names::folder_name(&self.topic, self.partition);
        let Newest { base_offset, bytes } = self.newest;
        let path = self.destination.replace('\\', "\\\\");
        let path = path.replace('\n', "\\n");
        format!("{folder} {} {base_offset} {bytes} {path}\n", self.copy)
    }

    fn parse(line: &str) -> Option<Leaving> {
        let (folder, rest) = line.split_once(' ')?;
        let (copy, rest) = rest.split_once(' ')?;
        let (base_offset, rest) = rest.split_once(' ')?;
        let (bytes, path) = rest.split_once(' ')?;
        let newest = Newest {
            base_offset: base_offset.parse().ok()?,
            bytes: bytes.parse().ok()?,
        };
        let folder = names::parse_folder(folder)?;
        let is_copy = names::parse_folder(copy)?.state == FolderState::Future;
        let mut destination = String::with_capacity(path.len());
        let mut letters = path.chars();
        while let Some(letter) = letters.next() {
            destination.push(match letter {
                '\\' => match letters.next()? {
                    'n' => '\n',
                    escaped => escaped,
                },
                letter => letter,
            });
        }
        (folder.state == FolderState::Current && is_copy).then(|| Leaving {
            topic: folder.topic.to_owned(),
            partition: folder.partition,
            copy: copy.to_owned(),
            newest,
            destination,
        })
    }
}

/// The file's lines.
///
/// # Errors
/// A disk error. A malformed line is one too: a log that should give way would be served.
pub(super) fn read(env: &LogEnv, log_dir: &Path) -> io::Result<Vec<Leaving>> {
    let path = log_dir.join(LEAVING);
    let content = disk::if_exists(disk::read_file(env.disk(), &path, FILE_BYTES_MAX))?;
    let text = String::from_utf8(content.unwrap_or_default());
    let lines = text.ok().and_then(|text| {
        let lines: Option<Vec<Leaving>> = text.lines().map(Leaving::parse).collect();
        lines
    });
    lines.ok_or_else(|| {
        let reason = "is damaged: it names logs that were moving to other log directories. Find \
                      out which copy of each is the newer one before you remove it";
        io::Error::other(format!("{} {reason}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_round_trip_whatever_the_path() {
        for path in ["/d2", "/with space", "/back\\slash", "/line\nend\\n", ""] {
            let leaving = Leaving {
                topic: "a-b".to_owned(),
                partition: 3,
                copy: format!("a-b-3.{:032x}-future", 7),
                newest: Newest {
                    base_offset: 12,
                    bytes: 345,
                },
                destination: path.to_owned(),
            };
            let line = leaving.line();
            assert_eq!(line.matches('\n').count(), 1, "{line:?}");
            assert_eq!(Leaving::parse(line.trim_end_matches('\n')), Some(leaving));
        }
    }

    #[test]
    fn other_lines_are_none() {
        let copy = format!("t-0.{:032x}-future", 7);
        let parts = [
            String::new(),
            "t-0".to_owned(),
            format!("t {copy} 0 1 /d"),
            format!("{copy} {copy} 0 1 /d"),
            format!("t-0 {copy} 0 1"),
            format!("t-0 {copy} 0 /d"),
            format!("t-0 {copy} 0 -1 /d"),
            format!("t-0 {copy} x 1 /d"),
            "t-0 t-0 0 1 /d".to_owned(),
            "t-0 0 1 /d".to_owned(),
            format!("t-0 {copy} 0 1 /d\\"),
        ];
        for line in parts {
            assert_eq!(Leaving::parse(&line), None, "{line:?}");
        }
    }
}
