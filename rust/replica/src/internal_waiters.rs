//! The control plane's waits at a partition: appends and markers for the high watermark, reads for
//! the durable end offset. All end as tickets, not at a network thread.

use std::collections::VecDeque;
use std::sync::Arc;

use pyrklog_wire::ErrorCode;

use pyrklog_base::ids::TicketId;
use pyrklog_control::commit_batch::CommitBatch;
use pyrklog_control::internal_read_work::InternalReadWork;
use pyrklog_control::marker_batch::MarkerBatch;
use pyrklog_control::outbox::Outbox;
use pyrklog_control::seam::TicketOutcome;

/// Who waits for an internal append.
#[derive(Clone, Debug)]
pub enum Done {
    /// The control plane, by a ticket.
    Ticket(TicketId),
    /// Clients that commit offsets.
    Commits(Arc<CommitBatch>),
    /// The control plane, for one of several markers.
    Marker(Arc<MarkerBatch>, usize),
}

impl Done {
    /// The append is over; its first record is at `base_offset`.
    pub fn tell(&self, error: ErrorCode, base_offset: i64, outbox: &mut Outbox) {
        match self {
            Done::Ticket(ticket) => {
                let outcome = TicketOutcome::internal_appended(error, base_offset);
                outbox.complete_ticket(*ticket, outcome);
            }
            Done::Commits(batch) => batch.finish(error, base_offset, outbox),
            Done::Marker(batch, index) => batch.finish(*index, error, base_offset, outbox),
        }
    }
}

/// An internal append or a marker that waits for replication. The wait continues while this broker leads on in
/// later epochs: what it appended in one is replicated in the next.
#[derive(Debug)]
pub struct AppendWaiter {
    /// Who is told.
    pub done: Done,
    /// Offset of its first record.
    pub base_offset: i64,
    /// Done once the high watermark reaches this offset (last offset + 1).
    pub end_offset: i64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct InternalWaiters {
    /// In log order.
    appends: VecDeque<AppendWaiter>,
    /// Each with the end offset that must be durable first.
    reads: Vec<(i64, InternalReadWork)>,
}

impl InternalWaiters {
    /// Appends and reads.
    pub fn count(&self) -> usize {
        self.appends.len() + self.reads.len()
    }

    /// Adds the append that entered the log last.
    pub fn add_append(&mut self, waiter: AppendWaiter) {
        self.appends.push_back(waiter);
    }

    /// Adds a read that begins once the durable end offset reaches `end_offset`.
    pub fn add_read(&mut self, end_offset: i64, work: InternalReadWork) {
        self.reads.push((end_offset, work));
    }

    /// What the first and last append wait for.
    pub fn append_ends(&self) -> (Option<i64>, Option<i64>) {
        let end_of = |waiter: &AppendWaiter| waiter.end_offset;
        (
            self.appends.front().map(end_of),
            self.appends.back().map(end_of),
        )
    }

    /// The high watermark has reached `reached`.
    pub fn acknowledge(&mut self, reached: i64, outbox: &mut Outbox) {
        while let Some(waiter) = self.appends.front()
            && waiter.end_offset <= reached
        {
            complete(waiter, ErrorCode::NONE, outbox);
            self.appends.pop_front();
        }
    }

    /// The durable end offset has reached `durable_end_offset`.
    pub fn begin_reads(&mut self, durable_end_offset: i64, outbox: &mut Outbox) {
        for (_, work) in self
            .reads
            .extract_if(.., |(end_offset, _)| *end_offset <= durable_end_offset)
        {
            outbox.begin_read(work);
        }
    }

    /// Fails everything that waits.
    pub fn fail(&mut self, error: ErrorCode, outbox: &mut Outbox) {
        for waiter in self.appends.drain(..) {
            complete(&waiter, error, outbox);
        }
        for (_, work) in self.reads.drain(..) {
            outbox.complete_ticket(work.ticket, work.failed(error));
        }
    }
}

fn complete(waiter: &AppendWaiter, error: ErrorCode, outbox: &mut Outbox) {
    waiter.done.tell(error, waiter.base_offset, outbox);
}
