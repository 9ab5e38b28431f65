//! Begins reads of internal topics, once the durable end offset reaches the log end.

use pyrklog_wire::ErrorCode;

use crate::log_manager::LogManager;
use pyrklog_base::ids::TicketId;
use pyrklog_control::internal_read_work::{InternalReadWork, Purpose};
use pyrklog_control::outbox::Outbox;

/// See `DataPlane::read_internal`.
pub fn read_internal(
    logs: &LogManager,
    topic: &str,
    partition: i32,
    offset: i64,
    max_bytes: usize,
) -> TicketId {
    begin_new(
        logs,
        InternalReadWork {
            purpose: Purpose::Read,
            ticket: logs.tickets.next(),
            dir: 0,
            topic: topic.into(),
            partition,
            offset,
            max_bytes,
        },
    )
}

/// See `DataPlane::load_internal`.
pub fn load_internal(logs: &LogManager, topic: &str, partition: i32, max_bytes: usize) -> TicketId {
    begin_new(
        logs,
        InternalReadWork {
            purpose: Purpose::Load,
            ticket: logs.tickets.next(),
            dir: 0,
            topic: topic.into(),
            partition,
            offset: 0,
            max_bytes,
        },
    )
}

fn begin_new(logs: &LogManager, work: InternalReadWork) -> TicketId {
    let ticket = work.ticket;
    let mut outbox = logs.outbox();
    begin(logs, work, &mut outbox);
    outbox.deliver(logs);
    ticket
}

/// Submits the read once everything that the log holds now is durable.
fn begin(logs: &LogManager, mut work: InternalReadWork, outbox: &mut Outbox) {
    let Some(partition) = logs.registry.partition(&work.topic, work.partition) else {
        let outcome = work.failed(ErrorCode::NOT_LEADER_OR_FOLLOWER);
        return outbox.complete_ticket(work.ticket, outcome);
    };
    work.dir = partition.dir().index;
    let mut state = partition.lock();
    let ends = state
        .led()
        .map(|log| (log.durable_end_offset(), log.log_end_offset()));
    match ends {
        _ if !partition.topic.internal => {
            let outcome = work.failed(ErrorCode::INVALID_TOPIC_EXCEPTION);
            outbox.complete_ticket(work.ticket, outcome);
        }
        Err(error) => outbox.complete_ticket(work.ticket, work.failed(error)),
        Ok((durable_end_offset, log_end)) if durable_end_offset < log_end => {
            state.internal.add_read(log_end, work)
        }
        Ok(_) => outbox.begin_read(work),
    }
}
