//! Requests that occupy a network thread for long: those with very many elements.
//!
//! The worst allowed one takes a quarter of a second. A thread handles one per turn, after
//! everything else, so that a short request waits for at most one of them.
//!
//! Other brokers go first: clients must not delay followers or the controller's commands. Among
//! clients, hosts take turns, so that one with many connections does not keep the others out.

use std::collections::VecDeque;
use std::net::IpAddr;

use pyrklog_base::hash::FastMap;
use pyrklog_base::ids::Token;

/// A request with more bytes counts as heavy, records excepted.
pub const FRAME_BYTES: usize = 64 * 1024;

/// So does one with more partitions.
pub const PARTITIONS: usize = 5_000;

/// So does one with a larger answer that the broker composes.
pub const REPLY_BYTES: usize = 512 * 1024;

/// Brokers' turns in a row while clients wait: all their fetches may be heavy.
const BROKERS_IN_A_ROW: usize = 4;

/// A network thread's heavy requests.
#[derive(Debug, Default)]
pub struct Heavy {
    brokers: VecDeque<Token>,
    clients: ByHost,
    brokers_in_a_row: usize,
    /// The connection whose turn it is.
    turn_of: Option<Token>,
    /// Its request is being handled.
    is_begun: bool,
}

impl Heavy {
    /// Whether connections wait for their turn.
    pub fn has_waiting(&self) -> bool {
        !self.brokers.is_empty() || !self.clients.is_empty()
    }

    /// Gives the next connection its turn.
    pub fn take_turn(&mut self) -> Option<Token> {
        self.turn_of = self.pop();
        self.turn_of
    }

    fn pop(&mut self) -> Option<Token> {
        let is_brokers = self.brokers_in_a_row < BROKERS_IN_A_ROW || self.clients.is_empty();
        if is_brokers && let Some(broker) = self.brokers.pop_front() {
            self.brokers_in_a_row += 1;
            return Some(broker);
        }
        self.brokers_in_a_row = 0;
        self.clients.pop()
    }

    /// A connection waits for its turn.
    pub fn wait(&mut self, is_broker: bool, host: IpAddr, token: Token) {
        if is_broker {
            self.brokers.push_back(token);
        } else {
            self.clients.push(host, token);
        }
    }

    /// Whether it is a connection's turn, which is then used.
    pub fn begin(&mut self, token: Token) -> bool {
        let is_its = self.turn_of == Some(token);
        self.is_begun |= is_its;
        is_its
    }

    /// A request was handled; true if it was heavy and ends the turn.
    pub fn end_request(&mut self) -> bool {
        let was_heavy = std::mem::take(&mut self.is_begun);
        if was_heavy {
            self.turn_of = None;
        }
        was_heavy
    }

    /// The turn is over, used or not.
    pub fn end_turn(&mut self) {
        self.turn_of = None;
        self.is_begun = false;
    }
}

/// Connections in order; hosts take turns.
#[derive(Debug, Default)]
struct ByHost {
    /// Hosts with connections, each once.
    hosts: VecDeque<IpAddr>,
    of_host: FastMap<IpAddr, VecDeque<Token>>,
}

impl ByHost {
    fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    fn push(&mut self, host: IpAddr, token: Token) {
        let own = self.of_host.entry(host).or_default();
        if own.is_empty() {
            self.hosts.push_back(host);
        }
        own.push_back(token);
    }

    fn pop(&mut self) -> Option<Token> {
        let host = self.hosts.pop_front()?;
        let own = self.of_host.get_mut(&host)?;
        let token = own.pop_front();
        if own.is_empty() {
            self.of_host.remove(&host);
        } else {
            self.hosts.push_back(host);
        }
        token
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_take_turns_and_brokers_go_first_but_not_for_ever() {
        let mut heavy = Heavy::default();
        let host = |number| IpAddr::from([127, 0, 0, number]);
        for token in 10..15 {
            heavy.clients.push(host(1), token);
        }
        heavy.clients.push(host(2), 20);
        heavy.clients.push(host(3), 30);
        heavy.brokers.extend(1..=6);
        let order: Vec<Token> = std::iter::from_fn(|| heavy.take_turn()).collect();
        assert_eq!(order, [1, 2, 3, 4, 10, 5, 6, 20, 30, 11, 12, 13, 14]);
        assert!(!heavy.has_waiting());
        assert!(heavy.clients.of_host.is_empty());
    }
}
