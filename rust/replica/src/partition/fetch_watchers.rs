//! Fetches and fetch sessions that watch a partition.

use std::sync::Arc;

use pyrklog_log::{Isolation, Log};

use super::PartitionState;
use crate::fetch_watch::{Change, FetchWatch, FetchWatcher, Wake, WatchKey, WatchTerms};
use pyrklog_base::hash::FastMap;
use pyrklog_base::network_event::NetworkEvent;
use pyrklog_control::outbox::Outbox;

impl PartitionState {
    /// Watches this partition as the watch's `position`.
    pub fn add_fetch_watcher(&mut self, watch: &Arc<FetchWatch>, position: u32) {
        let isolation = watch.terms().isolation;
        let segment = bound_segment(self.log.as_ref(), isolation);
        let watcher = FetchWatcher::new(Arc::clone(watch), position, segment);
        self.fetch_watchers.insert(watch.key(), watcher);
    }

    /// Ends the watch.
    pub fn remove_fetch_watcher(&mut self, key: WatchKey) {
        self.fetch_watchers.remove(&key);
        if self.fetch_watchers.is_empty() {
            self.fetch_watchers = FastMap::default();
        }
    }

    pub(super) fn notify_fetches(
        &mut self,
        new_bytes: usize,
        has_grown: bool,
        visible: bool,
        outbox: &mut Outbox,
    ) {
        if self.fetch_watchers.is_empty() || !(has_grown || visible) {
            return;
        }
        let new_bytes = i64::try_from(new_bytes).unwrap_or(i64::MAX);
        let mut segments = BoundSegments::of(self.log.as_ref());
        for watcher in self.fetch_watchers.values_mut() {
            let terms = watcher.watch.terms();
            let wakes = match terms.isolation {
                Isolation::LogEnd => has_grown || visible && terms.notify_high_watermark,
                _ if !visible => continue,
                _ => true,
            };
            let segment = segments.bound(terms.isolation);
            let has_new_segment = segment != watcher.bound_segment;
            watcher.bound_segment = segment;
            wake(watcher.note_news(new_bytes, wakes, has_new_segment), outbox);
        }
    }

    /// The partition changed so that every delayed fetch must look at it.
    pub fn wake_fetches(&mut self, outbox: &mut Outbox) {
        self.wake_doubting(outbox);
        let change = Change {
            wakes: true,
            ..Change::RENEWAL
        };
        self.wake_some_fetches(change, |_| true, outbox);
    }

    /// Notes a change at the watches that it concerns, and wakes those it completes.
    pub(super) fn wake_some_fetches(
        &self,
        change: Change,
        concerns: impl Fn(WatchTerms) -> bool,
        outbox: &mut Outbox,
    ) {
        let concerned = self.fetch_watchers.values();
        for watcher in concerned.filter(|watcher| concerns(watcher.watch.terms())) {
            wake(watcher.watch.note(watcher.position, change, false), outbox);
        }
    }

    /// Metadata that readers are told changed: wakes nobody, but the next fetch of each session
    /// reports it.
    pub fn tell_fetches_later(&self) {
        self.tell_some_fetches_later(|_| true);
    }

    /// The same for the watches that it concerns.
    pub(super) fn tell_some_fetches_later(&self, concerns: impl Fn(WatchTerms) -> bool) {
        let concerned = self.fetch_watchers.values();
        for watcher in concerned.filter(|watcher| concerns(watcher.watch.terms())) {
            watcher.watch.note(watcher.position, Change::RENEWAL, false);
        }
    }
}

fn wake(woken: Option<Wake>, outbox: &mut Outbox) {
    if let Some(wake) = woken {
        let message = NetworkEvent::FetchWake {
            token: wake.place.token,
            wait: wake.wait,
            must_answer: wake.must_answer,
            by: outbox.network_thread(),
        };
        outbox.push(wake.place.thread, message);
    }
}

fn bound_segment(log: Option<&Log>, isolation: Isolation) -> Option<i64> {
    log.map(|log| log.bound_segment(isolation))
}

/// Each isolation's bound segment, looked up when it is first asked for.
struct BoundSegments<'l> {
    log: Option<&'l Log>,
    of_log_end: Option<Option<i64>>,
    of_high_watermark: Option<Option<i64>>,
    of_committed: Option<Option<i64>>,
}

impl<'l> BoundSegments<'l> {
    fn of(log: Option<&'l Log>) -> BoundSegments<'l> {
        BoundSegments {
            log,
            of_log_end: None,
            of_high_watermark: None,
            of_committed: None,
        }
    }

    fn bound(&mut self, isolation: Isolation) -> Option<i64> {
        let known = match isolation {
            Isolation::LogEnd => &mut self.of_log_end,
            Isolation::HighWatermark => &mut self.of_high_watermark,
            Isolation::Committed => &mut self.of_committed,
        };
        *known.get_or_insert_with(|| bound_segment(self.log, isolation))
    }
}
