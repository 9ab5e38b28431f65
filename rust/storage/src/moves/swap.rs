//! Puts a copy in the place of its log: a command about the partition, so that nothing else opens,
//! cuts, closes or deletes the log meanwhile.
//!
//! 1. The log is held: it takes no records. What it has is written; the rest is copied.
//! 2. The copy is made durable, with its rows in the checkpoints. If that takes too long, the log
//!    takes records again, and the copy's turn comes later.
//! 3. `.pyrklog-leaving` of the source gets a line. From here on a start never serves the log while
//!    there is a copy of the partition's name elsewhere, or may be.
//! 4. The copy's folder gets the partition's name.
//! 5. The partition goes on with the copy.
//! 6. The log's folder becomes `-delete`; then the line goes.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use pyrklog_arena::PartitionName;
use pyrklog_log::disk::may_pass;
use pyrklog_log::{Checkpoint, Log, SyncScope};
use pyrklog_wire::ErrorCode;

use crate::log_dir_state::LogDirState;
use crate::log_loader::{Command, with};
use crate::log_manager::LogManager;
use crate::moves::Move;
use crate::moves::carry_out::{AGAIN_MS, failed};
use crate::moves::copying::{Copying, Failure, Stage};
use crate::moves::machine::REST_MAX_BYTES;
use crate::syncer_queue::Deletion;
use pyrklog_base::clock::Now;
use pyrklog_replica::partition::Role;

/// Pieces that are copied before the log is held; with more the threads copy on.
const PIECES_MAX: usize = 16;

enum Outcome {
    Done,
    /// Not now: the log goes on as before.
    Later,
    Failed(Failure),
}

/// Puts the copy in the log's place, after the partition's earlier commands.
pub(super) fn submit(logs: &Arc<LogManager>, one: Arc<Move>) {
    let command = Command {
        key: one.key(),
        // What takes long, takes it there.
        dir: one.destination.index,
        run: with(logs, move |logs| {
            carry_out(logs, Arc::clone(&one));
            logs.moves.swap_has_run(&one);
        }),
    };
    logs.loader.submit([command]);
}

fn carry_out(logs: &Arc<LogManager>, one: Arc<Move>) {
    let mut copying = one.copying.lock();
    if copying.stage == Stage::Gone {
        return;
    }
    let outcome = match logs.moves.begin_swap(&one) {
        true => swap(logs, &one, &mut copying),
        false => Outcome::Later,
    };
    drop(copying);
    match outcome {
        Outcome::Done => logs.moves.settle(&one),
        Outcome::Later => logs.moves.again(one, AGAIN_MS),
        Outcome::Failed(failure) => {
            logs.moves.end_swap(&one);
            failed(logs, one, failure);
        }
    }
}

fn swap(logs: &Arc<LogManager>, one: &Move, copying: &mut Copying) -> Outcome {
    let began = Instant::now();
    match catch_up(logs, one, copying) {
        Ok(true) => {}
        Ok(false) => return Outcome::Later,
        Err(failure) => return Outcome::Failed(failure),
    }
    // What was just copied, so that less is synced while the log is held.
    if let Err(failure) = one.sync(copying, SyncScope::Written) {
        return Outcome::Failed(failure);
    }
    let Some(held) = one.hold(logs) else {
        one.release();
        return Outcome::Later;
    };
    let finished = one.in_time(held, || finish(logs, one, copying));
    if let Err(failure) = finished.and_then(|()| one.hold_on()) {
        one.release();
        return Outcome::Failed(failure);
    }
    let source = Arc::clone(&one.partition.dir());
    if let Err(outcome) = install(logs, one, copying, &source) {
        return outcome;
    }
    let Some(former) = exchange(logs, one, copying) else {
        return Outcome::Done;
    };
    tell(logs, one, &source, began, held);
    give_up(logs, one, &source, &former);
    Outcome::Done
}

/// Copies on while the log takes records, so that it is held for little. False if it grows too
/// fast, or cannot be held.
fn catch_up(logs: &LogManager, one: &Move, copying: &mut Copying) -> Result<bool, Failure> {
    for _ in 0..PIECES_MAX {
        one.write(copying)?;
        let current = one.look(copying)?;
        let facts = current.facts;
        let is_astray = facts.cut.is_some() || !facts.is_verified || facts.lacks_begin();
        if is_astray || facts.copy.end > facts.current.end {
            return Ok(false);
        }
        match current.at_end {
            Some(at_end) if facts.rest_bytes > REST_MAX_BYTES => {
                one.copy_piece(logs, copying, &at_end)?;
            }
            Some(_) => return Ok(true),
            None => return Ok(false),
        }
    }
    Ok(false)
}

/// Copies the rest of the held log, and makes the copy durable.
fn finish(logs: &LogManager, one: &Move, copying: &mut Copying) -> Result<(), Failure> {
    loop {
        let current = one.look(copying)?;
        let facts = current.facts;
        let is_astray = facts.cut.is_some() || !facts.is_verified || facts.lacks_begin();
        if is_astray || facts.copy.end > facts.current.end {
            return Err(Failure::Later("the log was cut".to_owned()));
        }
        if facts.copy.end == facts.current.end {
            break;
        }
        one.check_held()?;
        let is_below = || Failure::Later("the log start moved".to_owned());
        let at_end = current.at_end.ok_or_else(is_below)?;
        one.copy_piece(logs, copying, &at_end)?;
    }
    let high_watermark = {
        let state = one.partition.lock();
        let current = state.log.as_ref().ok_or(Failure::Rests)?;
        let copy = copying.open_log()?;
        if copy.log_end_offset() != current.log_end_offset() {
            return Err(Failure::Later("the log is not written".to_owned()));
        }
        copy.inherit(current);
        current.high_watermark()
    };
    let is_whole = copying.is_whole;
    let of_settling = |error| Failure::of_destination("completing the copy", &error);
    let copy = copying.open_log()?;
    copy.settle_copy().map_err(of_settling)?;
    one.write_rows(copy)?;
    write_other_rows(one, high_watermark, is_whole).map_err(of_settling)
}

fn write_other_rows(one: &Move, high_watermark: i64, is_whole: bool) -> io::Result<()> {
    let (topic, index) = (&*one.partition.topic.name, one.partition.index);
    let cleaned_end = {
        let source = one.partition.dir();
        let _nothing_is_written_meanwhile = source.checkpoints.lock();
        source.files.cleaned_end(topic, index).filter(|_| is_whole)
    };
    let destination = &one.destination;
    let _nothing_gathered_before = destination.checkpoints.lock();
    let rows = [(topic, index, high_watermark)];
    let files = &destination.files;
    files.write_checkpoint(Checkpoint::HighWatermark, &rows)?;
    match cleaned_end {
        Some(offset) => files.write_cleaned_end(topic, index, offset),
        None => Ok(()),
    }
}

/// Gives the copy the partition's name. After an error either log may be the one that a start
/// takes, unless the line is gone: then the log goes on.
fn install(
    logs: &Arc<LogManager>,
    one: &Move,
    copying: &mut Copying,
    source: &Arc<LogDirState>,
) -> Result<(), Outcome> {
    let (topic, index) = (&one.partition.topic.name, one.partition.index);
    let path = one.destination.path().to_string_lossy().into_owned();
    let copy = &one.folder.name;
    if let Err(error) = source.files.begin_leaving(topic, index, copy, path) {
        return Err(not_begun(logs, one, source, &error));
    }
    let installed = one.destination.files.install_future(&one.folder);
    let error = match installed {
        Ok(path) => {
            if let Some(copy) = &copying.log {
                copy.folder_moved(&path);
            }
            return Ok(());
        }
        Err(error) => error,
    };
    let is_elsewhere = one.destination.files.is_installed(&one.folder);
    let stays = matches!(is_elsewhere, Ok(false)) && source.files.end_leaving(topic, index).is_ok();
    if stays {
        one.release();
        return Err(Outcome::Failed(Failure::of_destination(
            "moving it",
            &error,
        )));
    }
    take_out(logs, one, &format!("moving it: {error}"));
    logs.fail_dir(
        &one.destination,
        format!("moving {} there: {error}", one.partition),
    );
    // A start finds out which of the two it is.
    copying.log = None;
    copying.stage = Stage::Gone;
    Err(Outcome::Done)
}

/// The line could not be written: the source's failure, not the copy's. If it may be there, the log
/// takes no records until the next start.
fn not_begun(
    logs: &Arc<LogManager>,
    one: &Move,
    source: &Arc<LogDirState>,
    error: &io::Error,
) -> Outcome {
    let reason = format!("moving {} away: {error}", one.partition);
    if may_pass(error) {
        // Then there is none.
        one.release();
        return Outcome::Failed(Failure::Later(reason));
    }
    let (topic, index) = (&one.partition.topic.name, one.partition.index);
    // Either way the next start takes this log, since the copy has not its name.
    let _gone_or_not = source.files.end_leaving(topic, index);
    logs.fail_dir(source, reason);
    one.release();
    Outcome::Failed(Failure::Rests)
}

/// Neither log may be used until the next start.
fn take_out(logs: &LogManager, one: &Move, reason: &str) {
    let mut outbox = logs.outbox();
    let mut state = one.partition.lock();
    if let Some(log) = &mut state.log {
        log.poison(reason);
    }
    let serves = matches!(state.role, Role::Leader | Role::Follower | Role::Loading);
    if serves {
        state.role = Role::Offline;
        state.fail_waiters(ErrorCode::KAFKA_STORAGE_ERROR, &mut outbox);
    }
    drop(state);
    outbox.deliver(logs);
    if serves {
        logs.tell_of_failed(&one.partition, reason.to_owned());
    }
}

/// The partition goes on with the copy; returns the former log.
fn exchange(logs: &Arc<LogManager>, one: &Move, copying: &mut Copying) -> Option<Log> {
    let partition = &one.partition;
    let (topic, destination) = (&partition.topic, &one.destination);
    destination
        .env()
        .forget_folder(&topic.name, partition.index);
    let mut outbox = logs.outbox();
    let mut state = partition.lock();
    let source = Arc::clone(&partition.dir());
    copying.stage = Stage::Gone;
    let mut copy = copying.log.take()?;
    let name = PartitionName {
        topic: topic.name.to_string(),
        partition: partition.index,
        topic_id: topic.id,
    };
    copy.replace(state.log.as_mut()?, name);
    let former = state.move_to(Arc::clone(destination), copy, &mut outbox);
    // Also of a stopped one: a successor that was placed before follows when it is opened.
    logs.partition_dirs
        .moved(&topic.name, partition.index, &source, destination);
    match state.role {
        Role::Stopped => source
            .closing_logs
            .hand_over(partition, &destination.closing_logs),
        Role::Leader | Role::Follower if destination.has_failed() => {
            state.role = Role::Offline;
            state.fail_waiters(ErrorCode::KAFKA_STORAGE_ERROR, &mut outbox);
            logs.tell_of_failed(partition, "its log directory failed".to_owned());
        }
        _ => {}
    }
    state.wake_fetches(&mut outbox);
    partition.unlock_and_write(state);
    outbox.deliver(&**logs);
    let syncer = &destination.syncer;
    syncer.need_flush_ms(topic.settings().log.flush_ms);
    syncer.high_watermark_moved();
    syncer.set_moved(Checkpoint::RecoveryPoint);
    syncer.set_moved(Checkpoint::LogStart);
    former
}

/// Removes the former log.
fn give_up(logs: &Arc<LogManager>, one: &Move, source: &Arc<LogDirState>, former: &Log) {
    let (topic, index) = (&one.partition.topic.name, one.partition.index);
    let deleted = {
        let _no_checkpoint_between = source.checkpoints.lock();
        let unique = logs.names.unique();
        source.files.leave_folder(topic, index, unique, former)
    };
    former.release_blocks();
    source.env().forget_folder(topic, index);
    let ended = deleted.and_then(|deleted| {
        if let Some(folder) = deleted {
            let delay_ms = former.config().file_delete_delay_ms;
            let due_ms = Now::read().wall_ms.saturating_add(delay_ms);
            source.syncer.delete_later(due_ms, Deletion::Folder(folder));
        }
        source.files.end_leaving(topic, index)
    });
    if let Err(error) = ended {
        // The next start removes what is left, since the line stays.
        let reason = format!("removing {} after it moved: {error}", one.partition);
        if may_pass(&error) {
            logs.dir_notice(source, "deletion_failed", "warning", reason);
        } else {
            logs.fail_dir(source, reason);
        }
    }
}

fn tell(logs: &LogManager, one: &Move, source: &LogDirState, began: Instant, held: Instant) {
    let end = Instant::now();
    let fields = vec![
        ("topic", one.partition.topic.name.to_string()),
        ("partition", one.partition.index.to_string()),
        ("from", source.path().display().to_string()),
        ("to", one.destination.path().display().to_string()),
        ("held_ms", end.duration_since(held).as_millis().to_string()),
        ("swap_ms", end.duration_since(began).as_millis().to_string()),
    ];
    logs.events.notice("replica_moved", "info", fields);
}
