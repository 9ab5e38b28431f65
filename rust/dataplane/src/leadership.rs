//! Becoming leader or follower. For giving up partitions see [`crate::stopping`].
//!
//! Memory changes at once, on the caller's thread, so the order of the commands is the order of
//! their effects. Opening, closing and deleting files follow as commands of the log loader, one
//! after another for each partition.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pyrklog_log::{Log, OpenError, OpenReport, OpenRequest};
use pyrklog_wire::ErrorCode;

use crate::follower::fetcher_queue::Fetchers;
use crate::follower::truncation::{lower_high_watermark_row, to_high_watermark, write_cut};
use crate::replica_manager::ReplicaManager;
use crate::stopping;
use pyrklog_base::clock::{Now, mono_ms};
use pyrklog_base::ids::TicketId;
use pyrklog_base::injected_faults::{Fault, is_injected};
use pyrklog_control::image::{Image, TopicState};
use pyrklog_control::seam::{FollowerSpec, LeaderSpec};
use pyrklog_replica::partition::{LeaderAndIsr, PartitionGuard, Role, Topic};
use pyrklog_storage::checkpoints::CutLog;
use pyrklog_storage::log_dir_state::{HostedPartitions, LogDirState, Partition};
use pyrklog_storage::log_loader::{Command, Gathering};
use pyrklog_storage::log_manager::SpaceListener;

#[derive(Debug)]
struct Order {
    /// `None`: this broker is to lead.
    leader_to_follow: Option<i32>,
    spec: LeaderSpec,
}

pub fn become_leaders(replicas: &Arc<ReplicaManager>, specs: Vec<LeaderSpec>) -> TicketId {
    let order = |spec| Order {
        leader_to_follow: None,
        spec,
    };
    carry_out(replicas, specs.into_iter().map(order).collect())
}

pub fn become_followers(replicas: &Arc<ReplicaManager>, specs: Vec<FollowerSpec>) -> TicketId {
    let node_id = replicas.config.node_id;
    let order = |spec: FollowerSpec| Order {
        leader_to_follow: Some(spec.leader),
        spec: LeaderSpec {
            topic: spec.topic,
            partition: spec.partition,
            leader_epoch: spec.leader_epoch,
            replicas: spec.replicas,
            isr: spec.isr,
            is_new: spec.is_new,
            is_held: false,
            partial: match spec.is_partial {
                true => vec![node_id],
                false => Vec::new(),
            },
        },
    };
    carry_out(replicas, specs.into_iter().map(order).collect())
}

fn carry_out(replicas: &Arc<ReplicaManager>, orders: Vec<Order>) -> TicketId {
    let ticket = replicas.tickets.next();
    let image = replicas.image.load_full();
    let hosted = replicas.registry.load();
    let now_ms = mono_ms();
    let mut codes = vec![0; orders.len()];
    let mut fresh = Fresh::default();
    let mut due: Vec<(usize, Arc<Partition>)> = Vec::new();
    for (index, order) in orders.iter().enumerate() {
        match take_up(replicas, &image, &hosted, &mut fresh, order, now_ms) {
            Ok(partition) => due.push((index, partition)),
            Err(error) => codes[index] = error.0,
        }
    }
    if !fresh.partitions.is_empty() {
        let replaced = replicas.registry.put(fresh.partitions.into_values());
        stopping::close_replaced(replicas, replaced);
    }
    let gathering = Gathering::new(ticket, codes, due.len());
    if due.is_empty() {
        gathering.complete(&replicas.events);
        return ticket;
    }
    let (mut open, mut closed) = (Vec::new(), Vec::new());
    for (index, partition) in due {
        let is_open = !is_to_be_opened(&partition);
        let done = {
            let gathering = Arc::clone(&gathering);
            move |replicas: &Arc<ReplicaManager>, partition: &Arc<Partition>| {
                let code = load(replicas, partition, Answer::Due);
                if is_injected(Fault::TruncateToHighWatermark) {
                    to_high_watermark(&replicas.logs, partition);
                }
                Arc::clone(&replicas.fetchers).follow(partition);
                gathering.done(&replicas.events, index, code.0);
            }
        };
        let key = (Arc::clone(&partition.topic.name), partition.index);
        let waits_for_disk = is_injected(Fault::TruncateToHighWatermark);
        let now = done.clone();
        let is_done = is_open
            && !waits_for_disk
            && replicas.loader.run_now(&key, || now(replicas, &partition));
        if !is_done {
            let queue = if is_open { &mut open } else { &mut closed };
            queue.push(Command::about(partition, replicas, done));
        }
    }
    replicas.loader.submit_first(open);
    replicas.loader.submit(closed);
    ticket
}

/// Whether its role begins with an opened log. Otherwise the decision waits for no disk: producers
/// may wait for it.
fn is_to_be_opened(partition: &Partition) -> bool {
    let state = partition.lock();
    state.role == Role::Loading && state.log.is_none()
}

/// Partitions and topics that are new in one call.
#[derive(Debug, Default)]
struct Fresh {
    topics: HashMap<String, Arc<Topic>>,
    partitions: HashMap<(String, i32), Arc<Partition>>,
}

/// Finds or creates the partition and notes the decision.
fn take_up(
    replicas: &Arc<ReplicaManager>,
    image: &Image,
    hosted: &HostedPartitions,
    fresh: &mut Fresh,
    Order {
        leader_to_follow,
        spec,
    }: &Order,
    now_ms: i64,
) -> Result<Arc<Partition>, ErrorCode> {
    let wanted = image
        .topic(&spec.topic)
        .ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
    if spec.partition < 0 {
        return Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    }
    let key = (spec.topic.clone(), spec.partition);
    let known = hosted
        .partition(&spec.topic, spec.partition)
        .filter(|partition| partition.topic.id == wanted.id)
        .or_else(|| fresh.partitions.get(&key));
    let partition = match known {
        Some(partition) => Arc::clone(partition),
        None => {
            let dir = choose_dir(replicas, spec)?;
            let topic = topic_of(hosted, fresh, wanted);
            let node_id = replicas.config.node_id;
            let partition = Arc::new(Partition::new(topic, spec.partition, dir, node_id));
            fresh.partitions.insert(key, Arc::clone(&partition));
            partition
        }
    };
    let mut outbox = replicas.outbox();
    let mut state = partition.lock();
    let decision = LeaderAndIsr {
        leader_to_follow: *leader_to_follow,
        leader_epoch: spec.leader_epoch,
        replicas: &spec.replicas,
        isr: &spec.isr,
        is_held: spec.is_held,
        partial: &spec.partial,
    };
    if leader_to_follow.is_none() && state.log.as_ref().is_some_and(Log::is_partial) {
        // Its followers would delete what it lacks.
        return Err(ErrorCode::KAFKA_STORAGE_ERROR);
    }
    if !state.set_leadership(decision, now_ms) {
        return Err(ErrorCode::FENCED_LEADER_EPOCH);
    }
    if leader_to_follow.is_some() {
        state.fail_waiters(ErrorCode::NOT_LEADER_OR_FOLLOWER, &mut outbox);
    }
    // A leader that stays leader keeps all that it appended: its waiters go on waiting, as in
    // Kafka.
    state.raise_high_watermark(usize::MAX, &mut outbox);
    state.wake_fetches(&mut outbox);
    partition.unlock_and_write(state);
    outbox.deliver(&*replicas.logs);
    Ok(partition)
}

fn topic_of(hosted: &HostedPartitions, fresh: &mut Fresh, wanted: &TopicState) -> Arc<Topic> {
    match hosted.topic(&wanted.name) {
        Some(hosted) if hosted.topic.id == wanted.id => Arc::clone(&hosted.topic),
        _ => {
            let made = fresh.topics.entry(wanted.name.to_string());
            Arc::clone(made.or_insert_with(|| Arc::new(Topic::new(wanted))))
        }
    }
}

fn choose_dir(replicas: &ReplicaManager, spec: &LeaderSpec) -> Result<Arc<LogDirState>, ErrorCode> {
    if let Some(index) = replicas.partition_dirs.dir_of(&spec.topic, spec.partition) {
        return Ok(Arc::clone(&replicas.dirs[index]));
    }
    if !spec.is_new && replicas.has_failed_dir() {
        // The log may lie in the unreadable directory: an empty one beside it would be worse.
        return Err(ErrorCode::KAFKA_STORAGE_ERROR);
    }
    let (topic, index) = (&spec.topic, spec.partition);
    let mut dirs = replicas.dirs.iter();
    if !spec.is_new && dirs.any(|dir| dir.files.is_leaving(topic, index)) {
        // Likewise, where its log was moving to a directory that is not in `log.dirs`.
        return Err(ErrorCode::KAFKA_STORAGE_ERROR);
    }
    let preferred = replicas.moves.take_preferred(&spec.topic, spec.partition);
    let preferred = preferred.map(|index| &replicas.dirs[index]);
    if let Some(dir) = preferred.filter(|dir| !dir.has_failed()) {
        replicas.partition_dirs.place(topic, index, dir);
        return Ok(Arc::clone(dir));
    }
    let chosen = replicas
        .partition_dirs
        .choose(&spec.topic, spec.partition, &replicas.dirs);
    chosen.cloned().ok_or(ErrorCode::KAFKA_STORAGE_ERROR)
}

/// Whether the control plane gets the result of an opening as the answer to its decision, or has got
/// one when the log began to wait for space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Due,
    Given,
}

/// Opens the log if that is still to be done; returns the partition's state.
fn load(replicas: &Arc<ReplicaManager>, partition: &Arc<Partition>, answer: Answer) -> ErrorCode {
    let mut state = partition.lock();
    if state.role != Role::Loading {
        drop(state);
        return outcome(partition);
    }
    if state.log.is_some() {
        finish_transition(replicas, partition, state);
        return outcome(partition);
    }
    let (name, index) = (&partition.topic.name, partition.index);
    if let Some(dir) = replicas.partition_dirs.dir_of(name, index) {
        // An earlier command may have moved it since the decision.
        state.is_found_in(Arc::clone(&replicas.dirs[dir]));
    }
    drop(state);
    let (topic, index, dir) = (&partition.topic, partition.index, &partition.dir());
    let closed = stopping::close_before(replicas, partition);
    if let Err(error) = closed.and_then(|()| refuse_leaving(dir, &topic.name, index)) {
        if replicas.is_ending() {
            return ErrorCode::NOT_LEADER_OR_FOLLOWER;
        }
        return refuse(replicas, partition, error, answer);
    }
    if partition.lock().role != Role::Loading {
        // Stopped meanwhile, when the earlier one was still noted in its place.
        return outcome(partition);
    }
    let config = Arc::clone(&topic.settings().log);
    dir.syncer.need_flush_ms(config.flush_ms);
    let opened = Log::open(OpenRequest {
        env: Arc::clone(dir.env()),
        log_dir: dir.path(),
        topic: &topic.name,
        partition: index,
        topic_id: (topic.id != [0; 16]).then_some(topic.id),
        config,
        state: dir.files.open_state(&topic.name, index),
        now_ms: Now::read().wall_ms,
        producer_id_expiration_ms: replicas.producer_id_expiration_ms.load(Ordering::Relaxed),
    });
    match opened {
        Ok((log, report)) => {
            replicas.partition_dirs.opened(&topic.name, index, topic.id);
            report_opening(replicas, partition, &report);
            if report.checkpoint_is_stale {
                write_cut(&replicas.logs, partition, CutLog::of(&log));
            }
            lower_high_watermark_row(&replicas.logs, partition, log.log_end_offset());
            serve(replicas, partition, log);
            dir.syncer.high_watermark_moved();
            if let Some(ended) = replicas.moves.resume(partition, &replicas.dirs) {
                ended.carry_out(&replicas.logs);
            }
            outcome(partition)
        }
        Err(OpenError::Stopped) => ErrorCode::NOT_LEADER_OR_FOLLOWER,
        Err(error) => refuse(replicas, partition, error, answer),
    }
}

/// A log with a line may have given way: only the next start finds out.
fn refuse_leaving(dir: &LogDirState, topic: &str, index: i32) -> Result<(), OpenError> {
    match dir.files.is_leaving(topic, index) {
        true => Err(OpenError::Corrupt(
            "it was moving to another log directory, and may be there; the next start sees it"
                .to_owned(),
        )),
        false => Ok(()),
    }
}

/// Opens logs for which there was no space.
pub fn load_again(replicas: &Arc<ReplicaManager>, partitions: Vec<Arc<Partition>>) {
    let is_wanted = |partition: &Arc<Partition>| {
        let mut state = partition.lock();
        let is_wanted = state.role == Role::Offline && state.log.is_none() && !state.has_failed();
        if is_wanted {
            state.role = Role::Loading;
            state.waits_for_space = false;
        }
        is_wanted
    };
    let load_one = |partition| {
        Command::about(partition, replicas, |replicas, partition| {
            load(replicas, partition, Answer::Given);
            Arc::clone(&replicas.fetchers).follow(partition);
        })
    };
    let wanted = partitions.into_iter().filter(is_wanted);
    replicas.loader.submit(wanted.map(load_one));
}

fn outcome(partition: &Partition) -> ErrorCode {
    let state = partition.lock();
    match state.role {
        Role::Leader | Role::Follower => ErrorCode::NONE,
        // As when the wait began: later decisions take effect when the log is open.
        Role::Offline if state.waits_for_space && !partition.dir().has_failed() => ErrorCode::NONE,
        Role::Offline => ErrorCode::KAFKA_STORAGE_ERROR,
        Role::Loading | Role::Stopped => ErrorCode::NOT_LEADER_OR_FOLLOWER,
    }
}

fn serve(replicas: &ReplicaManager, partition: &Arc<Partition>, mut log: Log) {
    // The options may have changed while the log was being opened.
    log.set_config(Arc::clone(&partition.topic.settings().log));
    let mut state = partition.lock();
    // What was found in the block cache is still to be written.
    state.log = Some(log);
    state.count_unwritten(&**partition.dir());
    finish_transition(replicas, partition, state);
}

/// The log is open: the last decision takes effect.
fn finish_transition(
    replicas: &ReplicaManager,
    partition: &Arc<Partition>,
    mut state: PartitionGuard<'_, LogDirState>,
) {
    let mut outbox = replicas.outbox();
    match state.role {
        Role::Loading if state.would_lead_partially() => state.role = Role::Offline,
        Role::Loading if !partition.dir().has_failed() => state.finish_transition(),
        Role::Loading => state.role = Role::Offline,
        // Stopped meanwhile: the next command closes or deletes the log.
        _ => {}
    }
    state.raise_high_watermark(usize::MAX, &mut outbox);
    partition.unlock_and_write(state);
    outbox.deliver(&*replicas.logs);
}

fn refuse(
    replicas: &ReplicaManager,
    partition: &Arc<Partition>,
    error: OpenError,
    answer: Answer,
) -> ErrorCode {
    let reason = format!("opening {partition}: {error}");
    let code = match &error {
        OpenError::TopicIdMismatch { .. } => ErrorCode::INCONSISTENT_TOPIC_ID,
        OpenError::Io(_) if !error.may_pass() => {
            replicas.fail_dir(&partition.dir(), reason.clone());
            ErrorCode::KAFKA_STORAGE_ERROR
        }
        _ => ErrorCode::KAFKA_STORAGE_ERROR,
    };
    let mut state = partition.lock();
    let is_wanted = state.role == Role::Loading;
    if is_wanted {
        state.role = Role::Offline;
        state.waits_for_space = error.may_pass();
    }
    drop(state);
    if let OpenError::Io(passing) = &error
        && error.may_pass()
    {
        // The control plane sees a leader; clients are told to try again.
        // It waits before the writer is woken, which would find nothing to retry otherwise.
        partition.dir().wait_for_space(Arc::clone(partition));
        let doing = format!("opening {partition}");
        replicas.fall_short(&partition.dir(), &doing, passing);
        let fields = vec![("reason", reason)];
        let notice = "log_waits_for_space";
        replicas.events.notice(notice, "warning", fields);
        return ErrorCode::NONE;
    }
    // A failed directory has told of all its partitions.
    if answer == Answer::Given && is_wanted && !partition.dir().has_failed() {
        replicas.tell_of_failed(partition, reason);
        return code;
    }
    let (topic, index) = (&partition.topic.name, partition.index);
    replicas.partition_error(topic, index, "partition_offline", reason);
    code
}

fn report_opening(replicas: &ReplicaManager, partition: &Partition, report: &OpenReport) {
    if report.recovered_segments == 0 && report.notes.is_empty() {
        return;
    }
    let mut fields = vec![
        ("topic", partition.topic.name.to_string()),
        ("partition", partition.index.to_string()),
        ("recovered_segments", report.recovered_segments.to_string()),
        ("scanned_bytes", report.scanned_bytes.to_string()),
        ("truncated_bytes", report.truncated_bytes.to_string()),
        ("converted_segments", report.converted_segments.to_string()),
        ("rebuilt_indexes", report.rebuilt_indexes.to_string()),
    ];
    fields.extend(report.notes.iter().map(|note| ("note", note.clone())));
    let level = if report.truncated_bytes > 0 {
        "warning"
    } else {
        "info"
    };
    replicas.events.notice("log_recovered", level, fields);
}

impl SpaceListener for ReplicaManager {
    fn open_logs(self: Arc<Self>, partitions: Vec<Arc<Partition>>) {
        load_again(&self, partitions);
    }

    fn close_logs(self: Arc<Self>, dir: &LogDirState) {
        stopping::close_again(&self, dir);
    }
}
