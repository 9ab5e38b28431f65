//! One Fetch request: what it reads, and what its answer holds.

use pyrklog_wire::ErrorCode;

use super::NO_SESSION_ID;
use super::session::{Session, Target};
use pyrklog_control::image::{Image, NO_TOPIC_ID};

/// What reading a partition came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The partition's error.
    pub error_code: ErrorCode,
    /// High watermark as in the answer.
    pub high_watermark: i64,
    /// Log start offset as in the answer.
    pub log_start_offset: i64,
    /// There are record bytes.
    pub has_records: bool,
    /// The answer tells of a diverging epoch.
    pub has_diverging_epoch: bool,
    /// The answer names a preferred read replica.
    pub has_preferred_replica: bool,
}

/// How a context came about, and where it goes.
#[derive(Debug)]
pub(super) enum Kind {
    /// No session: every partition is answered.
    Sessionless(Vec<Target>),
    /// The first request of a session: every partition is answered.
    Full(Box<Session>),
    /// A later request of a session: partitions with nothing to say are left out.
    Incremental(Box<Session>),
}

/// One Fetch request. Partitions count from 0 in the order of reading. Give it back to the cache
/// when its answer is written: `finish`, or `abandon` when the connection died.
#[derive(Debug)]
pub struct FetchContext {
    kind: Kind,
    session_id: i32,
    /// Of the session in the cache.
    pub(super) serial: u64,
    /// Places of the partitions in the answer, ascending.
    included: Vec<usize>,
    /// By place: there were record bytes.
    served: Vec<bool>,
}

impl FetchContext {
    pub(super) fn new(kind: Kind, session_id: i32, serial: u64) -> Self {
        let (included, served) = (vec![], vec![]);
        let mut context = FetchContext {
            kind,
            session_id,
            serial,
            included,
            served,
        };
        if matches!(context.kind, Kind::Incremental(_)) {
            context.served.resize(context.partitions(), false);
        }
        context
    }

    pub(super) fn sessionless(targets: Vec<Target>) -> Self {
        Self::new(Kind::Sessionless(targets), NO_SESSION_ID, 0)
    }

    /// The session id of the answer, [`NO_SESSION_ID`] without a session.
    pub fn session_id(&self) -> i32 {
        self.session_id
    }

    /// Number of partitions to read.
    pub fn partitions(&self) -> usize {
        match &self.kind {
            Kind::Sessionless(targets) => targets.len(),
            Kind::Full(session) | Kind::Incremental(session) => session.len(),
        }
    }

    /// The partition at a place. Panics beyond [`FetchContext::partitions`].
    pub fn target(&self, place: usize) -> &Target {
        match &self.kind {
            Kind::Sessionless(targets) => &targets[place],
            Kind::Full(session) | Kind::Incremental(session) => session.target(place),
        }
    }

    /// All partitions, in order.
    #[cfg(test)]
    pub fn targets(&self) -> impl Iterator<Item = &Target> {
        (0..self.partitions()).map(|place| self.target(place))
    }

    /// Why the partition at a place cannot be read, judged by the image alone: UNKNOWN_TOPIC_ID,
    /// INCONSISTENT_TOPIC_ID for a topic that was recreated under its name during the session, or
    /// UNKNOWN_TOPIC_OR_PARTITION.
    pub fn refusal(&self, place: usize, image: &Image) -> Option<ErrorCode> {
        let target = self.target(place);
        let Some(name) = &target.topic else {
            return Some(ErrorCode::UNKNOWN_TOPIC_ID);
        };
        let Some(topic) = image.topic(name) else {
            return Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        };
        if target.id != NO_TOPIC_ID && target.id != topic.id {
            return Some(ErrorCode::INCONSISTENT_TOPIC_ID);
        }
        match topic.partition(target.partition) {
            Some(_) => None,
            None => Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
        }
    }

    /// Takes note of what reading a partition came to, and says whether the answer holds it. To be
    /// called once for each place, ascending, when the answer is final.
    ///
    /// An incremental answer holds a partition with records, an error, a diverging epoch or a
    /// preferred replica, and one whose high watermark or log start offset differ from what the
    /// client was told last. After an error the high watermark counts as not told, so that the
    /// partition is in the next answer again.
    pub fn record(&mut self, place: usize, outcome: &Outcome) -> bool {
        debug_assert!(
            self.included.last().is_none_or(|last| *last < place),
            "places descend"
        );
        let is_included = match &mut self.kind {
            Kind::Sessionless(_) => true,
            Kind::Full(session) => {
                let target = session.target_mut(place);
                target.told_high_watermark = outcome.high_watermark;
                target.told_log_start = outcome.log_start_offset;
                true
            }
            Kind::Incremental(session) => {
                self.served[place] = outcome.has_records;
                tell(session.target_mut(place), outcome)
            }
        };
        if is_included {
            self.included.push(place);
        }
        is_included
    }

    /// The places in the answer, ascending.
    #[cfg(test)]
    pub fn included(&self) -> &[usize] {
        &self.included
    }

    /// The places in the answer, consecutive ones of one topic together: one run is one topic of
    /// the response.
    pub fn topic_runs(&self) -> impl Iterator<Item = &[usize]> {
        self.included
            .chunk_by(|a, b| self.target(*a).has_topic_of(self.target(*b)))
    }

    /// The session, ready for its next request: partitions that had records go behind the others,
    /// so that each gets its turn when not all fit into one answer.
    pub(super) fn into_session(self) -> Option<Box<Session>> {
        match self.kind {
            Kind::Sessionless(_) => None,
            Kind::Full(session) => Some(session),
            Kind::Incremental(mut session) => {
                if self.served.iter().any(|served| *served) {
                    session.move_back(&self.served);
                }
                Some(session)
            }
        }
    }
}

fn tell(target: &mut Target, outcome: &Outcome) -> bool {
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
