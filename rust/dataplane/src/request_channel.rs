//! Requests that went to the control plane and wait for its answer.
//!
//! At most `queued.max.requests` are out at a time. Beyond that a connection keeps its request in
//! its own buffer, reads nothing more, and is told when there is room. A request that waits for
//! other clients (JoinGroup, SyncGroup) is *parked*: a group of more members than places could
//! never come together otherwise, and would keep everybody else out.
//!
//! What brokers say to each other (orders of the controller, and what is asked of it) takes no place
//! and never waits for one: clients that fill the channel must not keep a broker from being told what
//! it leads. There is at most one a connection, and its body counts as receive memory like any other.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::api::RequestId;
use crate::hash::FastMap;
use crate::inbox::Token;
use crate::receive::ReceiveBudget;

/// Which connection of which network thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index of the network thread.
    pub thread: usize,
    /// The connection.
    pub token: Token,
}

/// What a channel holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    /// Requests that the control plane works on.
    pub in_flight: usize,
    /// Requests of other brokers that it works on besides.
    pub orders: usize,
    /// Requests that wait for other clients.
    pub parked: usize,
    /// Connections that wait for room.
    pub waiting: usize,
}

/// See the module.
#[derive(Debug)]
pub struct RequestChannel {
    max: usize,
    budget: Arc<ReceiveBudget>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    last_id: RequestId,
    in_flight: FastMap<RequestId, InFlight>,
    orders: FastMap<RequestId, InFlight>,
    parked: FastMap<RequestId, Place>,
    waiting: VecDeque<Place>,
}

#[derive(Clone, Copy, Debug)]
struct InFlight {
    place: Place,
    body_bytes: usize,
}

impl RequestChannel {
    /// A channel for `max` requests at a time, at least one. Their bodies count as receive memory
    /// until they are answered or parked.
    pub fn new(max: usize, budget: Arc<ReceiveBudget>) -> RequestChannel {
        RequestChannel {
            max: max.max(1),
            budget,
            inner: Mutex::default(),
        }
    }

    /// Reserves a place for a request of the connection at `place`, of which `body_bytes` are
    /// copied; `None` when the channel is full, and the connection will be told (see
    /// [`RequestChannel::finish`]).
    pub fn begin(&self, place: Place, body_bytes: usize) -> Option<RequestId> {
        let mut inner = self.inner.lock();
        if inner.in_flight.len() >= self.max {
            inner.waiting.push_back(place);
            return None;
        }
        let id = inner.next_id();
        inner.in_flight.insert(id, InFlight { place, body_bytes });
        self.budget.add(body_bytes);
        Some(id)
    }

    /// The same for a request of another broker, which takes no place.
    pub fn begin_order(&self, place: Place, body_bytes: usize) -> RequestId {
        let mut inner = self.inner.lock();
        let id = inner.next_id();
        inner.orders.insert(id, InFlight { place, body_bytes });
        self.budget.add(body_bytes);
        id
    }

    /// The request keeps its connection waiting, but no place; returns the waiting connection that
    /// may try now. An id that is unknown, parked or answered already is ignored, and that of an order.
    pub fn park(&self, id: RequestId) -> Option<Place> {
        let mut inner = self.inner.lock();
        let request = inner.in_flight.remove(&id)?;
        self.budget.subtract(request.body_bytes);
        inner.parked.insert(id, request.place);
        inner.waiting.pop_front()
    }

    /// Takes an answered request out: whose it was, and which waiting connection may try now.
    /// `None` for an id that is unknown or answered already.
    pub fn finish(&self, id: RequestId) -> Option<(Place, Option<Place>)> {
        let mut inner = self.inner.lock();
        if let Some(place) = inner.parked.remove(&id) {
            return Some((place, None));
        }
        if let Some(order) = inner.orders.remove(&id) {
            self.budget.subtract(order.body_bytes);
            return Some((order.place, None));
        }
        let request = inner.in_flight.remove(&id)?;
        self.budget.subtract(request.body_bytes);
        Some((request.place, inner.waiting.pop_front()))
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

    /// How many of each there are.
    pub fn depth(&self) -> Depth {
        let inner = self.inner.lock();
        Depth {
            in_flight: inner.in_flight.len(),
            orders: inner.orders.len(),
            parked: inner.parked.len(),
            waiting: inner.waiting.len(),
        }
    }
}

impl Inner {
    fn next_id(&mut self) -> RequestId {
        self.last_id += 1;
        self.last_id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget() -> Arc<ReceiveBudget> {
        Arc::new(ReceiveBudget::new(100))
    }

    fn depth(in_flight: usize, parked: usize, waiting: usize) -> Depth {
        Depth {
            in_flight,
            orders: 0,
            parked,
            waiting,
        }
    }

    #[test]
    fn orders_take_no_place_and_need_none() {
        let budget = budget();
        let channel = RequestChannel::new(1, Arc::clone(&budget));
        let place = |token| Place { thread: 0, token };
        let first = channel.begin(place(1), 10).unwrap();
        assert_eq!(channel.begin(place(2), 10), None);
        let order = channel.begin_order(place(3), 20);
        assert_eq!(budget.used_bytes(), 30);
        assert_eq!(
            channel.depth(),
            Depth {
                orders: 1,
                ..depth(1, 0, 1)
            }
        );
        assert_eq!(channel.park(order), None, "it waits for nobody");
        let nobody_else = Some((place(3), None));
        assert_eq!(channel.finish(order), nobody_else);
        assert_eq!(channel.finish(order), None, "answered twice");
        assert_eq!(channel.finish(first), Some((place(1), Some(place(2)))));
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    fn a_parked_request_gives_its_place_away_and_can_still_be_answered() {
        let channel = RequestChannel::new(1, budget());
        let place = |token| Place { thread: 0, token };
        let first = channel.begin(place(1), 0).unwrap();
        assert_eq!(channel.begin(place(2), 0), None);
        assert_eq!(channel.park(first), Some(place(2)));
        assert_eq!(channel.park(first), None, "parked twice");
        let second = channel.begin(place(2), 0).unwrap();
        assert_eq!(channel.begin(place(3), 0), None);
        assert_eq!(channel.depth(), depth(1, 1, 1));
        let no_room_yet = Some((place(1), None));
        assert_eq!(channel.finish(first), no_room_yet);
        assert_eq!(channel.park(first), None, "answered already");
        assert_eq!(channel.finish(second), Some((place(2), Some(place(3)))));
        assert_eq!(channel.depth(), depth(0, 0, 0));
    }

    #[test]
    fn a_full_channel_hands_its_next_place_to_the_longest_waiting() {
        let channel = RequestChannel::new(2, budget());
        let place = |token| Place { thread: 0, token };
        let first = channel.begin(place(1), 0).unwrap();
        let second = channel.begin(place(2), 0).unwrap();
        assert_eq!(channel.begin(place(3), 0), None);
        assert_eq!(channel.begin(place(4), 0), None);
        assert_eq!(channel.begin(place(5), 0), None);
        channel.forget(place(3));
        assert_eq!(channel.finish(first), Some((place(1), Some(place(4)))));
        assert_eq!(channel.finish(first), None, "answered twice");
        assert_eq!(channel.depth(), depth(1, 0, 1));
        assert_eq!(channel.next_waiting(), Some(place(5)));
        assert_eq!(channel.finish(second), Some((place(2), None)));
        assert_eq!(channel.finish(99), None, "never handed out");
    }

    #[test]
    fn bodies_count_as_receive_memory_until_they_are_answered_or_parked() {
        let budget = budget();
        let channel = RequestChannel::new(2, Arc::clone(&budget));
        let place = |token| Place { thread: 0, token };
        let first = channel.begin(place(1), 60).unwrap();
        assert!(budget.allows(7));
        let second = channel.begin(place(2), 50).unwrap();
        assert_eq!(channel.begin(place(3), 40), None);
        assert_eq!(
            budget.used_bytes(),
            110,
            "nothing is copied without a place"
        );
        assert!(budget.allows(7), "the first to ask");
        assert!(!budget.allows(8));
        channel.park(first);
        channel.park(first);
        assert_eq!(budget.used_bytes(), 50);
        channel.finish(first);
        channel.finish(second);
        channel.finish(second);
        assert_eq!(budget.used_bytes(), 0);
    }
}
