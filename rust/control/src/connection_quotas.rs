//! How many connections clients may have, and make.

use std::net::IpAddr;

/// Limits of connections, of the whole broker and of its parts. They change at run time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionQuotas {
    /// `max.connections`.
    pub max: usize,
    /// `max.connections.per.ip`.
    pub max_per_host: usize,
    /// `max.connections.per.ip.overrides`.
    pub max_of_hosts: Vec<(IpAddr, usize)>,
    /// `max.connection.creation.rate`: new connections a second.
    pub max_per_second: usize,
    /// Of listeners with limits of their own.
    pub of_listeners: Vec<ListenerQuota>,
}

/// The limits of one listener (`listener.name.NAME.` before the option's name).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerQuota {
    /// The listener's name.
    pub name: String,
    /// `max.connections`.
    pub max: usize,
    /// `max.connection.creation.rate`.
    pub max_per_second: usize,
}

impl ConnectionQuotas {
    /// Limits of the number in all, and of each host's.
    pub fn new(max: usize, max_per_host: usize) -> ConnectionQuotas {
        ConnectionQuotas {
            max,
            max_per_host,
            max_of_hosts: Vec::new(),
            max_per_second: usize::MAX,
            of_listeners: Vec::new(),
        }
    }

    /// Most connections of a host.
    pub fn max_of_host(&self, host: IpAddr) -> usize {
        let own = self.max_of_hosts.iter().find(|(one, _)| *one == host);
        own.map_or(self.max_per_host, |(_, max)| *max)
    }

    /// Most connections of a listener, and most new ones a second.
    pub fn of_listener(&self, name: &str) -> (usize, usize) {
        let own = self.of_listeners.iter().find(|one| one.name == name);
        own.map_or((usize::MAX, usize::MAX), |one| {
            (one.max, one.max_per_second)
        })
    }
}
