//! Fetches that wait for a partition.

use std::sync::atomic::Ordering;

use pyrklog_log::Isolation;

use super::PartitionState;
use crate::waiters::FetchWaiter;
use pyrklog_base::ids::Token;
use pyrklog_base::network_event::NetworkEvent;
use pyrklog_control::outbox::Outbox;

impl PartitionState {
    /// Adds a fetch that waits; one of the same connection is replaced.
    pub fn add_fetch_waiter(&mut self, waiter: FetchWaiter) {
        self.fetch_waiters.insert(waiter.token, waiter);
    }

    /// The fetch of a connection waits no longer.
    pub fn remove_fetch_waiter(&mut self, token: Token) {
        self.fetch_waiters.remove(&token);
    }

    pub(super) fn notify_fetches(
        &mut self,
        new_bytes: usize,
        has_grown: bool,
        visible: bool,
        outbox: &mut Outbox,
    ) {
        if self.fetch_waiters.is_empty() {
            return;
        }
        let new_bytes = i64::try_from(new_bytes).unwrap_or(i64::MAX);
        let log = self.log.as_ref();
        let segment_of = |isolation| log.map(|log| log.bound_segment(isolation));
        self.fetch_waiters.retain(|_, waiter| {
            let concerns = match waiter.isolation {
                Isolation::LogEnd => has_grown || visible && waiter.notify_high_watermark,
                _ => visible,
            };
            if !concerns {
                return true;
            }
            let is_short = waiter.missing_bytes.fetch_sub(new_bytes, Ordering::Relaxed) > new_bytes;
            if is_short && waiter.bound_segment == segment_of(waiter.isolation) {
                return true;
            }
            wake_fetch(waiter, false, outbox);
            false
        });
    }

    /// The partition changed in a way that every waiting fetch must look at.
    pub fn wake_fetches(&mut self, outbox: &mut Outbox) {
        self.wake_doubting(outbox);
        for (_, waiter) in self.fetch_waiters.drain() {
            wake_fetch(&waiter, false, outbox);
        }
    }

    /// Wakes those who see as far as `concerns` says.
    pub(super) fn wake_some_fetches(
        &mut self,
        must_answer: bool,
        concerns: impl Fn(Isolation) -> bool,
        outbox: &mut Outbox,
    ) {
        self.fetch_waiters.retain(|_, waiter| {
            let is_woken = concerns(waiter.isolation);
            if is_woken {
                wake_fetch(waiter, must_answer, outbox);
            }
            !is_woken
        });
    }
}

fn wake_fetch(waiter: &FetchWaiter, must_answer: bool, outbox: &mut Outbox) {
    let message = NetworkEvent::FetchWake {
        token: waiter.token,
        wait: waiter.wait,
        must_answer,
        by: outbox.network_thread(),
    };
    outbox.push(waiter.thread as usize, message);
}
