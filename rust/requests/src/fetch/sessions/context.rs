//! One Fetch request: what it reads and what its answer contains.

use std::sync::Arc;

use pyrklog_wire::ErrorCode;

use super::NO_SESSION_ID;
use super::session::{FetchSession, Target};
use super::watching::SessionReader;
use pyrklog_control::image::Image;
use pyrklog_replica::fetch_watch::FetchWatch;
#[cfg(debug_assertions)]
use pyrklog_replica::partition::PartitionState;
use pyrklog_replica::replica_progress::SessionFetches;
use pyrklog_storage::log_dir_state::Partition;

/// Result of reading a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionOutcome {
    /// The partition's error.
    pub error_code: ErrorCode,
    /// High watermark as in the answer.
    pub high_watermark: i64,
    /// Log start offset as in the answer.
    pub log_start_offset: i64,
    /// There are records.
    pub has_records: bool,
    /// The answer reports a diverging epoch.
    pub has_diverging_epoch: bool,
    /// The answer names a preferred read replica.
    pub has_preferred_replica: bool,
    /// Nothing more to report until the partition or the request changes.
    pub is_settled: bool,
}

#[derive(Debug)]
pub(super) enum Kind {
    /// No session: answers every partition.
    Sessionless(Vec<Target>),
    /// A session's first request: answers every partition.
    Full(Box<FetchSession>),
    /// A later request: leaves out partitions without news.
    Incremental(Box<FetchSession>),
}

/// One Fetch request. The partitions that it looks at have positions: from 0, in reading order.
/// Return it to the cache when its answer is written (`finish`) or its connection is closed
/// (`abandon`).
#[derive(Debug)]
pub struct FetchContext {
    kind: Kind,
    session_id: i32,
    /// Of the session in the cache.
    pub(super) serial: u64,
    /// Partitions looked at, by their numbers in the session; empty without a session.
    chosen: Vec<u32>,
    /// How many of them have a recorded outcome; the others are looked at again.
    recorded: usize,
    /// Positions of the answer's partitions, ascending.
    included: Vec<usize>,
    /// Numbers in the session of partitions that had records, in order.
    served: Vec<u32>,
}

impl FetchContext {
    pub(super) fn new(kind: Kind, session_id: i32, serial: u64) -> Self {
        FetchContext {
            kind,
            session_id,
            serial,
            chosen: Vec::new(),
            recorded: 0,
            included: Vec::new(),
            served: Vec::new(),
        }
    }

    pub(super) fn sessionless(targets: Vec<Target>) -> Self {
        Self::new(Kind::Sessionless(targets), NO_SESSION_ID, 0)
    }

    /// The answer's session id, or [`NO_SESSION_ID`].
    pub fn session_id(&self) -> i32 {
        self.session_id
    }

    /// Begins to look at a session's partitions for `reader`. `versions` are those of the image and
    /// of the hosted partitions. If they are new, `is_as_found` says whether looking up a watched
    /// partition would find the same one.
    pub fn open(
        &mut self,
        reader: SessionReader,
        versions: (u64, u64),
        image: &Image,
        is_as_found: impl Fn(&Target, &Arc<Partition>) -> bool,
    ) {
        let serial = self.serial;
        let Some(session) = self.session_mut() else {
            return;
        };
        let is_new = session.watching.see_versions(versions);
        if session.watching.is_of_another(&reader) {
            session.stop_watching();
            session.watching.begin(reader, serial);
            session.make_all_due();
        } else if is_new {
            session.make_changed_due(is_as_found);
        }
        self.choose(image);
    }

    /// Takes the partitions to look at.
    pub(super) fn choose(&mut self, image: &Image) {
        if let Some(session) = self.session_mut() {
            self.chosen = session.choose(image);
        }
    }

    /// Adds partitions that changed since the request began; they have the last positions until
    /// [`FetchContext::reorder`]. Returns their number, and whether one of them demands an answer.
    pub fn choose_more(&mut self) -> (usize, bool) {
        let Some(session) = self.session_mut() else {
            return (0, false);
        };
        let (more, must_answer) = session.choose_more();
        self.chosen.extend(&more);
        (more.len(), must_answer)
    }

    /// Reading order of the partition at `position`: lower is earlier.
    pub fn rank(&self, position: usize) -> u64 {
        match &self.kind {
            Kind::Sessionless(_) => position as u64,
            Kind::Full(session) | Kind::Incremental(session) => session.rank(self.chosen[position]),
        }
    }

    /// Moves the partitions: the one at `order[n]` goes to `n`.
    pub fn reorder(&mut self, order: &[usize]) {
        self.chosen = order
            .iter()
            .map(|position| self.chosen[*position])
            .collect();
    }

    fn session(&self) -> Option<&FetchSession> {
        match &self.kind {
            Kind::Sessionless(_) => None,
            Kind::Full(session) | Kind::Incremental(session) => Some(session),
        }
    }

    fn session_mut(&mut self) -> Option<&mut FetchSession> {
        match &mut self.kind {
            Kind::Sessionless(_) => None,
            Kind::Full(session) | Kind::Incremental(session) => Some(session),
        }
    }

    /// Watches the partition that was looked up, before its state is read.
    pub fn watch(&mut self, position: usize, partition: Option<&Arc<Partition>>) {
        let chosen = self.chosen.get(position).copied();
        if let (Some(chosen), Some(session)) = (chosen, self.session_mut()) {
            session.watch(chosen, partition);
        }
    }

    /// The watched partition at a position.
    pub fn watched(&self, position: usize) -> Option<&Arc<Partition>> {
        let entry = self.session()?.entry(*self.chosen.get(position)?)?;
        entry.watched.as_ref()
    }

    /// The session's next request must look at this partition.
    pub fn look_again(&mut self, position: usize) {
        let chosen = self.chosen.get(position).copied();
        if let (Some(chosen), Some(session)) = (chosen, self.session_mut()) {
            session.make_due(chosen);
        }
    }

    /// The watch of a session.
    pub fn session_watch(&self) -> Option<&Arc<FetchWatch>> {
        self.session()?.watching.watch()
    }

    /// The fetches of a replica's session.
    pub fn session_fetches(&self) -> Option<&Arc<SessionFetches>> {
        self.session()?.watching.fetches()
    }

    /// Whether the session's partitions are in several log directories; `None` without a session.
    pub fn spans_dirs(&self) -> Option<bool> {
        Some(self.session()?.watching.spans_dirs())
    }

    /// Notes the directory of a partition that is read, which may have moved there.
    pub fn note_dir(&mut self, dir: usize) {
        if let Some(session) = self.session_mut() {
            session.watching.note_dir(dir);
        }
    }

    /// See [`FetchSession::check_settled`].
    #[cfg(debug_assertions)]
    pub fn check_settled(&self, is_news: impl Fn(&Target, &mut PartitionState) -> bool) {
        if let Some(session) = self.session() {
            session.check_settled(is_news);
        }
    }

    /// Whether there is nothing to wait for.
    pub fn is_empty(&self) -> bool {
        match &self.kind {
            Kind::Sessionless(targets) => targets.is_empty(),
            Kind::Full(session) | Kind::Incremental(session) => session.len() == 0,
        }
    }

    /// Number of partitions to look at.
    pub fn partitions(&self) -> usize {
        match &self.kind {
            Kind::Sessionless(targets) => targets.len(),
            Kind::Full(_) | Kind::Incremental(_) => self.chosen.len(),
        }
    }

    /// The partition at a position. Panics beyond [`FetchContext::partitions`].
    pub fn target(&self, position: usize) -> &Target {
        match &self.kind {
            Kind::Sessionless(targets) => &targets[position],
            Kind::Full(session) | Kind::Incremental(session) => {
                session.target(self.chosen[position])
            }
        }
    }

    /// All partitions, in order.
    #[cfg(test)]
    pub fn targets(&self) -> impl Iterator<Item = &Target> {
        (0..self.partitions()).map(|position| self.target(position))
    }

    /// Records the outcome of reading a partition; true if the answer includes it. Call it once per
    /// position, ascending, when the answer is final.
    ///
    /// An incremental answer includes partitions with records, an error, a diverging epoch or a
    /// preferred replica, and those whose high watermark or log start offset differs from what the
    /// client was last told. After an error the high watermark counts as not told: the next answer
    /// includes the partition again.
    pub fn record(&mut self, position: usize, outcome: &PartitionOutcome) -> bool {
        debug_assert!(
            self.included.last().is_none_or(|last| *last < position),
            "positions descend"
        );
        self.recorded = position + 1;
        let is_included = match &mut self.kind {
            Kind::Sessionless(_) => true,
            Kind::Full(session) => {
                let chosen = self.chosen[position];
                note_outcome(session, chosen, outcome);
                true
            }
            Kind::Incremental(session) => {
                let chosen = self.chosen[position];
                if outcome.has_records {
                    self.served.push(chosen);
                }
                note_outcome(session, chosen, outcome)
            }
        };
        if is_included {
            self.included.push(position);
        }
        is_included
    }

    /// The positions in the answer, ascending.
    #[cfg(test)]
    pub fn included(&self) -> &[usize] {
        &self.included
    }

    /// The answer's positions, grouped into runs of one topic: a run is a topic of the response.
    pub fn topic_runs(&self) -> impl Iterator<Item = &[usize]> {
        self.included
            .chunk_by(|a, b| self.target(*a).has_topic_of(self.target(*b)))
    }

    /// The session for its next request: partitions that had records go last, so that each gets its
    /// turn if not all fit into an answer.
    pub(super) fn into_session(self) -> Option<Box<FetchSession>> {
        let (Kind::Full(mut session) | Kind::Incremental(mut session)) = self.kind else {
            return None;
        };
        for (position, number) in self.chosen.into_iter().enumerate() {
            session.end_look(number, false);
            if position >= self.recorded {
                session.make_due(number);
            }
        }
        for number in self.served {
            session.end_look(number, true);
        }
        Some(session)
    }
}

/// Notes what the client is told; true if it is news.
fn note_outcome(session: &mut FetchSession, number: u32, outcome: &PartitionOutcome) -> bool {
    if !outcome.is_settled {
        session.make_due(number);
    }
    let entry = session.entry_mut(number);
    entry.is_some_and(|entry| tell(&mut entry.target, outcome))
}

fn tell(target: &mut Target, outcome: &PartitionOutcome) -> bool {
    let is_failed = !outcome.error_code.is_none();
    let is_news = outcome.has_records
        || outcome.has_diverging_epoch
        || outcome.has_preferred_replica
        || is_failed
        || target.told_high_watermark != outcome.high_watermark
        || target.told_log_start != outcome.log_start_offset;
    target.told_high_watermark = if is_failed {
        -1
    } else {
        outcome.high_watermark
    };
    target.told_log_start = outcome.log_start_offset;
    is_news
}
