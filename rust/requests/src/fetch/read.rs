//! One partition's part of a fetch: checks, then bytes.

use pyrklog_log::{
    AbortedSearch, AbortedStep, Compression, Isolation, Location, Log, ReadError, Slice, Wait,
};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::fetch::{AbortedTransaction, EpochEndOffset};

use crate::fetch::sessions::Target;
use pyrklog_base::injected_faults::{Fault, is_injected};
use pyrklog_replica::partition::PartitionState;
use pyrklog_storage::log_dir_state::Partition;

/// Aborted transactions that are named in one answer, of all partitions together; beyond it
/// partitions are read in part, or in a later fetch. A first batch is read with all of its own, at
/// most one of each producer.
pub const ABORTED_MAX: usize = 65_536;

/// How much to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    /// Limit of record bytes.
    pub max_bytes: usize,
    /// A first batch is read whole.
    pub min_one: bool,
    /// Limit of aborted transactions to be named.
    pub aborted_max: usize,
}

/// What a fetch may see of the logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// How far it may see.
    pub isolation: Isolation,
    /// Only the leader may answer: replicas, and consumers before KIP-392.
    pub of_leader_only: bool,
    /// From version 10 (KIP-110). Older consumers get an error for topics stored as zstd.
    pub understands_zstd: bool,
    /// The format of messages that the client understands instead of record batches (up to version
    /// 3): readers convert.
    pub converts_to: Option<i8>,
    /// Everything but records.
    pub marks_only: bool,
    /// Somebody reads, and no replica or back-fill.
    pub is_of_consumer: bool,
    /// When the request arrived, monotonic milliseconds.
    pub asked_ms: i64,
}

/// Result of reading one partition.
#[derive(Debug)]
pub struct PartitionRead {
    /// Error; the rest is then empty.
    pub error: ErrorCode,
    /// High watermark, -1 with an error.
    pub high_watermark: i64,
    /// Last stable offset, -1 with an error.
    pub last_stable_offset: i64,
    /// Log start offset, -1 with an error.
    pub log_start_offset: i64,
    /// The records.
    pub slice: Option<Slice>,
    /// The records as messages of an old format, instead of a slice.
    pub messages: Option<Vec<u8>>,
    /// Bytes available from there on in the segment, whatever the fetch's limits.
    pub available_bytes: usize,
    /// Later segments have more.
    pub goes_on: bool,
    /// read_committed: aborted transactions that the records touch.
    pub aborted: Option<Vec<AbortedTransaction>>,
    /// Preferred read replica (KIP-392), instead of records; -1 none.
    pub preferred_replica: i32,
    /// Where the client's log diverges (KIP-595).
    pub diverging: Option<EpochEndOffset>,
    /// How far it could see; `None` if the partition did not serve.
    pub bound: Option<i64>,
    /// There are records that only a read that waits for the disk finds.
    pub is_cold: bool,
    /// The offset is beyond the log end, and no recent confirmation says that this broker leads:
    /// treated as if nothing were there yet.
    pub is_doubtful: bool,
}

impl Default for PartitionRead {
    fn default() -> PartitionRead {
        PartitionRead::failed(ErrorCode::NONE)
    }
}

impl PartitionRead {
    /// An error.
    pub fn failed(error: ErrorCode) -> PartitionRead {
        PartitionRead {
            error,
            high_watermark: -1,
            last_stable_offset: -1,
            log_start_offset: -1,
            slice: None,
            messages: None,
            available_bytes: 0,
            goes_on: false,
            aborted: None,
            preferred_replica: -1,
            diverging: None,
            bound: None,
            is_cold: false,
            is_doubtful: false,
        }
    }

    /// Whether there is something to report besides records.
    pub fn is_event(&self) -> bool {
        self.error != ErrorCode::NONE || self.diverging.is_some() || self.preferred_replica >= 0
    }

    /// Drops records that are not waited for.
    pub fn give_up_records(&mut self) {
        self.slice = None;
        self.messages = None;
        self.available_bytes = 0;
        self.goes_on = false;
        self.aborted = self.aborted.is_some().then(Vec::new);
    }

    /// Aborted transactions to be named.
    pub fn aborted_count(&self) -> usize {
        self.aborted.as_ref().map_or(0, Vec::len)
    }

    /// Record bytes.
    pub fn record_bytes(&self) -> usize {
        match &self.messages {
            Some(messages) => messages.len(),
            None => self.slice.as_ref().map_or(0, Slice::len),
        }
    }
}

/// How far a reader may see; `None` if the partition does not serve.
pub fn bound(state: &mut PartitionState, view: View) -> Option<i64> {
    let log = state.shown(view.of_leader_only).ok()?;
    Some(match view.isolation {
        Isolation::DurableEnd => log.durable_end_offset(),
        Isolation::HighWatermark => log.high_watermark(),
        Isolation::Committed => log.last_stable_offset(),
    })
}

/// Reads at `target`. A read that must not wait may be cold: it has what is known without the disk.
pub fn read_partition(
    partition: &Partition,
    target: &Target,
    view: View,
    amount: Amount,
    wait: Wait,
) -> PartitionRead {
    let mut changed = false;
    for _ in 0..2 {
        let found = read_once(partition, target, view, amount, wait);
        match found {
            Ok(Some(read)) => return read,
            Ok(None) => changed = true,
            // Retention may remove the segment after it was found: retry.
            Err(ReadError::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(ReadError::OffsetOutOfRange { .. }) => {
                return PartitionRead::failed(ErrorCode::OFFSET_OUT_OF_RANGE);
            }
            Err(_) => return PartitionRead::failed(ErrorCode::KAFKA_STORAGE_ERROR),
        }
    }
    PartitionRead::failed(match changed {
        true => ErrorCode::NOT_LEADER_OR_FOLLOWER,
        false => ErrorCode::KAFKA_STORAGE_ERROR,
    })
}

/// Newest known epoch at or below `epoch`, and its end offset; (-1, -1) if unknown.
pub fn end_of_epoch(log: &Log, epoch: i32) -> (i32, i64) {
    let (known, end_offset) = log.end_offset_for_epoch(epoch);
    if is_injected(Fault::AnswerForUnknownEpoch) && end_offset >= 0 {
        return (epoch, end_offset);
    }
    (known, end_offset)
}

/// `None`: the log changed meanwhile, and the records cannot be shown.
fn read_once(
    partition: &Partition,
    target: &Target,
    view: View,
    amount: Amount,
    wait: Wait,
) -> Result<Option<PartitionRead>, ReadError> {
    let mut state = partition.lock();
    let mut read = begin(&mut state, target, view);
    if read.error != ErrorCode::NONE {
        return Ok(Some(read));
    }
    if let Some(error) = refused_format(partition, view) {
        return Ok(Some(PartitionRead::failed(error)));
    }
    let is_led = state.leader_to_follow.is_none();
    if let Err(beyond) = look_beyond(&state, target, view) {
        return Ok(Some(beyond.answer(read)));
    }
    let log = match state.shown(view.of_leader_only) {
        Ok(log) => log,
        Err(error) => return Ok(Some(PartitionRead::failed(error))),
    };
    // A follower that has less than the consumer does not show that its leader does.
    let may_diverge = is_led || target.fetch_offset <= log.log_end_offset();
    if target.last_fetched_epoch >= 0 && may_diverge {
        let (epoch, end_offset) = end_of_epoch(log, target.last_fetched_epoch);
        if end_offset < 0 {
            return Ok(Some(PartitionRead::failed(ErrorCode::OFFSET_OUT_OF_RANGE)));
        }
        if epoch < target.last_fetched_epoch || end_offset < target.fetch_offset {
            read.diverging = Some(EpochEndOffset { epoch, end_offset });
            if !is_injected(Fault::AppendDiverging) {
                return Ok(Some(read));
            }
        }
    }
    let isolation = view.isolation;
    let location = log.locate(target.fetch_offset, isolation)?;
    drop(state);
    if view.marks_only {
        return Ok(Some(read));
    }
    let found = match isolation {
        Isolation::Committed => read_committed(partition, view, &location, amount, wait),
        _ => location
            .resolve(amount.max_bytes, amount.min_one, wait)
            .map(|slice| Committed::Slice(slice, Vec::new())),
    };
    let slice = match found {
        Err(ReadError::WouldBlock) if wait == Wait::Nowait => {
            read.is_cold = true;
            return Ok(Some(read));
        }
        Err(error) => return Err(error),
        Ok(Committed::Changed) => return Ok(None),
        Ok(Committed::NotShown(error)) => return Ok(Some(PartitionRead::failed(error))),
        Ok(Committed::Slice(slice, aborted)) => {
            read.aborted = (isolation == Isolation::Committed).then_some(aborted);
            slice
        }
    };
    read.available_bytes = slice.available_bytes();
    read.goes_on = slice.goes_on();
    read.slice = Some(slice).filter(|slice| !slice.is_empty());
    Ok(Some(read))
}

/// Records with the aborted transactions that touch them.
enum Committed {
    Slice(Slice, Vec<AbortedTransaction>),
    /// The log changed meanwhile: it is no longer known which of the records were aborted.
    Changed,
    NotShown(ErrorCode),
}

/// Reads less if too many transactions would have to be named.
fn read_committed(
    partition: &Partition,
    view: View,
    location: &Location,
    amount: Amount,
    wait: Wait,
) -> Result<Committed, ReadError> {
    let (mut max_bytes, mut most) = (amount.max_bytes, amount.aborted_max);
    loop {
        let slice = location.resolve(max_bytes, amount.min_one, wait)?;
        if slice.is_empty() {
            return Ok(Committed::Slice(slice, Vec::new()));
        }
        let mut search = AbortedSearch::new(most);
        let aborted = loop {
            // The read may have taken long.
            let mut state = partition.lock();
            let log = match state.shown(view.of_leader_only) {
                Ok(log) => log,
                Err(error) => return Ok(Committed::NotShown(error)),
            };
            let step = log.find_aborted(&slice, &search);
            drop(state);
            match step {
                AbortedStep::Found(aborted) => break aborted,
                AbortedStep::Read(file) => search.read(&file, wait)?,
                AbortedStep::Changed => return Ok(Committed::Changed),
            }
        };
        if aborted.len() <= most {
            let aborted = aborted.into_iter().map(aborted_transaction).collect();
            return Ok(Committed::Slice(slice, aborted));
        }
        match slice.len() > max_bytes || max_bytes <= 1 {
            // It is one batch.
            true => most = usize::MAX,
            false => max_bytes = (slice.len() / 2).max(1),
        }
    }
}

/// Why a client cannot get the topic's records in its version.
fn refused_format(partition: &Partition, view: View) -> Option<ErrorCode> {
    if view.understands_zstd {
        return None;
    }
    let settings = partition.topic.settings();
    if settings.log.compression_type == Some(Compression::Zstd) {
        return Some(ErrorCode::UNSUPPORTED_COMPRESSION_TYPE);
    }
    let is_refused = view.converts_to.is_some() && !settings.log.message_downconversion_enable;
    is_refused.then_some(ErrorCode::UNSUPPORTED_VERSION)
}

/// Why an offset outside of the log cannot be judged.
enum Beyond {
    /// Another broker may lead by now.
    Doubtful,
    /// It is beyond a follower's end, and the consumer may take this broker for the leader.
    NotHere,
    /// It is below a partial replica's log, and the leader may have it.
    Lacking,
}

impl Beyond {
    fn answer(self, read: PartitionRead) -> PartitionRead {
        match self {
            Beyond::Doubtful => PartitionRead {
                is_doubtful: true,
                ..read
            },
            Beyond::NotHere => PartitionRead::failed(ErrorCode::NOT_LEADER_OR_FOLLOWER),
            // Clients ask the leader, and keep their offsets.
            Beyond::Lacking => PartitionRead::failed(ErrorCode::OFFSET_NOT_AVAILABLE),
        }
    }
}

/// Kafka answers OFFSET_OUT_OF_RANGE here, and clients then reset their offsets. Consumers of a
/// former leader that does not know its successor would skip records or read them twice.
fn look_beyond(state: &PartitionState, target: &Target, view: View) -> Result<(), Beyond> {
    if state.lacks(target.fetch_offset) {
        return Err(Beyond::Lacking);
    }
    let end = state.log.as_ref().map_or(-1, Log::log_end_offset);
    let is_within = view.isolation == Isolation::DurableEnd || target.fetch_offset <= end;
    if is_within || is_injected(Fault::OutOfRangeInDoubt) {
        return Ok(());
    }
    match state.leader_to_follow {
        None if state.is_confirmed(view.asked_ms) => Ok(()),
        None => Err(Beyond::Doubtful),
        Some(_) if target.current_leader_epoch < 0 => Err(Beyond::NotHere),
        // It knows this epoch's leader and asks there (KIP-392).
        Some(_) => Ok(()),
    }
}

/// The checks and the log's offsets; no records.
fn begin(state: &mut PartitionState, target: &Target, view: View) -> PartitionRead {
    if view.is_of_consumer {
        state.note_consumer(target.fetch_offset, view.asked_ms);
    }
    let bound = bound(state, view);
    // As in Kafka the epoch comes before leadership: a client with a newer one must not take this
    // broker for the leader.
    match state.shown_in(target.current_leader_epoch, view.of_leader_only) {
        Ok(log) => PartitionRead {
            high_watermark: log.high_watermark(),
            last_stable_offset: log.last_stable_offset(),
            log_start_offset: log.log_start_offset(),
            bound,
            aborted: (view.isolation == Isolation::Committed).then(Vec::new),
            ..PartitionRead::failed(ErrorCode::NONE)
        },
        Err(error) => PartitionRead {
            bound,
            ..PartitionRead::failed(error)
        },
    }
}

/// Whether the partition has something to report to a client at `target`.
#[cfg(debug_assertions)]
pub fn is_news(state: &mut PartitionState, target: &Target, view: View) -> bool {
    let read = begin(state, target, view);
    let has_records = read.bound.is_none_or(|end| end > target.fetch_offset);
    has_records || read.is_event() || !target.was_told(read.high_watermark, read.log_start_offset)
}

/// The preferred replica instead of records.
pub fn redirect(partition: &Partition, target: &Target, view: View, replica: i32) -> PartitionRead {
    let mut read = begin(&mut partition.lock(), target, view);
    if read.error == ErrorCode::NONE {
        read.preferred_replica = replica;
    }
    read
}

fn aborted_transaction(txn: pyrklog_log::AbortedTxn) -> AbortedTransaction {
    AbortedTransaction {
        producer_id: txn.producer_id,
        first_offset: txn.first_offset,
    }
}
