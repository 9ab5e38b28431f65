//! Unanswered requests at the control plane, at most `queued.max.requests`.
//!
//! Beyond that a connection keeps its request in its buffer, reads nothing more, and is woken when
//! there is room. A request whose answer must wait (for other clients, replication, the metastore)
//! is *parked*: it gives up its place and counts as waiting memory ([`Waiting`]).
//!
//! Two kinds need no place: requests between brokers, which clients must not delay; and heartbeats,
//! so that others' requests do not cost a member its session. There is at most one per connection,
//! and its body counts as receive memory.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use pyrklog_base::hash::FastMap;
use pyrklog_base::ids::{Place, RequestId};
use pyrklog_base::memory_budget::MemoryBudget;
use pyrklog_base::waiting_memory::{Charge, WaitingMemory};

/// A request for the channel.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Its connection.
    pub place: Place,
    /// Its client's address.
    pub host: IpAddr,
    /// Size of its copied body.
    pub body_bytes: usize,
    /// Whether it commits offsets.
    pub is_commit: bool,
    /// Whether it comes from another broker.
    pub is_broker: bool,
}

/// Divisor of the receive memory (`queued.max.request.bytes`) for waiting commits, and again for
/// all other requests: neither excludes the other.
const RECEIVE_MEMORY_SHARE: usize = 8;

/// Memory of requests that wait without a place.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// Offset commits, which wait for replication.
    pub commits: Arc<WaitingMemory>,
    /// All others.
    pub others: Arc<WaitingMemory>,
}

impl Waiting {
    /// For a given receive memory.
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

/// A channel's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelDepth {
    /// Requests with a place.
    pub in_flight: usize,
    /// Other brokers' requests and heartbeats.
    pub placeless: usize,
    /// Parked requests.
    pub parked: usize,
    /// Connections that wait for room.
    pub waiting: usize,
}

/// Result of parking a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parking {
    /// It is parked, was so before, or is answered; this connection may try now.
    Done(Option<Place>),
    /// No memory: it keeps its place and must be answered now.
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
    /// A channel for `max` requests, at least one. Bodies count as receive memory until answered or
    /// parked, and as waiting memory while parked.
    pub fn new(max: usize, budget: Arc<MemoryBudget>, waiting: Waiting) -> RequestChannel {
        RequestChannel {
            max: max.max(1),
            budget,
            waiting,
            inner: Mutex::default(),
        }
    }

    /// Reserves a place. `None` if the channel is full; the connection is woken later (see
    /// [`RequestChannel::finish`]).
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

    /// The same for a request that needs no place.
    pub fn begin_placeless(&self, asked: Asked) -> RequestId {
        let mut inner = self.inner.lock();
        let id = inner.next_id();
        inner.placeless.insert(id, asked);
        self.budget.add(asked.body_bytes);
        id
    }

    /// Parks a request. Ignored for an id that is unknown, parked, answered or without a place.
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

    /// The same if the caller charges the memory; returns the connection that may try now.
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

    /// Removes an answered request; returns its connection and the one that may try now. `None` for
    /// an id that is unknown or answered.
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

    /// Whether the request has a place or is parked.
    pub fn holds(&self, id: RequestId) -> bool {
        let inner = self.inner.lock();
        inner.in_flight.contains_key(&id) || inner.parked.contains_key(&id)
    }

    /// Whether the request comes from another broker.
    pub fn is_brokers(&self, id: RequestId) -> bool {
        let inner = self.inner.lock();
        let asked = inner.placeless.get(&id).or(inner.in_flight.get(&id));
        let parked = || inner.parked.get(&id).map(|parked| parked.is_broker);
        asked.map(|asked| asked.is_broker).or_else(parked) == Some(true)
    }

    /// The memory of parked requests.
    pub fn waiting_memory(&self) -> &Waiting {
        &self.waiting
    }

    /// A waiting connection was closed or did not use its turn: the next one, if there is room.
    pub fn next_waiting(&self) -> Option<Place> {
        let mut inner = self.inner.lock();
        if inner.in_flight.len() >= self.max {
            None
        } else {
            inner.waiting.pop_front()
        }
    }

    /// A waiting connection was closed.
    pub fn forget(&self, place: Place) {
        self.inner
            .lock()
            .waiting
            .retain(|waiting| *waiting != place);
    }

    /// Its state.
    pub fn depth(&self) -> ChannelDepth {
        let inner = self.inner.lock();
        ChannelDepth {
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

    fn depth(in_flight: usize, parked: usize, waiting: usize) -> ChannelDepth {
        ChannelDepth {
            in_flight,
            placeless: 0,
            parked,
            waiting,
        }
    }

    #[test]
    fn placeless_requests_pass_a_full_channel() {
        let budget = budget();
        let channel = channel(1, Arc::clone(&budget));
        let place = |token| Place { thread: 0, token };
        let first = channel.begin(asked(1, 10)).unwrap();
        assert_eq!(channel.begin(asked(2, 10)), None);
        let order = channel.begin_placeless(asked(3, 20));
        assert_eq!(budget.used_bytes(), 30);
        assert_eq!(
            channel.depth(),
            ChannelDepth {
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
    fn parked_requests_have_their_own_bound() {
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
