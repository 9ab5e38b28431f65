//! Giving up partitions: closing or deleting their logs. The order is that of
//! [`crate::leadership`].

use std::io;
use std::sync::Arc;
use std::time::Duration;

use pyrklog_arena::PartitionName;
use pyrklog_log::disk::may_pass;
use pyrklog_log::{Log, OpenError};
use pyrklog_wire::ErrorCode;

use crate::replica_manager::ReplicaManager;
use pyrklog_base::clock::Now;
use pyrklog_base::ids::TicketId;
use pyrklog_control::outbox::Outbox;
use pyrklog_control::seam::StopSpec;
use pyrklog_replica::partition::Role;
use pyrklog_storage::await_writers::await_writers;
use pyrklog_storage::log_dir_state::{LogDirState, Partition};
use pyrklog_storage::log_loader::{Command, Gathering, Key, with};
use pyrklog_storage::moves::Ended;
use pyrklog_storage::syncer_queue::Deletion;

/// Limit for writing a stopped partition's last bytes, and the interval of checks.
const DRAIN_LOOK: Duration = Duration::from_millis(2);

pub fn stop_partitions(replicas: &Arc<ReplicaManager>, specs: Vec<StopSpec>) -> TicketId {
    let ticket = replicas.tickets.next();
    let hosted = replicas.registry.load();
    let mut outbox = replicas.outbox();
    let mut stopped: Vec<Arc<Partition>> = Vec::new();
    let mut commands = Vec::new();
    let gathering = Gathering::new(ticket, vec![0; specs.len()], specs.len());
    let is_empty = specs.is_empty();
    for (index, spec) in specs.into_iter().enumerate() {
        let partition = hosted.partition(&spec.topic, spec.partition).cloned();
        if let Some(partition) = &partition {
            begin_stop(partition, spec.delete, &mut outbox);
            stopped.push(Arc::clone(partition));
        }
        // Now, not when the command runs: by then the name may be placed anew.
        let partition_dirs = &replicas.partition_dirs;
        let folder = spec
            .delete
            .then(|| partition_dirs.release(&spec.topic, spec.partition, &replicas.dirs))
            .flatten()
            .cloned();
        let hosted_in = partition.as_ref().map(|partition| partition.dir().index);
        let dir = hosted_in.or(folder.as_ref().map(|dir| dir.index));
        let moves = replicas
            .moves
            .take(&spec.topic, spec.partition, spec.delete);
        let gathering = Arc::clone(&gathering);
        let key = (Arc::from(spec.topic.as_str()), spec.partition);
        let dir = dir.unwrap_or(0);
        commands.extend(end_moves(replicas, &key, moves, dir));
        commands.push(Command {
            key,
            dir,
            run: with(replicas, move |replicas| {
                let code = stop(replicas, partition.as_ref(), folder.as_ref(), &spec);
                gathering.done(&replicas.events, index, code.0);
            }),
        });
    }
    if !stopped.is_empty() {
        replicas.registry.remove(&stopped);
    }
    outbox.deliver(&*replicas.logs);
    if is_empty {
        gathering.complete(&replicas.events);
    } else {
        replicas.loader.submit(commands);
    }
    ticket
}

/// Closes partitions of topics that were deleted unnoticed, and whose names other topics have now:
/// before those are opened.
pub fn close_replaced(replicas: &Arc<ReplicaManager>, replaced: Vec<Arc<Partition>>) {
    if replaced.is_empty() {
        return;
    }
    let mut outbox = replicas.outbox();
    for partition in &replaced {
        begin_stop(partition, false, &mut outbox);
    }
    outbox.deliver(&*replicas.logs);
    let stop_one = |partition: Arc<Partition>| {
        let key = (Arc::clone(&partition.topic.name), partition.index);
        let moves = replicas.moves.take(&key.0, key.1, false);
        let first = end_moves(replicas, &key, moves, partition.dir().index);
        let then = Command::about(partition, replicas, move |replicas, partition| {
            let spec = StopSpec {
                topic: partition.topic.name.to_string(),
                partition: partition.index,
                delete: false,
            };
            stop(replicas, Some(partition), None, &spec);
        });
        first.into_iter().chain([then])
    };
    let commands = replaced.into_iter().flat_map(stop_one);
    replicas.loader.submit(commands);
}

/// Ends the moves of a partition, before its log is closed or deleted: on a thread of the copy's
/// directory, so that a disk that hangs there holds up no other partition of the log's. `dir` is
/// the log's.
fn end_moves(
    replicas: &Arc<ReplicaManager>,
    key: &Key,
    moves: Ended,
    dir: usize,
) -> Option<Command> {
    moves.has_any().then(|| Command {
        key: key.clone(),
        dir: moves.dir().unwrap_or(dir),
        run: with(replicas, move |replicas| moves.carry_out(&replicas.logs)),
    })
}

/// Stops serving it; a command closes or deletes its log.
fn begin_stop(partition: &Arc<Partition>, delete: bool, outbox: &mut Outbox) {
    let mut state = partition.lock();
    state.role = Role::Stopped;
    state.fail_waiters(ErrorCode::NOT_LEADER_OR_FOLLOWER, outbox);
    if !delete {
        partition.dir().closing_logs.add(partition);
    }
}

/// `folder` is the directory that holds the folder of a partition to be deleted.
fn stop(
    replicas: &Arc<ReplicaManager>,
    partition: Option<&Arc<Partition>>,
    folder: Option<&Arc<LogDirState>>,
    spec: &StopSpec,
) -> ErrorCode {
    let result = if spec.delete {
        // It may have moved to another directory since the command was given.
        let moved_to = partition.map(|partition| Arc::clone(&partition.dir()));
        let folder = folder.map(|folder| moved_to.as_ref().unwrap_or(folder));
        let deleted = delete(replicas, partition, folder, spec);
        if let (Err(_), Some(dir)) = (&deleted, folder) {
            replicas
                .partition_dirs
                .kept(&spec.topic, spec.partition, dir);
        }
        deleted
    } else {
        partition.map_or(Ok(()), |partition| close(replicas, partition))
    };
    match result {
        Ok(()) => ErrorCode::NONE,
        Err(error) => {
            tell(replicas, &spec.topic, spec.partition, &error);
            ErrorCode::KAFKA_STORAGE_ERROR
        }
    }
}

fn tell(replicas: &ReplicaManager, topic: &str, index: i32, error: &io::Error) {
    replicas.partition_error(topic, index, "stopping_failed", error.to_string());
}

/// Takes the log; its unwritten bytes are not counted any more.
fn take_log(partition: &Partition) -> Option<Log> {
    let mut state = partition.lock();
    let log = state.log.take();
    state.count_unwritten(&**partition.dir());
    log
}

fn delete(
    replicas: &Arc<ReplicaManager>,
    partition: Option<&Arc<Partition>>,
    dir: Option<&Arc<LogDirState>>,
    spec: &StopSpec,
) -> io::Result<()> {
    // It may have been stopped before without being closed since; then a later one of the name has
    // no log yet.
    let closing = dir.and_then(|dir| dir.closing_logs.take(&spec.topic, spec.partition));
    let mut log = None;
    for partition in closing.iter().chain(partition) {
        // Jobs on their way find no log when they are done, and are forgotten.
        log = log.or(take_log(partition));
        let mut outbox = replicas.outbox();
        partition.dir().unmute(&mut outbox);
        outbox.deliver(&*replicas.logs);
    }
    remove_left(replicas, dir, spec)?;
    let Some(dir) = dir else { return Ok(()) };
    if log.is_some() {
        // If the folder stays, nothing will close its log.
        dir.env().leave_open(&spec.topic, spec.partition);
    }
    let topic_id = dir.files.stored_topic_id(&spec.topic, spec.partition);
    let folder = dir.delete_folder(&spec.topic, spec.partition, replicas.names.unique())?;
    dir.files.end_leaving(&spec.topic, spec.partition)?;
    let Some(folder) = folder else { return Ok(()) };
    if let Some(log) = log {
        // Jobs on their way open files by name: never those of a successor.
        log.folder_moved(&folder.path);
        log.release_blocks();
    }
    // An earlier close of the log has left its blocks.
    dir.env().forget_closed(&PartitionName {
        topic: spec.topic.clone(),
        partition: spec.partition,
        topic_id: topic_id.unwrap_or_default(),
    });
    dir.env().forget_folder(&spec.topic, spec.partition);
    dir.syncer
        .delete_later(Now::read().wall_ms, Deletion::Folder(folder));
    Ok(())
}

/// Removes logs in other directories that have a line: those that moved away and could not be removed
/// then, and those that may have moved away. A start would take either for the partition's.
fn remove_left(
    replicas: &ReplicaManager,
    but: Option<&Arc<LogDirState>>,
    spec: &StopSpec,
) -> io::Result<()> {
    let (topic, index) = (&spec.topic, spec.partition);
    for dir in &replicas.dirs {
        let is_other = but.is_none_or(|but| but.index != dir.index);
        if !is_other || dir.has_failed() || !dir.files.is_leaving(topic, index) {
            continue;
        }
        if let Some(folder) = dir.delete_folder(topic, index, replicas.names.unique())? {
            let now_ms = Now::read().wall_ms;
            dir.syncer.delete_later(now_ms, Deletion::Folder(folder));
        }
        dir.files.end_leaving(topic, index)?;
    }
    Ok(())
}

/// An earlier stop of the same partition may have found no space for unwritten bytes. Its log is
/// closed before another is opened: two would write the same files.
///
/// # Errors
/// It cannot be closed now; without space, descriptors or memory the error is one that may pass. A
/// log that writes nothing any more says nothing of the disk: its error is [`OpenError::Corrupt`].
pub fn close_before(
    replicas: &Arc<ReplicaManager>,
    partition: &Arc<Partition>,
) -> Result<(), OpenError> {
    let dir = partition.dir();
    let earlier = dir.closing_logs.get(&partition.topic.name, partition.index);
    let Some(earlier) = earlier.filter(|earlier| !Arc::ptr_eq(earlier, partition)) else {
        return Ok(());
    };
    let writes = earlier.lock().log.as_ref().is_some_and(Log::writes);
    close(replicas, &earlier).map_err(|error| match writes {
        true => OpenError::Io(error),
        false => OpenError::Corrupt(error.to_string()),
    })
}

/// There is space again: closes the logs that could not be closed.
pub fn close_again(replicas: &Arc<ReplicaManager>, dir: &LogDirState) {
    let close_one = |partition| {
        Command::about(partition, replicas, |replicas, partition| {
            // After another error the directory is not clean, and the next start recovers it.
            if let Err(error) = close(replicas, partition) {
                tell(replicas, &partition.topic.name, partition.index, &error);
            }
        })
    };
    let closing = dir.closing_logs.all().into_iter();
    replicas.loader.submit(closing.map(close_one));
}

/// Writes what is still in memory, then closes the log in order. A log that is out of service is
/// only written; the next opening recovers it.
fn close(replicas: &Arc<ReplicaManager>, partition: &Arc<Partition>) -> io::Result<()> {
    loop {
        let state = partition.lock();
        let is_busy = |log: &Log| log.writes() && (log.has_unwritten() || log.is_retiring());
        if !state.log.as_ref().is_some_and(is_busy) {
            break;
        }
        let dir = &partition.dir();
        if dir.has_failed() || replicas.is_ending() {
            return Err(io::Error::other("not everything was written"));
        }
        partition.unlock_and_write_all(state);
        if let Some(error) = dir.shortage() {
            return Err(error);
        }
        await_writers(&replicas.logs, DRAIN_LOOK);
    }
    let has_failed = partition.lock().has_failed();
    let (dir, mut log) = (&partition.dir(), take_log(partition));
    let closed = match &mut log {
        Some(log) if has_failed => log.write_rest(),
        Some(log) => log.close_cleanly(),
        None => Ok(()),
    };
    if has_failed || closed.as_ref().is_err_and(may_pass) {
        // The next opening recovers the log, and only it.
        dir.env().leave_open(&partition.topic.name, partition.index);
    }
    match &closed {
        Err(error) if !may_pass(error) => {
            if let Some(log) = &log {
                log.keep_unwritten(&error.to_string());
            }
            dir.closing_logs.failed(partition);
        }
        _ => dir.closing_logs.closed(partition),
    }
    if let (Some(log), false, Ok(())) = (&log, has_failed, &closed) {
        dir.files
            .closed(&partition.topic.name, partition.index, log);
    }
    closed
}
