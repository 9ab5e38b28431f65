//! What waits for a thread, in order of time.

use std::collections::{BTreeMap, HashMap};

use pyrklog_log::MoveId;

/// Before any other time: what has ended, and is to be removed.
pub(super) const ENDED: i64 = i64::MIN;

/// Moves (`T`) for a thread, each at most once, with the time from which on (monotonic
/// milliseconds).
#[derive(Debug)]
pub(super) struct Due<T> {
    by_time: BTreeMap<(i64, MoveId), T>,
    times: HashMap<MoveId, i64>,
}

impl<T> Default for Due<T> {
    fn default() -> Due<T> {
        Due {
            by_time: BTreeMap::new(),
            times: HashMap::new(),
        }
    }
}

impl<T> Due<T> {
    /// Adds a move, or changes its time.
    pub fn put(&mut self, id: MoveId, due_ms: i64, one: T) {
        self.remove(id);
        self.times.insert(id, due_ms);
        self.by_time.insert((due_ms, id), one);
    }

    /// Takes a move out, if it waits.
    pub fn remove(&mut self, id: MoveId) -> Option<T> {
        let due_ms = self.times.remove(&id)?;
        self.by_time.remove(&(due_ms, id))
    }

    /// Takes the first move that is due.
    pub fn take(&mut self, now_ms: i64) -> Option<T> {
        let (&(due_ms, id), _) = self.by_time.first_key_value()?;
        (due_ms <= now_ms).then(|| self.remove(id)).flatten()
    }

    /// When the first one is due.
    pub fn next_ms(&self) -> Option<i64> {
        let (&(due_ms, _), _) = self.by_time.first_key_value()?;
        Some(due_ms)
    }

    /// Takes all.
    pub fn take_all(&mut self) -> impl Iterator<Item = T> + use<T> {
        self.times.clear();
        std::mem::take(&mut self.by_time).into_values()
    }

    /// Number of moves that wait.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        assert_eq!(self.times.len(), self.by_time.len());
        self.by_time.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_are_taken_in_order_of_time() {
        let mut due = Due::default();
        for (id, due_ms) in [(1, 20), (2, 10), (3, 30), (4, 20)] {
            due.put(id, due_ms, id);
        }
        assert_eq!((due.next_ms(), due.take(9)), (Some(10), None));
        let taken: Vec<_> = std::iter::from_fn(|| due.take(20)).collect();
        assert_eq!(taken, [2, 1, 4]);
        assert_eq!((due.next_ms(), due.len()), (Some(30), 1));
    }

    #[test]
    fn a_move_waits_once() {
        let mut due = Due::default();
        for due_ms in [20, 10, ENDED, ENDED] {
            due.put(1, due_ms, "one");
        }
        due.put(2, ENDED, "another");
        assert_eq!(due.len(), 2);
        assert_eq!(
            (due.take(ENDED), due.remove(2)),
            (Some("one"), Some("another"))
        );
        assert_eq!(
            (due.take(i64::MAX), due.remove(1), due.next_ms()),
            (None, None, None)
        );
        due.put(3, 5, "last");
        assert_eq!(due.take_all().collect::<Vec<_>>(), ["last"]);
        assert_eq!((due.len(), due.remove(3)), (0, None));
    }
}
