//! How far the caller is: what was delivered to it.

use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU64, Ordering};

use crate::split::Split;

/// Figures of one split, counted when the caller takes a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitProgress {
    /// The offset to go on at.
    pub position: i64,
    /// Leader epoch of the record before it, -1 unknown.
    pub leader_epoch: i32,
    /// Rows.
    pub records: u64,
    /// Bytes of batches as they were fetched.
    pub bytes: u64,
    /// Offsets that were deleted before they were read (`Missing::Skip`).
    pub skipped: u64,
    /// Values that did not fit the schema.
    pub bad: u64,
}

/// What a batch holds of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delivered {
    pub split: usize,
    pub position: i64,
    pub leader_epoch: i32,
    pub records: u64,
    pub bytes: u64,
    pub bad: u64,
}

#[derive(Debug)]
struct Figures {
    position: AtomicI64,
    leader_epoch: AtomicI32,
    records: AtomicU64,
    bytes: AtomicU64,
    skipped: AtomicU64,
    bad: AtomicU64,
}

/// Figures of all splits.
#[derive(Debug)]
pub(crate) struct Progress(Vec<Figures>);

impl Progress {
    pub fn new(splits: &[Split]) -> Progress {
        let figures = splits.iter().map(|split| Figures {
            position: AtomicI64::new(split.start),
            leader_epoch: AtomicI32::new(match split.is_listed {
                true => -1,
                false => split.leader_epoch,
            }),
            records: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            bad: AtomicU64::new(0),
        });
        Progress(figures.collect())
    }

    pub fn deliver(&self, parts: &[Delivered]) {
        for part in parts {
            let figures = &self.0[part.split];
            figures.position.store(part.position, Ordering::Relaxed);
            figures
                .leader_epoch
                .store(part.leader_epoch, Ordering::Relaxed);
            figures.records.fetch_add(part.records, Ordering::Relaxed);
            figures.bytes.fetch_add(part.bytes, Ordering::Relaxed);
            figures.bad.fetch_add(part.bad, Ordering::Relaxed);
        }
    }

    pub fn skip(&self, split: usize, offsets: u64) {
        self.0[split].skipped.fetch_add(offsets, Ordering::Relaxed);
    }

    pub fn read(&self) -> Vec<SplitProgress> {
        let read = |figures: &Figures| SplitProgress {
            position: figures.position.load(Ordering::Relaxed),
            leader_epoch: figures.leader_epoch.load(Ordering::Relaxed),
            records: figures.records.load(Ordering::Relaxed),
            bytes: figures.bytes.load(Ordering::Relaxed),
            skipped: figures.skipped.load(Ordering::Relaxed),
            bad: figures.bad.load(Ordering::Relaxed),
        };
        self.0.iter().map(read).collect()
    }
}
