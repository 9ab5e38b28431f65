//! Requests for moves (AlterReplicaLogDirs). Memory only.

use std::sync::Arc;

use pyrklog_control::image::Image;
use pyrklog_log::FutureFolder;
use pyrklog_log::names;
use pyrklog_wire::ErrorCode;

use crate::log_dir_state::LogDirState;
use crate::log_manager::LogManager;
use pyrklog_replica::partition::Role;

/// Begins, redirects or ends moves: (topic, partition, path of the directory). Error codes in
/// order; their meaning: `moving-replicas.md`, section 1.
pub fn alter_log_dirs(
    logs: &LogManager,
    image: &Image,
    wanted: &[(String, i32, String)],
) -> Vec<ErrorCode> {
    let alter = |(topic, partition, path): &(String, i32, String)| {
        let altered = alter(logs, image, topic, *partition, path);
        altered.err().unwrap_or(ErrorCode::NONE)
    };
    wanted.iter().map(alter).collect()
}

fn alter(
    logs: &LogManager,
    image: &Image,
    topic: &str,
    index: i32,
    path: &str,
) -> Result<(), ErrorCode> {
    let name = names::future_folder_name(topic, index, logs.names.unique());
    let name = name.ok_or(ErrorCode::INVALID_TOPIC_EXCEPTION)?;
    let destination = online(logs, path)?;
    let Some(partition) = logs.registry.partition(topic, index) else {
        return Err(not_hosted(logs, image, topic, index, destination));
    };
    let state = partition.lock();
    match state.role {
        Role::Offline => return Err(ErrorCode::KAFKA_STORAGE_ERROR),
        _ if state.log.is_none() => return Err(ErrorCode::REPLICA_NOT_AVAILABLE),
        _ => {}
    }
    drop(state);
    let topic_id = partition.topic.id;
    let folder = FutureFolder {
        name,
        topic: topic.to_owned(),
        partition: index,
        topic_id: (topic_id != [0; 16]).then_some(topic_id),
    };
    logs.moves.redirect(&partition, destination, folder);
    Ok(())
}

/// The answer about a partition that is not hosted. The directory is remembered for one that may
/// come: not for names that a client invents.
fn not_hosted(
    logs: &LogManager,
    image: &Image,
    topic: &str,
    index: i32,
    destination: &LogDirState,
) -> ErrorCode {
    let Some(known) = image.partition(topic, index) else {
        return ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    };
    let is_found = logs.partition_dirs.dir_of(topic, index).is_some();
    let is_placed_here = known.replicas.contains(&logs.config.node_id);
    if is_placed_here && !is_found && logs.has_failed_dir() {
        // Its log may be in the directory that cannot be read.
        return ErrorCode::KAFKA_STORAGE_ERROR;
    }
    if !is_found {
        logs.moves.prefer(topic, index, destination.index);
    }
    ErrorCode::REPLICA_NOT_AVAILABLE
}

/// The directory of this path, as DescribeLogDirs names it.
fn online<'a>(logs: &'a LogManager, path: &str) -> Result<&'a Arc<LogDirState>, ErrorCode> {
    let is_it = |dir: &std::path::Path| dir.to_string_lossy() == path;
    if let Some(dir) = logs.dirs.iter().find(|dir| is_it(dir.path())) {
        return match dir.has_failed() {
            true => Err(ErrorCode::KAFKA_STORAGE_ERROR),
            false => Ok(dir),
        };
    }
    let is_unusable = logs.unusable_dirs.iter().any(|(path, _)| is_it(path));
    Err(match is_unusable {
        true => ErrorCode::KAFKA_STORAGE_ERROR,
        false => ErrorCode::LOG_DIR_NOT_FOUND,
    })
}
