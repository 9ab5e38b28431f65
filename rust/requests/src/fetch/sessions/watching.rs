//! How a session hears of its partitions.

use std::sync::Arc;

use pyrklog_replica::fetch_watch::{FetchWatch, Marked, WatchKey, WatchTerms};
#[cfg(debug_assertions)]
use pyrklog_replica::partition::PartitionState;
use pyrklog_replica::replica_progress::SessionFetches;
use pyrklog_storage::log_dir_state::Partition;

/// A session's reader and what it may see. After a change of it earlier results no longer count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionReader {
    /// The client's principal.
    pub principal: Arc<str>,
    /// The client's listener.
    pub listener: Arc<str>,
    /// Broker id and epoch of a replica; a consumer's id is negative.
    pub replica: (i32, i64),
    /// Rack of a consumer that may be sent to a follower; else empty.
    pub rack: String,
    /// What it wants to hear of.
    pub terms: WatchTerms,
    /// Only the leader may answer it.
    pub of_leader_only: bool,
    /// It knows zstd.
    pub understands_zstd: bool,
}

#[derive(Debug, Default)]
pub(super) struct Watching {
    reader: Option<SessionReader>,
    watch: Option<Arc<FetchWatch>>,
    /// For a replica's session.
    fetches: Option<Arc<SessionFetches>>,
    /// Versions of the image and of the hosted partitions when all partitions were last looked up.
    versions: (u64, u64),
    /// Log directory of the first watched partition.
    first_dir: Option<usize>,
    spans_dirs: bool,
}

impl Watching {
    /// Whether another reader fetched before.
    pub fn is_of_another(&self, reader: &SessionReader) -> bool {
        self.reader.as_ref() != Some(reader)
    }

    /// Starts watching for this reader; `serial` is the session's. No partition is watched yet.
    pub fn begin(&mut self, reader: SessionReader, serial: u64) {
        let watch = FetchWatch::new(WatchKey::Session(serial), reader.terms);
        self.watch = Some(Arc::new(watch));
        let is_replica = reader.replica.0 >= 0;
        self.fetches = is_replica.then(Arc::default);
        self.reader = Some(reader);
    }

    /// Notes the versions; true if they changed.
    pub fn see_versions(&mut self, versions: (u64, u64)) -> bool {
        std::mem::replace(&mut self.versions, versions) != versions
    }

    /// Whether these are the versions noted last.
    pub fn has_seen(&self, versions: (u64, u64)) -> bool {
        self.versions == versions
    }

    /// Watches a partition, under its number in the session.
    pub fn join(&mut self, partition: &Partition, number: u32) {
        self.note_dir(partition.dir().index);
        if let Some(watch) = &self.watch {
            partition.lock().add_fetch_watcher(watch, number);
        }
    }

    /// A partition is in this directory, or has moved there.
    pub fn note_dir(&mut self, dir: usize) {
        self.spans_dirs |= *self.first_dir.get_or_insert(dir) != dir;
    }

    /// Ends watching it; the session's fetches no longer count for it.
    pub fn leave(&self, partition: &Partition) {
        let mut state = partition.lock();
        if let Some(watch) = &self.watch {
            state.remove_fetch_watcher(watch.key());
        }
        if let (Some(fetches), Some(reader)) = (&self.fetches, &self.reader) {
            state.leave_session(reader.replica.0, fetches);
        }
    }

    /// Whether each fetch of a replica's session counts for the partition.
    #[cfg(debug_assertions)]
    pub fn counts(&self, state: &PartitionState) -> bool {
        let of_replica = self.fetches.as_ref().zip(self.reader.as_ref());
        of_replica.is_none_or(|(fetches, reader)| state.is_in_session(reader.replica.0, fetches))
    }

    /// Whether a partition changed since marks were last taken.
    #[cfg(debug_assertions)]
    pub fn is_marked(&self, number: u32) -> bool {
        self.watch
            .as_ref()
            .is_some_and(|watch| watch.is_marked(number))
    }

    /// The session's watch, once there is a reader.
    pub fn watch(&self) -> Option<&Arc<FetchWatch>> {
        self.watch.as_ref()
    }

    /// The fetches of a replica's session.
    pub fn fetches(&self) -> Option<&Arc<SessionFetches>> {
        self.fetches.as_ref()
    }

    /// The partition of a taken mark tells its further news again.
    pub fn hear_again(&self, partition: &Partition) {
        if let Some(watch) = &self.watch {
            partition.lock().tell_news_again(watch.key());
        }
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

    /// Whether its partitions are, or were, in several log directories.
    pub fn spans_dirs(&self) -> bool {
        self.spans_dirs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_spans_directories_once_a_partition_has_moved() {
        let mut watching = Watching::default();
        for (dir, spans) in [(1, false), (1, false), (0, true), (1, true)] {
            watching.note_dir(dir);
            assert_eq!(watching.spans_dirs(), spans);
        }
    }
}
