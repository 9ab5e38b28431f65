//! Offsets by time (ListOffsets): [`Log::offset_for_time`] under the lock, [`TimeQuery::resolve`]
//! without it.

use std::io;
use std::sync::Arc;

use crate::log::Log;
use crate::read::{self, Isolation, ReadError};
use crate::record_search;
use crate::scan::{BatchScanner, LOOK_UP_CHUNK_BYTES, Met, WALK_CHUNK_BYTES};
use crate::segment::Segment;
use crate::sparse_index::IndexEntry;
use crate::time_index::{NO_TIMESTAMP, TimeEntry};
use crate::wait::Wait;

/// The wanted offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeSpec {
    /// The first readable one.
    Earliest,
    /// The one after the last readable one.
    Latest,
    /// That of the first record with the largest timestamp (KIP-734).
    MaxTimestamp,
    /// That of the first record whose timestamp is at or after this (ms).
    At(i64),
}

impl TimeSpec {
    /// From the request's timestamp field; `None` for special values of tiered storage.
    pub fn from_wire(timestamp: i64) -> Option<Self> {
        match timestamp {
            -1 => Some(Self::Latest),
            // Without tiered storage the earliest local offset (-4) is the earliest of all.
            -2 | -4 => Some(Self::Earliest),
            -3 => Some(Self::MaxTimestamp),
            at if at >= 0 => Some(Self::At(at)),
            _ => None,
        }
    }
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeOffset {
    /// The record's timestamp; -1 for `Earliest` and `Latest`.
    pub timestamp: i64,
    /// The offset.
    pub offset: i64,
    /// Leader epoch of the batch there; -1 unknown.
    pub leader_epoch: i32,
}

/// A look-up by time, begun under the lock.
#[derive(Clone, Debug)]
pub struct TimeQuery {
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Known(TimeOffset),
    Search(Search),
}

/// What a search needs of the log.
#[derive(Clone, Debug)]
struct Search {
    /// `None`: the largest timestamp.
    at: Option<i64>,
    segments: Arc<Vec<Arc<Segment>>>,
    active_largest: TimeEntry,
    active_start: u32,
    log_start: i64,
    /// Offsets from here on are not visible.
    bound: i64,
}

impl Log {
    /// Begins a look-up by time, up to the bound of `isolation`. Memory only.
    pub fn offset_for_time(&self, spec: TimeSpec, isolation: Isolation) -> TimeQuery {
        let known = |offset, leader_epoch: Option<i32>| TimeQuery {
            kind: Kind::Known(TimeOffset {
                timestamp: NO_TIMESTAMP,
                offset,
                leader_epoch: leader_epoch.unwrap_or(-1),
            }),
        };
        let at = match spec {
            TimeSpec::Earliest => {
                return known(self.log_start, self.epochs.epoch_for_offset(self.log_start));
            }
            TimeSpec::Latest => return known(self.bound(isolation).offset, self.latest_epoch()),
            TimeSpec::MaxTimestamp => None,
            TimeSpec::At(timestamp) => Some(timestamp),
        };
        let indexes = &self.active.indexes;
        let entry = match at {
            Some(timestamp) => indexes.times.lookup(timestamp),
            None => indexes.largest,
        };
        let start = indexes.offsets.lookup(entry.offset.max(self.log_start));
        TimeQuery {
            kind: Kind::Search(Search {
                at,
                segments: self.segments.clone(),
                active_largest: indexes.largest,
                active_start: start.position,
                log_start: self.log_start,
                bound: self.bound(isolation).offset,
            }),
        }
    }
}

impl TimeQuery {
    /// The answer; `None` if no record is recent enough, or none has a timestamp. The caller must
    /// hold no lock.
    ///
    /// # Errors
    /// `WouldBlock` with [`Wait::Nowait`], `Io`, `Corrupt`.
    pub fn resolve(&self, wait: Wait) -> Result<Option<TimeOffset>, ReadError> {
        let search = match &self.kind {
            Kind::Known(offset) => return Ok(Some(*offset)),
            Kind::Search(search) => search,
        };
        let found = match search.at {
            Some(timestamp) => search.first_at_or_after(timestamp, wait)?,
            None => search.first_of_largest(wait)?,
        };
        Ok(found.filter(|found| found.offset < search.bound))
    }
}

impl Search {
    fn is_active(&self, index: usize) -> bool {
        index + 1 == self.segments.len()
    }

    fn largest(&self, index: usize, wait: Wait) -> Result<TimeEntry, ReadError> {
        if self.is_active(index) {
            return Ok(self.active_largest);
        }
        Ok(self.segments[index].load_largest(wait)?)
    }

    fn first_at_or_after(&self, at: i64, wait: Wait) -> Result<Option<TimeOffset>, ReadError> {
        for index in 0..self.segments.len() {
            if self.ends_before_start(index) {
                continue;
            }
            if let Some(Some(found)) = self.unless_removed(index, self.search(index, at, wait))? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn search(&self, index: usize, at: i64, wait: Wait) -> Result<Option<TimeOffset>, ReadError> {
        if self.largest(index, wait)?.timestamp < at {
            return Ok(None);
        }
        let segment = &self.segments[index];
        let start = if self.is_active(index) {
            self.active_start
        } else {
            let entry = segment.search_time(at, wait)?;
            segment.search_offset(entry.offset.max(self.log_start), wait)?
        };
        self.walk(index, start, wait, |met, bytes| {
            if met.header.max_timestamp < at {
                return Ok(None);
            }
            record_search::first_at_or_after(&bytes()?, at, self.log_start)
                .map_err(|error| ReadError::Corrupt(error.to_string()))
        })
    }

    /// `None` if retention removed the segment's files during the search.
    fn unless_removed<T>(
        &self,
        index: usize,
        result: Result<T, ReadError>,
    ) -> Result<Option<T>, ReadError> {
        match result {
            Err(ReadError::Io(error))
                if error.kind() == io::ErrorKind::NotFound && self.segments[index].is_removed() =>
            {
                Ok(None)
            }
            result => result.map(Some),
        }
    }

    fn first_of_largest(&self, wait: Wait) -> Result<Option<TimeOffset>, ReadError> {
        let mut best: Option<(usize, TimeEntry)> = None;
        for index in 0..self.segments.len() {
            if self.ends_before_start(index) {
                continue;
            }
            let visible = self.unless_removed(index, self.largest_visible(index, wait))?;
            let Some(largest) = visible else { continue };
            if best.is_none_or(|(_, best)| largest.timestamp > best.timestamp) {
                best = Some((index, largest));
            }
        }
        let Some((index, largest)) = best.filter(|(_, best)| best.timestamp > NO_TIMESTAMP) else {
            return Ok(None);
        };
        let start = self.start_in(index, largest.offset, wait)?;
        self.walk(index, start, wait, |met, bytes| {
            if met.header.max_timestamp != largest.timestamp {
                return Ok(None);
            }
            record_search::first_with_max_timestamp(&bytes()?)
                .map_err(|error| ReadError::Corrupt(error.to_string()))
        })
    }

    fn largest_visible(&self, index: usize, wait: Wait) -> Result<TimeEntry, ReadError> {
        let largest = self.largest(index, wait)?;
        if largest.offset < self.log_start && largest.timestamp > NO_TIMESTAMP {
            return self.largest_from_start(index, wait);
        }
        Ok(largest)
    }

    /// The largest timestamp of undeleted batches in the segment that holds the log start.
    fn largest_from_start(&self, index: usize, wait: Wait) -> Result<TimeEntry, ReadError> {
        let start = self.start_in(index, self.log_start, wait)?;
        self.unless_astray(index, start, wait, |segment, start| {
            let limit = segment.size();
            let mut scanner =
                BatchScanner::new(segment.bytes(), start, limit, WALK_CHUNK_BYTES, wait);
            let mut largest = TimeEntry::none(self.log_start);
            while let Some(met) = scanner.next_header()? {
                let (timestamp, offset) = (met.header.max_timestamp, met.header.last_offset());
                if offset >= self.log_start && timestamp > largest.timestamp {
                    largest = TimeEntry { timestamp, offset };
                }
            }
            Ok(largest)
        })
    }

    /// Walks a segment from its index's position, or from its start.
    fn unless_astray<T>(
        &self,
        index: usize,
        start: u32,
        wait: Wait,
        walk: impl Fn(&Arc<Segment>, u64) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        let (segment, discards) = (&self.segments[index], !self.is_active(index));
        read::unless_astray(segment, start, wait, discards, |start| walk(segment, start))
    }

    /// A position at or before the batch that holds `offset`.
    fn start_in(&self, index: usize, offset: i64, wait: Wait) -> Result<u32, ReadError> {
        if self.is_active(index) {
            return Ok(self.active_start);
        }
        Ok(self.segments[index].search_offset(offset, wait)?)
    }

    /// Whether all of a segment's records were deleted.
    fn ends_before_start(&self, index: usize) -> bool {
        let next = self.segments.get(index + 1);
        next.is_some_and(|next| next.base_offset() <= self.log_start)
    }

    /// Walks batches from `start` on until `pick` finds (offset, timestamp) in one. `pick` gets
    /// each header and can read the whole batch.
    fn walk(
        &self,
        index: usize,
        start: u32,
        wait: Wait,
        pick: impl Fn(
            &Met,
            &mut dyn FnMut() -> Result<Vec<u8>, ReadError>,
        ) -> Result<Option<(i64, i64)>, ReadError>,
    ) -> Result<Option<TimeOffset>, ReadError> {
        self.unless_astray(index, start, wait, |segment, start| {
            let limit = segment.size();
            if limit <= start {
                return Ok(None);
            }
            let mut scanner =
                BatchScanner::new(segment.bytes(), start, limit, LOOK_UP_CHUNK_BYTES, wait);
            while let Some(met) = scanner.next_header()? {
                if met.header.base_offset >= self.bound {
                    break;
                }
                if met.header.last_offset() < self.log_start {
                    continue;
                }
                let mut whole = || Ok(scanner.whole(&met)?.to_vec());
                if let Some((offset, timestamp)) = pick(&met, &mut whole)? {
                    let leader_epoch = met.header.partition_leader_epoch;
                    return Ok(Some(TimeOffset {
                        timestamp,
                        offset,
                        leader_epoch,
                    }));
                }
            }
            Ok(None)
        })
    }
}
