//! Limits of connections: in total, by host, by listener, and of new ones a second.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Resource, getrlimit};

use crate::net::creation_rate::CreationRate;
use pyrklog_base::by_host::ByHost;
use pyrklog_base::hash::FastMap;
use pyrklog_control::seam::ConnectionQuotas;

/// Connections get at most this share of the process's descriptors: the rest is for segments, which
/// have to be written, and for whatever writing them needs.
const DESCRIPTOR_SHARE: u64 = 2;

/// Beyond the limit, brokers still get this share of it through a listener of their own: clients
/// that take every connection must not part replicas from their leaders (KIP-402).
const BROKERS_SHARE: usize = 16;

/// `max.connections`, or what the limit of descriptors leaves of it.
pub fn connections_max(configured: usize) -> usize {
    bounded_connections(configured, getrlimit(Resource::Nofile).current)
}

fn bounded_connections(configured: usize, descriptors: Option<u64>) -> usize {
    let share = descriptors.map_or(u64::MAX, |all| all / DESCRIPTOR_SHARE);
    configured
        .min(usize::try_from(share).unwrap_or(usize::MAX))
        .max(1)
}

/// A connection on its way to its network thread.
#[derive(Debug)]
pub struct NewConnection {
    /// Nonblocking.
    pub socket: OwnedFd,
    pub host: IpAddr,
    pub port: u16,
    pub listener: Arc<str>,
    /// Unique while the process lives.
    pub id: u64,
    /// Its place within the limits.
    pub permit: Permit,
}

/// The limits, which may change at run time, and what counts towards them.
#[derive(Debug)]
pub struct ConnectionLimits {
    state: Mutex<State>,
    waker: OwnedFd,
    full: AtomicBool,
}

#[derive(Debug)]
struct State {
    quotas: ConnectionQuotas,
    by_host: ByHost,
    /// Of each listener that has accepted anything.
    by_listener: FastMap<Arc<str>, OfListener>,
    created: CreationRate,
}

#[derive(Debug, Default)]
struct OfListener {
    count: usize,
    created: CreationRate,
}

/// One connection's place; dropped with the connection.
#[derive(Debug)]
pub struct Permit {
    limits: Arc<ConnectionLimits>,
    host: IpAddr,
    listener: Arc<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// `max.connections.per.ip` or its overrides.
    Host,
    /// `max.connections`.
    Total,
}

/// Whether another connection may be accepted now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    Free,
    /// `max.connections`: [`ConnectionLimits::wake`] is called when one closes.
    Full,
    /// `max.connection.creation.rate`.
    TooFast,
}

impl ConnectionLimits {
    /// Errors: no file descriptor left.
    pub fn new(quotas: ConnectionQuotas) -> std::io::Result<Arc<ConnectionLimits>> {
        let state = State {
            created: CreationRate::new(quotas.max_per_second),
            quotas,
            by_host: ByHost::default(),
            by_listener: FastMap::default(),
        };
        Ok(Arc::new(ConnectionLimits {
            state: Mutex::new(state),
            waker: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            full: AtomicBool::new(false),
        }))
    }

    /// Changes the limits. Existing connections stay.
    pub fn set_quotas(&self, quotas: ConnectionQuotas, now_ms: i64) {
        let mut state = self.state.lock();
        state.created.set(quotas.max_per_second, now_ms);
        let State { by_listener, .. } = &mut *state;
        for (name, of_listener) in by_listener {
            let (_, max_per_second) = quotas.of_listener(name);
            of_listener.created.set(max_per_second, now_ms);
        }
        state.quotas = quotas;
        drop(state);
        self.wake();
    }

    /// Whether `listener` may accept a connection.
    pub fn room(&self, listener: &Arc<str>, for_brokers: bool, now_ms: i64) -> Room {
        let mut state = self.state.lock();
        if state.is_full(listener, for_brokers) {
            self.full.store(true, Ordering::Relaxed);
            return Room::Full;
        }
        // As by Kafka, the rate of all listeners does not hold up brokers.
        let is_free = for_brokers || state.created.has_room(now_ms);
        match is_free && state.of_listener(listener).created.has_room(now_ms) {
            true => Room::Free,
            false => Room::TooFast,
        }
    }

    /// A place for a connection from `host`, which counts towards the rates in any case.
    ///
    /// # Errors
    /// Why there is none.
    pub fn admit(
        self: &Arc<Self>,
        host: IpAddr,
        listener: &Arc<str>,
        for_brokers: bool,
    ) -> Result<Permit, Refused> {
        let mut state = self.state.lock();
        state.created.count();
        state.of_listener(listener).created.count();
        if state.is_full(listener, for_brokers) {
            return Err(Refused::Total);
        }
        if state.by_host.of(host) >= state.quotas.max_of_host(host) {
            return Err(Refused::Host);
        }
        state.by_host.add(host, 1);
        state.of_listener(listener).count += 1;
        Ok(Permit {
            limits: Arc::clone(self),
            host,
            listener: Arc::clone(listener),
        })
    }

    /// Readable after [`ConnectionLimits::wake`], until it is read.
    pub fn waker(&self) -> &OwnedFd {
        &self.waker
    }

    pub fn total(&self) -> usize {
        self.state.lock().by_host.total()
    }

    /// Wakes the acceptor: there is room, a new listener, or the end.
    pub fn wake(&self) {
        let _ = rustix::io::write(&self.waker, &1u64.to_ne_bytes());
    }
}

impl State {
    fn of_listener(&mut self, listener: &Arc<str>) -> &mut OfListener {
        let quotas = &self.quotas;
        let entry = self.by_listener.entry(Arc::clone(listener));
        entry.or_insert_with(|| OfListener {
            count: 0,
            created: CreationRate::new(quotas.of_listener(listener).1),
        })
    }

    fn is_full(&mut self, listener: &Arc<str>, for_brokers: bool) -> bool {
        let max = self.quotas.max.max(1);
        let beyond = if for_brokers {
            (max / BROKERS_SHARE).max(1)
        } else {
            0
        };
        let (listener_max, _) = self.quotas.of_listener(listener);
        self.by_host.total() >= max.saturating_add(beyond)
            || self.of_listener(listener).count >= listener_max
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.limits.state.lock();
        state.by_host.subtract(self.host, 1);
        state.of_listener(&self.listener).count -= 1;
        if self.limits.full.swap(false, Ordering::Relaxed) {
            drop(state);
            self.limits.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pyrklog_control::seam::ListenerQuota;

    #[test]
    fn connections_leave_half_of_the_descriptors_to_the_logs() {
        assert_eq!(bounded_connections(1_000, Some(1_024)), 512);
        assert_eq!(bounded_connections(100, Some(1_024)), 100);
        assert_eq!(bounded_connections(usize::MAX, None), usize::MAX);
        assert_eq!(bounded_connections(5, Some(0)), 1);
        assert!(connections_max(usize::MAX) < usize::MAX);
    }

    fn host(last: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, last])
    }

    #[test]
    fn limits_count_by_host_and_in_total_and_give_back() {
        let limits = ConnectionLimits::new(ConnectionQuotas::new(3, 2)).unwrap();
        let clients = Arc::from("CLIENTS");
        let admit = |last| limits.admit(host(last), &clients, false);
        let room = || limits.room(&clients, false, 0);
        let first = admit(1).unwrap();
        let _second = admit(1).unwrap();
        assert_eq!(admit(1).unwrap_err(), Refused::Host);
        let third = admit(2).unwrap();
        assert_eq!(room(), Room::Full);
        assert_eq!(admit(3).unwrap_err(), Refused::Total);
        drop(third);
        assert_eq!(room(), Room::Free);
        drop(first);
        assert_eq!(limits.total(), 1);
        assert!(admit(1).is_ok());
    }

    #[test]
    fn some_hosts_have_limits_of_their_own() {
        let quotas = ConnectionQuotas {
            max_of_hosts: vec![(host(1), 2), (host(2), 0)],
            ..ConnectionQuotas::new(10, 1)
        };
        let limits = ConnectionLimits::new(quotas).unwrap();
        let clients = Arc::from("CLIENTS");
        let admit = |last| limits.admit(host(last), &clients, false);
        let _admitted = (admit(1).unwrap(), admit(1).unwrap(), admit(3).unwrap());
        for last in 1..=3 {
            assert_eq!(admit(last).unwrap_err(), Refused::Host, "{last}");
        }
    }

    #[test]
    fn a_listeners_limit_leaves_the_others_alone() {
        let of_clients = ListenerQuota {
            name: "CLIENTS".to_owned(),
            max: 1,
            max_per_second: usize::MAX,
        };
        let quotas = ConnectionQuotas {
            of_listeners: vec![of_clients],
            ..ConnectionQuotas::new(10, 10)
        };
        let limits = ConnectionLimits::new(quotas).unwrap();
        let (clients, others) = (Arc::from("CLIENTS"), Arc::from("OTHERS"));
        let only = limits.admit(host(1), &clients, false).unwrap();
        assert_eq!(limits.room(&clients, false, 0), Room::Full);
        assert_eq!(
            limits.admit(host(1), &clients, false).unwrap_err(),
            Refused::Total
        );
        let _other = limits.admit(host(1), &others, false).unwrap();
        assert_eq!(limits.room(&others, false, 0), Room::Free);
        drop(only);
        assert_eq!(limits.room(&clients, false, 0), Room::Free);
    }

    #[test]
    fn changed_limits_hold_for_the_next_connection() {
        let limits = ConnectionLimits::new(ConnectionQuotas::new(1, 10)).unwrap();
        let clients = Arc::from("CLIENTS");
        let _first = limits.admit(host(1), &clients, false).unwrap();
        assert_eq!(limits.room(&clients, false, 0), Room::Full);
        limits.set_quotas(ConnectionQuotas::new(2, 10), 0);
        assert_eq!(limits.room(&clients, false, 0), Room::Free);
        let _second = limits.admit(host(1), &clients, false).unwrap();
        limits.set_quotas(ConnectionQuotas::new(1, 10), 0);
        assert_eq!(limits.total(), 2);
        assert_eq!(limits.room(&clients, false, 0), Room::Full);
    }

    #[test]
    fn a_rate_holds_up_clients_and_not_brokers() {
        let quotas = ConnectionQuotas {
            max_per_second: 2,
            ..ConnectionQuotas::new(100, 100)
        };
        let limits = ConnectionLimits::new(quotas.clone()).unwrap();
        let (clients, brokers) = (Arc::from("CLIENTS"), Arc::from("BROKERS"));
        let room = |now_ms| limits.room(&clients, false, now_ms);
        assert_eq!(room(0), Room::Free);
        let _admitted = [1, 2].map(|last| limits.admit(host(last), &clients, false).unwrap());
        assert_eq!((room(0), room(499)), (Room::TooFast, Room::TooFast));
        assert_eq!(limits.room(&brokers, true, 499), Room::Free);
        assert_eq!(room(500), Room::Free);
        // A rate of one listener holds up that one, also where only brokers come.
        let of_brokers = ListenerQuota {
            name: "BROKERS".to_owned(),
            max: usize::MAX,
            max_per_second: 1,
        };
        let quotas = ConnectionQuotas {
            of_listeners: vec![of_brokers],
            ..quotas
        };
        limits.set_quotas(quotas, 500);
        let _broker = limits.admit(host(1), &brokers, true).unwrap();
        assert_eq!(limits.room(&brokers, true, 500), Room::TooFast);
        assert_eq!(limits.room(&brokers, true, 1_500), Room::Free);
    }
}
