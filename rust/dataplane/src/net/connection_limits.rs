//! Limits of connections, in total and by host.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Resource, getrlimit};

use pyrklog_base::by_host::ByHost;

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
    pub listener: Arc<str>,
    /// Unique while the process lives.
    pub id: u64,
    /// Its place within the limits.
    pub permit: Permit,
}

#[derive(Debug)]
pub struct ConnectionLimits {
    max: usize,
    max_per_host: usize,
    counts: Mutex<ByHost>,
    waker: OwnedFd,
    full: AtomicBool,
}

/// One connection's place; dropped with the connection.
#[derive(Debug)]
pub struct Permit {
    limits: Arc<ConnectionLimits>,
    host: IpAddr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// `max.connections.per.ip`.
    Host,
    /// `max.connections`.
    Total,
}

impl ConnectionLimits {
    /// Errors: no file descriptor left.
    pub fn new(max: usize, max_per_host: usize) -> std::io::Result<Arc<ConnectionLimits>> {
        Ok(Arc::new(ConnectionLimits {
            max: max.max(1),
            max_per_host,
            counts: Mutex::default(),
            waker: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            full: AtomicBool::new(false),
        }))
    }

    /// Whether another connection may be accepted now. After a false, [`ConnectionLimits::wake`] is
    /// called when one closes.
    pub fn has_room(&self, for_brokers: bool) -> bool {
        let counts = self.counts.lock();
        let room = counts.total() < self.max_for(for_brokers);
        if !room {
            self.full.store(true, Ordering::Relaxed);
        }
        room
    }

    fn max_for(&self, for_brokers: bool) -> usize {
        let beyond = if for_brokers {
            (self.max / BROKERS_SHARE).max(1)
        } else {
            0
        };
        self.max.saturating_add(beyond)
    }

    /// A place for a connection from `host`.
    ///
    /// # Errors
    /// Why there is none.
    pub fn admit(self: &Arc<Self>, host: IpAddr, for_brokers: bool) -> Result<Permit, Refused> {
        let mut counts = self.counts.lock();
        if counts.total() >= self.max_for(for_brokers) {
            return Err(Refused::Total);
        }
        if counts.of(host) >= self.max_per_host {
            return Err(Refused::Host);
        }
        counts.add(host, 1);
        Ok(Permit {
            limits: Arc::clone(self),
            host,
        })
    }

    /// Readable after [`ConnectionLimits::wake`], until it is read.
    pub fn waker(&self) -> &OwnedFd {
        &self.waker
    }

    pub fn total(&self) -> usize {
        self.counts.lock().total()
    }

    /// Wakes the acceptor: there is room, a new listener, or the end.
    pub fn wake(&self) {
        let _ = rustix::io::write(&self.waker, &1u64.to_ne_bytes());
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut counts = self.limits.counts.lock();
        counts.subtract(self.host, 1);
        if self.limits.full.swap(false, Ordering::Relaxed) {
            drop(counts);
            self.limits.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_half_of_the_descriptors_to_the_logs() {
        assert_eq!(bounded_connections(1_000, Some(1_024)), 512);
        assert_eq!(bounded_connections(100, Some(1_024)), 100);
        assert_eq!(bounded_connections(usize::MAX, None), usize::MAX);
        assert_eq!(bounded_connections(5, Some(0)), 1);
        assert!(connections_max(usize::MAX) < usize::MAX);
    }

    #[test]
    fn limits_count_by_host_and_in_total_and_give_back() {
        let limits = ConnectionLimits::new(3, 2).unwrap();
        let host = |last| IpAddr::from([127, 0, 0, last]);
        let first = limits.admit(host(1), false).unwrap();
        let _second = limits.admit(host(1), false).unwrap();
        assert_eq!(limits.admit(host(1), false).unwrap_err(), Refused::Host);
        let third = limits.admit(host(2), false).unwrap();
        assert!(!limits.has_room(false));
        assert_eq!(limits.admit(host(3), false).unwrap_err(), Refused::Total);
        drop(third);
        assert!(limits.has_room(false));
        drop(first);
        assert_eq!(limits.total(), 1);
        assert!(limits.admit(host(1), false).is_ok());
    }
}
