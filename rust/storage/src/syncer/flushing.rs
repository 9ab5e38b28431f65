//! `flush.ms`: when which log is synced.

use std::cell::Cell;

use pyrklog_log::SyncScope;

use crate::log_dir_state::Partition;
use crate::syncer::{Syncer, Timer};
use pyrklog_base::clock::Now;

/// Logs due within this fraction of the shortest `flush.ms` are synced now, which bounds how often
/// all logs are examined.
const EARLY_SHARE: i64 = 8;

/// Delay before examining a log again that was due but could not be synced.
const AGAIN_MS: i64 = 5;

impl Syncer {
    /// Syncs what is due by `flush.ms` and schedules the next check, at the latest after the
    /// shortest `flush.ms`.
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
                // Records that are not written yet or cannot be synced now.
                until_ms = until_flush(partition).map(|until_ms| until_ms.max(AGAIN_MS));
            }
            next_ms.set(next_ms.get().min(until_ms.unwrap_or(i64::MAX)));
            Ok(())
        })?;
        let wait_ms = wait_ms(shortest_ms, next_ms.get());
        self.due_ms[Timer::Flush.index()] = Now::read().mono_ms.saturating_add(wait_ms);
        Ok(())
    }

    fn shortest_flush_ms(&self) -> i64 {
        let hosted = self.logs.registry.load();
        let own = hosted.partitions_in(&self.dir);
        let flush_ms = own.map(|partition| partition.topic.settings().log.flush_ms);
        flush_ms.min().unwrap_or(i64::MAX)
    }
}

fn early_ms(shortest_ms: i64) -> i64 {
    shortest_ms / EARLY_SHARE
}

/// Milliseconds until the next check, where the earliest record is due in `until_ms`.
fn wait_ms(shortest_ms: i64, until_ms: i64) -> i64 {
    let until_ms = until_ms.min(shortest_ms);
    until_ms.max(early_ms(shortest_ms)).max(1)
}

/// Milliseconds until records of a partition are due by its `flush.ms`; `None` if there are none.
fn until_flush(partition: &Partition) -> Option<i64> {
    let state = partition.lock();
    let log = state.log.as_ref()?;
    let until_ms = log.next_flush_due_ms()? - Now::read().wall_ms;
    // The clock was set back: sync now.
    let is_later = until_ms > log.config().flush_ms;
    Some(if is_later { 0 } else { until_ms })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syncer_queue::ShortestFlush;

    #[test]
    fn wait_between_checks_keeps_flush_ms() {
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
    fn shortest_flush_ms_follows_new_and_deleted_topics() {
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
