//! What an operator can ask of arenas without a broker: which there are, and that their records be
//! brought to their files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pyrklog_arena::{Arena, ArenaError, FoundPartition, Identity as ArenaIdentity, read_header};
use pyrklog_log::disk::RealDisk;
use pyrklog_log::meta_properties::MetaProperties;
use pyrklog_log::{Identity, Log, LogConfig, LogDir, LogEnv, OpenRequest, SyncScope, hex};

use crate::block_cache;
use crate::clock::Now;

/// One arena's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArenaRow {
    /// The file.
    pub path: PathBuf,
    /// Whose it is, as far as its header says.
    pub log_dir: String,
    /// `in use`, `left over`, `abandoned` (its directory does not name it), `stale` (of an earlier
    /// boot) or `damaged`.
    pub state: &'static str,
    /// Memory it takes.
    pub size_bytes: u64,
    /// Partitions with records that are not in their files; unknown while it is in use.
    pub partitions: Option<usize>,
    /// Bytes of those records.
    pub unwritten_bytes: Option<u64>,
    /// What is wrong with it.
    pub reason: Option<String>,
}

/// The arenas in a directory.
///
/// # Errors
/// The directory cannot be read.
pub fn list(dir: &Path) -> io::Result<Vec<ArenaRow>> {
    let mut rows = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| name.starts_with("pyrklog-") && name.contains(".arena")) {
            rows.push(row(&path));
        }
    }
    rows.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(rows)
}

fn row(path: &Path) -> ArenaRow {
    use std::os::unix::fs::MetadataExt;
    let size_bytes = fs::metadata(path).map_or(0, |file| file.blocks() * 512);
    let mut row = ArenaRow {
        path: path.to_owned(),
        log_dir: String::new(),
        state: "damaged",
        size_bytes,
        partitions: None,
        unwritten_bytes: None,
        reason: None,
    };
    let header = fs::File::open(path)
        .map_err(|error| error.to_string())
        .and_then(|file| read_header(&file));
    let header = match header {
        Ok(header) => header,
        Err(reason) => {
            row.reason = Some(reason);
            return row;
        }
    };
    row.log_dir = header.log_dir;
    match Arena::attach(path, header.identity, u64::MAX) {
        Ok((_arena, found)) => {
            let unwritten = found.values().map(unwritten_bytes);
            let unwritten: Vec<u64> = unwritten.filter(|bytes| *bytes > 0).collect();
            row.partitions = Some(unwritten.len());
            row.unwritten_bytes = Some(unwritten.iter().sum());
            row.reason = found.values().find_map(|found| found.damage.clone());
            row.state = state(&row.log_dir, header.identity);
        }
        Err(ArenaError::Locked(_)) => row.state = "in use",
        Err(error) => row.reason = Some(error.to_string()),
    }
    row
}

fn state(log_dir: &str, identity: ArenaIdentity) -> &'static str {
    if block_cache::boot_id() != Some(identity.boot) {
        return "stale";
    }
    let marker = fs::read_to_string(Path::new(log_dir).join(".pyrklog-arena"));
    match marker.is_ok_and(|marker| marker.contains(&hex(&identity.uuid))) {
        true => "left over",
        false => "abandoned",
    }
}

fn unwritten_bytes(found: &FoundPartition) -> u64 {
    let segments = found.segments.values();
    segments.map(|segment| segment.unwritten_bytes()).sum()
}

/// What [`drain`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Partitions that had records in the arena alone.
    pub partitions: usize,
    /// Bytes of those records.
    pub bytes: u64,
}

/// Brings the records that a killed broker left in a log directory's arena to their files, and removes
/// the arena: for a directory that Kafka is to take over. The directory is not marked clean, since
/// nobody closed its logs.
///
/// # Errors
/// A sentence: the directory is in use, has no arena, or files and arena do not fit.
pub fn drain(path: &Path) -> Result<Drained, String> {
    let files = open(path)?;
    let marker = files.arena_marker().map_err(|error| error.to_string())?;
    let marker = marker.ok_or_else(|| format!("{} has no arena", path.display()))?;
    if block_cache::boot_id() != Some(marker.identity.boot) {
        return Err(format!(
            "{} is of an earlier boot: what it held is lost",
            marker.path.display()
        ));
    }
    let attached = Arena::attach(&marker.path, marker.identity, u64::MAX);
    let (arena, found) = attached.map_err(|error| error.to_string())?;
    let mut drained = Drained::default();
    for bytes in found
        .values()
        .map(unwritten_bytes)
        .filter(|bytes| *bytes > 0)
    {
        drained.partitions += 1;
        drained.bytes += bytes;
    }
    files.env().set_cache(arena, true, found);
    for name in files.env().unclaimed_partitions() {
        let id = (name.topic_id != [0; 16]).then_some(name.topic_id);
        write(&files, &name.topic, name.partition, id)
            .map_err(|error| format!("{}-{}: {error}", name.topic, name.partition))?;
    }
    if files.was_clean() {
        // Opening it took the mark away, and nothing has changed.
        files.mark_clean(-1).map_err(|error| error.to_string())?;
    }
    block_cache::give_up(&files).map_err(|error| error.to_string())?;
    Ok(drained)
}

fn open(path: &Path) -> Result<LogDir, String> {
    let meta = path.join("meta.properties");
    let content = fs::read(&meta).map_err(|error| format!("{}: {error}", meta.display()))?;
    let meta = MetaProperties::parse(&meta.to_string_lossy(), &content);
    let meta = meta.map_err(|error| error.to_string())?;
    let identity = Identity {
        cluster_id: meta.cluster_id.unwrap_or_default(),
        node_id: meta.node_id.unwrap_or_default(),
    };
    let env = LogEnv::new(Arc::new(RealDisk), 64);
    LogDir::open(env, path, &identity).map_err(|error| error.to_string())
}

fn write(
    files: &LogDir,
    topic: &str,
    partition: i32,
    topic_id: Option<[u8; 16]>,
) -> Result<(), String> {
    let (mut log, _report) = Log::open(OpenRequest {
        env: Arc::clone(files.env()),
        log_dir: files.path(),
        topic,
        partition,
        topic_id,
        // A compacted log may have holes, and nothing here minds them.
        config: Arc::new(LogConfig {
            cleanup_compact: true,
            ..LogConfig::default()
        }),
        state: files.open_state(topic, partition),
        now_ms: Now::read().wall_ms,
        producer_id_expiration_ms: i64::MAX,
    })
    .map_err(|error| error.to_string())?;
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
        Some(reason) => Err(reason.to_owned()),
        None => Ok(()),
    }
}

/// Removes an arena's file. With records in it that are nowhere else only if `force` says so.
///
/// # Errors
/// A sentence: it is in use, or would be missed.
pub fn remove(path: &Path, force: bool) -> Result<(), String> {
    let row = row(path);
    if row.state == "in use" {
        return Err(format!("{} is in use by a broker", path.display()));
    }
    let is_missed = row.state != "stale" && row.unwritten_bytes != Some(0);
    if is_missed && !force {
        return Err(format!(
            "{} may hold acknowledged records of {} that are nowhere else",
            path.display(),
            row.log_dir
        ));
    }
    fs::remove_file(path).map_err(|error| format!("{}: {error}", path.display()))
}
