//! The end, orderly or not.
//!
//! In order: nothing new is accepted or read; what is in flight is answered within the grace
//! (delayed fetches with what there is); the writers write every tail; logs are closed, checkpoints
//! written; each directory's whole file system is synced once; then the clean marker is written.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pyrklog_log::Checkpoint;
use pyrklog_wire::ErrorCode;

use crate::follower::fetcher_manager::FetcherManager;
use crate::net::network::Network;
use crate::threads::Threads;
use pyrklog_base::clock::mono_ms;
use pyrklog_base::injected_faults::{Fault, is_injected};
use pyrklog_base::network_event::NetworkEvent;
use pyrklog_replica::partition::Role;
use pyrklog_storage::block_cache;
use pyrklog_storage::kept_arena;
use pyrklog_storage::log_dir_state::LogDirState;

/// Ends in order; true when every log directory is marked clean.
pub fn end_in_order(
    network: &Arc<Network>,
    fetchers: &FetcherManager,
    threads: &Threads,
    grace_ms: i64,
) -> bool {
    let deadline_ms = mono_ms() + grace_ms.max(0);
    network.listeners.stop();
    network.limits.wake();
    for inbox in network.inboxes.iter() {
        inbox.send(NetworkEvent::Drain { deadline_ms });
    }
    threads.join_network();
    fetchers.stop();
    network.readers.stop();
    network.validators.stop();
    threads.join_readers(&network.readers);
    network.is_stopping.store(true, Ordering::Release);
    network.moves.stop();
    network.loader.stop();
    for dir in &network.dirs {
        dir.syncer.stop();
        dir.writer.finish();
    }
    threads.join_storage();
    network.moves.take_ended().carry_out(&network.logs);
    clear_queues(network);
    fail_tickets(network);
    let mut is_clean = network.unusable_dirs.is_empty();
    for dir in &network.dirs {
        if let Err(reason) = close_dir(network, dir) {
            is_clean = false;
            network.dir_notice(dir, "log_dir_not_clean", "error", reason);
        }
    }
    network.moves.clear();
    is_clean
}

/// Fails what the control plane waits for and the writers have not written.
fn fail_tickets(network: &Network) {
    let mut outbox = network.outbox();
    for partition in network.registry.load().partitions() {
        let mut state = partition.lock();
        state
            .internal
            .fail(ErrorCode::NOT_LEADER_OR_FOLLOWER, &mut outbox);
    }
    outbox.deliver(&*network.logs);
    network.readers.take_left().for_each(|job| job.fail());
}

/// Closes all logs of a directory. After an error (a sentence) the directory is not marked clean,
/// and the next start recovers it.
fn close_dir(network: &Network, dir: &Arc<LogDirState>) -> Result<(), String> {
    if let Some(reason) = dir.env().poisoned() {
        return Err(reason.to_owned());
    }
    let closing = dir.closing_logs.count();
    if closing > 0 {
        return Err(format!("{closing} logs were still being closed"));
    }
    let hosted = network.registry.load();
    let mut logs = Vec::new();
    for partition in hosted.partitions_in(dir) {
        let mut state = partition.lock();
        state.role = Role::Stopped;
        let has_failed = state.has_failed();
        let Some(log) = &mut state.log else { continue };
        if has_failed {
            // The next start recovers this log, and only it.
            log.write_rest()
                .map_err(|error| format!("writing {partition}: {error}"))?;
            dir.env().leave_open(&partition.topic.name, partition.index);
        } else {
            log.close_cleanly()
                .map_err(|error| format!("closing {partition}: {error}"))?;
            logs.push(Arc::clone(partition));
        }
    }
    let mut copies = network.moves.close_copies(dir);
    dir.files
        .sync_all()
        .map_err(|error| format!("syncing: {error}"))?;
    copies
        .synced(dir)
        .map_err(|error| format!("writing a checkpoint: {error}"))?;
    for partition in &logs {
        if let Some(log) = &mut partition.lock().log {
            log.all_synced();
        }
    }
    for checkpoint in Checkpoint::ALL {
        dir.write_checkpoint(checkpoint, &network.registry)
            .map_err(|error| format!("writing a checkpoint: {error}"))?;
    }
    // Bytes of logs that were not opened are only in the arena: if the directory were clean, a
    // reboot would lose them unnoticed. All else is as it should be.
    let unwritten = dir.env().unclaimed_unwritten();
    if unwritten > 0 && !is_injected(Fault::CloseOverUnwritten) {
        return Err(format!(
            "{unwritten} partitions that are not open have records in the block cache alone; it is kept"
        ));
    }
    dir.files
        .leave_to_recover()
        .and_then(|()| dir.files.leave_unseen())
        .map_err(|error| format!("writing down which logs nobody opened: {error}"))?;
    let closed = logs.iter();
    let closed = closed.map(|partition| (partition.topic.name.to_string(), partition.index));
    mark_clean(network, dir, &closed.collect())
}

/// Everything is in the files and durable. The arena is only a copy.
fn mark_clean(
    network: &Network,
    dir: &LogDirState,
    closed: &HashSet<(String, i32)>,
) -> Result<(), String> {
    let is_prepared = kept_arena::prepare(&network.config.cache, &dir.files, closed);
    dir.files
        .mark_clean(epoch_of(network, dir))
        .map_err(|error| format!("marking it clean: {error}"))?;
    // The next start makes it anew; a broker that takes over the volume shall have its space.
    let removed = dir.files.remove_reserve();
    removed.map_err(|error| format!("removing its reserve: {error}"))?;
    if is_prepared && kept_arena::mark_kept(&dir.files).is_ok() {
        tell_of_kept(network, dir);
        return Ok(());
    }
    block_cache::give_up(&dir.files).map_err(|error| format!("removing its arena: {error}"))
}

/// Logs the memory that stays in use, which would otherwise puzzle the operator.
fn tell_of_kept(network: &Network, dir: &LogDirState) {
    let Some(arena) = dir.env().arena() else {
        return;
    };
    let kept_mib = arena.statistics().populated_bytes >> 20;
    let reason = format!(
        "{kept_mib} MiB stay in memory for the next start, in {}; pyrklog arena drop frees them",
        arena.path().display()
    );
    network.dir_notice(dir, "block_cache_kept", "info", reason);
}

/// The broker epoch of this life; before it has one, the epoch with which the directory was left:
/// nothing was decided since.
fn epoch_of(network: &Network, dir: &LogDirState) -> i64 {
    let epoch = network.broker_epoch.load(Ordering::Relaxed);
    match epoch {
        ..0 => dir.files.left().closed_at_epoch.unwrap_or(epoch),
        _ => epoch,
    }
}

/// Ends at once, as by a kill, but joins the threads.
pub fn end_at_once(network: &Arc<Network>, fetchers: &FetcherManager, threads: &Threads) {
    stop_all(network);
    network.listeners.stop();
    network.limits.wake();
    network.readers.stop();
    network.validators.stop();
    network.moves.stop();
    for dir in &network.dirs {
        dir.syncer.stop();
        dir.writer.stop();
    }
    network.loader.stop();
    fetchers.stop();
    threads.join_network();
    threads.join_readers(&network.readers);
    threads.join_storage();
    clear_queues(network);
    network.moves.clear();
    network.readers.take_left().for_each(drop);
}

/// Partitions hold their directory, and so its lock. Messages hold the network's parts.
fn clear_queues(network: &Network) {
    // A network thread that panicked has not closed its own.
    for inbox in network.inboxes.iter() {
        drop(inbox.close());
    }
    for dir in &network.dirs {
        dir.writer.clear();
        drop(dir.take_waiting_for_space());
        dir.closing_logs.clear();
        dir.syncer.clear();
    }
}

fn stop_all(network: &Arc<Network>) {
    network.is_stopping.store(true, Ordering::Release);
    for inbox in network.inboxes.iter() {
        inbox.send(NetworkEvent::Stop);
    }
}
