//! [`Event`]s for the control plane, and an eventfd that is readable while there are any.
//!
//! The request channel bounds requests, the commands bound tickets, and verifications are bounded.
//! Notices beyond [`NOTICES_MAX`] are summed up in one.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

use crate::seam::{Event, TicketOutcome};
use pyrklog_base::hash::FastMap;
use pyrklog_base::ids::TicketId;
use pyrklog_base::pace::Pace;

/// Limit of waiting notices.
pub const NOTICES_MAX: usize = 1000;

/// See the module.
#[derive(Debug)]
pub struct EventQueue {
    fd: OwnedFd,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    events: VecDeque<Event>,
    notices: usize,
    dropped_notices: u64,
    paces: FastMap<&'static str, Pace>,
}

impl EventQueue {
    /// An empty queue. Fails without a free file descriptor.
    pub fn new() -> std::io::Result<EventQueue> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(EventQueue {
            fd,
            inner: Mutex::default(),
        })
    }

    /// Readable while events wait. The queue owns the descriptor.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Appends an event.
    pub fn push(&self, event: Event) {
        let mut inner = self.inner.lock();
        if matches!(event, Event::Notice { .. }) {
            if inner.notices >= NOTICES_MAX {
                inner.dropped_notices += 1;
                return;
            }
            inner.notices += 1;
        }
        let was_empty = inner.events.is_empty();
        inner.events.push_back(event);
        if was_empty {
            self.wake();
        }
    }

    /// Completes a ticket.
    pub fn complete(&self, id: TicketId, outcome: TicketOutcome) {
        self.push(Event::Ticket { id, outcome });
    }

    /// Appends completed tickets and empties `tickets`.
    pub fn push_all(&self, tickets: &mut Vec<Event>) {
        let mut inner = self.inner.lock();
        let was_empty = inner.events.is_empty();
        inner.events.extend(tickets.drain(..));
        if was_empty && !inner.events.is_empty() {
            self.wake();
        }
    }

    /// Called under the lock, so that no drain clears it in between. Does not block: the counter is
    /// cleared whenever the queue is empty.
    fn wake(&self) {
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }

    /// Appends a notice.
    pub fn notice(
        &self,
        event: &'static str,
        level: &'static str,
        fields: Vec<(&'static str, String)>,
    ) {
        self.push(Event::Notice {
            event,
            fields,
            level,
        });
    }

    /// Appends a notice that clients can provoke: at most `most` of its name in ten seconds. The
    /// next one has the number of suppressed ones (`untold`).
    pub fn client_notice(
        &self,
        event: &'static str,
        most: u32,
        now_ms: i64,
        mut fields: Vec<(&'static str, String)>,
    ) {
        let told = self
            .inner
            .lock()
            .paces
            .entry(event)
            .or_default()
            .tell(most, now_ms);
        let Some(untold) = told else {
            return;
        };
        if untold > 0 {
            fields.push(("untold", untold.to_string()));
        }
        self.notice(event, "warning", fields);
    }

    /// Takes up to `max` events; the descriptor stays readable while more are left.
    pub fn drain(&self, max: usize) -> Vec<Event> {
        let mut inner = self.inner.lock();
        let count = inner.events.len().min(max);
        let mut taken: Vec<Event> = inner.events.drain(..count).collect();
        if inner.events.is_empty() {
            let _ = rustix::io::read(&self.fd, &mut [0u8; 8]);
            inner.notices = 0;
            if inner.dropped_notices > 0 {
                let count = std::mem::take(&mut inner.dropped_notices).to_string();
                taken.push(Event::Notice {
                    event: "notices_dropped",
                    fields: vec![("count", count)],
                    level: "warning",
                });
            }
        }
        taken
    }

    /// Number of waiting events.
    pub fn waiting(&self) -> usize {
        self.inner.lock().events.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn readable(queue: &EventQueue) -> bool {
        let mut fds = [PollFd::new(&queue.fd, PollFlags::IN)];
        poll(
            &mut fds,
            Some(&Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            }),
        )
        .unwrap()
            == 1
    }

    #[test]
    fn readable_exactly_while_events_wait() {
        let queue = EventQueue::new().unwrap();
        assert!(!readable(&queue));
        for _ in 0..3 {
            queue.notice("test", "info", Vec::new());
        }
        assert!(readable(&queue));
        assert_eq!(queue.drain(2).len(), 2);
        assert!(readable(&queue));
        assert_eq!(queue.drain(2).len(), 1);
        assert!(!readable(&queue));
        queue.notice("test", "info", Vec::new());
        assert!(readable(&queue));
    }

    #[test]
    fn notices_are_bounded_and_the_loss_is_told() {
        let queue = EventQueue::new().unwrap();
        for _ in 0..NOTICES_MAX + 7 {
            queue.notice("flood", "warning", Vec::new());
        }
        let events = queue.drain(usize::MAX);
        assert_eq!(events.len(), NOTICES_MAX + 1);
        let Some(Event::Notice { event, fields, .. }) = events.last() else {
            panic!("{events:?}")
        };
        assert_eq!(*event, "notices_dropped");
        assert_eq!(fields[0].1, "7");
    }
}
