//! Accepts connections, enforces their limits, and deals them out to the network threads in turn.
//!
//! At `max.connections` nothing is accepted until one closes, and beyond
//! `max.connection.creation.rate` until there is room again: the rest waits in the kernel's backlog.
//! A host beyond `max.connections.per.ip` has its new connection closed at once.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with, sockopt};

use crate::net::connection_limits::{NewConnection, Refused, Room};
use crate::net::listeners::Listener;
use crate::net::message::Message;
use crate::net::network::Network;
use pyrklog_base::clock::{mono_ms, timespec};

/// While connections cannot be accepted (limit reached, no descriptors), the next try is after this
/// time or when one closes.
const RETRY_MS: i64 = 100;

/// Refused connections that are logged in ten seconds. Of failures to accept, which are retried
/// each [`RETRY_MS`], only the first is.
const REFUSALS_TOLD_MAX: u32 = 100;
const FAILURES_TOLD_MAX: u32 = 1;

static NEXT_CONNECTION: AtomicU64 = AtomicU64::new(1);

const WAKER: u64 = u64::MAX;

/// Edge-triggered: while paused, waiting connections must not spin the loop.
const EDGES: EventFlags = EventFlags::IN.union(EventFlags::ET);

#[derive(Debug)]
pub struct Acceptor {
    network: Arc<Network>,
    epoll: OwnedFd,
    listeners: Vec<Listener>,
    next_thread: usize,
    paused: bool,
}

impl Acceptor {
    /// Errors: no file descriptor left.
    pub fn new(network: Arc<Network>) -> std::io::Result<Acceptor> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let waker = network.limits.waker();
        epoll::add(&epoll, waker, EventData::new_u64(WAKER), EDGES)?;
        Ok(Acceptor {
            network,
            epoll,
            listeners: Vec::new(),
            next_thread: 0,
            paused: false,
        })
    }

    pub fn run(mut self) {
        let mut events = Vec::with_capacity(16);
        while !self.network.listeners.is_stopping() {
            self.adopt_listeners();
            let timeout = self.paused.then(|| timespec(RETRY_MS));
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref()) {
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
        for listener in self.network.listeners.take_added() {
            let data = EventData::new_u64(self.listeners.len() as u64);
            match epoll::add(&self.epoll, &listener.socket, data, EDGES) {
                Ok(()) => self.listeners.push(listener),
                Err(error) => self.network.events.notice(
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
            let listener = &self.listeners[index];
            let limits = &self.network.limits;
            match limits.room(&listener.name, listener.for_brokers, mono_ms()) {
                Room::Free => {}
                Room::Full => {
                    self.wait_for_room(index);
                    return;
                }
                Room::TooFast => {
                    let reason = format!(
                        "{}: max.connection.creation.rate is reached; others wait",
                        listener.name
                    );
                    self.client_notice("connections_too_fast", FAILURES_TOLD_MAX, reason);
                    self.paused = true;
                    return;
                }
            }
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            match acceptfrom_with(&self.listeners[index].socket, flags) {
                Ok((socket, peer)) => {
                    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                    if let Some(peer) = peer {
                        self.admit(index, socket, peer.ip().to_canonical(), peer.port());
                    }
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => {
                    // No descriptors or memory: connections that close free some.
                    let failures = &self.network.statistics.accepts_failed;
                    failures.fetch_add(1, Ordering::Relaxed);
                    self.client_notice("accept_failed", FAILURES_TOLD_MAX, error.to_string());
                    self.paused = true;
                    return;
                }
            }
        }
    }

    fn wait_for_room(&mut self, index: usize) {
        let statistics = &self.network.statistics;
        if !self.paused {
            statistics
                .connections_at_limit
                .fetch_add(1, Ordering::Relaxed);
        }
        self.paused = true;
        let reason = format!(
            "{}: {} connections, as many as max.connections and half of the process's descriptors allow; others wait",
            self.listeners[index].name,
            self.network.limits.total(),
        );
        self.client_notice("connections_at_limit", FAILURES_TOLD_MAX, reason);
    }

    fn admit(&mut self, index: usize, socket: OwnedFd, host: IpAddr, port: u16) {
        let listener = &self.listeners[index];
        let limits = &self.network.limits;
        let permit = match limits.admit(host, &listener.name, listener.for_brokers) {
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
            port,
            listener: Arc::clone(&self.listeners[index].name),
            id: NEXT_CONNECTION.fetch_add(1, Ordering::Relaxed),
            permit,
        };
        let inboxes = &self.network.inboxes;
        self.next_thread = (self.next_thread + 1) % inboxes.len();
        inboxes[self.next_thread].send(Message::Connect(Box::new(connection)));
    }

    fn set_options(&self, socket: &OwnedFd) {
        // Best effort: a connection works without these, if more slowly.
        let _ = sockopt::set_tcp_nodelay(socket, true);
        let _ = sockopt::set_socket_keepalive(socket, true);
        let config = &self.network.config;
        if let Ok(size) = usize::try_from(config.socket_send_buffer_bytes) {
            let _ = sockopt::set_socket_send_buffer_size(socket, size);
        }
        if let Ok(size) = usize::try_from(config.socket_receive_buffer_bytes) {
            let _ = sockopt::set_socket_recv_buffer_size(socket, size);
        }
    }

    fn client_notice(&self, event: &'static str, most: u32, reason: String) {
        let fields = vec![("reason", reason)];
        let events = &self.network.events;
        events.client_notice(event, most, mono_ms(), fields);
    }

    fn notice(&self, event: &'static str, level: &'static str, reason: String) {
        self.network
            .events
            .notice(event, level, vec![("reason", reason)]);
    }
}
