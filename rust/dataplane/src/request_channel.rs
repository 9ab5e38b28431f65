//! Requests that went to the control plane and wait for its answer.
//!
//! At most `queued.max.requests` are out at a time. Beyond that a connection keeps its request in
//! its own buffer, reads nothing more, and is told when there is room.

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::api::RequestId;
use crate::hash::FastMap;
use crate::inbox::Token;

/// Which connection of which network thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index of the network thread.
    pub thread: usize,
    /// The connection.
    pub token: Token,
}

/// See the module.
#[derive(Debug)]
pub struct RequestChannel {
    max: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    last_id: RequestId,
    in_flight: FastMap<RequestId, Place>,
    waiting: VecDeque<Place>,
}

impl RequestChannel {
    /// A channel for `max` requests at a time, at least one.
    pub fn new(max: usize) -> RequestChannel {
        RequestChannel {
            max: max.max(1),
            inner: Mutex::default(),
        }
    }

    /// Reserves a place for a request of the connection at `place`; `None` when the channel is
    /// full, and the connection will be told (see [`RequestChannel::finish`]).
    pub fn begin(&self, place: Place) -> Option<RequestId> {
        let mut inner = self.inner.lock();
        if inner.in_flight.len() >= self.max {
            inner.waiting.push_back(place);
            return None;
        }
        inner.last_id += 1;
        let id = inner.last_id;
        inner.in_flight.insert(id, place);
        Some(id)
    }

    /// Takes an answered request out: whose it was, and which waiting connection may try now.
    /// `None` for an id that is unknown or answered already.
    pub fn finish(&self, id: RequestId) -> Option<(Place, Option<Place>)> {
        let mut inner = self.inner.lock();
        let place = inner.in_flight.remove(&id)?;
        Some((place, inner.waiting.pop_front()))
    }

    /// A waiting connection is gone or did not use its turn: who is next, if there is room.
    pub fn next_waiting(&self) -> Option<Place> {
        let mut inner = self.inner.lock();
        if inner.in_flight.len() >= self.max {
            None
        } else {
            inner.waiting.pop_front()
        }
    }

    /// Forgets that a connection waits (it was closed).
    pub fn forget(&self, place: Place) {
        self.inner
            .lock()
            .waiting
            .retain(|waiting| *waiting != place);
    }

    /// (requests in flight, connections waiting for room).
    pub fn depth(&self) -> (usize, usize) {
        let inner = self.inner.lock();
        (inner.in_flight.len(), inner.waiting.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_channel_hands_its_next_place_to_the_longest_waiting() {
        let channel = RequestChannel::new(2);
        let place = |token| Place { thread: 0, token };
        let first = channel.begin(place(1)).unwrap();
        let second = channel.begin(place(2)).unwrap();
        assert_eq!(channel.begin(place(3)), None);
        assert_eq!(channel.begin(place(4)), None);
        assert_eq!(channel.begin(place(5)), None);
        channel.forget(place(3));
        assert_eq!(channel.finish(first), Some((place(1), Some(place(4)))));
        assert_eq!(channel.finish(first), None, "answered twice");
        assert_eq!(channel.depth(), (1, 1));
        assert_eq!(channel.next_waiting(), Some(place(5)));
        assert_eq!(channel.finish(second), Some((place(2), None)));
        assert_eq!(channel.finish(99), None, "never handed out");
    }
}
