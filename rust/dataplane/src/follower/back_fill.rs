//! Fetches what partial replicas lack from one other broker, segment after segment, the newest first
//! (`expansion.md`, section 6). No thread, no socket: the owner of the connection asks what this
//! wants and brings the answers here.
//!
//! All segments of a compacted log come from one log, and no cleaning of it comes between a segment's
//! records: the source is asked about the segment once more at its end.
//!
//! A segment's records are written while they arrive. Its end has to wait for a disk: the log loader
//! completes it and makes it the log's first one, then gives the partition back for the next one.

mod aborted;
mod joining;
mod planning;

use std::collections::VecDeque;
use std::sync::Arc;

use pyrklog_log::{AbortedTxn, Fill, FillError, Log};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;
use pyrklog_wire::fetch::{
    BACK_FILL_EPOCH, FetchPartition, FetchRequestToWrite, FetchResponse, FetchTopicToWrite,
};
use pyrklog_wire::replica_segments::{
    ReplicaSegmentsRequest, ReplicaSegmentsResponse, SegmentOrigin,
};

use self::joining::{begin_anew_at_last, complete, note_failed, note_failure};
use self::planning::{Planned, plan};
use crate::follower::fetch_state::FETCH_VERSION;
use crate::follower::fetcher_queue::Fetchers;
use crate::follower::following::FULL_LOOK_MS;
use crate::follower::link::LinkError;
use pyrklog_base::clock::mono_ms;
use pyrklog_base::ids::DEBUGGING_REPLICA_ID;
use pyrklog_base::injected_faults::{Fault, is_injected};
use pyrklog_control::image::Image;
use pyrklog_control::seam::ClusterConfig;
use pyrklog_replica::partition::PartitionState;
use pyrklog_requests::services::Services;
use pyrklog_storage::log_dir_state::{LogDirState, Partition};
use pyrklog_storage::log_loader::Command;

/// Of the first brokers that have it.
const SEGMENTS_VERSION: i16 = 0;
/// Pause before it is looked again what can be asked for.
const LOOK_MS: i64 = 100;
/// Pause after a source has failed.
const FAILED_MS: i64 = 500;
/// How often a source that cannot answer yet is asked again.
const WAITS_MAX: u32 = 5;
/// Failures after which each further one doubles the pause.
const FAILED_SOON: u32 = 3;
/// At most about eight minutes.
const FAILED_DOUBLINGS_MAX: u32 = 10;

/// What a source is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FillQuestion {
    /// Which records it has below this offset.
    Segment(i64),
    /// Aborted transactions of the segment below this offset, of which so many are known.
    Aborted(i64, usize),
    /// The records from this offset on.
    Records(i64),
    /// Whether the segment below this offset is the one that was read.
    Same(i64),
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FillTurn {
    /// To ask about the first partition.
    Ask(FillQuestion),
    /// Nothing before this time (monotonic milliseconds).
    Later(i64),
    /// Nothing is back-filled from this broker any more.
    Idle,
}

#[derive(Debug)]
struct Task {
    partition: Arc<Partition>,
    leader_epoch: i32,
    /// Not looked at until then (monotonic milliseconds).
    until_ms: i64,
    /// How often in a row the source could not answer yet.
    waits: u32,
    segment: Option<Incoming>,
}

/// A segment that arrives.
#[derive(Debug)]
struct Incoming {
    fill: Fill,
    aborted: Vec<AbortedTxn>,
    has_all_aborted: bool,
    /// Time of the source's newest record in it.
    newest_ms: i64,
    /// Bytes of the source's segment that have not come yet.
    left_bytes: u64,
    /// Of a compacted log: the source's segment.
    origin: Option<SegmentOrigin>,
}

/// The partitions that are back-filled from one broker, in turns of a segment.
#[derive(Debug)]
pub struct BackFill {
    services: Arc<Services>,
    fetchers: Arc<dyn Fetchers>,
    source: i32,
    tasks: VecDeque<Task>,
}

impl FillQuestion {
    /// API key and version.
    pub fn api(self) -> (i16, i16) {
        match self {
            FillQuestion::Segment(_) | FillQuestion::Aborted(..) | FillQuestion::Same(_) => {
                (key::REPLICA_SEGMENTS, SEGMENTS_VERSION)
            }
            FillQuestion::Records(_) => (key::FETCH, FETCH_VERSION),
        }
    }
}

/// The broker that a partition is back-filled from: an in-sync replica that does not lead, in the
/// own rack first, then the leader; the next one each time that one has failed. Before them comes the
/// one that joined segments of a compacted log are from.
pub fn source_of(
    state: &PartitionState,
    image: &Image,
    listener: &str,
    node_id: i32,
    number: usize,
) -> Option<i32> {
    let leader = state.leader_to_follow.filter(|leader| *leader >= 0)?;
    let rack_of = |broker| {
        let endpoint = image.endpoint(broker, listener);
        endpoint.and_then(|endpoint| endpoint.rack.map(str::to_owned))
    };
    let own_rack = rack_of(node_id);
    // Others may have what was cut elsewhere: a planted bug asks them, too.
    let mut others: Vec<i32> = match is_injected(Fault::FillTruncatedEpoch) {
        true => state.replicas.clone(),
        false => state.isr.clone(),
    };
    others.retain(|broker| *broker != node_id && *broker != leader);
    others.sort_unstable();
    // Partitions with the same replicas are spread over them.
    let count = others.len().max(1);
    others.rotate_left(number % count);
    others.sort_by_key(|broker| own_rack.is_none() || rack_of(*broker) != own_rack);
    others.push(leader);
    let origin = state.log.as_ref().and_then(Log::fill_origin);
    others.sort_by_key(|broker| origin.is_none_or(|origin| origin.broker != *broker));
    Some(others[state.failed_sources % others.len()])
}

/// Whether a whole segment would leave what a directory keeps for those who write to it.
fn has_space(dir: &LogDirState, partition: &Partition) -> bool {
    let state = partition.lock();
    let segment_bytes = state
        .log
        .as_ref()
        .map_or(0, |log| log.config().segment_bytes);
    drop(state);
    let needed = dir.reserve_bytes + u64::from(segment_bytes);
    dir.files
        .space()
        .is_ok_and(|space| space.usable_bytes >= needed)
}

/// How long a back-fill waits after so many failures. Each source is soon asked once; what all of
/// them refuse is seldom tried again, since it takes from the rate of the others.
fn pause_ms(failed_fills: u32) -> Option<i64> {
    let doublings = failed_fills.checked_sub(1)?.saturating_sub(FAILED_SOON);
    Some(FAILED_MS << doublings.min(FAILED_DOUBLINGS_MAX))
}

impl BackFill {
    /// Nothing from this broker yet.
    pub fn new(services: Arc<Services>, fetchers: Arc<dyn Fetchers>, source: i32) -> BackFill {
        BackFill {
            services,
            fetchers,
            source,
            tasks: VecDeque::new(),
        }
    }

    /// Back-fills these, too.
    pub fn add(&mut self, partitions: Vec<Arc<Partition>>) {
        for partition in partitions {
            let (leader_epoch, failed_fills) = {
                let state = partition.lock();
                (state.leader_epoch, state.failed_fills)
            };
            let is_same = |task: &Task| Arc::ptr_eq(&task.partition, &partition);
            if let Some(at) = self.tasks.iter().position(is_same) {
                // It may be of an earlier leader epoch.
                discard(self.tasks.remove(at));
            }
            self.tasks.push_back(Task {
                partition,
                leader_epoch,
                until_ms: pause_ms(failed_fills).map_or(0, |pause_ms| mono_ms() + pause_ms),
                waits: 0,
                segment: None,
            });
        }
    }

    /// What to do now. Lets go of partitions that need nothing any more.
    pub fn next(&mut self) -> FillTurn {
        let now_ms = mono_ms();
        let quota = &self.services.quotas.back_fill;
        let mut due_ms = now_ms + LOOK_MS;
        for _ in 0..self.tasks.len() {
            match self.tasks[0].wants() {
                Wants::Nothing => {
                    discard(self.tasks.pop_front());
                    continue;
                }
                Wants::Later => {}
                Wants::Asks(question) if self.tasks[0].until_ms <= now_ms => {
                    if quota.is_exceeded(now_ms) {
                        return FillTurn::Later(quota.look_ms(now_ms));
                    }
                    let dir = self.tasks[0].partition.dir().clone();
                    let is_free = !dir.is_read_only() && has_space(&dir, &self.tasks[0].partition);
                    if is_free && !dir.has_twice_too_much_unwritten() {
                        return FillTurn::Ask(question);
                    }
                    due_ms = due_ms.min(now_ms + FULL_LOOK_MS);
                }
                Wants::Asks(_) => due_ms = due_ms.min(self.tasks[0].until_ms),
            }
            // Each partition has its turn.
            self.tasks.rotate_left(1);
        }
        match self.tasks.is_empty() {
            true => FillTurn::Idle,
            false => FillTurn::Later(due_ms),
        }
    }

    /// Appends the body of a question about the first partition.
    pub fn encode(&self, cluster: &ClusterConfig, question: FillQuestion, out: &mut Vec<u8>) {
        let Some(task) = self.tasks.front() else {
            return;
        };
        let (topic, index) = (&task.partition.topic, task.partition.index);
        let leader_epoch = match is_injected(Fault::FillTruncatedEpoch) {
            true => -1,
            false => task.leader_epoch,
        };
        match question {
            FillQuestion::Segment(end_offset)
            | FillQuestion::Aborted(end_offset, _)
            | FillQuestion::Same(end_offset) => {
                ReplicaSegmentsRequest {
                    replica_id: self.services.config.node_id,
                    topic: &topic.name,
                    topic_id: topic.id,
                    partition: index,
                    current_leader_epoch: leader_epoch,
                    end_offset,
                    aborted_known: question.aborted_known(),
                }
                .encode(out, SEGMENTS_VERSION);
            }
            FillQuestion::Records(fetch_offset) => {
                let max_bytes = task.piece_bytes(cluster.fetch_max_bytes);
                let partitions = [FetchPartition {
                    index,
                    current_leader_epoch: leader_epoch,
                    fetch_offset,
                    last_fetched_epoch: -1,
                    log_start_offset: -1,
                    max_bytes,
                    directory_id: [0; 16],
                }];
                // As a consumer does: no replica counts it, and only committed records come.
                FetchRequestToWrite {
                    replica_id: match is_injected(Fault::FillTruncatedEpoch) {
                        true => DEBUGGING_REPLICA_ID,
                        false => -1,
                    },
                    replica_epoch: BACK_FILL_EPOCH,
                    max_wait_ms: 0,
                    max_bytes,
                    topics: &[FetchTopicToWrite {
                        name: "",
                        id: topic.id,
                        partitions: &partitions,
                    }],
                    ..FetchRequestToWrite::default()
                }
                .encode(out, FETCH_VERSION);
            }
        }
    }

    /// Takes the body of the answer to a question about the first partition.
    ///
    /// # Errors
    /// Bytes that are no answer: the connection is useless.
    pub fn take_answer(&mut self, question: FillQuestion, body: &[u8]) -> Result<(), LinkError> {
        self.services.quotas.back_fill.count(body.len(), mono_ms());
        match question {
            FillQuestion::Segment(end) => {
                let response = ReplicaSegmentsResponse::decode(body, SEGMENTS_VERSION)?;
                self.begin(end, &response);
            }
            FillQuestion::Aborted(end, known) => {
                let response = ReplicaSegmentsResponse::decode(body, SEGMENTS_VERSION)?;
                self.take_aborted((end, known), &response);
            }
            FillQuestion::Same(end) => {
                let response = ReplicaSegmentsResponse::decode(body, SEGMENTS_VERSION)?;
                self.confirm(end, &response);
            }
            FillQuestion::Records(offset) => {
                let response = FetchResponse::decode(body, FETCH_VERSION)?;
                let error = response.head.error_code;
                let answered = response.topics.first().and_then(|t| t.partitions.first());
                match answered.map(|one| (one.head.error_code, one.records)) {
                    _ if error != ErrorCode::NONE => self.refused(error),
                    Some((ErrorCode::NONE, records)) => {
                        self.receive(offset, records.unwrap_or_default());
                    }
                    Some((error, _)) => self.refused(error),
                    None => self.refused(ErrorCode::UNKNOWN_SERVER_ERROR),
                }
            }
        }
        Ok(())
    }

    /// The source cannot be asked now: its partitions look for others.
    pub fn fail_all(&mut self) {
        while let Some(task) = self.tasks.pop_front() {
            self.leave_to_others(task);
        }
    }

    fn begin(&mut self, end: i64, response: &ReplicaSegmentsResponse) {
        if response.error_code != ErrorCode::NONE {
            return self.refused(response.error_code);
        }
        let Some(task) = self.tasks.front_mut() else {
            return;
        };
        task.waits = 0;
        let source = self.source;
        let found = {
            let state = task.partition.lock();
            let is_asked = state.back_fill_end() == Some(end);
            // What lies below was deleted on the leader.
            let begin = response.begin_offset.max(state.leader_log_start);
            let log = state.log.as_ref().filter(|_| is_asked);
            log.map_or(Planned::Not, |log| {
                plan(log, begin, source, response.origin)
            })
        };
        let (plan, origin) = match found {
            Planned::Fill(plan, origin) => (plan, origin),
            Planned::Not => {
                task.until_ms = mono_ms() + FAILED_MS;
                return;
            }
            Planned::OfAnotherLog { is_told } => return self.is_of_another_log(is_told),
        };
        #[cfg(feature = "sim")]
        let plan = with_injected_faults(plan);
        let mut segment = Incoming {
            fill: plan.open(),
            aborted: Vec::new(),
            has_all_aborted: false,
            newest_ms: response.newest_ms,
            left_bytes: u64::try_from(response.size_bytes).unwrap_or(0),
            origin,
        };
        segment.add_aborted(&response.aborted);
        task.segment = Some(segment);
    }

    /// The segments that were joined do not go with what this source has, as far as it tells.
    fn is_of_another_log(&mut self, is_told: bool) {
        let Some(task) = self.tasks.pop_front() else {
            return;
        };
        if is_told {
            begin_anew_at_last(&self.services.logs, &task.partition, self.source);
        }
        self.leave_to_others(task);
    }

    /// A cleaning may have removed tombstones whose older values were read before.
    fn confirm(&mut self, end: i64, response: &ReplicaSegmentsResponse) {
        if response.error_code != ErrorCode::NONE {
            return self.refused(response.error_code);
        }
        let Some(task) = self.tasks.front_mut() else {
            return;
        };
        task.waits = 0;
        let is_asked = task.partition.lock().back_fill_end() == Some(end);
        let read = task.segment.as_ref().and_then(|segment| segment.origin);
        let is_same = read.is_some_and(|read| read.is_segment_of(response.origin));
        if is_asked && is_same {
            return self.complete();
        }
        discard_segment(task.segment.take());
        let failed_fills = {
            let mut state = task.partition.lock();
            state.failed_fills = state.failed_fills.saturating_add(1);
            state.failed_fills
        };
        task.until_ms = mono_ms() + pause_ms(failed_fills).unwrap_or(FAILED_MS);
    }

    fn receive(&mut self, offset: i64, records: &[u8]) {
        let Some(task) = self.tasks.front_mut() else {
            return;
        };
        let Some(segment) = &mut task.segment else {
            return;
        };
        if segment.fill.next_offset() != offset {
            return;
        }
        segment.left_bytes = segment.left_bytes.saturating_sub(records.len() as u64);
        match segment.fill.add(records) {
            Err(error) => return self.failed(&error),
            // Where the rest was left out, it has to have a record behind the end.
            Ok(()) if records.is_empty() && segment.origin.is_some() => {
                return self.refused(ErrorCode::OFFSET_NOT_AVAILABLE);
            }
            Ok(()) if segment.fill.next_offset() == offset => {
                return self.failed(&FillError::Unfit(format!("nothing comes at {offset}")));
            }
            Ok(()) => task.waits = 0,
        }
        if segment.fill.is_complete() && segment.origin.is_none() {
            self.complete();
        }
    }

    /// The first partition's segment is there.
    fn complete(&mut self) {
        if let Some(Task {
            partition,
            leader_epoch,
            segment: Some(segment),
            ..
        }) = self.tasks.pop_front()
        {
            let source = self.source;
            let fetchers = Arc::clone(&self.fetchers);
            let logs = &self.services.logs;
            let command = Command::about(partition, logs, move |logs, partition| {
                complete(logs, partition, leader_epoch, segment, source);
                fetchers.fill(partition);
            });
            logs.loader.submit([command]);
        }
    }

    fn failed(&mut self, error: &FillError) {
        let Some(task) = self.tasks.pop_front() else {
            return;
        };
        // Where the log has gone, its files are not there to be written.
        if task.fills_its_log() {
            note_failure(&self.services.logs, &task.partition, self.source, error);
        }
        self.leave_to_others(task);
    }

    fn refused(&mut self, error: ErrorCode) {
        let Some(mut task) = self.tasks.pop_front() else {
            return;
        };
        // It reads from its files what it has to tell, or does not know yet what is committed.
        if error == ErrorCode::OFFSET_NOT_AVAILABLE && task.waits < WAITS_MAX {
            task.waits += 1;
            task.until_ms = mono_ms() + LOOK_MS;
            return self.tasks.push_back(task);
        }
        // With a newer leader the partition comes again.
        if error == ErrorCode::FENCED_LEADER_EPOCH {
            return discard(Some(task));
        }
        self.leave_to_others(task);
    }

    fn leave_to_others(&self, mut task: Task) {
        let partition = Arc::clone(&task.partition);
        discard_segment(task.segment.take());
        note_failed(&partition);
        Arc::clone(&self.fetchers).fill(&partition);
    }
}

#[cfg(feature = "sim")]
fn with_injected_faults(plan: pyrklog_log::FillPlan) -> pyrklog_log::FillPlan {
    plan.with_faults(pyrklog_log::InjectedFaults {
        takes_any_epoch: is_injected(Fault::FillTruncatedEpoch),
        leaves_gap: is_injected(Fault::FillLeavesGap),
    })
}

enum Wants {
    Nothing,
    Later,
    Asks(FillQuestion),
}

impl Task {
    fn wants(&mut self) -> Wants {
        self.let_go_of_stale();
        let mut state = self.partition.lock();
        let leader_log_start = state.leader_log_start;
        let is_of_epoch = state.leader_epoch == self.leader_epoch;
        let is_asked = state.back_fill_end().is_some();
        let log = state.log.as_mut().filter(|log| log.is_partial());
        let Some(log) = log.filter(|_| is_of_epoch) else {
            return Wants::Nothing;
        };
        if leader_log_start >= 0 && log.log_start_offset() <= leader_log_start {
            return Wants::Nothing;
        }
        if is_asked && self.segment.is_none() && log.take_back(leader_log_start) {
            self.partition.unlock_and_write_all(state);
            return Wants::Later;
        }
        match (state.back_fill_end(), &self.segment) {
            (None, _) => Wants::Later,
            (Some(end), Some(segment)) if !segment.has_all_aborted => {
                Wants::Asks(FillQuestion::Aborted(end, segment.aborted.len()))
            }
            (Some(end), Some(segment)) if segment.fill.is_complete() => {
                Wants::Asks(FillQuestion::Same(end))
            }
            (Some(_), Some(segment)) => {
                Wants::Asks(FillQuestion::Records(segment.fill.next_offset()))
            }
            (Some(end), None) => Wants::Asks(FillQuestion::Segment(end)),
        }
    }
}

impl Task {
    /// How much of the segment is asked for. What lies behind it is here already; only where the rest
    /// of it was left out, its first batch tells that.
    fn piece_bytes(&self, bytes_max: i32) -> i32 {
        let Some(segment) = &self.segment else {
            return bytes_max;
        };
        match i32::try_from(segment.left_bytes) {
            Ok(0) if segment.origin.is_some() => 1,
            Ok(left @ 1..) => left.min(bytes_max),
            _ => bytes_max,
        }
    }

    /// The log began anew, or moved: the segment's files are not where it is any more.
    fn let_go_of_stale(&mut self) {
        if !self.fills_its_log() {
            discard_segment(self.segment.take());
        }
    }

    fn fills_its_log(&self) -> bool {
        let state = self.partition.lock();
        let segment = self.segment.as_ref();
        segment.is_none_or(|one| state.log.as_ref().is_some_and(|log| one.fill.is_of(log)))
    }
}

fn discard(task: Option<Task>) {
    discard_segment(task.and_then(|task| task.segment));
}

/// What cannot be removed is removed by the next start.
fn discard_segment(segment: Option<Incoming>) {
    if let Some(segment) = segment {
        let _removed = segment.fill.discard();
    }
}
