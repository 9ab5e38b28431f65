//! A fetch request under way: partitions, readers' results, waiting.

mod at_readers;

use std::sync::Arc;

use pyrklog_log::{Slice, Wait};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::fetch::AbortedTransaction;

use crate::cold_reads::{ColdPart, FIRST_BYTES, Reading, is_resident};
use crate::fetch::convert::{HELD_MAX_BYTES, Left};
use crate::fetch::read::{
    ABORTED_MAX, Amount, PartitionRead, View, bound, read_partition, redirect,
};
use crate::fetch::sessions::{FetchContext, Target};
use crate::services::Services;
use pyrklog_base::ids::{Place, QueueId};
use pyrklog_control::outbox::Outbox;
use pyrklog_replica::fetch_watch::{FetchWatch, WaitingFetch, WatchKey, WatchTerms};
use pyrklog_replica::partition::CONFIRMED_WITHIN_MS;
use pyrklog_storage::log_dir_state::Partition;
use pyrklog_storage::reader_pool::ReaderPool;

/// A fetch request under way.
#[derive(Debug)]
pub struct DelayedFetch {
    /// API version.
    pub api_version: i16,
    /// For the response header.
    pub correlation_id: i32,
    /// The session's part.
    pub context: FetchContext,
    /// Partitions to look at, in the session's order.
    pub parts: Vec<FetchPart>,
    /// Record bytes found.
    pub bytes: usize,
    /// Aborted transactions to be named.
    aborted: usize,
    /// Record bytes available, each partition up to its own limit: compared with `min_bytes`. May
    /// exceed the bytes found, since a batch that does not fit is left for the next fetch.
    available_bytes: usize,
    /// A partition has more in a later segment: do not wait, as in Kafka.
    is_behind: bool,
    /// Broker id of a replica; negative for a consumer.
    replica: i32,
    view: View,
    watch_terms: WatchTerms,
    began_ms: i64,
    deadline_ms: i64,
    /// Number of its wait on the connection.
    wait: u64,
    max_bytes: usize,
    min_bytes: usize,
    /// Answer with what there is.
    pub must_answer: bool,
    /// Nothing is waited for any more.
    is_given_up: bool,
    /// Followers must confirm that this broker leads a partition.
    is_doubtful: bool,
    /// While waiting without a session.
    watch: Option<Arc<FetchWatch>>,
    /// Reads at the readers.
    reading: Option<Reading>,
    /// What readers have not finished, and no reader is at.
    unfinished: Vec<ColdPart>,
    /// Reply memory for large first batches, while readers convert them.
    room_bytes: usize,
    /// A partition has an error or a diverging epoch to report.
    has_event: bool,
    /// Its partitions are in more than one log directory.
    spans_dirs: bool,
}

/// A fetch request's parameters besides its partitions.
#[derive(Clone, Copy, Debug)]
pub struct FetchParams {
    /// API version.
    pub api_version: i16,
    /// For the response header.
    pub correlation_id: i32,
    /// Broker id of a replica; negative for a consumer.
    pub replica: i32,
    /// What it may see of the logs.
    pub view: View,
    /// What it wants to hear of while it waits.
    pub watch_terms: WatchTerms,
    /// How long to wait for `min_bytes`.
    pub max_wait_ms: i64,
    /// Limit of record bytes.
    pub max_bytes: usize,
    /// Record bytes that suffice for an answer.
    pub min_bytes: usize,
    /// Do not wait.
    pub must_answer: bool,
}

/// One partition of a fetch.
#[derive(Debug)]
pub struct FetchPart {
    /// The partition, or the error.
    pub partition: Result<Arc<Partition>, ErrorCode>,
    /// Result of the last read.
    pub read: PartitionRead,
    /// Replica that the consumer is sent to instead.
    preferred_replica: Option<i32>,
    /// The disk is no longer waited for: only resident records count.
    is_given_up: bool,
}

impl FetchPart {
    /// Not read yet.
    pub fn new(
        partition: Result<Arc<Partition>, ErrorCode>,
        preferred_replica: Option<i32>,
    ) -> FetchPart {
        FetchPart {
            partition,
            preferred_replica,
            read: PartitionRead::default(),
            is_given_up: false,
        }
    }

    /// Whether nothing remains to be reported until the partition changes: no records, and no
    /// reason why there are none.
    pub fn is_settled(&self, target: &Target) -> bool {
        let is_at_end = self
            .read
            .bound
            .is_some_and(|end| target.fetch_offset >= end);
        self.partition.is_ok() && is_at_end && !self.read.is_event() && !self.read.is_doubtful
    }
}

fn spans_dirs(parts: &[FetchPart]) -> bool {
    let partitions = parts.iter().filter_map(|part| part.partition.as_ref().ok());
    let mut dirs = partitions.map(|partition| partition.dir().index);
    let first = dirs.next();
    dirs.any(|dir| Some(dir) != first)
}

impl DelayedFetch {
    /// A request that arrived now.
    pub fn new(
        params: FetchParams,
        context: FetchContext,
        parts: Vec<FetchPart>,
        now_ms: i64,
    ) -> Self {
        DelayedFetch {
            api_version: params.api_version,
            correlation_id: params.correlation_id,
            bytes: 0,
            aborted: 0,
            available_bytes: 0,
            is_behind: false,
            replica: params.replica,
            view: params.view,
            watch_terms: params.watch_terms,
            began_ms: now_ms,
            // The clock is truncated to milliseconds: one more guarantees the requested time.
            deadline_ms: now_ms + params.max_wait_ms + 1,
            wait: 0,
            max_bytes: params.max_bytes,
            min_bytes: params.min_bytes,
            must_answer: context.is_empty() || params.max_wait_ms == 0 || params.must_answer,
            is_given_up: false,
            is_doubtful: false,
            watch: None,
            reading: None,
            unfinished: Vec::new(),
            room_bytes: 0,
            has_event: false,
            spans_dirs: context.spans_dirs().unwrap_or_else(|| spans_dirs(&parts)),
            context,
            parts,
        }
    }

    /// When to look at it if nothing happens before.
    pub fn due_ms(&self) -> i64 {
        let reading = self.reading.as_ref();
        reading.map_or(self.deadline_ms, |reading| reading.look_ms)
    }

    /// Whether readers work on it.
    pub fn is_reading(&self) -> bool {
        self.reading.is_some()
    }

    /// Whether its client gets messages of an old format.
    pub fn is_converted(&self) -> bool {
        self.view.converts_to.is_some()
    }

    /// Whether `wait` is its current wait for data.
    pub fn is_waiting(&self, wait: u64) -> bool {
        self.wait == wait
    }

    /// Whether a consumer has waited for records for `wait_ms`.
    pub fn has_waited(&self, wait_ms: i64, now_ms: i64) -> bool {
        self.replica < 0 && self.reading.is_none() && now_ms - self.began_ms >= wait_ms
    }

    /// Whether to answer now.
    pub fn is_due(&self, now_ms: i64, is_draining: bool) -> bool {
        let has_nothing = self.bytes == 0 && !self.has_event;
        if self.is_doubtful && has_nothing && !self.is_given_up {
            return self.deadline_ms <= now_ms || is_draining;
        }
        self.must_answer
            || self.is_behind
            || self.enough_bytes() >= self.min_bytes
            || self.deadline_ms <= now_ms
            || is_draining
    }

    fn enough_bytes(&self) -> usize {
        self.bytes.max(self.available_bytes)
    }

    /// Whether its time is over; with reads under way, whether they are hopeless.
    pub fn is_over(&mut self, readers: &ReaderPool, now_ms: i64) -> bool {
        let has_something = self.bytes > 0 || self.has_event;
        match &mut self.reading {
            None => self.deadline_ms <= now_ms,
            Some(reading) if reading.look_ms > now_ms => false,
            Some(reading) => reading.is_over(readers, now_ms, self.deadline_ms, has_something),
        }
    }

    /// Reads the resident records of all partitions, including those that changed since the request
    /// began, in the session's order and within the request's limits. Returns the reads left to
    /// readers; their space is reserved.
    pub fn read(&mut self, services: &Services, now_ms: i64) -> Vec<(QueueId, ColdPart)> {
        self.take_in_changed();
        let is_throttled = self.replica >= 0 && services.quotas.leader.is_exceeded(now_ms);
        let mut cold = Vec::new();
        let mut reserved = 0;
        (self.bytes, self.available_bytes, self.is_behind) = (0, 0, false);
        self.aborted = 0;
        self.unfinished.clear();
        self.is_doubtful = false;
        for position in 0..self.parts.len() {
            let left = self.max_bytes.saturating_sub(self.bytes + reserved);
            let min_one = self.bytes + reserved == 0;
            if is_throttled && self.holds_back(position, services.config.node_id) {
                self.note(position);
                continue;
            }
            if let Some((queue, part)) =
                self.read_part(position, left, min_one, &services.readers, now_ms)
            {
                reserved += part.reserved_bytes.max(1);
                cold.push((queue, part));
            }
            self.note(position);
        }
        self.must_answer |= self.has_event && cold.is_empty();
        if self.is_doubtful {
            self.deadline_ms = self.deadline_ms.max(self.began_ms + CONFIRMED_WITHIN_MS);
        }
        cold
    }

    fn take_in_changed(&mut self) {
        let (more, must_answer) = self.context.choose_more();
        self.must_answer |= must_answer;
        if more == 0 {
            return;
        }
        for position in self.parts.len()..self.context.partitions() {
            let watched = self.context.watched(position).map(Arc::clone);
            let found = watched.ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
            self.parts.push(FetchPart::new(found, None));
        }
        let mut order: Vec<usize> = (0..self.parts.len()).collect();
        order.sort_unstable_by_key(|position| self.context.rank(*position));
        self.context.reorder(&order);
        let mut parts: Vec<Option<FetchPart>> = self.parts.drain(..).map(Some).collect();
        let in_order = order
            .into_iter()
            .filter_map(|position| parts[position].take());
        self.parts.extend(in_order);
    }

    /// Counts a partition's read.
    fn note(&mut self, position: usize) {
        let read = &self.parts[position].read;
        self.bytes += read.record_bytes();
        self.aborted += read.aborted_count();
        self.is_behind |= read.goes_on;
        self.is_doubtful |= read.is_doubtful;
        let most = usize::try_from(self.context.target(position).max_bytes).unwrap_or(0);
        self.available_bytes += read.available_bytes.min(most);
        self.has_event |= read.is_event()
            || self.watch_terms.notify_high_watermark
                && self.context.target(position).is_news(read.high_watermark);
    }

    /// The replication rate is used up: reads no records of a throttled partition if the replica is
    /// out of sync (KIP-73), and copies.
    fn holds_back(&mut self, position: usize, node_id: i32) -> bool {
        let part = &mut self.parts[position];
        let Ok(partition) = &part.partition else {
            return false;
        };
        if !partition.is_throttled_leading(node_id) {
            return false;
        }
        let state = partition.lock();
        if state.isr.contains(&self.replica) || state.only_follows(self.replica) {
            return false;
        }
        drop(state);
        let view = View {
            marks_only: true,
            ..self.view
        };
        let target = self.context.target(position);
        let nothing = Amount {
            max_bytes: 0,
            min_one: false,
            aborted_max: 0,
        };
        part.read = read_partition(partition, target, view, nothing, Wait::Nowait);
        true
    }

    /// Memory of converted records, also of those that readers are at, and of the names of aborted
    /// transactions.
    pub fn held_bytes(&self) -> usize {
        let to_come = match self.is_reading() && self.is_converted() {
            true => HELD_MAX_BYTES + self.room_bytes,
            false => 0,
        };
        let messages = self
            .parts
            .iter()
            .filter_map(|part| part.read.messages.as_ref());
        let messages_bytes: usize = messages.map(Vec::capacity).sum();
        to_come + messages_bytes + self.aborted * size_of::<AbortedTransaction>()
    }

    /// Counts the bytes for throttled replicas, in sync or not, but not for one that lacks older
    /// records: it copies nothing.
    pub fn count_throttled(&self, services: &Services, now_ms: i64) {
        let quota = &services.quotas.leader;
        if self.replica < 0 || !quota.is_limited() {
            return;
        }
        let node_id = services.config.node_id;
        let counts = |part: &&FetchPart| {
            let partition = part.partition.as_ref();
            partition.is_ok_and(|partition| {
                partition.is_throttled_leading(node_id)
                    && !partition.lock().only_follows(self.replica)
            })
        };
        let counted = self.parts.iter().filter(counts);
        quota.count(counted.map(|part| part.read.record_bytes()).sum(), now_ms);
    }

    /// Reads a partition's resident records; returns the read left to a reader, unless it is given
    /// up.
    fn read_part(
        &mut self,
        position: usize,
        left: usize,
        min_one: bool,
        readers: &ReaderPool,
        now_ms: i64,
    ) -> Option<(QueueId, ColdPart)> {
        let part = &mut self.parts[position];
        let target = self.context.target(position);
        let partition = match &part.partition {
            Ok(partition) => partition,
            Err(error) => {
                part.read = PartitionRead::failed(*error);
                return None;
            }
        };
        let max_bytes = usize::try_from(target.max_bytes).unwrap_or(0).min(left);
        let view = self.view;
        if let Some(replica) = part.preferred_replica {
            part.read = redirect(partition, target, view, replica);
            return None;
        }
        let amount = Amount {
            max_bytes,
            min_one,
            aborted_max: ABORTED_MAX.saturating_sub(self.aborted),
        };
        part.read = read_partition(partition, target, view, amount, Wait::Nowait);
        if !part.read.is_cold && part.read.slice.is_none() {
            return None;
        }
        let dir = partition.dir().index;
        self.context.note_dir(dir);
        self.spans_dirs |= self.context.spans_dirs() == Some(true);
        let queue = readers.for_fetch(dir, &partition.topic.name);
        // Non-resident bytes may still be read while they are sent, and a started reply hangs as a
        // whole. Have all bytes read first if that would hold up other directories' records, or if
        // the disk is stuck.
        let may_hang = self.spans_dirs || readers.queue(queue).is_stuck(now_ms);
        let load_bytes = if may_hang { usize::MAX } else { FIRST_BYTES };
        let slice = part.read.slice.as_ref();
        let is_converted = view.converts_to.is_some();
        if !is_converted && slice.is_some_and(|slice| is_resident(slice, load_bytes)) {
            return None;
        }
        let reserved_bytes = slice.map_or(max_bytes, Slice::len);
        part.read.give_up_records();
        part.is_given_up &= self.must_answer;
        if part.is_given_up || !readers.queue(queue).accepts(now_ms) {
            part.is_given_up = true;
            return None;
        }
        let cold = ColdPart {
            position,
            partition: Arc::clone(partition),
            target: self.context.target(position).clone(),
            max_bytes,
            reserved_bytes,
            min_one,
            load_bytes,
            read: PartitionRead::default(),
            left: Left::Nothing,
            room_bytes: 0,
        };
        Some((queue, cold))
    }

    /// Asks followers to confirm this leader, for each doubtful partition.
    pub fn ask_followers(&self, outbox: &mut Outbox) {
        let doubtful = self.parts.iter().filter(|part| part.read.is_doubtful);
        for partition in doubtful.filter_map(|part| part.partition.as_ref().ok()) {
            let asked_ms = self.view.asked_ms;
            partition.lock().ask_followers(asked_ms, outbox);
        }
    }

    /// Stops waiting for anything.
    pub fn give_up(&mut self) {
        self.must_answer = true;
        self.is_given_up = true;
        self.unfinished.clear();
        if self.reading.take().is_some() {
            for part in &mut self.parts {
                part.is_given_up |= part.read.is_cold || part.read.record_bytes() == 0;
            }
        }
    }

    /// Begins wait number `wait` of the connection at `place`; false if a partition changed since
    /// it was read.
    pub fn begin_wait(&mut self, place: Place, wait: u64) -> bool {
        self.wait = wait;
        let missing_bytes = self.min_bytes.saturating_sub(self.enough_bytes());
        let waiting = WaitingFetch {
            place,
            wait,
            missing_bytes: i64::try_from(missing_bytes).unwrap_or(i64::MAX),
        };
        match self.context.session_watch() {
            Some(watch) => !self.is_doubt_over() && watch.begin_wait(waiting),
            None => self.leave_watchers(waiting),
        }
    }

    /// Whether a partition that was doubtful when read no longer is.
    fn is_doubt_over(&self) -> bool {
        let mut doubtful = self.parts.iter().filter(|part| part.read.is_doubtful);
        doubtful.any(|part| {
            let partition = part.partition.as_ref();
            partition.is_ok_and(|partition| partition.lock().is_confirmed(self.view.asked_ms))
        })
    }

    /// Without a session: watches each partition. False, and none is watched, if one changed since
    /// it was read.
    fn leave_watchers(&mut self, waiting: WaitingFetch) -> bool {
        let watch = FetchWatch::new(WatchKey::Fetch(waiting.place.token), self.watch_terms);
        let watch = Arc::new(watch);
        watch.begin_wait(waiting);
        for (position, part) in (0..).zip(&self.parts) {
            let Ok(partition) = &part.partition else {
                continue;
            };
            let mut state = partition.lock();
            let has_moved = self.watch_terms.notify_high_watermark
                && part.read.high_watermark != state.high_watermark()
                || part.read.is_doubtful && state.is_confirmed(self.view.asked_ms);
            if has_moved || part.read.bound != bound(&mut state, self.view) {
                drop(state);
                for part in &self.parts[..position as usize] {
                    stop_watching(part, watch.key());
                }
                return false;
            }
            state.add_fetch_watcher(&watch, position);
        }
        self.watch = Some(watch);
        true
    }

    /// Ends the wait.
    pub fn end_wait(&mut self) {
        if let Some(watch) = self.context.session_watch() {
            watch.end_wait();
        }
        if let Some(watch) = self.watch.take() {
            for part in &self.parts {
                stop_watching(part, watch.key());
            }
        }
    }
}

fn stop_watching(part: &FetchPart, key: WatchKey) {
    if let Ok(partition) = &part.partition {
        partition.lock().remove_fetch_watcher(key);
    }
}
