//! Names of files and folders in a log directory; `log-format.md`, "Names".
//!
//! A log directory holds one folder a partition (`topic-partition`). The folder holds two files of
//! its own and segments, whose files share a 20-digit base offset. Folders and files in transition
//! carry a suffix, so that their state is clear after a crash.

use std::path::{Path, PathBuf};

/// Leader epochs and their start offsets, in each partition's folder.
pub const LEADER_EPOCH_CHECKPOINT: &str = "leader-epoch-checkpoint";
/// Exists in a folder while its log is being truncated. After a kill the result is made durable
/// before anything is appended.
pub const TRUNCATION: &str = "truncation.tmp";
/// Says that the log began at its leader's end and lacks older records.
pub const PARTIAL: &str = "partial";
/// The topic id, in each partition's folder.
pub const PARTITION_METADATA: &str = "partition.metadata";
/// Offsets below which segments were synced, one a partition.
pub const RECOVERY_POINT_CHECKPOINT: &str = "recovery-point-offset-checkpoint";
/// Log start offsets above the first segment's base offset.
pub const LOG_START_CHECKPOINT: &str = "log-start-offset-checkpoint";
/// High watermarks.
pub const REPLICATION_CHECKPOINT: &str = "replication-offset-checkpoint";
/// Offsets that compaction has reached.
pub const CLEANER_CHECKPOINT: &str = "cleaner-offset-checkpoint";
/// Identity of the log directory.
pub const META_PROPERTIES: &str = "meta.properties";
/// Present only after an orderly shutdown.
pub const CLEAN_SHUTDOWN: &str = ".kafka_cleanshutdown";
/// Holds a record lock while a broker uses the directory.
pub const LOCK: &str = ".lock";

/// Longest folder name in bytes, the usual limit of file systems.
const NAME_BYTES_MAX: usize = 255;
const BASE_OFFSET_DIGITS: usize = 20;

/// What a file holds, by its name alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// `.log`: record batches.
    Log,
    /// `.index`: offset -> position.
    OffsetIndex,
    /// `.timeindex`: timestamp -> offset.
    TimeIndex,
    /// `.txnindex`: aborted transactions.
    TransactionIndex,
    /// `.snapshot`: producer state at the offset in the name.
    Snapshot,
    /// `leader-epoch-checkpoint`.
    LeaderEpochs,
    /// `partition.metadata`.
    PartitionMetadata,
    /// One of the four `…-offset-checkpoint` files.
    OffsetCheckpoint,
    /// `meta.properties`.
    MetaProperties,
    /// `.kafka_cleanshutdown`.
    CleanShutdown,
    /// `.lock`.
    Lock,
}

/// The indexes of a segment.
pub(crate) const INDEX_FILES: [FileKind; 3] = [
    FileKind::OffsetIndex,
    FileKind::TimeIndex,
    FileKind::TransactionIndex,
];

impl FileKind {
    /// The extension of a segment's file; `None` for other files.
    pub const fn extension(self) -> Option<&'static str> {
        match self {
            FileKind::Log => Some("log"),
            FileKind::OffsetIndex => Some("index"),
            FileKind::TimeIndex => Some("timeindex"),
            FileKind::TransactionIndex => Some("txnindex"),
            FileKind::Snapshot => Some("snapshot"),
            _ => None,
        }
    }

    fn from_extension(extension: &str) -> Option<FileKind> {
        let kinds = [FileKind::Log, FileKind::Snapshot]
            .into_iter()
            .chain(INDEX_FILES);
        kinds
            .into_iter()
            .find(|kind| kind.extension() == Some(extension))
    }
}

/// The state of a segment's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Suffix {
    /// In use.
    None,
    /// `.deleted`, perhaps after a number: no longer part of the log; to be removed.
    Deleted,
    /// `.cleaned`: being written by compaction; worthless after a crash.
    Cleaned,
    /// `.swap`: complete; after a crash finish the rename.
    Swap,
    /// `.fill`: being written by a back-fill; worthless after a crash.
    Fill,
}

impl Suffix {
    /// The text that follows the extension.
    pub const fn text(self) -> &'static str {
        match self {
            Suffix::None => "",
            Suffix::Deleted => ".deleted",
            Suffix::Cleaned => ".cleaned",
            Suffix::Swap => ".swap",
            Suffix::Fill => ".fill",
        }
    }
}

/// A segment's file, from its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SegmentFile {
    /// First offset the segment may hold; for a snapshot, the offset of its state.
    pub base_offset: i64,
    /// Which of the segment's files.
    pub kind: FileKind,
    /// Whether it is in use.
    pub suffix: Suffix,
}

/// The name of a segment's file: `00000000000000000042.log`. The extension is empty for a kind that
/// belongs to no segment.
pub fn file_name(base_offset: i64, kind: FileKind) -> String {
    let extension = kind.extension().unwrap_or_default();
    format!("{base_offset:020}.{extension}")
}

/// Name of the producer snapshot at `offset`.
pub fn snapshot_name(offset: i64) -> String {
    file_name(offset, FileKind::Snapshot)
}

/// The name of a file that was removed from its log: `00000000000000000042.log.7.deleted`. `unique`
/// separates segments with the same base offset.
pub fn deleted_name(base_offset: i64, kind: FileKind, unique: u64) -> String {
    let name = file_name(base_offset, kind);
    format!("{name}.{unique}{}", Suffix::Deleted.text())
}

/// Follows `.log` in the name of a segment, or a part of one, that was taken out of the log. No
/// broker reads such files; an operator may remove them.
const CUT_SUFFIX: &str = ".cut";

/// Where bytes of a `.log` go that are no longer part of the log.
pub(crate) fn cut_path(log: &Path) -> PathBuf {
    let mut aside = log.to_owned().into_os_string();
    aside.push(CUT_SUFFIX);
    PathBuf::from(aside)
}

/// Parses a segment's file name; `None` for every other file.
pub fn parse_segment_file(name: &str) -> Option<SegmentFile> {
    let (digits, rest) = name.split_once('.')?;
    if digits.len() != BASE_OFFSET_DIGITS || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let base_offset = digits.parse::<i64>().ok()?;
    let (extension, suffix) = match rest.split_once('.') {
        None => (rest, Suffix::None),
        Some((extension, "deleted")) => (extension, Suffix::Deleted),
        Some((extension, "cleaned")) => (extension, Suffix::Cleaned),
        Some((extension, "swap")) => (extension, Suffix::Swap),
        Some((extension, "fill")) => (extension, Suffix::Fill),
        Some((extension, rest)) => {
            let unique = rest.strip_suffix(Suffix::Deleted.text())?;
            unique.parse::<u64>().ok()?;
            (extension, Suffix::Deleted)
        }
    };
    let kind = FileKind::from_extension(extension)?;
    Some(SegmentFile {
        base_offset,
        kind,
        suffix,
    })
}

/// What a file holds, whatever its suffix; `None` for a foreign file.
pub fn file_kind(name: &str) -> Option<FileKind> {
    match name {
        LEADER_EPOCH_CHECKPOINT => Some(FileKind::LeaderEpochs),
        PARTITION_METADATA => Some(FileKind::PartitionMetadata),
        RECOVERY_POINT_CHECKPOINT
        | LOG_START_CHECKPOINT
        | REPLICATION_CHECKPOINT
        | CLEANER_CHECKPOINT => Some(FileKind::OffsetCheckpoint),
        META_PROPERTIES => Some(FileKind::MetaProperties),
        CLEAN_SHUTDOWN => Some(FileKind::CleanShutdown),
        LOCK => Some(FileKind::Lock),
        _ => parse_segment_file(name).map(|file| file.kind),
    }
}

/// The state of a partition's folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FolderState {
    /// The partition's log.
    Current,
    /// `…-delete`: to be removed.
    Delete,
    /// `…-future`: a copy that is moving here from another log directory.
    Future,
    /// `…-stray`: belongs to no topic the controller knows.
    Stray,
}

/// A partition's folder, from its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Folder<'a> {
    /// Topic name; truncated in `…-delete` and `…-stray` folders of very long topics.
    pub topic: &'a str,
    /// Partition index, never negative.
    pub partition: i32,
    /// Its state.
    pub state: FolderState,
}

/// The folder of a partition: `topic-partition`.
pub fn folder_name(topic: &str, partition: i32) -> String {
    format!("{topic}-{partition}")
}

/// The name of a folder to be removed: `topic-partition.<32 hex digits>-delete`, with the topic
/// truncated to fit 255 bytes.
pub fn delete_folder_name(topic: &str, partition: i32, unique: u128) -> String {
    let tail = format!("-{partition}.{unique:032x}-delete");
    let mut keep = topic.len().min(NAME_BYTES_MAX - tail.len());
    while !topic.is_char_boundary(keep) {
        keep -= 1;
    }
    format!("{}{tail}", &topic[..keep])
}

/// The name of a copy that moves here from another log directory:
/// `topic-partition.<32 hex digits>-future`. `None` if it exceeds 255 bytes: such a partition cannot
/// be moved, since its topic could not be told from the name.
pub fn future_folder_name(topic: &str, partition: i32, unique: u128) -> Option<String> {
    let name = format!("{topic}-{partition}.{unique:032x}-future");
    (name.len() <= NAME_BYTES_MAX).then_some(name)
}

/// Parses a partition's folder name; `None` for any other.
pub fn parse_folder(name: &str) -> Option<Folder<'_>> {
    let (base, state) = split_folder_state(name)?;
    let (topic, digits) = base.rsplit_once('-')?;
    // `parse` accepts a sign; a folder's name has none.
    if topic.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let partition = digits.parse::<i32>().ok()?;
    Some(Folder {
        topic,
        partition,
        state,
    })
}

fn split_folder_state(name: &str) -> Option<(&str, FolderState)> {
    for (suffix, state) in [
        ("-delete", FolderState::Delete),
        ("-future", FolderState::Future),
        ("-stray", FolderState::Stray),
    ] {
        if let Some(rest) = name.strip_suffix(suffix) {
            let (base, unique) = rest.rsplit_once('.')?;
            return (!unique.is_empty()).then_some((base, state));
        }
    }
    Some((name, FolderState::Current))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_files_round_trip() {
        for (offset, kind, text) in [
            (0, FileKind::Log, "00000000000000000000.log"),
            (42, FileKind::OffsetIndex, "00000000000000000042.index"),
            (
                i64::MAX,
                FileKind::TimeIndex,
                "09223372036854775807.timeindex",
            ),
            (
                7,
                FileKind::TransactionIndex,
                "00000000000000000007.txnindex",
            ),
            (9, FileKind::Snapshot, "00000000000000000009.snapshot"),
        ] {
            assert_eq!(file_name(offset, kind), text);
            for suffix in [
                Suffix::None,
                Suffix::Deleted,
                Suffix::Cleaned,
                Suffix::Swap,
                Suffix::Fill,
            ] {
                let name = format!("{text}{}", suffix.text());
                let expected = SegmentFile {
                    base_offset: offset,
                    kind,
                    suffix,
                };
                assert_eq!(parse_segment_file(&name), Some(expected));
                assert_eq!(file_kind(&name), Some(kind));
            }
        }
    }

    #[test]
    fn other_names_are_not_segment_files() {
        for name in [
            "",
            ".log",
            "0.log",
            "00000000000000000000",
            "00000000000000000000.",
            "00000000000000000000.txt",
            "00000000000000000000.log.bak",
            "-0000000000000000001.log",
            "+0000000000000000001.log",
            "99999999999999999999.log",
            "partition.metadata",
        ] {
            assert_eq!(parse_segment_file(name), None, "{name}");
        }
    }

    #[test]
    fn files_outside_segments_are_known_by_name() {
        assert_eq!(
            file_kind("leader-epoch-checkpoint"),
            Some(FileKind::LeaderEpochs)
        );
        assert_eq!(
            file_kind("cleaner-offset-checkpoint"),
            Some(FileKind::OffsetCheckpoint)
        );
        assert_eq!(file_kind("meta.properties"), Some(FileKind::MetaProperties));
        assert_eq!(file_kind("notes.txt"), None);
    }

    #[test]
    fn folders_round_trip() {
        assert_eq!(folder_name("a-b.c", 3), "a-b.c-3");
        for (name, state) in [
            (folder_name("a-b.c", 3), FolderState::Current),
            (delete_folder_name("a-b.c", 3, 0xfeed), FolderState::Delete),
            (
                format!("a-b.c-3.{:032x}-future", 0xfeed),
                FolderState::Future,
            ),
            (format!("a-b.c-3.{:032x}-stray", 0xfeed), FolderState::Stray),
        ] {
            let expected = Folder {
                topic: "a-b.c",
                partition: 3,
                state,
            };
            assert_eq!(parse_folder(&name), Some(expected), "{name}");
        }
        assert_eq!(
            delete_folder_name("t", 0, 0xfeed),
            "t-0.0000000000000000000000000000feed-delete"
        );
    }

    #[test]
    fn a_copys_name_is_whole_or_there_is_none() {
        let name = future_folder_name("a-b.c", 3, 0xfeed).expect("it is short");
        assert_eq!(name, "a-b.c-3.0000000000000000000000000000feed-future");
        let folder = parse_folder(&name).expect("a folder's name");
        assert_eq!(
            (folder.topic, folder.partition, folder.state),
            ("a-b.c", 3, FolderState::Future)
        );
        let longest = "x".repeat(213);
        assert_eq!(
            future_folder_name(&longest, 0, 1).map(|name| name.len()),
            Some(255)
        );
        assert_eq!(future_folder_name(&longest, 10, 1), None);
    }

    #[test]
    fn folders_of_long_topics_are_cut_to_fit() {
        let topic = "x".repeat(249);
        let name = delete_folder_name(&topic, 12_345, u128::MAX);
        assert_eq!(name.len(), 255);
        let folder = parse_folder(&name).expect("still a folder's name");
        assert_eq!(
            (folder.partition, folder.state),
            (12_345, FolderState::Delete)
        );
        assert!(topic.starts_with(folder.topic));
    }

    #[test]
    fn other_folders_are_refused() {
        for name in [
            "",
            "topic",
            "-0",
            "topic-",
            "topic-x",
            "topic-+1",
            "topic-99999999999",
        ] {
            assert_eq!(parse_folder(name), None, "{name}");
        }
        assert_eq!(parse_folder("topic-0-delete"), None);
        assert_eq!(parse_folder("topic-0.-delete"), None);
    }
}
