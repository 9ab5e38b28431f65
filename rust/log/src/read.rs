//! Reads by offset: [`Log::locate`] under the lock, [`Location::resolve`] without it.

use std::io;
use std::sync::Arc;

use crate::log::Log;
use crate::position::{LogPosition, SegmentPosition};
use crate::scan::{BatchScanner, LOOK_UP_CHUNK_BYTES, Met, ScanError};
use crate::segment::{Segment, SegmentBytes};
use crate::wait::Wait;

/// How far a reader may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// To the durable end offset: followers.
    DurableEnd,
    /// To the high watermark: consumers.
    HighWatermark,
    /// To the last stable offset: consumers with `read_committed`.
    Committed,
}

/// Why nothing could be read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages name variants and fields.
pub enum ReadError {
    #[error("offset {offset} is not in the log, which spans {start} to {end}")]
    OffsetOutOfRange { offset: i64, start: i64, end: i64 },
    /// The read must wait for the disk; ask again with [`Wait::Blocking`].
    #[error("the data is not in memory")]
    WouldBlock,
    /// A write or sync of this log or its directory failed earlier.
    #[error("{0}")]
    Poisoned(String),
    #[error(transparent)]
    Io(io::Error),
    #[error("{0}")]
    Corrupt(String),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock => Self::WouldBlock,
            io::ErrorKind::InvalidData => Self::Corrupt(error.to_string()),
            _ => Self::Io(error),
        }
    }
}

impl From<ScanError> for ReadError {
    fn from(error: ScanError) -> Self {
        io::Error::from(error).into()
    }
}

/// Where in a segment the search for an offset begins.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Start {
    Exact(u32),
    /// A batch at or before the wanted one begins here.
    From(u32),
    Index,
}

/// The segments of a log at one moment and a starting point in them.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub segments: Arc<Vec<Arc<Segment>>>,
    pub index: usize,
    pub start: Start,
}

/// Where a read begins and must stop; holds no lock.
#[derive(Clone, Debug)]
pub struct Location {
    offset: i64,
    entry: Entry,
    bound: LogPosition,
    /// Aborted transactions may have to be named with what is read.
    names_aborted: bool,
    /// Where to search for the bound if its place is unknown.
    bound_entry: Option<Entry>,
}

/// A range of whole batches in one segment's file; the last one may be incomplete.
#[derive(Clone, Debug)]
pub struct Slice {
    segment: Option<Arc<Segment>>,
    position: u64,
    len: usize,
    offset: i64,
    bound: i64,
    /// An offset behind the last one of a closed segment's slice, if one is known that is nearer
    /// than the segment's end.
    upper: Option<i64>,
    /// Bytes from its position to the bound or the end of its segment.
    available: usize,
    /// The bound lies in a later segment.
    goes_on: bool,
}

impl Log {
    /// Where to read from `offset` up to the bound of `isolation`. Memory only.
    ///
    /// # Errors
    /// `OffsetOutOfRange` outside of log start and log end, `Poisoned`.
    pub fn locate(&self, offset: i64, isolation: Isolation) -> Result<Location, ReadError> {
        if let Some(reason) = self.poisoned() {
            return Err(ReadError::Poisoned(reason.to_owned()));
        }
        if offset < self.log_start || offset > self.end.offset {
            let (start, end) = (self.log_start, self.end.offset);
            return Err(ReadError::OffsetOutOfRange { offset, start, end });
        }
        let bound = self.bound(isolation);
        let bound_entry =
            (bound.place.is_none() && offset < bound.offset).then(|| self.entry_for(bound.offset));
        Ok(Location {
            offset,
            entry: self.entry_for(offset),
            bound,
            names_aborted: isolation == Isolation::Committed && !self.aborted.is_empty(),
            bound_entry,
        })
    }

    /// An offset at or behind the last one of a slice that was read with
    /// [`Isolation::Committed`]; `None` if a part of it was deleted or truncated since.
    pub(crate) fn upper_if_unchanged(&self, slice: &Slice) -> Option<i64> {
        let Some(segment) = &slice.segment else {
            return Some(slice.offset);
        };
        let held = &self.segments[self.segment_index(segment.base_offset())];
        let is_held = Arc::ptr_eq(held, segment);
        let was_cut = self.last_stable_offset() < slice.bound;
        (is_held && !was_cut && slice.offset >= self.log_start).then(|| self.upper_offset(slice))
    }

    /// An offset at or behind the last one in a slice.
    fn upper_offset(&self, slice: &Slice) -> i64 {
        let Some(segment) = &slice.segment else {
            return slice.offset;
        };
        let end = u32::try_from(slice.position + slice.len as u64).unwrap_or(u32::MAX);
        if segment.base_offset() == self.active.base_offset() {
            let entry = self.active.indexes.offsets.view().upper_bound(end);
            return entry
                .map_or(slice.bound, |entry| entry.offset)
                .min(slice.bound);
        }
        let next = self
            .segments
            .partition_point(|s| s.base_offset() <= segment.base_offset());
        let next = self
            .segments
            .get(next)
            .map_or(slice.bound, |next| next.base_offset());
        next.min(slice.upper.unwrap_or(next)).min(slice.bound)
    }

    /// Base offset of the segment that holds the bound of `isolation`. Memory only.
    pub fn bound_segment(&self, isolation: Isolation) -> i64 {
        let bound = self.bound(isolation);
        match bound.place {
            Some(place) => place.segment_base,
            None => self.segments[self.segment_index(bound.offset)].base_offset(),
        }
    }

    pub(crate) fn bound(&self, isolation: Isolation) -> LogPosition {
        match isolation {
            Isolation::DurableEnd => self.durable_end,
            Isolation::HighWatermark => self.high_watermark,
            Isolation::Committed => self.stable_position(),
        }
    }

    /// The segment that holds, or would hold, `offset`.
    pub(crate) fn segment_index(&self, offset: i64) -> usize {
        let after = self
            .segments
            .partition_point(|segment| segment.base_offset() <= offset);
        after.saturating_sub(1)
    }

    /// Base offset of the segment after the one that holds `offset`. Memory only.
    pub fn next_segment_base(&self, offset: i64) -> Option<i64> {
        let next = self.segments.get(self.segment_index(offset) + 1)?;
        Some(next.base_offset())
    }

    pub(crate) fn entry_for(&self, offset: i64) -> Entry {
        let index = self.segment_index(offset);
        let base_offset = self.segments[index].base_offset();
        let start = match self.recent.find(offset) {
            Some(SegmentPosition {
                segment_base,
                position,
            }) if segment_base == base_offset => Start::Exact(position),
            _ if offset <= base_offset => Start::Exact(0),
            _ => self.start_in(index, offset),
        };
        Entry {
            segments: self.segments.clone(),
            index,
            start,
        }
    }

    /// Where to search for `offset` in a segment; the active one's index is in memory.
    pub(crate) fn start_in(&self, index: usize, offset: i64) -> Start {
        if index + 1 == self.segments.len() {
            Start::From(self.active.indexes.offsets.lookup(offset).position)
        } else {
            Start::Index
        }
    }
}

impl Entry {
    /// The batch that holds `offset`, or the next one, in this entry's segment, before `limit`
    /// bytes.
    fn find(&self, offset: i64, limit: u64, wait: Wait) -> Result<Option<u64>, ReadError> {
        let segment = &self.segments[self.index];
        let from = match self.start {
            Start::Exact(position) => {
                return Ok(Some(u64::from(position)).filter(|position| *position < limit));
            }
            Start::From(position) => position,
            Start::Index => segment.search_offset(offset, wait)?,
        };
        let discards = matches!(self.start, Start::Index);
        let met = unless_astray(segment, from, wait, discards, |from| {
            scan_to(segment, offset, from, limit, wait)
        })?;
        Ok(met.map(|met| met.position))
    }

    fn next_segment(&mut self) {
        self.index += 1;
        self.start = Start::Exact(0);
    }
}

/// Walks a segment from its index's position. If that is no batch, discards the index (`discards`;
/// the active segment's stays until the segment is closed) and walks from the first byte.
pub(crate) fn unless_astray<T>(
    segment: &Segment,
    start: u32,
    wait: Wait,
    discards: bool,
    walk: impl Fn(u64) -> Result<T, ReadError>,
) -> Result<T, ReadError> {
    match walk(u64::from(start)) {
        Err(ReadError::Corrupt(_)) if start > 0 => {
            if wait == Wait::Nowait {
                return Err(ReadError::WouldBlock);
            }
            if discards {
                segment.discard_indexes()?;
            }
            walk(0)
        }
        result => result,
    }
}

/// The first batch from `from` on that ends at or behind `offset`.
fn scan_to(
    segment: &Arc<Segment>,
    offset: i64,
    from: u64,
    limit: u64,
    wait: Wait,
) -> Result<Option<Met>, ReadError> {
    if from > 0 && from >= limit {
        let message = format!("the offset index leads to position {from} for {offset}");
        return Err(ReadError::Corrupt(message));
    }
    let mut scanner = BatchScanner::new(segment.bytes(), from, limit, LOOK_UP_CHUNK_BYTES, wait);
    let mut first = true;
    while let Some(met) = scanner.next_header()? {
        if first && from > 0 && met.header.base_offset > offset {
            let message = format!(
                "the offset index leads to {} for {offset}",
                met.header.base_offset
            );
            return Err(ReadError::Corrupt(message));
        }
        first = false;
        if met.header.last_offset() >= offset {
            return Ok(Some(met));
        }
    }
    Ok(None)
}

/// Where a read must stop in a segment up to that of `bound`.
fn limit_in(segment: &Segment, bound: SegmentPosition) -> u64 {
    match segment.base_offset() == bound.segment_base {
        true => u64::from(bound.position),
        false => segment.size(),
    }
}

impl Location {
    /// Whether nothing can be read: the offset is at the bound or, for a consumer, beyond it.
    pub fn is_at_bound(&self) -> bool {
        self.offset >= self.bound.offset
    }

    /// The offset at which the read must stop.
    pub fn bound_offset(&self) -> i64 {
        self.bound.offset
    }

    /// The requested offset.
    pub fn offset(&self) -> i64 {
        self.offset
    }

    /// Bytes that a read could return, for `fetch.min.bytes`: exact if offset and bound are near
    /// the tail, else an upper estimate. Memory only.
    pub fn available_bytes(&self) -> u64 {
        if self.is_at_bound() {
            return 0;
        }
        let Some(bound) = self.bound.place else {
            return 1;
        };
        let mut bytes = 0;
        for (i, segment) in self
            .entry
            .segments
            .iter()
            .enumerate()
            .skip(self.entry.index)
        {
            let start = match self.entry.start {
                Start::Exact(position) | Start::From(position) if i == self.entry.index => position,
                _ => 0,
            };
            let end = limit_in(segment, bound);
            bytes += end.saturating_sub(u64::from(start));
            if segment.base_offset() >= bound.segment_base {
                break;
            }
        }
        bytes.max(1)
    }

    /// Finds at most `max_bytes` of one segment, starting with the batch that holds the offset.
    /// With `min_one` that batch is returned whole even if it is larger; otherwise a batch that
    /// does not fit gives an empty slice (KIP-74). The caller must hold no lock.
    ///
    /// # Errors
    /// `WouldBlock` with [`Wait::Nowait`], `Io`, `Corrupt`.
    pub fn resolve(&self, max_bytes: usize, min_one: bool, wait: Wait) -> Result<Slice, ReadError> {
        if self.is_at_bound() || (max_bytes == 0 && !min_one) {
            return Ok(self.nothing());
        }
        let Some(bound) = self.bound_place(wait)? else {
            return Ok(self.nothing());
        };
        let mut entry = self.entry.clone();
        while let Some(segment) = entry.segments.get(entry.index) {
            if segment.base_offset() > bound.segment_base {
                break;
            }
            let limit = limit_in(segment, bound);
            if let Some(position) = entry.find(self.offset, limit, wait)? {
                let mut slice = self.slice(segment, position, limit, max_bytes, min_one, wait)?;
                slice.goes_on = segment.base_offset() < bound.segment_base;
                if self.names_aborted && !slice.is_empty() {
                    slice.upper = segment.offset_behind(position + slice.len as u64, wait)?;
                }
                return Ok(slice);
            }
            entry.next_segment();
        }
        Ok(self.nothing())
    }

    fn slice(
        &self,
        segment: &Arc<Segment>,
        position: u64,
        limit: u64,
        max_bytes: usize,
        min_one: bool,
        wait: Wait,
    ) -> Result<Slice, ReadError> {
        let available = usize::try_from(limit - position).unwrap_or(usize::MAX);
        let mut len = available.min(max_bytes);
        if len < available {
            // The size of the first batch matters only here.
            let mut scanner = BatchScanner::new(segment.bytes(), position, limit, 0, wait);
            let first = scanner
                .next_header()?
                .map_or(0, |met| met.header.total_len());
            if first > max_bytes {
                len = if min_one { first.min(available) } else { 0 };
            }
        }
        Ok(Slice {
            segment: Some(segment.clone()),
            position,
            len,
            available,
            ..self.nothing()
        })
    }

    /// The place where the read must stop; `None` if nothing lies before it.
    fn bound_place(&self, wait: Wait) -> Result<Option<SegmentPosition>, ReadError> {
        let Some(entry) = &self.bound_entry else {
            return Ok(self.bound.place);
        };
        let mut entry = entry.clone();
        while let Some(segment) = entry.segments.get(entry.index) {
            if let Some(position) = entry.find(self.bound.offset, segment.size(), wait)? {
                let position = u32::try_from(position).unwrap_or(u32::MAX);
                return Ok(Some(SegmentPosition {
                    segment_base: segment.base_offset(),
                    position,
                }));
            }
            entry.next_segment();
        }
        // The bound is the end of what is written.
        Ok(entry.segments.last().map(|segment| SegmentPosition {
            segment_base: segment.base_offset(),
            position: u32::try_from(segment.size()).unwrap_or(u32::MAX),
        }))
    }

    fn nothing(&self) -> Slice {
        Slice {
            segment: None,
            position: 0,
            len: 0,
            offset: self.offset,
            bound: self.bound.offset,
            upper: None,
            available: 0,
            goes_on: false,
        }
    }
}

impl Slice {
    /// The offset that was asked for.
    pub(crate) fn offset(&self) -> i64 {
        self.offset
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that an unlimited read could return from this segment.
    pub fn available_bytes(&self) -> usize {
        self.available
    }

    /// Whether readable bytes continue in a later segment.
    pub fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// The segment's bytes, for callers that keep the range rather than the slice; `None` if empty.
    pub fn bytes(&self) -> Option<SegmentBytes> {
        self.segment.as_ref().map(Segment::bytes)
    }

    /// Position of the slice's first byte in its file.
    pub fn file_position(&self) -> u64 {
        self.position
    }

    /// Tells the system that the slice will be read soon.
    pub fn read_ahead(&self) {
        if let Some(bytes) = self.bytes() {
            bytes.read_ahead(self.position, self.len as u64);
        }
    }

    /// Reads at `at` bytes from the slice's start.
    pub fn read(&self, at: usize, buffer: &mut [u8], wait: Wait) -> io::Result<usize> {
        let n = buffer.len().min(self.len.saturating_sub(at));
        let Some(bytes) = self.bytes() else {
            return Ok(0);
        };
        bytes.read(&mut buffer[..n], self.position + at as u64, wait)
    }
}
