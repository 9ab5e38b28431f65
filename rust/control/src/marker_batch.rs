//! Markers that one `write_markers` wrote, until all are replicated or have failed.

use parking_lot::Mutex;
use pyrklog_wire::ErrorCode;

use crate::outbox::Outbox;
use crate::seam::TicketOutcome;
use pyrklog_base::ids::TicketId;

/// See the module.
#[derive(Debug)]
pub struct MarkerBatch {
    ticket: TicketId,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Error code and offset of each.
    results: Vec<(i16, i64)>,
    waiting: usize,
}

impl MarkerBatch {
    /// Of `count` markers.
    pub fn new(ticket: TicketId, count: usize) -> MarkerBatch {
        let results = vec![(ErrorCode::NONE.0, -1); count];
        MarkerBatch {
            ticket,
            inner: Mutex::new(Inner {
                results,
                waiting: count,
            }),
        }
    }

    /// A marker, once each, is replicated or failed. The last one completes the ticket.
    pub fn finish(&self, index: usize, error: ErrorCode, offset: i64, outbox: &mut Outbox) {
        let mut inner = self.inner.lock();
        inner.results[index] = match error {
            ErrorCode::NONE => (error.0, offset),
            _ => (error.0, -1),
        };
        inner.waiting -= 1;
        if inner.waiting == 0 {
            let results = std::mem::take(&mut inner.results);
            outbox.complete_ticket(self.ticket, TicketOutcome::Markers(results));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::internal_read_work::InternalReadWork;
    use crate::outbox::Delivery;
    use crate::seam::Event;
    use pyrklog_base::network_event::NetworkEvent;

    #[derive(Default)]
    struct Told(Mutex<Vec<Event>>);

    impl Delivery for Told {
        fn tell_network_thread(&self, _thread: usize, events: &mut Vec<NetworkEvent>) {
            events.clear();
        }

        fn tell_control_plane(&self, events: &mut Vec<Event>) {
            self.0.lock().append(events);
        }

        fn begin_read(&self, work: InternalReadWork) -> Result<(), InternalReadWork> {
            Err(work)
        }
    }

    #[test]
    fn the_last_marker_completes_the_ticket() {
        let (told, mut outbox) = (Told::default(), Outbox::new(1));
        let batch = MarkerBatch::new(5, 3);
        batch.finish(2, ErrorCode::NONE, 70, &mut outbox);
        batch.finish(0, ErrorCode::NOT_LEADER_OR_FOLLOWER, 9, &mut outbox);
        outbox.deliver(&told);
        assert!(told.0.lock().is_empty());
        batch.finish(1, ErrorCode::NONE, 71, &mut outbox);
        outbox.deliver(&told);
        let events = told.0.lock();
        let [Event::Ticket { id: 5, outcome }] = events.as_slice() else {
            panic!("{events:?}")
        };
        let TicketOutcome::Markers(results) = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!(results, &[(6, -1), (0, 71), (0, 70)]);
    }
}
