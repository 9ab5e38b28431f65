//! Bounds the memory of requests that wait without a place in the request channel.
//!
//! A host may have no more than it leaves free: the first gets up to half, the next a quarter.

use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::by_host::ByHost;

/// Memory of a waiting request besides its body: its task and the parsed body.
pub const REQUEST_FIXED_BYTES: usize = 16 * 1024;

/// See the module.
#[derive(Debug)]
pub struct WaitingMemory {
    max_bytes: usize,
    used: Mutex<ByHost>,
}

/// Memory of one request, returned on drop.
#[derive(Debug)]
pub struct Charge {
    memory: Arc<WaitingMemory>,
    host: IpAddr,
    bytes: usize,
}

impl WaitingMemory {
    /// `max_bytes` over all hosts.
    pub fn new(max_bytes: usize) -> WaitingMemory {
        WaitingMemory {
            max_bytes,
            used: Mutex::default(),
        }
    }

    /// Counts a request of `host`; `None` without room. The first one always fits.
    pub fn charge(self: &Arc<Self>, host: IpAddr, body_bytes: usize) -> Option<Charge> {
        let bytes = body_bytes + REQUEST_FIXED_BYTES;
        let mut used = self.used.lock();
        let has_room = used.total() == 0 || self.leaves_room(&used, host, bytes);
        has_room.then(|| {
            used.add(host, bytes);
            self.counted(host, bytes)
        })
    }

    /// The same for a request that can no longer be refused.
    pub fn charge_anyway(self: &Arc<Self>, host: IpAddr, body_bytes: usize) -> Charge {
        let bytes = body_bytes + REQUEST_FIXED_BYTES;
        self.used.lock().add(host, bytes);
        self.counted(host, bytes)
    }

    fn counted(self: &Arc<Self>, host: IpAddr, bytes: usize) -> Charge {
        Charge {
            memory: Arc::clone(self),
            host,
            bytes,
        }
    }

    /// Whether `host` must not begin requests that cannot be refused later.
    pub fn is_full_for(&self, host: IpAddr) -> bool {
        let used = self.used.lock();
        used.total() > 0 && !self.leaves_room(&used, host, REQUEST_FIXED_BYTES)
    }

    /// Whether `host`, with `bytes` more, has no more than it leaves free.
    fn leaves_room(&self, used: &ByHost, host: IpAddr, bytes: usize) -> bool {
        used.of(host) + bytes <= self.max_bytes.saturating_sub(used.total() + bytes)
    }

    /// Bytes in use.
    pub fn used_bytes(&self) -> usize {
        self.used.lock().total()
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.memory.used.lock().subtract(self.host, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn dropped_charge_frees_memory_and_the_first_always_fits() {
        let memory = Arc::new(WaitingMemory::new(2 * (2 * REQUEST_FIXED_BYTES + 10)));
        let first = memory.charge(host(1), 1_000_000);
        assert!(first.is_some());
        assert!(memory.charge(host(1), 0).is_none());
        assert!(memory.is_full_for(host(1)) && memory.is_full_for(host(2)));
        drop(first);
        assert!(!memory.is_full_for(host(1)));
        let two = [memory.charge(host(1), 4), memory.charge(host(1), 6)];
        assert!(two.iter().all(Option::is_some));
        assert!(memory.charge(host(1), 0).is_none());
        let forced = memory.charge_anyway(host(1), 5);
        assert_eq!(memory.used_bytes(), 3 * REQUEST_FIXED_BYTES + 15);
        drop((two, forced));
        assert_eq!(memory.used_bytes(), 0);
        assert!(memory.used.lock().is_empty());
    }

    #[test]
    fn one_host_cannot_take_all_waiting_memory() {
        let memory = Arc::new(WaitingMemory::new(64 * REQUEST_FIXED_BYTES));
        let fill = |last| {
            let charges = std::iter::from_fn(|| memory.charge(host(last), 0));
            charges.collect::<Vec<_>>()
        };
        let charges: Vec<_> = (1..=4).map(fill).collect();
        let counts: Vec<usize> = charges.iter().map(Vec::len).collect();
        assert_eq!(counts, [32, 16, 8, 4]);
        assert!(memory.is_full_for(host(1)) && !memory.is_full_for(host(5)));
        drop(charges);
        assert_eq!(memory.used_bytes(), 0);
    }
}
