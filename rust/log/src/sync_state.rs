//! Which written data of a log is not durable, and since when.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::segment::Segment;
use crate::tail::Tail;

/// Records within this fraction of `flush.ms` are due together.
const MARK_SHARE: i64 = 8;

/// Limit of marks while the disk is slow; later records are due with the last one.
const MARKS_MAX: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct SyncState {
    /// Batches below it were synced.
    pub recovery_point: i64,
    /// Segments with unsynced data, in order.
    pub segments: Vec<Arc<Segment>>,
    pub files: Vec<String>,
    pub ages: Ages,
    pub in_flight: bool,
    /// The folder is new: its own entry is not durable either.
    pub new_folder: bool,
    pub in_hand: InHand,
}

/// What the current jobs sync besides segments. A writer's job and the syncer's may overlap. Each
/// syncs what the other took as well, since the first to end declares everything below its end
/// durable.
#[derive(Debug, Default)]
pub(crate) struct InHand {
    jobs: usize,
    files: Vec<String>,
    new_folder: bool,
}

impl SyncState {
    /// Adds the small files that a tail's job writes.
    pub fn note_files(&mut self, tail: &Tail) {
        for name in tail.file_names() {
            add_name(&mut self.files, name);
        }
    }

    /// What a job must sync besides segments: small files, and whether the folder's own entry.
    pub fn take_rest(&mut self) -> (Vec<String>, bool) {
        let in_hand = &mut self.in_hand;
        in_hand.jobs += 1;
        in_hand.new_folder |= std::mem::take(&mut self.new_folder);
        for name in self.files.drain(..) {
            add_name(&mut in_hand.files, &name);
        }
        (in_hand.files.clone(), in_hand.new_folder)
    }

    /// A job has ended or been given back.
    pub fn job_ended(&mut self) {
        self.in_hand.jobs -= 1;
        if self.in_hand.jobs == 0 {
            self.in_hand = InHand::default();
        }
    }
}

pub(crate) fn add_name(names: &mut Vec<String>, name: &str) {
    if !names.iter().any(|known| known == name) {
        names.push(name.to_owned());
    }
}

/// Arrival times of unsynced records for `flush.ms`: at most a fraction of it too early, never too
/// late.
#[derive(Debug, Default)]
pub(crate) struct Ages {
    /// (first offset, since when), both ascending: records from the offset on came then or later.
    marks: VecDeque<(i64, i64)>,
}

impl Ages {
    /// Records from `synced` to `end` may not be durable, and their arrival is unknown: due at
    /// once.
    pub fn left_unsynced(synced: i64, end: i64) -> Ages {
        let mark = (synced < end).then_some((synced, 0));
        Ages {
            marks: mark.into_iter().collect(),
        }
    }

    #[inline]
    pub fn note(&mut self, offset: i64, now_ms: i64, flush_ms: i64) {
        let is_covered = match self.marks.back() {
            // A clock that was set back must not make records younger.
            Some((_, since_ms)) => {
                now_ms.saturating_sub(*since_ms) < (flush_ms / MARK_SHARE).max(1)
            }
            None => false,
        };
        if !is_covered && self.marks.len() < MARKS_MAX {
            self.marks.push_back((offset, now_ms));
        }
    }

    /// Everything below `synced` is durable, in a log that ends at `end`.
    pub fn forget_below(&mut self, synced: i64, end: i64) {
        if synced >= end {
            self.marks.clear();
        }
        while self
            .marks
            .get(1)
            .is_some_and(|(offset, _)| *offset <= synced)
        {
            self.marks.pop_front();
        }
    }

    /// Arrival of the oldest record that is not durable.
    pub fn oldest_ms(&self) -> Option<i64> {
        self.marks.front().map(|(_, since_ms)| *since_ms)
    }
}
