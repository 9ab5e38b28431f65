//! How far a move is.

use pyrklog_log::disk::may_pass;
use pyrklog_log::{Log, OpenError, ReadError, WriteJob};

/// Reasons to wait that the operator is told of a move.
const TOLD_MAX: usize = 8;

/// What a move has, under its lock.
#[derive(Debug)]
pub(super) struct Copying {
    pub stage: Stage,
    /// In stage `Open` always.
    pub log: Option<Log>,
    /// A write that found no space.
    pub stuck: Option<WriteJob>,
    /// The lowest offset to which the current log was cut, and the copy was not.
    pub cut: Option<i64>,
    pub is_verified: bool,
    pub is_synced: bool,
    /// All of it was copied while no cleaning of the current log could begin.
    pub is_whole: bool,
    /// Why it waited, as the operator was told.
    told: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The folder is not made.
    New,
    /// The folder is there, its log is not open.
    Made,
    /// The copy is open.
    Open,
    /// The copy is no longer the move's.
    Gone,
}

/// Why a step of a move failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The current log is not available now; the copy stays.
    Rests,
    /// No space, descriptors or memory in the destination: again later.
    Later(String),
    /// The destination's disk failed.
    Destination(String),
    /// The copy is empty, and its first batch begins at this offset: records were deleted up to a
    /// place within it.
    BeginsAt(i64),
    /// The current log cannot be read, or the copy cannot be used: the move is over.
    Hopeless(String),
}

impl Copying {
    pub fn new() -> Copying {
        Copying {
            stage: Stage::New,
            log: None,
            stuck: None,
            cut: None,
            is_verified: false,
            is_synced: false,
            is_whole: true,
            told: Vec::new(),
        }
    }

    /// Of a copy whose folder is there.
    pub fn found() -> Copying {
        Copying {
            stage: Stage::Made,
            is_whole: false,
            ..Copying::new()
        }
    }

    pub fn is_new(&self) -> bool {
        self.stage == Stage::New
    }

    /// Whether the operator is to be told why it waits: of each reason once, as it tries again each
    /// second.
    pub fn is_news(&mut self, reason: &str) -> bool {
        let is_news = self.told.len() < TOLD_MAX && !self.told.iter().any(|told| told == reason);
        if is_news {
            self.told.push(reason.to_owned());
        }
        is_news
    }

    /// The current log was cut.
    pub fn note_cut(&mut self, cut: Option<i64>) {
        self.cut = match (self.cut, cut) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }

    /// Of an open copy.
    pub fn open_log(&mut self) -> Result<&mut Log, Failure> {
        let missing = || Failure::Hopeless("the copy is not open".to_owned());
        self.log.as_mut().ok_or_else(missing)
    }
}

impl Failure {
    /// An error of the destination's disk.
    pub fn of_destination(doing: &str, error: &std::io::Error) -> Failure {
        let reason = format!("{doing}: {error}");
        match may_pass(error) {
            true => Failure::Later(reason),
            false => Failure::Destination(reason),
        }
    }

    /// The current log could not be read.
    pub fn of_reading(error: &ReadError) -> Failure {
        let reason = format!("reading the log: {error}");
        match error {
            ReadError::Poisoned(_) => Failure::Rests,
            ReadError::Io(error) if may_pass(error) => Failure::Later(reason),
            _ => Failure::Hopeless(reason),
        }
    }

    /// The copy could not be opened or cut.
    pub fn of_opening(doing: &str, error: &OpenError) -> Failure {
        match error {
            OpenError::Io(error) => Failure::of_destination(doing, error),
            error => Failure::Hopeless(format!("{doing}: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_to_wait_is_told_once() {
        let mut copying = Copying::new();
        let told = ["full", "full", "hangs", "full", "hangs"].map(|why| copying.is_news(why));
        assert_eq!(told, [true, false, true, false, false]);
        let many = (0..100).filter(|number| copying.is_news(&number.to_string()));
        assert_eq!(many.count(), TOLD_MAX - 2);
    }
}
