//! Accepts connections, enforces the limits on their number, and deals them out to the network
//! threads in turn.
//!
//! At `max.connections` nothing is accepted until one closes: the rest waits in the kernel's
//! backlog. A host beyond `max.connections.per.ip` has its new connection closed at once.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with, sockopt};
use rustix::process::{Resource, getrlimit};

use crate::base::clock::mono_ms;
use crate::base::hash::FastMap;
use crate::message::Message;
use crate::shared::Shared;

/// While connections cannot be accepted (limit reached, no descriptors), the next try is after
/// this time or when one closes.
const RETRY_MS: i64 = 100;

/// Of connections that were refused, so many are told of in ten seconds; of failures to accept one,
/// which are tried again each [`RETRY_MS`], the first.
const REFUSALS_TOLD_MAX: u32 = 100;
const FAILURES_TOLD_MAX: u32 = 1;

/// Of the descriptors that the process may have, connections get no more than this share: the rest is
/// for segments, which have to be written, and for what is waited for in order to write them.
const DESCRIPTOR_SHARE: u64 = 2;

/// Beyond the limit, brokers still get this part of it through a listener of their own: clients that
/// take every connection must not part replicas from their leaders (KIP-402).
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
    /// The socket, nonblocking.
    pub socket: OwnedFd,
    /// Peer's address.
    pub host: IpAddr,
    /// Listener's name.
    pub listener: Arc<str>,
    /// Unique while the process lives.
    pub id: u64,
    /// Its place within the limits.
    pub permit: Permit,
}

/// Counts connections, in total and by host.
#[derive(Debug)]
pub struct ConnectionLimits {
    max: usize,
    max_per_host: usize,
    counts: Mutex<Counts>,
    waker: OwnedFd,
    full: AtomicBool,
}

#[derive(Debug, Default)]
struct Counts {
    total: usize,
    by_host: FastMap<IpAddr, usize>,
}

/// One connection's place; dropped with the connection.
#[derive(Debug)]
pub struct Permit {
    limits: Arc<ConnectionLimits>,
    host: IpAddr,
}

/// Why there is no place.
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

    /// Whether another connection may be accepted now. After a false, [`ConnectionLimits::wake`]
    /// is called when one closes.
    fn has_room(&self, for_brokers: bool) -> bool {
        let counts = self.counts.lock();
        let room = counts.total < self.max_for(for_brokers);
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

    pub(crate) fn admit(
        self: &Arc<Self>,
        host: IpAddr,
        for_brokers: bool,
    ) -> Result<Permit, Refused> {
        let mut counts = self.counts.lock();
        if counts.total >= self.max_for(for_brokers) {
            return Err(Refused::Total);
        }
        let of_host = counts.by_host.entry(host).or_insert(0);
        if *of_host >= self.max_per_host {
            return Err(Refused::Host);
        }
        *of_host += 1;
        counts.total += 1;
        Ok(Permit {
            limits: Arc::clone(self),
            host,
        })
    }

    /// Connections now.
    pub fn total(&self) -> usize {
        self.counts.lock().total
    }

    /// Wakes the acceptor: there is room, a new listener, or the end.
    pub fn wake(&self) {
        let _ = rustix::io::write(&self.waker, &1u64.to_ne_bytes());
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut counts = self.limits.counts.lock();
        counts.total -= 1;
        if let Some(of_host) = counts.by_host.get_mut(&self.host) {
            *of_host -= 1;
            if *of_host == 0 {
                counts.by_host.remove(&self.host);
            }
        }
        if self.limits.full.swap(false, Ordering::Relaxed) {
            drop(counts);
            self.limits.wake();
        }
    }
}

/// A bound socket.
#[derive(Debug)]
pub struct Listener {
    /// Listener's name.
    pub name: Arc<str>,
    /// The socket, nonblocking.
    pub socket: OwnedFd,
    /// Whether it is the one between brokers, and not the one of clients too.
    pub for_brokers: bool,
}

/// The listeners, and the order to end.
#[derive(Debug, Default)]
pub struct Listeners {
    added: Mutex<Vec<Listener>>,
    stopping: AtomicBool,
}

impl Listeners {
    /// Hands a listener to the acceptor thread; [`ConnectionLimits::wake`] makes it look.
    pub fn add(&self, listener: Listener) {
        self.added.lock().push(listener);
    }

    /// Ends the acceptor at its next look; its listeners close.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }
}

static NEXT_CONNECTION: AtomicU64 = AtomicU64::new(1);

const WAKER: u64 = u64::MAX;

/// The acceptor thread.
#[derive(Debug)]
pub struct Acceptor {
    shared: Arc<Shared>,
    epoll: OwnedFd,
    listeners: Vec<Listener>,
    next_thread: usize,
    paused: bool,
}

impl Acceptor {
    /// Errors: no file descriptor left.
    pub fn new(shared: Arc<Shared>) -> std::io::Result<Acceptor> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let waker = &shared.limits.waker;
        epoll::add(
            &epoll,
            waker,
            EventData::new_u64(WAKER),
            EventFlags::IN | EventFlags::ET,
        )?;
        Ok(Acceptor {
            shared,
            epoll,
            listeners: Vec::new(),
            next_thread: 0,
            paused: false,
        })
    }

    /// Runs until [`Listeners::stop`].
    pub fn run(mut self) {
        let mut events = Vec::with_capacity(16);
        while !self.shared.listeners.stopping.load(Ordering::Acquire) {
            self.adopt_listeners();
            let timeout = Timespec {
                tv_sec: 0,
                tv_nsec: RETRY_MS * 1_000_000,
            };
            let timeout = if self.paused { Some(&timeout) } else { None };
            events.clear();
            let waited = epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                timeout,
            );
            match waited {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => {
                    self.notice("acceptor_failed", "error", error.to_string());
                    return;
                }
            }
            self.paused = false;
            for index in 0..self.listeners.len() {
                self.accept_from(index);
            }
        }
    }

    fn adopt_listeners(&mut self) {
        for listener in self.shared.listeners.added.lock().drain(..) {
            let data = EventData::new_u64(self.listeners.len() as u64);
            // Edge-triggered: while paused, waiting connections must not spin the loop.
            match epoll::add(
                &self.epoll,
                &listener.socket,
                data,
                EventFlags::IN | EventFlags::ET,
            ) {
                Ok(()) => self.listeners.push(listener),
                Err(error) => self.shared.events.notice(
                    "listener_failed",
                    "error",
                    vec![
                        ("listener", listener.name.to_string()),
                        ("reason", error.to_string()),
                    ],
                ),
            }
        }
    }

    fn accept_from(&mut self, index: usize) {
        loop {
            if !self
                .shared
                .limits
                .has_room(self.listeners[index].for_brokers)
            {
                self.wait_for_room(index);
                return;
            }
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            match acceptfrom_with(&self.listeners[index].socket, flags) {
                Ok((socket, peer)) => {
                    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                    if let Some(peer) = peer {
                        self.admit(index, socket, peer.ip().to_canonical());
                    }
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => {
                    // No descriptors or no memory: connections close in time.
                    let failures = &self.shared.statistics.accepts_failed;
                    failures.fetch_add(1, Ordering::Relaxed);
                    self.client_notice("accept_failed", FAILURES_TOLD_MAX, error.to_string());
                    self.paused = true;
                    return;
                }
            }
        }
    }

    fn wait_for_room(&mut self, index: usize) {
        let statistics = &self.shared.statistics;
        if !self.paused {
            statistics
                .connections_at_limit
                .fetch_add(1, Ordering::Relaxed);
        }
        self.paused = true;
        let reason = format!(
            "{}: {} connections, as many as max.connections and half of the process's descriptors allow; others wait",
            self.listeners[index].name,
            self.shared.limits.total(),
        );
        self.client_notice("connections_at_limit", FAILURES_TOLD_MAX, reason);
    }

    fn admit(&mut self, index: usize, socket: OwnedFd, host: IpAddr) {
        let for_brokers = self.listeners[index].for_brokers;
        let permit = match self.shared.limits.admit(host, for_brokers) {
            Ok(permit) => permit,
            Err(refused) => {
                let limit = match refused {
                    Refused::Host => "max.connections.per.ip",
                    Refused::Total => "max.connections",
                };
                let reason = format!("{host}: {limit} is reached");
                self.client_notice("connection_refused", REFUSALS_TOLD_MAX, reason);
                return;
            }
        };
        self.set_options(&socket);
        let connection = NewConnection {
            socket,
            host,
            listener: Arc::clone(&self.listeners[index].name),
            id: NEXT_CONNECTION.fetch_add(1, Ordering::Relaxed),
            permit,
        };
        let inboxes = &self.shared.inboxes;
        self.next_thread = (self.next_thread + 1) % inboxes.len();
        inboxes[self.next_thread].send(Message::Connect(Box::new(connection)));
    }

    fn set_options(&self, socket: &OwnedFd) {
        // Best effort: a connection works without any of these, if more slowly.
        let _ = sockopt::set_tcp_nodelay(socket, true);
        let _ = sockopt::set_socket_keepalive(socket, true);
        let config = &self.shared.config;
        if let Ok(size) = usize::try_from(config.socket_send_buffer_bytes) {
            let _ = sockopt::set_socket_send_buffer_size(socket, size);
        }
        if let Ok(size) = usize::try_from(config.socket_receive_buffer_bytes) {
            let _ = sockopt::set_socket_recv_buffer_size(socket, size);
        }
    }

    fn client_notice(&self, event: &'static str, most: u32, reason: String) {
        let fields = vec![("reason", reason)];
        let events = &self.shared.events;
        events.client_notice(event, most, mono_ms(), fields);
    }

    fn notice(&self, event: &'static str, level: &'static str, reason: String) {
        self.shared
            .events
            .notice(event, level, vec![("reason", reason)]);
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
