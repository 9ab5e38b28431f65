//! Writes markers, each a control batch that ends a transaction in one partition. The log has them
//! in the order of the calls, between the batches of clients and coordinators. They are
//! acknowledged when the high watermark has passed them.

use std::sync::Arc;

use pyrklog_log::{BatchInfo, Origin};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::builder::transaction_marker;

use pyrklog_base::clock::Now;
use pyrklog_base::ids::TicketId;
use pyrklog_base::injected_faults::{Fault, is_injected};
use pyrklog_control::marker_batch::MarkerBatch;
use pyrklog_control::outbox::Outbox;
use pyrklog_control::seam::{Marker, TicketOutcome};
use pyrklog_replica::internal_waiters::{AppendWaiter, Done};
use pyrklog_requests::services::Services;
use pyrklog_storage::log_dir_state::Partition;

/// First transaction version whose markers bump the producer's epoch.
const EPOCH_BUMP_SINCE: i16 = 2;

/// See `DataPlane::write_markers`.
pub fn write_markers(services: &Arc<Services>, markers: &[Marker], timestamp_ms: i64) -> TicketId {
    let ticket = services.tickets.next();
    let mut outbox = services.outbox();
    if markers.is_empty() {
        outbox.complete_ticket(ticket, TicketOutcome::Markers(Vec::new()));
    }
    let batch = Arc::new(MarkerBatch::new(ticket, markers.len()));
    let now_ms = Now::read().wall_ms;
    for (index, marker) in markers.iter().enumerate() {
        let done = Done::Marker(Arc::clone(&batch), index);
        if let Err(error) = enter(services, marker, timestamp_ms, now_ms, &done, &mut outbox) {
            done.tell(error, -1, &mut outbox);
        }
    }
    outbox.deliver(&*services.logs);
    ticket
}

fn enter(
    services: &Services,
    marker: &Marker,
    timestamp_ms: i64,
    now_ms: i64,
    done: &Done,
    outbox: &mut Outbox,
) -> Result<(), ErrorCode> {
    let Marker {
        topic, partition, ..
    } = marker;
    let partition = services
        .registry
        .partition(topic, *partition)
        .ok_or_else(|| why_not_hosted(services, marker))?;
    if partition.dir().has_twice_too_much_unwritten() {
        // The disk hangs: more bytes in memory would not help.
        return Err(ErrorCode::REQUEST_TIMED_OUT);
    }
    let coordinator_epoch = match is_injected(Fault::AcceptAnyCoordinatorEpoch) {
        true => i32::MAX,
        false => marker.coordinator_epoch,
    };
    let mut batch = transaction_marker(
        marker.producer_id,
        marker.producer_epoch,
        marker.is_commit,
        coordinator_epoch,
        timestamp_ms,
    );
    let info = BatchInfo::parse(&batch).map_err(|_| ErrorCode::UNKNOWN_SERVER_ERROR)?;
    let must_bump = marker.transaction_version >= EPOCH_BUMP_SINCE;
    append_locked(
        &partition, &mut batch, &info, must_bump, now_ms, done, outbox,
    )
}

fn why_not_hosted(services: &Services, marker: &Marker) -> ErrorCode {
    let image = services.image.load();
    match image.leader(&marker.topic, marker.partition) {
        Some(_) => ErrorCode::NOT_LEADER_OR_FOLLOWER,
        None => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
    }
}

fn append_locked(
    partition: &Arc<Partition>,
    batch: &mut [u8],
    info: &BatchInfo,
    must_bump: bool,
    now_ms: i64,
    done: &Done,
    outbox: &mut Outbox,
) -> Result<(), ErrorCode> {
    let mut state = partition.lock();
    let leader_epoch = state.leader_epoch;
    state.led()?;
    if !state.has_min_isr() {
        return Err(ErrorCode::NOT_ENOUGH_REPLICAS);
    }
    let log = state.led()?;
    let appended = if must_bump {
        log.append_bumped_marker(batch, info, leader_epoch, now_ms)
    } else {
        log.append(batch, info, Origin::Coordinator, leader_epoch, now_ms)
    };
    let appended = appended.map_err(|error| error.code())?;
    // Added first: the high watermark may pass it at once.
    state.internal.add_append(AppendWaiter {
        done: done.clone(),
        base_offset: appended.base_offset,
        end_offset: appended.last_offset + 1,
    });
    state.appended(&appended, &**partition.dir(), outbox);
    partition.unlock_and_write(state);
    Ok(())
}
