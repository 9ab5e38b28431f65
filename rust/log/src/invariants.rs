//! What is true of a log whenever its owner lets go of its lock.
//!
//! [`Log::check_invariants`] says so. Its owner calls it after each transition, in one place, and
//! takes a log that fails it out of service: [`Log::poison`]. A log that passes while its owner's own
//! invariants are broken is sealed ([`Log::seal`]).

use std::sync::Arc;

use crate::log::Log;
use crate::position::SegmentPosition;
use crate::segment::Segment;

/// With debug assertions a log with at most so many entries is checked as a whole each time.
const SMALL: usize = 64;

/// An error unless `holds`; `broken` says in a sentence what does not.
#[inline(always)]
pub fn ensure(holds: bool, broken: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { fail(broken) }
}

#[cold]
#[inline(never)]
fn fail(broken: impl FnOnce() -> String) -> Result<(), String> {
    Err(broken())
}

impl Log {
    /// Checks what must be true between two calls. Costs the same for logs of any size, but after
    /// an opening, a truncation or a removal of segments: then each segment, leader epoch and
    /// producer is looked at, as they are in small logs of builds with debug assertions.
    /// A log that is poisoned is not checked: nobody uses what it holds.
    ///
    /// # Errors
    /// The invariant that is broken, in a sentence with the offsets. Poison the log.
    pub fn check_invariants(&mut self) -> Result<(), String> {
        if self.poisoned().is_some() {
            return Ok(());
        }
        self.check_offsets()?;
        self.check_active()?;
        self.check_newest()?;
        if self.is_reshaped || cfg!(debug_assertions) && self.is_small() {
            self.check_entries()?;
            self.is_reshaped = false;
        }
        Ok(())
    }

    /// Breaks an invariant: the log start moves behind the log end.
    #[cfg(feature = "testing")]
    pub fn break_invariant(&mut self) {
        self.log_start = self.end.offset + 1;
    }

    /// Offsets that a reader of an error message wants to see.
    pub fn describe_offsets(&self) -> String {
        format!(
            "log start {}, last stable {}, high watermark {}, durable end {}, log end {}, \
             written {}, synced {}",
            self.log_start,
            self.last_stable_offset(),
            self.high_watermark.offset,
            self.durable_end.offset,
            self.end.offset,
            self.written.offset,
            self.sync.recovery_point,
        )
    }

    /// The order of the offsets; see the module `log`.
    fn check_offsets(&self) -> Result<(), String> {
        let (stable, high_watermark) = (self.last_stable_offset(), self.high_watermark.offset);
        let (durable_end, end) = (self.durable_end.offset, self.end.offset);
        let order = [
            (
                self.log_start,
                stable,
                "the log start is behind the last stable offset",
            ),
            (
                stable,
                high_watermark,
                "the last stable offset is behind the high watermark",
            ),
            (
                high_watermark,
                durable_end,
                "the high watermark is behind the durable end",
            ),
            (durable_end, end, "the durable end is behind the log end"),
            (self.written.offset, end, "more is written than there is"),
            (
                self.sync.recovery_point,
                end,
                "more is synced than there is",
            ),
        ];
        for (one, next, broken) in order {
            ensure(one <= next, || broken.to_owned())?;
        }
        Ok(())
    }

    /// The active segment is the last one, and ends where the log does. What is queued, what is
    /// written and the sizes agree.
    fn check_active(&self) -> Result<(), String> {
        let active = &self.active;
        let base_offset = active.base_offset();
        let last = self.segments.last();
        ensure(
            last.is_some_and(|last| Arc::ptr_eq(last, &active.segment)),
            || format!("the active segment {base_offset} is not the last one"),
        )?;
        if let [.., before, _] = &self.segments[..] {
            let before = before.base_offset();
            ensure(before < base_offset, || {
                format!("segment {base_offset} follows segment {before}")
            })?;
        }
        let place = self.end.place;
        let ends_there = |place: SegmentPosition| {
            place.segment_base == base_offset && place.position == active.size
        };
        ensure(place.is_some_and(ends_there), || {
            let size = active.size;
            format!("the log ends at {place:?}, its active segment {base_offset} at {size}")
        })?;
        if self.is_idle() {
            let written = active.segment.written();
            ensure(written == u64::from(active.size), || {
                let size = active.size;
                format!("nothing waits to be written, but of {size} bytes {written} are")
            })?;
            ensure(self.written.offset == self.end.offset, || {
                "nothing waits to be written, but not all is".to_owned()
            })?;
        }
        Ok(())
    }

    /// The newest leader epoch, the first open transaction and the oldest segment lie within.
    fn check_newest(&self) -> Result<(), String> {
        let end = self.end.offset;
        if let Some(latest) = self.epochs.latest() {
            ensure(latest.start_offset <= end, || {
                format!(
                    "leader epoch {} starts at {}",
                    latest.epoch, latest.start_offset
                )
            })?;
        }
        if let Some(open) = self.producers.first_unstable() {
            ensure(open.first_offset < end, || {
                let (id, start) = (open.producer_id, open.first_offset);
                format!("a transaction of producer {id} starts at {start}")
            })?;
        }
        let first = self.segments.first().map_or(0, |first| first.base_offset());
        ensure(first <= self.log_start, || {
            format!("the first segment starts at {first}")
        })
    }

    fn is_small(&self) -> bool {
        self.segments.len() + self.epochs.entries().len() + self.producers.len() <= SMALL
    }

    /// Each segment, leader epoch, snapshot and producer.
    fn check_entries(&self) -> Result<(), String> {
        check_rising(&self.segments, "follows")?;
        // A write, a truncation or a swap that is on its way changes the segments meanwhile.
        let are_at_rest = self.in_flight.is_none() && !self.truncating && !self.is_swapping;
        for segment in self.segments.iter().filter(|_| are_at_rest) {
            let base_offset = segment.base_offset();
            ensure(!segment.is_removed(), || {
                format!("segment {base_offset} was removed and is in use")
            })?;
            let (written, size) = (segment.written(), segment.size());
            ensure(written <= size, || {
                format!("segment {base_offset} has {size} bytes, of which {written} are written")
            })?;
        }
        for base_offset in self.aborted.keys() {
            let found = self
                .segments
                .binary_search_by_key(base_offset, |s| s.base_offset());
            ensure(found.is_ok(), || {
                format!("aborted transactions are kept of segment {base_offset}, which is gone")
            })?;
        }
        check_rising(&self.sync.segments, "is to be synced behind")?;
        for pair in self.epochs.entries().windows(2) {
            let [one, next] = pair else { continue };
            ensure(
                one.epoch < next.epoch && one.start_offset < next.start_offset,
                || format!("leader epoch {next:?} follows {one:?}"),
            )?;
        }
        let end = self.end.offset;
        if let Some(&newest) = self.snapshots.last() {
            ensure(newest <= end, || {
                format!("a producer snapshot is of {newest}")
            })?;
        }
        match self.producers.last_offset() {
            Some(last) => ensure(last < end, || {
                format!("a producer's last record is at {last}")
            }),
            None => Ok(()),
        }
    }
}

fn check_rising(segments: &[Arc<Segment>], stands: &str) -> Result<(), String> {
    segments.windows(2).try_for_each(|pair| {
        let (one, next) = (pair[0].base_offset(), pair[1].base_offset());
        ensure(one < next, || {
            format!("segment {next} {stands} segment {one}")
        })
    })
}

#[cfg(test)]
mod tests;
