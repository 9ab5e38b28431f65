//! Timers of one network thread, usually one heap entry per connection.
//!
//! An earlier entry also serves a later wish: when it fires, the connection states its next one. So
//! not every request pushes an entry.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::ids::{NEVER_MS, Token};

/// See the module.
#[derive(Debug, Default)]
pub struct Timers {
    heap: BinaryHeap<Reverse<(i64, Token)>>,
}

impl Timers {
    /// Visits `token` by `due_ms`. `scheduled_ms`, updated here, is the connection's earliest entry
    /// ([`NEVER_MS`] for none).
    pub fn want(&mut self, token: Token, due_ms: i64, scheduled_ms: &mut i64) {
        if due_ms < *scheduled_ms {
            *scheduled_ms = due_ms;
            self.heap.push(Reverse((due_ms, token)));
        }
    }

    /// Next due time, or [`NEVER_MS`].
    pub fn next_due_ms(&self) -> i64 {
        self.heap
            .peek()
            .map_or(NEVER_MS, |Reverse((due_ms, _))| *due_ms)
    }

    /// Takes a due entry: its time and connection.
    pub fn pop_due(&mut self, now_ms: i64) -> Option<(i64, Token)> {
        if self.next_due_ms() > now_ms {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.heap.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_deadlines_share_the_earlier_entry() {
        let mut timers = Timers::default();
        let mut scheduled = NEVER_MS;
        for due_ms in [500, 501, 900] {
            timers.want(7, due_ms, &mut scheduled);
        }
        assert_eq!((timers.len(), scheduled), (1, 500));
        timers.want(7, 100, &mut scheduled);
        assert_eq!((timers.len(), scheduled), (2, 100));
        assert_eq!(timers.pop_due(99), None);
        assert_eq!(timers.pop_due(100), Some((100, 7)));
        assert_eq!(timers.pop_due(100), None);
        assert_eq!(timers.next_due_ms(), 500);
    }
}
