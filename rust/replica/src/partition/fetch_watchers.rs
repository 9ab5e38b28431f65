//! Fetches and fetch sessions that watch a partition.

use std::sync::Arc;

use pyrklog_log::{Isolation, Log};

use super::PartitionState;
use crate::fetch_watch::{
    Change, FetchWatch, FetchWatcher, FetchWatchers, Wake, WatchKey, WatchTerms,
};
use pyrklog_base::network_event::NetworkEvent;
use pyrklog_control::outbox::Outbox;

impl PartitionState {
    /// Watches this partition as the watch's `number`.
    pub fn add_fetch_watcher(&mut self, watch: &Arc<FetchWatch>, number: u32) {
        let watcher = FetchWatcher {
            watch: Arc::clone(watch),
            number,
            bound_segment: bound_segment(self.log.as_ref(), watch.terms().isolation),
        };
        self.fetch_watchers.listening.insert(watch.key(), watcher);
    }

    /// Ends the watch.
    pub fn remove_fetch_watcher(&mut self, key: WatchKey) {
        self.fetch_watchers.remove(key);
    }

    /// A session has taken a mark that was the last news, and is about to look: news from now on
    /// are told to it. None is lost: earlier ones are found by the look, which comes under this
    /// mutex, too. Until marks were taken no fetch could begin to wait.
    pub fn tell_news_again(&mut self, key: WatchKey) {
        let watchers = &mut self.fetch_watchers;
        if let Some(mut watcher) = watchers.informed.remove(&key) {
            let isolation = watcher.watch.terms().isolation;
            watcher.bound_segment = bound_segment(self.log.as_ref(), isolation);
            watchers.listening.insert(key, watcher);
        }
    }

    pub(super) fn notify_fetches(
        &mut self,
        new_bytes: usize,
        has_grown: bool,
        visible: bool,
        outbox: &mut Outbox,
    ) {
        let FetchWatchers {
            listening,
            informed,
        } = &mut self.fetch_watchers;
        if listening.is_empty() || !(has_grown || visible) {
            return;
        }
        let new_bytes = i64::try_from(new_bytes).unwrap_or(i64::MAX);
        let mut segments = BoundSegments::of(self.log.as_ref());
        let mut tell = |watcher: &mut FetchWatcher| {
            let terms = watcher.watch.terms();
            let wakes = match terms.isolation {
                Isolation::DurableEnd => has_grown || visible && terms.notify_high_watermark,
                _ if !visible => return false,
                _ => true,
            };
            let segment = segments.bound(terms.isolation);
            let has_new_segment = segment != watcher.bound_segment;
            watcher.bound_segment = segment;
            let news = (new_bytes, wakes);
            let told = watcher
                .watch
                .note_news(watcher.number, news, has_new_segment);
            wake(told.0, outbox);
            told.1
        };
        informed.extend(listening.extract_if(|_, watcher| tell(watcher)));
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
        let concerned = self.fetch_watchers.all();
        for watcher in concerned.filter(|watcher| concerns(watcher.watch.terms())) {
            wake(watcher.watch.note(watcher.number, change, false), outbox);
        }
    }

    /// Metadata that readers are told changed: wakes nobody, but the next fetch of each session
    /// reports it.
    pub fn tell_fetches_later(&self) {
        self.tell_some_fetches_later(|_| true);
    }

    /// The same for the watches that it concerns.
    pub(super) fn tell_some_fetches_later(&self, concerns: impl Fn(WatchTerms) -> bool) {
        let concerned = self.fetch_watchers.all();
        for watcher in concerned.filter(|watcher| concerns(watcher.watch.terms())) {
            watcher.watch.note(watcher.number, Change::RENEWAL, false);
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
    of_durable_end: Option<Option<i64>>,
    of_high_watermark: Option<Option<i64>>,
    of_committed: Option<Option<i64>>,
}

impl<'l> BoundSegments<'l> {
    fn of(log: Option<&'l Log>) -> BoundSegments<'l> {
        BoundSegments {
            log,
            of_durable_end: None,
            of_high_watermark: None,
            of_committed: None,
        }
    }

    fn bound(&mut self, isolation: Isolation) -> Option<i64> {
        let known = match isolation {
            Isolation::DurableEnd => &mut self.of_durable_end,
            Isolation::HighWatermark => &mut self.of_high_watermark,
            Isolation::Committed => &mut self.of_committed,
        };
        *known.get_or_insert_with(|| bound_segment(self.log, isolation))
    }
}

#[cfg(test)]
mod tests;
