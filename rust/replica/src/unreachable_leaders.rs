//! Unreachable leaders: the last connection ended, and no new leader is known.
//!
//! Until the controller decides, Metadata names no leader for their partitions. Apache's admin
//! client, told of a dead broker, waits for it until its own deadline, a minute (compare
//! KAFKA-20673).

use parking_lot::Mutex;

use pyrklog_base::clock::mono_ms;
use pyrklog_control::image::Image;

/// A leader that the controller keeps this long after its connection ended is named again: it may
/// be unreachable only for this broker.
const BELIEVED_MS: i64 = 3000;

/// See the module.
#[derive(Debug, Default)]
pub struct UnreachableLeaders {
    /// (broker, since when); few at any time.
    since: Mutex<Vec<(i32, i64)>>,
}

impl UnreachableLeaders {
    /// `broker` is unreachable since then.
    pub fn begins(&self, broker: i32, since_ms: i64) {
        let now_ms = mono_ms();
        let mut since = self.since.lock();
        since.retain(|(other, at_ms)| *other != broker && is_believed(*at_ms, now_ms));
        since.push((broker, since_ms));
    }

    /// `broker` accepts connections.
    pub fn ends(&self, broker: i32) {
        self.since.lock().retain(|(other, _)| *other != broker);
    }

    /// Forgets brokers that left the cluster: they count as reachable when they return.
    pub fn keep_known(&self, image: &Image) {
        let mut since = self.since.lock();
        since.retain(|(broker, _)| image.broker(*broker).is_some());
    }

    /// Those unreachable now.
    pub fn now(&self) -> Vec<i32> {
        let now_ms = mono_ms();
        let since = self.since.lock();
        since
            .iter()
            .filter(|(_, at_ms)| is_believed(*at_ms, now_ms))
            .map(|(broker, _)| *broker)
            .collect()
    }
}

fn is_believed(since_ms: i64, now_ms: i64) -> bool {
    now_ms - since_ms < BELIEVED_MS
}
