//! Leaders that have just gone: the connection to one ended, there is no other, and nobody has said
//! who leads instead.
//!
//! Metadata tells clients for that moment that such a partition has no leader, as it will once the
//! controller has spoken. A client that is told of the dead broker goes there: Apache's admin client
//! then waits for that broker until its own deadline, a minute (compare KAFKA-20673).

use parking_lot::Mutex;

use pyrklog_base::clock::mono_ms;
use pyrklog_control::image::Image;

/// A leader that still leads in the controller's eyes so long after its first connection ended is named
/// again: it may be away for this broker only.
const BELIEVED_MS: i64 = 3000;

/// See the module.
#[derive(Debug, Default)]
pub struct UnreachableLeaders {
    /// (Broker, since when); few at any time.
    since: Mutex<Vec<(i32, i64)>>,
}

impl UnreachableLeaders {
    /// `broker` is away, since then.
    pub fn begins(&self, broker: i32, since_ms: i64) {
        let now_ms = mono_ms();
        let mut since = self.since.lock();
        since.retain(|(other, at_ms)| *other != broker && is_believed(*at_ms, now_ms));
        since.push((broker, since_ms));
    }

    /// `broker` takes connections.
    pub fn ends(&self, broker: i32) {
        self.since.lock().retain(|(other, _)| *other != broker);
    }

    /// A broker that left the cluster, as all know now, is there when it comes back.
    pub fn keep_known(&self, image: &Image) {
        let mut since = self.since.lock();
        since.retain(|(broker, _)| image.broker(*broker).is_some());
    }

    /// Those that have just gone.
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
