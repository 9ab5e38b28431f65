//! DeleteRecords and DescribeLogDirs.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use pyrklog_log::ReadError;
use pyrklog_wire::ErrorCode;

use pyrklog_base::ids::TicketId;
use pyrklog_control::seam::{LogDirDescription, TicketOutcome};
use pyrklog_requests::services::Services;
use pyrklog_storage::log_dir_state::LogDirState;
use pyrklog_storage::log_loader::{Command, with};

/// Moves log start offsets at once; the files follow later.
pub fn delete_records(services: &Arc<Services>, targets: &[(String, i32, i64)]) -> TicketId {
    let id = services.tickets.next();
    let results = targets
        .iter()
        .map(|(topic, partition, offset)| {
            match delete_records_of(services, topic, *partition, *offset) {
                Ok(low_watermark) => (ErrorCode::NONE.0, low_watermark),
                Err(error) => (error.0, -1),
            }
        })
        .collect();
    let outcome = TicketOutcome::DeleteRecords(results);
    services.events.complete(id, outcome);
    id
}

fn delete_records_of(
    services: &Services,
    topic: &str,
    partition: i32,
    offset: i64,
) -> Result<i64, ErrorCode> {
    let Some(partition) = services.registry.partition(topic, partition) else {
        let is_known = services.image.load().partition(topic, partition).is_some();
        return Err(if is_known {
            ErrorCode::NOT_LEADER_OR_FOLLOWER
        } else {
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
        });
    };
    if partition.topic.internal {
        return Err(ErrorCode::INVALID_TOPIC_EXCEPTION);
    }
    // As in Kafka: compacted topics without deletion keep their records.
    if !partition.topic.settings().log.cleanup_delete {
        return Err(ErrorCode::POLICY_VIOLATION);
    }
    let mut state = partition.lock();
    let moved = state.led()?.advance_log_start(offset);
    let log_start_offset = moved.map_err(|error| match error {
        ReadError::OffsetOutOfRange { .. } => ErrorCode::OFFSET_OUT_OF_RANGE,
        _ => ErrorCode::KAFKA_STORAGE_ERROR,
    })?;
    let mut outbox = services.outbox();
    // A fetch below the new start gets its error now.
    state.wake_fetches(&mut outbox);
    partition.unlock_and_write(state);
    outbox.deliver(&*services.logs);
    partition.dir().syncer.log_start_moved();
    Ok(log_start_offset)
}

/// Notes that the cluster was told how the directories had been left. A directory that cannot write
/// it reports the same at its next start.
pub fn registered(services: &Arc<Services>) {
    let unwritten = services
        .dirs
        .iter()
        .filter(|dir| dir.files.is_unregistered());
    let commands: Vec<Command> = unwritten
        .map(|dir| Command {
            key: (Arc::from("registered"), dir.index as i32),
            dir: dir.index,
            run: with(services, {
                let dir = Arc::clone(dir);
                move |services: &Arc<Services>| {
                    if let Err(error) = dir.files.registered() {
                        let reason = format!("writing down the registration: {error}");
                        services.dir_notice(&dir, "log_dir_note", "warning", reason);
                    }
                }
            }),
        })
        .collect();
    if !commands.is_empty() {
        services.loader.submit(commands);
    }
}

/// Gathers sizes on loader threads: asking for a volume's space may wait for the disk.
pub fn describe_log_dirs(services: &Arc<Services>) -> TicketId {
    let id = services.tickets.next();
    let described: Arc<Mutex<Vec<LogDirDescription>>> = Arc::default();
    let commands = (0..services.dirs.len()).map(|index| {
        let described = Arc::clone(&described);
        Command {
            key: (Arc::from("describe log dirs"), index as i32),
            dir: index,
            run: with(services, move |services| {
                let own = describe(services, &services.dirs[index]);
                let mut described = described.lock();
                described.push(own);
                if described.len() == services.dirs.len() {
                    tell_of_dirs(services, id, std::mem::take(&mut *described));
                }
            }),
        }
    });
    services.loader.submit(commands);
    id
}

/// In the order of `log.dirs`, unusable ones last.
fn tell_of_dirs(services: &Services, id: TicketId, mut described: Vec<LogDirDescription>) {
    let index_of = |path: &Path| services.dirs.iter().position(|dir| dir.path() == path);
    described.sort_by_key(|dir| index_of(&dir.path));
    described.extend(services.unusable_dirs.iter().map(|(path, _)| failed(path)));
    let outcome = TicketOutcome::LogDirs(described);
    services.events.complete(id, outcome);
}

fn failed(path: &Path) -> LogDirDescription {
    LogDirDescription {
        path: path.to_owned(),
        error_code: ErrorCode::KAFKA_STORAGE_ERROR.0,
        total_bytes: -1,
        usable_bytes: -1,
        partitions: Vec::new(),
    }
}

fn describe(services: &Services, dir: &Arc<LogDirState>) -> LogDirDescription {
    if dir.has_failed() {
        return failed(dir.path());
    }
    let mut partitions = Vec::new();
    for partition in services.registry.load().partitions_in(dir) {
        if let Some(log) = &partition.lock().log {
            let size_bytes = i64::try_from(log.size_bytes()).unwrap_or(i64::MAX);
            partitions.push((
                partition.topic.name.to_string(),
                partition.index,
                size_bytes,
                0,
                false,
            ));
        }
    }
    for copy in services.moves.describe(dir.index) {
        let size_bytes = i64::try_from(copy.size_bytes).unwrap_or(i64::MAX);
        partitions.push((copy.topic, copy.partition, size_bytes, copy.lag, true));
    }
    partitions.sort();
    let space = dir.files.space().ok();
    let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    LogDirDescription {
        path: dir.path().to_owned(),
        error_code: ErrorCode::NONE.0,
        total_bytes: space.map_or(-1, |space| bytes(space.total_bytes)),
        // On a full volume, the remaining space is not usable for this directory.
        usable_bytes: match space {
            _ if dir.is_read_only() => 0,
            Some(space) => bytes(space.usable_bytes),
            None => -1,
        },
        partitions,
    }
}
