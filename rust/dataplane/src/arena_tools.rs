//! Arenas without a broker, for operators: lists them, and brings their records to their files.

use std::collections::HashMap;
use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pyrklog_arena::limits::memory_limits;
use pyrklog_arena::{
    Arena, ArenaError, FoundPartition, Identity as ArenaIdentity, PartitionName, is_arena_name,
    is_set_aside_name, is_unfinished, read_header_of, remove_unfinished, remove_unlocked,
};
use pyrklog_log::disk::RealDisk;
use pyrklog_log::meta_properties::MetaProperties;
use pyrklog_log::{Identity, Log, LogConfig, LogDir, LogEnv, OpenRequest, SyncScope};

use pyrklog_base::clock::Now;
use pyrklog_storage::block_cache;
use pyrklog_storage::kept_arena::{self, Whose};

/// Why a tool did not do its work, a sentence.
pub type ToolError = Box<dyn Error + Send + Sync>;

/// One arena's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArenaRow {
    /// The file.
    pub path: PathBuf,
    /// Its log directory, as far as the header says.
    pub log_dir: String,
    /// `in use`, `kept` (an orderly end left it), `left over`, `abandoned` (its directory does not
    /// name it), `stale` (of an earlier boot), `unfinished` (its maker was killed), `set aside`
    /// (its broker could not use it) or `damaged`.
    pub state: &'static str,
    /// Memory that it takes.
    pub size_bytes: u64,
    /// Bytes of its records; unknown while it is in use.
    pub held_bytes: Option<u64>,
    /// Time of the orderly end that left it, milliseconds since the epoch.
    pub kept_since_ms: Option<i64>,
    /// Partitions with records that are not in their files; unknown while it is in use.
    pub partitions: Option<usize>,
    /// Bytes of those records.
    pub unwritten_bytes: Option<u64>,
    /// What is wrong with it.
    pub reason: Option<String>,
}

/// The smaller of RAM and the limit of the process's memory groups.
pub fn memory_bytes() -> u64 {
    memory_limits().limit_bytes
}

/// The arenas in a directory.
///
/// # Errors
/// The directory cannot be read.
pub fn list(dir: &Path) -> io::Result<Vec<ArenaRow>> {
    let mut rows = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if is_named_so(&path) {
            rows.push(row(&path));
        }
    }
    rows.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(rows)
}

/// Whether the file's name is that of an arena: in use, set aside or unfinished.
fn is_named_so(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("pyrklog-") && name.contains(".arena"))
}

fn row(path: &Path) -> ArenaRow {
    let mut row = inspect(path);
    let name = path.file_name().and_then(|name| name.to_str());
    if name.is_some_and(is_set_aside_name) && row.state != "in use" {
        row.state = "set aside";
    } else if name.is_some_and(is_arena_name) && is_unfinished(path) {
        row.state = "unfinished";
    }
    row
}

fn inspect(path: &Path) -> ArenaRow {
    use std::os::unix::fs::MetadataExt;
    let size_bytes = fs::metadata(path).map_or(0, |file| file.blocks() * 512);
    let mut row = ArenaRow {
        path: path.to_owned(),
        log_dir: String::new(),
        state: "damaged",
        size_bytes,
        held_bytes: None,
        kept_since_ms: None,
        partitions: None,
        unwritten_bytes: None,
        reason: None,
    };
    let header = match read_header_of(path) {
        Ok(header) => header,
        Err(reason) => {
            row.reason = Some(reason);
            return row;
        }
    };
    row.log_dir = header.log_dir;
    match Arena::peek(path, header.identity) {
        Ok(glance) => {
            row.held_bytes = Some(glance.held_bytes);
            row.partitions = Some(glance.unwritten_partitions);
            row.unwritten_bytes = Some(glance.unwritten_bytes);
            row.reason = glance.damage;
            (row.state, row.kept_since_ms) = state(&row.log_dir, header.identity);
        }
        Err(ArenaError::Locked(_)) => row.state = "in use",
        Err(error) => row.reason = Some(error.to_string()),
    }
    row
}

fn state(log_dir: &str, identity: ArenaIdentity) -> (&'static str, Option<i64>) {
    if block_cache::boot_id() != Some(identity.boot) {
        return ("stale", None);
    }
    let marker = kept_arena::marker_of(Path::new(log_dir));
    match marker.filter(|marker| marker.identity == identity) {
        Some(marker) => match marker.kept {
            Some(kept) => ("kept", Some(kept.at_ms)),
            None => ("left over", None),
        },
        None => ("abandoned", None),
    }
}

/// Result of [`drop_kept`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Arenas removed.
    pub arenas: usize,
    /// Memory that they took.
    pub bytes: u64,
}

/// Removes the arenas in `dir` that orderly ends left: all, or that of one log directory. Their
/// records are in the files. Also removes arenas that their broker set aside, or that a kill left
/// unfinished.
///
/// # Errors
/// The directory cannot be read.
pub fn drop_kept(dir: &Path, log_dir: Option<&Path>) -> io::Result<Dropped> {
    let mut dropped = Dropped::default();
    for row in list(dir)? {
        let is_wanted = log_dir.is_none_or(|wanted| is_of(&row, wanted));
        let is_gone = is_wanted
            && match row.state {
                "kept" => remove(&row.path, false).is_ok(),
                "set aside" => remove_unlocked(&row.path),
                "unfinished" => remove_unfinished(&row.path),
                _ => false,
            };
        if is_gone {
            dropped.arenas += 1;
            dropped.bytes += row.size_bytes;
        }
    }
    Ok(dropped)
}

/// Whether the directory is the arena's, under whatever name.
fn is_of(row: &ArenaRow, log_dir: &Path) -> bool {
    row.log_dir == kept_arena::full_path(log_dir)
        || kept_arena::is_same(Path::new(&row.log_dir), log_dir)
}

fn unwritten_bytes(found: &FoundPartition) -> u64 {
    let segments = found.segments.values();
    segments.map(|segment| segment.unwritten_bytes()).sum()
}

/// Result of [`drain`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Partitions that had records only in the arena.
    pub partitions: usize,
    /// Bytes of those records.
    pub bytes: u64,
}

/// Writes the records that a killed broker left in a log directory's arena to their files, and
/// removes the arena: for a directory that Kafka is to take over. The directory is not marked
/// clean, since its logs were not closed. Nothing is written where there is no arena.
///
/// # Errors
/// A sentence: the directory is in use, or files and arena do not fit.
pub fn drain(path: &Path) -> Result<Drained, ToolError> {
    let files = open(path)?;
    let Some(marker) = files.arena_marker()? else {
        return Ok(Drained::default());
    };
    if block_cache::boot_id() != Some(marker.identity.boot) {
        return Err(format!(
            "{} is of an earlier boot: what it held is lost",
            marker.path.display()
        )
        .into());
    }
    if marker.kept.is_some() {
        return drop_own(&files, &marker.path);
    }
    let header = kept_arena::header_of(&marker.path);
    if header.is_some_and(|header| kept_arena::whose(&header, path) == Whose::Original) {
        return Err(format!(
            "{} is a copy: its arena is that of another directory",
            path.display()
        )
        .into());
    }
    let (arena, found) = Arena::attach(&marker.path, marker.identity, u64::MAX)?;
    if !files.was_clean()
        && let Some(reason) = files.lacks_written(&found)
    {
        return Err(format!(
            "{} is an older copy than its arena: {reason}",
            path.display()
        )
        .into());
    }
    let bytes = found
        .iter()
        .map(|(name, found)| (name.clone(), unwritten_bytes(found)));
    let bytes: HashMap<PartitionName, u64> = bytes.collect();
    let mut drained = Drained::default();
    files.env().set_cache(arena, true, found);
    let folders = files.partitions()?;
    block_cache::forget_missing(&files, &folders);
    for name in files.env().unclaimed_partitions() {
        let id = (name.topic_id != [0; 16]).then_some(name.topic_id);
        write(&files, &name.topic, name.partition, id)
            .map_err(|error| format!("{}-{}: {error}", name.topic, name.partition))?;
        drained.partitions += usize::from(bytes[&name] > 0);
        drained.bytes += bytes[&name];
    }
    stay_clean(&files)?;
    block_cache::give_up(&files)?;
    Ok(drained)
}

/// An orderly end left it: its records are in the files.
fn drop_own(files: &LogDir, arena: &Path) -> Result<Drained, ToolError> {
    let header = kept_arena::header_of(arena);
    if header.is_some_and(|header| kept_arena::whose(&header, files.path()) == Whose::Own) {
        remove(arena, false)?;
    }
    files.remove_arena_marker()?;
    stay_clean(files)?;
    Ok(Drained::default())
}

/// Restores the mark of a clean end, which opening the directory removed.
fn stay_clean(files: &LogDir) -> Result<(), ToolError> {
    if let Some(epoch) = files.clean_epoch() {
        files.mark_clean(epoch)?;
    }
    Ok(())
}

fn open(path: &Path) -> Result<LogDir, ToolError> {
    let meta = path.join("meta.properties");
    let content = fs::read(&meta).map_err(|error| format!("{}: {error}", meta.display()))?;
    let meta = MetaProperties::parse(&meta.to_string_lossy(), &content)?;
    let identity = Identity {
        cluster_id: meta.cluster_id.unwrap_or_default(),
        node_id: meta.node_id.unwrap_or_default(),
    };
    let env = LogEnv::new(Arc::new(RealDisk), 64);
    Ok(LogDir::open(env, path, &identity)?)
}

fn write(
    files: &LogDir,
    topic: &str,
    partition: i32,
    topic_id: Option<[u8; 16]>,
) -> Result<(), ToolError> {
    let (mut log, _report) = Log::open(OpenRequest {
        env: Arc::clone(files.env()),
        log_dir: files.path(),
        topic,
        partition,
        topic_id,
        // A compacted log may have holes, which do no harm here.
        config: Arc::new(LogConfig {
            cleanup_compact: true,
            ..LogConfig::default()
        }),
        state: files.open_state(topic, partition),
        now_ms: Now::read().wall_ms,
        producer_id_expiration_ms: i64::MAX,
    })?;
    while let Some(mut job) = log.take_writes() {
        let result = job.execute();
        log.complete_writes(job, result);
    }
    while let Some(mut job) = log.take_sync(SyncScope::Written) {
        let result = job.execute();
        if !log.complete_sync(job, result) {
            break;
        }
    }
    match log.poisoned() {
        Some(reason) => Err(reason.into()),
        None => Ok(()),
    }
}

/// Removes an arena's file. If it holds records that are nowhere else, only with `force`.
///
/// # Errors
/// A sentence: it is no arena, is in use, or would be missed.
pub fn remove(path: &Path, force: bool) -> Result<(), String> {
    if !is_named_so(path) {
        let name = "pyrklog-….arena";
        return Err(format!(
            "{} is no arena: their names are {name}",
            path.display()
        ));
    }
    let row = row(path);
    if row.state == "in use" {
        return Err(format!("{} is in use by a broker", path.display()));
    }
    let is_missed = row.state != "stale" && row.unwritten_bytes != Some(0);
    if is_missed && !force {
        let of = match row.log_dir.as_str() {
            "" => String::new(),
            log_dir => format!(" of {log_dir}"),
        };
        return Err(format!(
            "{} may hold acknowledged records{of} that are nowhere else",
            path.display()
        ));
    }
    fs::remove_file(path).map_err(|error| format!("{}: {error}", path.display()))
}
