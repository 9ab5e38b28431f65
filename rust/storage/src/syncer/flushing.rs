//! `flush.ms`: when which log is synced.

use std::cell::Cell;
use std::sync::Arc;

use pyrklog_log::SyncScope;

use crate::log_dir::Partition;
use crate::syncer::{Syncer, Timer};
use pyrklog_base::clock::Now;

/// What is due within this share of the shortest `flush.ms` is synced now, so that all logs are
/// looked through a few times in that span, however their records come.
const EARLY_SHARE: i64 = 8;

/// Until what was due for a sync and could not have it is looked at again.
const AGAIN_MS: i64 = 5;

impl Syncer {
    /// Syncs what is due by `flush.ms`, and says when something will be: not before records come
    /// that are as old as the shortest one.
    pub(super) fn flush_due(&mut self) -> Result<(), String> {
        let known = &self.dir.syncer.flush_ms;
        let shortest_ms = known.learn(|| self.shortest_flush_ms());
        if shortest_ms == i64::MAX {
            return Ok(());
        }
        let next_ms = Cell::new(i64::MAX);
        self.each_partition(|syncer, partition| {
            let mut until_ms = until_flush(partition);
            if until_ms.is_some_and(|until_ms| until_ms <= early_ms(shortest_ms)) {
                syncer.sync(partition, SyncScope::Written)?;
                // What is not written yet, or cannot be synced now.
                until_ms = until_flush(partition).map(|until_ms| until_ms.max(AGAIN_MS));
            }
            next_ms.set(next_ms.get().min(until_ms.unwrap_or(i64::MAX)));
            Ok(())
        })?;
        let wait_ms = wait_ms(shortest_ms, next_ms.get());
        self.due_ms[Timer::Flush as usize] = Now::read().mono_ms.saturating_add(wait_ms);
        Ok(())
    }

    fn shortest_flush_ms(&self) -> i64 {
        let held = self.logs.registry.load();
        let own = held
            .partitions()
            .filter(|partition| Arc::ptr_eq(&partition.dir, &self.dir));
        let flush_ms = own.map(|partition| partition.topic.settings().log.flush_ms);
        flush_ms.min().unwrap_or(i64::MAX)
    }
}

fn early_ms(shortest_ms: i64) -> i64 {
    shortest_ms / EARLY_SHARE
}

/// Until the next look, where the first of the records that are there is due in `until_ms`.
fn wait_ms(shortest_ms: i64, until_ms: i64) -> i64 {
    let until_ms = until_ms.min(shortest_ms);
    until_ms.max(early_ms(shortest_ms)).max(1)
}

/// How long records of a partition may wait to be synced, by its `flush.ms`; none do: `None`.
fn until_flush(partition: &Partition) -> Option<i64> {
    let state = partition.lock();
    let log = state.log.as_ref()?;
    let until_ms = log.next_flush_due_ms()? - Now::read().wall_ms;
    // The clock went back: nothing waits for longer than that.
    let is_later = until_ms > log.config().flush_ms;
    Some(if is_later { 0 } else { until_ms })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syncer_queue::ShortestFlush;

    /// Between two looks nothing grows older than `flush.ms`: what is due before the next look is
    /// synced now, and what comes meanwhile is due after it.
    #[test]
    fn nothing_grows_older_than_flush_ms_between_two_looks() {
        for shortest_ms in [1, 2, 7, 10, 100, 499, 500, 60_000] {
            for until_ms in (0..shortest_ms + 2).chain([i64::MAX]) {
                let wait_ms = wait_ms(shortest_ms, until_ms);
                assert!((1..=shortest_ms).contains(&wait_ms));
                let is_synced_now = until_ms <= early_ms(shortest_ms);
                assert!(is_synced_now || wait_ms <= until_ms.max(1));
            }
        }
    }

    #[test]
    fn a_shorter_flush_ms_is_told_and_a_topic_that_goes_takes_its_own_along() {
        let shortest = ShortestFlush::default();
        assert!(!shortest.is_any());
        assert!(shortest.lower(100) && !shortest.lower(100) && !shortest.lower(i64::MAX));
        assert!(shortest.lower(20));
        assert_eq!(shortest.learn(|| 100), 100);
        assert!(shortest.is_any());
        assert_eq!(shortest.learn(|| i64::MAX), i64::MAX);
        assert!(!shortest.is_any());
    }
}
