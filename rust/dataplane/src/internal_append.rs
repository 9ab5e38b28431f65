//! Appends of the control plane to internal topics. Each call builds one batch; the log has them in
//! the order of the calls. They are acknowledged when the high watermark has passed them.

use std::sync::Arc;

use pyrklog_log::compression::{EXPANDED_BYTES_MAX_DEFAULT, compress};
use pyrklog_log::producer_state::verification::Proof;
use pyrklog_log::validate::{Rules, validate_produce};
use pyrklog_log::{AppendError, BatchInfo, Origin};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::batch::Compression;
use pyrklog_wire::builder::{BatchBuilder, HeaderToWrite};

use pyrklog_base::clock::Now;
use pyrklog_base::ids::TicketId;
use pyrklog_control::commit_batch::CommitBatch;
use pyrklog_control::offset_commit::OffsetCommit;
use pyrklog_control::seam::{InternalAppend, NewRecord};
use pyrklog_replica::internal_waiters::{AppendWaiter, Done};
use pyrklog_requests::services::Services;
use pyrklog_storage::log_dir_state::Partition;

/// The rules for a batch are those of the newest Produce request, with every codec allowed.
const RULES_VERSION: i16 = 11;

/// Most bytes of a record beside its key, value and headers: lengths, counts, deltas.
const RECORD_OVERHEAD_BYTES_MAX: usize = 32;

/// Most bytes of a header beside its key and value: their lengths.
const HEADER_OVERHEAD_BYTES_MAX: usize = 10;

pub fn append_internal<'r>(
    services: &Arc<Services>,
    append: &InternalAppend<'_>,
    records: impl IntoIterator<Item = impl Into<NewRecord<'r>>>,
) -> TicketId {
    let ticket = services.tickets.next();
    append_for(services, append, records, &Done::Ticket(ticket));
    ticket
}

pub fn append_commits(
    services: &Arc<Services>,
    append: &InternalAppend<'_>,
    commits: Vec<Arc<OffsetCommit>>,
) -> Arc<CommitBatch> {
    let channel = Arc::clone(&services.channel);
    let batch = Arc::new(CommitBatch::new(commits, append.timestamp_ms, channel));
    let records = batch.records();
    let done = Done::Commits(Arc::clone(&batch));
    append_for(services, append, records.iter(), &done);
    if !batch.is_answered() {
        let mut outbox = services.outbox();
        batch.park(&mut outbox);
        outbox.deliver(&*services.logs);
    }
    batch
}

fn append_for<'r>(
    services: &Arc<Services>,
    append: &InternalAppend<'_>,
    records: impl IntoIterator<Item = impl Into<NewRecord<'r>>>,
    done: &Done,
) {
    match enter(services, append, records, done) {
        Ok(bytes) => services.statistics.internal.appended(bytes),
        Err(error) => {
            services.statistics.internal.refused();
            let mut outbox = services.outbox();
            done.tell(error, -1, &mut outbox);
            outbox.deliver(&*services.logs);
        }
    }
}

/// Builds and validates outside the partition's mutex; appends and adds a waiter under it. Returns
/// the bytes appended.
fn enter<'r>(
    services: &Arc<Services>,
    append: &InternalAppend<'_>,
    records: impl IntoIterator<Item = impl Into<NewRecord<'r>>>,
    done: &Done,
) -> Result<usize, ErrorCode> {
    let partition = services
        .registry
        .partition(append.topic, append.partition)
        .ok_or(ErrorCode::NOT_LEADER_OR_FOLLOWER)?;
    if !partition.topic.internal {
        return Err(ErrorCode::INVALID_TOPIC_EXCEPTION);
    }
    if partition.dir().has_twice_too_much_unwritten() {
        // The disk hangs: more bytes in memory would not help.
        return Err(ErrorCode::REQUEST_TIMED_OUT);
    }
    let mut batch = build(append, records)?;
    let now_ms = Now::read().wall_ms;
    let rules = Rules::new(&partition.topic.settings().log, RULES_VERSION);
    let validated = validate_produce(&mut batch, &rules, now_ms).map_err(|error| error.code)?;
    let mut batch = validated.rewritten.unwrap_or(batch);
    append_locked(
        services,
        &partition,
        &mut batch,
        &validated.info,
        append,
        done,
        now_ms,
    )
}

fn build<'r>(
    append: &InternalAppend<'_>,
    records: impl IntoIterator<Item = impl Into<NewRecord<'r>>>,
) -> Result<Vec<u8>, ErrorCode> {
    let codec = Compression::from_bits(append.codec)
        .map_err(|_| ErrorCode::UNSUPPORTED_COMPRESSION_TYPE)?;
    let mut builder = BatchBuilder::new();
    if let Some((id, epoch)) = append.producer {
        // A coordinator does not number its batches; Kafka's begin with 0 each.
        builder = builder.producer(id, epoch, 0).transactional();
    }
    for record in records {
        let NewRecord {
            key,
            value,
            headers,
        } = record.into();
        let header_len = |(key, value): &HeaderToWrite<'_>| {
            key.len() + value.map_or(0, <[u8]>::len) + HEADER_OVERHEAD_BYTES_MAX
        };
        let len = key.len()
            + value.map_or(0, <[u8]>::len)
            + headers.iter().map(header_len).sum::<usize>()
            + RECORD_OVERHEAD_BYTES_MAX;
        if builder.size_bytes().saturating_add(len) > EXPANDED_BYTES_MAX_DEFAULT {
            return Err(ErrorCode::MESSAGE_TOO_LARGE);
        }
        builder.append_with_headers(append.timestamp_ms, Some(key), value, &headers);
    }
    let mut is_compressed = true;
    let batch = builder.build_compressed(codec, |records| {
        let mut out = Vec::new();
        is_compressed = compress(codec, records, &mut out).is_ok();
        out
    });
    // The codec's library fails only for lack of memory.
    is_compressed
        .then_some(batch)
        .ok_or(ErrorCode::UNKNOWN_SERVER_ERROR)
}

/// What the coordinator asked before.
fn proof(append: &InternalAppend<'_>) -> Proof {
    match append.guard {
        None => Proof::Waived,
        Some(0) => Proof::OpenTransaction,
        Some(number) => Proof::Guard {
            number,
            begins_at_zero: false,
        },
    }
}

/// A swap of log directories takes some ten milliseconds, and the broker stays the leader: clients ask
/// the same coordinator again. Any other refusal has the code that a producer gets.
fn coordinators_code(error: &AppendError) -> ErrorCode {
    match error {
        AppendError::Leaving => ErrorCode::COORDINATOR_LOAD_IN_PROGRESS,
        _ => error.code(),
    }
}

fn append_locked(
    services: &Services,
    partition: &Arc<Partition>,
    batch: &mut [u8],
    info: &BatchInfo,
    append: &InternalAppend<'_>,
    done: &Done,
    now_ms: i64,
) -> Result<usize, ErrorCode> {
    let mut state = partition.lock();
    let leader_epoch = state.leader_epoch;
    state.led()?;
    if !(state.led_since..=leader_epoch).contains(&append.expected_epoch) {
        return Err(ErrorCode::NOT_LEADER_OR_FOLLOWER);
    }
    if !state.has_min_isr() {
        return Err(ErrorCode::NOT_ENOUGH_REPLICAS);
    }
    let verified = state.led()?.producers().check_verified(info, proof(append));
    verified.map_err(|error| error.code())?;
    let appended = state
        .led()?
        .append(batch, info, Origin::Coordinator, leader_epoch, now_ms)
        .map_err(|error| coordinators_code(&error))?;
    // Added first: the high watermark may pass it at once.
    state.internal.add_append(AppendWaiter {
        done: done.clone(),
        base_offset: appended.base_offset,
        end_offset: appended.last_offset + 1,
    });
    let mut outbox = services.outbox();
    state.appended(&appended, &**partition.dir(), &mut outbox);
    partition.unlock_and_write(state);
    outbox.deliver(&*services.logs);
    Ok(appended.appended_bytes)
}
