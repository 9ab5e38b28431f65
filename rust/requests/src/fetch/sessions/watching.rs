//! How a session hears of its partitions.

use std::sync::Arc;

use pyrklog_replica::fetch_watch::{FetchWatch, Marked, WatchKey, WatchTerms};
#[cfg(debug_assertions)]
use pyrklog_replica::partition::PartitionState;
use pyrklog_replica::replica_progress::SessionFetches;
use pyrklog_storage::log_dir::Partition;

/// Who fetches in a session, and what it may see. When that changes, nothing that was found for the
/// one before counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reader {
    /// Who the client is.
    pub principal: Arc<str>,
    /// The listener that it came to.
    pub listener: Arc<str>,
    /// Broker id and epoch of a replica; a consumer's id is negative.
    pub replica: (i32, i64),
    /// Where a consumer stands that may be sent to a follower; empty for all others.
    pub rack: String,
    /// What it wants to hear of.
    pub terms: WatchTerms,
    /// Only a leader may answer it.
    pub of_leader_only: bool,
    /// It knows batches that are compressed as zstd.
    pub understands_zstd: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Watching {
    reader: Option<Reader>,
    watch: Option<Arc<FetchWatch>>,
    /// Of a replica's session.
    fetches: Option<Arc<SessionFetches>>,
    /// Of the image and of the hosted partitions, when all partitions were last looked up.
    versions: (u64, u64),
    /// Log directory of the first partition that was watched.
    first_dir: Option<usize>,
    spans_dirs: bool,
}

impl Watching {
    /// Whether somebody else fetched before.
    pub fn is_of_another(&self, reader: &Reader) -> bool {
        self.reader.as_ref() != Some(reader)
    }

    /// Watches for this reader; `number` is the session's own. No partition is watched yet.
    pub fn begin(&mut self, reader: Reader, number: u64) {
        let watch = FetchWatch::new(WatchKey::Session(number), reader.terms);
        self.watch = Some(Arc::new(watch));
        let is_replica = reader.replica.0 >= 0;
        self.fetches = is_replica.then(Arc::default);
        self.reader = Some(reader);
    }

    /// Notes the versions; whether they are others than before.
    pub fn see_versions(&mut self, versions: (u64, u64)) -> bool {
        std::mem::replace(&mut self.versions, versions) != versions
    }

    /// Whether these are the versions noted last.
    pub fn has_seen(&self, versions: (u64, u64)) -> bool {
        self.versions == versions
    }

    /// Hears of a partition from now on, as of its place.
    pub fn join(&mut self, partition: &Partition, place: u32) {
        let dir = partition.dir.index;
        self.spans_dirs |= *self.first_dir.get_or_insert(dir) != dir;
        if let Some(watch) = &self.watch {
            partition.lock().add_fetch_watcher(watch, place);
        }
    }

    /// Hears of it no longer, and its fetches do not count for it.
    pub fn leave(&self, partition: &Partition) {
        let mut state = partition.lock();
        if let Some(watch) = &self.watch {
            state.remove_fetch_watcher(watch.key());
        }
        if let (Some(fetches), Some(reader)) = (&self.fetches, &self.reader) {
            state.leave_session(reader.replica.0, fetches);
        }
    }

    /// Whether each fetch of a replica's session counts for a partition.
    #[cfg(debug_assertions)]
    pub fn counts(&self, state: &PartitionState) -> bool {
        let of_replica = self.fetches.as_ref().zip(self.reader.as_ref());
        of_replica.is_none_or(|(fetches, reader)| state.is_in_session(reader.replica.0, fetches))
    }

    /// Whether a partition changed since marks were last taken.
    #[cfg(debug_assertions)]
    pub fn is_marked(&self, place: u32) -> bool {
        self.watch
            .as_ref()
            .is_some_and(|watch| watch.is_marked(place))
    }

    /// The session's watch, once there is a reader.
    pub fn watch(&self) -> Option<&Arc<FetchWatch>> {
        self.watch.as_ref()
    }

    /// The fetches of a replica's session.
    pub fn fetches(&self) -> Option<&Arc<SessionFetches>> {
        self.fetches.as_ref()
    }

    /// See [`FetchWatch::take_marks`].
    pub fn take_marks(&self) -> Vec<Marked> {
        let watch = self.watch.as_ref();
        watch.map_or_else(Vec::new, |watch| watch.take_marks())
    }

    /// See [`FetchWatch::reset`].
    pub fn reset(&self) {
        if let Some(watch) = &self.watch {
            watch.reset();
        }
    }

    /// See [`FetchWatch::marked`].
    pub fn marked(&self) -> usize {
        self.watch.as_ref().map_or(0, |watch| watch.marked())
    }

    /// Whether its partitions lie, or lay, in more than one log directory.
    pub fn spans_dirs(&self) -> bool {
        self.spans_dirs
    }
}
