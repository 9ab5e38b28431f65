//! Produce requests that wait for a partition.

use std::collections::BTreeSet;

use pyrklog_wire::ErrorCode;

use super::PartitionState;
use crate::waiters::ProduceWaiter;
use pyrklog_base::network_event::NetworkEvent;
use pyrklog_control::outbox::Outbox;

/// What a produce request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitFor {
    /// acks=1: this log's durable end offset.
    Durable,
    /// acks=-1: the high watermark.
    Replication,
}

impl PartitionState {
    /// Waits until everything below `waiter.end_offset` is acknowledged; false if it already is.
    pub fn wait_for(&mut self, what: WaitFor, waiter: ProduceWaiter) -> bool {
        if self.is_reached(what, waiter.end_offset) {
            return false;
        }
        match what {
            WaitFor::Durable => self.durable_waiters.insert(waiter),
            WaitFor::Replication => self.replication_waiters.insert(waiter),
        };
        true
    }

    /// Whether everything below `end_offset` is acknowledged, or there is no log.
    pub fn is_reached(&self, what: WaitFor, end_offset: i64) -> bool {
        if self.has_failed() {
            return false;
        }
        let mark = self.log.as_ref().map(|log| match what {
            WaitFor::Durable => log.durable_end_offset(),
            WaitFor::Replication => log.high_watermark(),
        });
        mark.is_none_or(|mark| mark >= end_offset)
    }

    /// Removes a waiter.
    pub fn forget_waiter(&mut self, what: WaitFor, waiter: ProduceWaiter) {
        match what {
            WaitFor::Durable => self.durable_waiters.remove(&waiter),
            WaitFor::Replication => self.replication_waiters.remove(&waiter),
        };
    }

    /// (produce waiters, delayed fetches).
    pub fn waiting(&self) -> (usize, usize) {
        (
            self.durable_waiters.len() + self.replication_waiters.len(),
            self.fetch_watchers.waiting(),
        )
    }

    /// Tells the waiters below `durable_end_offset` and below the high watermark `reached`, which
    /// moves only with enough replicas in sync.
    pub(super) fn acknowledge(
        &mut self,
        durable_end_offset: i64,
        reached: i64,
        outbox: &mut Outbox,
    ) {
        answer_up_to(&mut self.durable_waiters, durable_end_offset, outbox);
        self.internal.begin_reads(durable_end_offset, outbox);
        answer_up_to(&mut self.replication_waiters, reached, outbox);
        self.internal.acknowledge(reached, outbox);
    }

    /// Ends all waits: produce requests and tickets fail with `error`, fetches look again.
    pub fn fail_waiters(&mut self, error: ErrorCode, outbox: &mut Outbox) {
        let of_durable_end = std::mem::take(&mut self.durable_waiters);
        let of_replication = std::mem::take(&mut self.replication_waiters);
        for waiter in of_durable_end.into_iter().chain(of_replication) {
            answer(&waiter, error, outbox);
        }
        self.internal.fail(error, outbox);
        self.wake_fetches(outbox);
    }
}

fn answer_up_to(waiters: &mut BTreeSet<ProduceWaiter>, mark: i64, outbox: &mut Outbox) {
    while waiters
        .first()
        .is_some_and(|waiter| waiter.end_offset <= mark)
    {
        if let Some(waiter) = waiters.pop_first() {
            answer(&waiter, ErrorCode::NONE, outbox);
        }
    }
}

fn answer(waiter: &ProduceWaiter, error: ErrorCode, outbox: &mut Outbox) {
    let message = NetworkEvent::Produced {
        token: waiter.token,
        sequence: waiter.sequence,
        index: waiter.index,
        error,
    };
    outbox.push(waiter.thread as usize, message);
}
