//! Requests that went to the control plane and wait for its answer.
//!
//! At most `queued.max.requests` are out at a time. Beyond that a connection keeps its request in
//! its own buffer, reads nothing more, and is told when there is room. A request whose answer has to
//! wait (for other clients, for replication, for the metadata store) is *parked*: it gives up its
//! place, so that it keeps nobody else out. The memory of what is parked has bounds of its own
//! ([`Waiting`]).
//!
//! Two kinds of requests take no place and never wait for one: what brokers say to each other (orders
//! of the controller, and what is asked of it), since clients that fill the channel must not keep a
//! broker from being told what it leads; and heartbeats, since a member must not lose its session to
//! others who ask much. There is at most one a connection, and its body counts as receive memory like
//! any other.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use pyrklog_base::hash::FastMap;
use pyrklog_base::ids::{Place, RequestId};
use pyrklog_base::memory_budget::MemoryBudget;
use pyrklog_base::waiting_memory::{Charge, WaitingMemory};

/// A request, as far as the channel has to know it.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Whose it is.
    pub place: Place,
    /// Where it comes from.
    pub host: IpAddr,
    /// Of its body, which is copied.
    pub body_bytes: usize,
    /// Whether it commits offsets.
    pub is_commit: bool,
    /// Whether another broker asks.
    pub is_broker: bool,
}

/// The part of the receive memory (`queued.max.request.bytes`) that commits may wait in besides it,
/// and once more all other requests: neither keeps the other out.
const RECEIVE_MEMORY_SHARE: usize = 8;

/// The memory of what waits without a place.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// Of offset commits, which wait for replication.
    pub commits: Arc<WaitingMemory>,
    /// Of all others.
    pub others: Arc<WaitingMemory>,
}

impl Waiting {
    /// The memory beside receive memory of `receive_max_bytes`.
    pub fn beside(receive_max_bytes: usize) -> Waiting {
        let pool = || Arc::new(WaitingMemory::new(receive_max_bytes / RECEIVE_MEMORY_SHARE));
        Waiting {
            commits: pool(),
            others: pool(),
        }
    }

    /// Bytes in use.
    pub fn used_bytes(&self) -> usize {
        self.commits.used_bytes() + self.others.used_bytes()
    }
}

/// What a channel holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    /// Requests that the control plane works on.
    pub in_flight: usize,
    /// Requests of other brokers, and heartbeats, that it works on besides.
    pub placeless: usize,
    /// Requests that wait without a place.
    pub parked: usize,
    /// Connections that wait for room.
    pub waiting: usize,
}

/// What became of a request that was to be parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parking {
    /// It waits without a place, or did so before, or is answered; the connection given may try now.
    Done(Option<Place>),
    /// There is no memory for it: it keeps its place, and is to be answered now.
    NoRoom,
}

/// See the module.
#[derive(Debug)]
pub struct RequestChannel {
    max: usize,
    budget: Arc<MemoryBudget>,
    waiting: Waiting,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    last_id: RequestId,
    in_flight: FastMap<RequestId, Asked>,
    placeless: FastMap<RequestId, Asked>,
    parked: FastMap<RequestId, Parked>,
    waiting: VecDeque<Place>,
}

#[derive(Debug)]
struct Parked {
    place: Place,
    is_broker: bool,
    _charge: Option<Charge>,
}

impl RequestChannel {
    /// A channel for `max` requests at a time, at least one. Their bodies count as receive memory
    /// until they are answered or parked, and as waiting memory while they are parked.
    pub fn new(max: usize, budget: Arc<MemoryBudget>, waiting: Waiting) -> RequestChannel {
        RequestChannel {
            max: max.max(1),
            budget,
            waiting,
            inner: Mutex::default(),
        }
    }

    /// Reserves a place for a request; `None` when the channel is full, and the connection will be
    /// told (see [`RequestChannel::finish`]).
    pub fn begin(&self, asked: Asked) -> Option<RequestId> {
        let mut inner = self.inner.lock();
        if inner.in_flight.len() >= self.max {
            inner.waiting.push_back(asked.place);
            return None;
        }
        let id = inner.next_id();
        inner.in_flight.insert(id, asked);
        self.budget.add(asked.body_bytes);
        Some(id)
    }

    /// The same for a request that takes no place.
    pub fn begin_placeless(&self, asked: Asked) -> RequestId {
        let mut inner = self.inner.lock();
        let id = inner.next_id();
        inner.placeless.insert(id, asked);
        self.budget.add(asked.body_bytes);
        id
    }

    /// The request keeps its connection waiting, but no place. An id that is unknown, parked or
    /// answered already is ignored, and that of a request without a place.
    pub fn park(&self, id: RequestId) -> Parking {
        let mut inner = self.inner.lock();
        let Some(&request) = inner.in_flight.get(&id) else {
            return Parking::Done(None);
        };
        let memory = match request.is_commit {
            true => &self.waiting.commits,
            false => &self.waiting.others,
        };
        match memory.charge(request.host, request.body_bytes) {
            None => Parking::NoRoom,
            charge => Parking::Done(self.move_to_parked(&mut inner, id, request, charge)),
        }
    }

    /// The same for a request whose memory is charged by whoever holds it; returns the waiting
    /// connection that may try now.
    pub fn park_charged(&self, id: RequestId) -> Option<Place> {
        let mut inner = self.inner.lock();
        let request = inner.in_flight.get(&id).copied()?;
        self.move_to_parked(&mut inner, id, request, None)
    }

    fn move_to_parked(
        &self,
        inner: &mut Inner,
        id: RequestId,
        request: Asked,
        charge: Option<Charge>,
    ) -> Option<Place> {
        inner.in_flight.remove(&id);
        self.budget.subtract(request.body_bytes);
        let parked = Parked {
            place: request.place,
            is_broker: request.is_broker,
            _charge: charge,
        };
        inner.parked.insert(id, parked);
        inner.waiting.pop_front()
    }

    /// Takes an answered request out: whose it was, and which waiting connection may try now.
    /// `None` for an id that is unknown or answered already.
    pub fn finish(&self, id: RequestId) -> Option<(Place, Option<Place>)> {
        let mut inner = self.inner.lock();
        if let Some(parked) = inner.parked.remove(&id) {
            return Some((parked.place, None));
        }
        if let Some(request) = inner.placeless.remove(&id) {
            self.budget.subtract(request.body_bytes);
            return Some((request.place, None));
        }
        let request = inner.in_flight.remove(&id)?;
        self.budget.subtract(request.body_bytes);
        Some((request.place, inner.waiting.pop_front()))
    }

    /// Whether the control plane still has the request, in a place or parked.
    pub fn holds(&self, id: RequestId) -> bool {
        let inner = self.inner.lock();
        inner.in_flight.contains_key(&id) || inner.parked.contains_key(&id)
    }

    /// Whether another broker waits for the answer.
    pub fn is_brokers(&self, id: RequestId) -> bool {
        let inner = self.inner.lock();
        let asked = inner.placeless.get(&id).or(inner.in_flight.get(&id));
        let parked = || inner.parked.get(&id).map(|parked| parked.is_broker);
        asked.map(|asked| asked.is_broker).or_else(parked) == Some(true)
    }

    /// The memory of what is parked.
    pub fn waiting_memory(&self) -> &Waiting {
        &self.waiting
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
            placeless: inner.placeless.len(),
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
    use pyrklog_base::ids::Token;
    use pyrklog_base::waiting_memory::REQUEST_FIXED_BYTES;

    fn budget() -> Arc<MemoryBudget> {
        Arc::new(MemoryBudget::new(100))
    }

    fn channel(max: usize, budget: Arc<MemoryBudget>) -> RequestChannel {
        let memory = Waiting::beside(8 * 6 * REQUEST_FIXED_BYTES);
        RequestChannel::new(max, budget, memory)
    }

    fn asked(token: Token, body_bytes: usize) -> Asked {
        Asked {
            place: Place { thread: 0, token },
            host: IpAddr::from([127, 0, 0, 1]),
            body_bytes,
            is_commit: false,
            is_broker: false,
        }
    }

    fn depth(in_flight: usize, parked: usize, waiting: usize) -> Depth {
        Depth {
            in_flight,
            placeless: 0,
            parked,
            waiting,
        }
    }

    #[test]
    fn some_requests_take_no_place_and_need_none() {
        let budget = budget();
        let channel = channel(1, Arc::clone(&budget));
        let place = |token| Place { thread: 0, token };
        let first = channel.begin(asked(1, 10)).unwrap();
        assert_eq!(channel.begin(asked(2, 10)), None);
        let order = channel.begin_placeless(asked(3, 20));
        assert_eq!(budget.used_bytes(), 30);
        assert_eq!(
            channel.depth(),
            Depth {
                placeless: 1,
                ..depth(1, 0, 1)
            }
        );
        assert_eq!(channel.park(order), Parking::Done(None), "it has none");
        assert!(!channel.holds(order));
        let nobody_else = Some((place(3), None));
        assert_eq!(channel.finish(order), nobody_else);
        assert_eq!(channel.finish(order), None, "answered twice");
        assert_eq!(channel.finish(first), Some((place(1), Some(place(2)))));
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    fn a_parked_request_gives_its_place_away_and_can_still_be_answered() {
        let channel = channel(1, budget());
        let place = |token| Place { thread: 0, token };
        let first = channel.begin(asked(1, 0)).unwrap();
        assert_eq!(channel.begin(asked(2, 0)), None);
        assert_eq!(channel.park(first), Parking::Done(Some(place(2))));
        assert_eq!(channel.park(first), Parking::Done(None), "parked twice");
        assert!(channel.holds(first));
        let second = channel.begin(asked(2, 0)).unwrap();
        assert_eq!(channel.begin(asked(3, 0)), None);
        assert_eq!(channel.depth(), depth(1, 1, 1));
        let no_room_yet = Some((place(1), None));
        assert_eq!(channel.finish(first), no_room_yet);
        assert_eq!(channel.park(first), Parking::Done(None), "answered already");
        assert!(!channel.holds(first));
        assert_eq!(channel.finish(second), Some((place(2), Some(place(3)))));
        assert_eq!(channel.depth(), depth(0, 0, 0));
    }

    #[test]
    fn a_full_channel_hands_its_next_place_to_the_longest_waiting() {
        let channel = channel(2, budget());
        let place = |token| Place { thread: 0, token };
        let first = channel.begin(asked(1, 0)).unwrap();
        let second = channel.begin(asked(2, 0)).unwrap();
        assert_eq!(channel.begin(asked(3, 0)), None);
        assert_eq!(channel.begin(asked(4, 0)), None);
        assert_eq!(channel.begin(asked(5, 0)), None);
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
        let channel = channel(2, Arc::clone(&budget));
        let first = channel.begin(asked(1, 60)).unwrap();
        assert!(budget.allows(7));
        let second = channel.begin(asked(2, 50)).unwrap();
        assert_eq!(channel.begin(asked(3, 40)), None);
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

    #[test]
    fn what_is_parked_has_a_bound_of_its_own() {
        let channel = channel(10, budget());
        let ids: Vec<_> = (0..5)
            .map(|token| channel.begin(asked(token, 0)).unwrap())
            .collect();
        for id in &ids[..3] {
            assert_eq!(channel.park(*id), Parking::Done(None));
        }
        let host = IpAddr::from([127, 0, 0, 1]);
        assert!(channel.waiting_memory().others.is_full_for(host));
        assert!(!channel.waiting_memory().commits.is_full_for(host));
        assert_eq!(channel.park(ids[3]), Parking::NoRoom);
        assert_eq!(channel.depth(), depth(2, 3, 0), "it keeps its place");
        assert_eq!(channel.park_charged(ids[4]), None);
        assert_eq!(channel.depth(), depth(1, 4, 0));
        channel.finish(ids[0]);
        channel.finish(ids[1]);
        assert_eq!(channel.park(ids[3]), Parking::Done(None));
        for id in ids {
            channel.finish(id);
        }
        assert_eq!(channel.waiting_memory().used_bytes(), 0);
    }
}
