//! Numbers of slow commands, whose outcome comes as `Event::Ticket`.

use std::sync::atomic::{AtomicU64, Ordering};

use pyrklog_base::ids::TicketId;

/// See the module.
#[derive(Debug, Default)]
pub struct Tickets(AtomicU64);

impl Tickets {
    /// A unique number, from 1.
    pub fn next(&self) -> TicketId {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}
