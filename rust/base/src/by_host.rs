//! A sum over hosts, and each host's part of it.

use std::net::IpAddr;

use crate::hash::FastMap;

/// See the module.
#[derive(Debug, Default)]
pub struct ByHost {
    total: usize,
    by_host: FastMap<IpAddr, usize>,
}

impl ByHost {
    /// The sum.
    pub fn total(&self) -> usize {
        self.total
    }

    /// A host's part.
    pub fn of(&self, host: IpAddr) -> usize {
        self.by_host.get(&host).copied().unwrap_or(0)
    }

    /// Adds to a host's part.
    pub fn add(&mut self, host: IpAddr, count: usize) {
        self.total += count;
        *self.by_host.entry(host).or_insert(0) += count;
    }

    /// Takes from a host's part; forgets hosts without any.
    pub fn subtract(&mut self, host: IpAddr, count: usize) {
        self.total -= count;
        if let Some(part) = self.by_host.get_mut(&host) {
            *part -= count;
            if *part == 0 {
                self.by_host.remove(&host);
            }
        }
    }

    /// Whether no host has any.
    pub fn is_empty(&self) -> bool {
        self.by_host.is_empty()
    }
}
