//! Reads of internal topics for the control plane, done by readers: whole batches, decompressed.
//!
//! Damage does not end a read. A batch with a wrong checksum or wrong records is reported, and the
//! next one follows. After a batch with a wrong length, the rest of the segment is reported as one
//! damaged batch.

use std::sync::Arc;

use pyrklog_log::compression::{EXPANDED_BYTES_MAX_DEFAULT, decompress};
use pyrklog_log::producer_state::entry::NO_EPOCH;
use pyrklog_log::{Isolation, Location, ReadError, Slice, Wait};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::batch::{self, BatchHeader, BatchView, Batches};
use pyrklog_wire::records::walk_records;

use crate::internal_load::load;
use crate::log_dir_state::Registry;
use crate::reader_queue::{Job, ReaderWorker};
use pyrklog_control::event_queue::EventQueue;
use pyrklog_control::internal_read_work::{InternalReadWork, Purpose};
use pyrklog_control::seam::{InternalBatch, InternalRead, TicketOutcome};
use pyrklog_control::statistics::Statistics;

/// A read with its context.
#[derive(Debug)]
pub struct InternalReadJob {
    /// What to read.
    pub work: InternalReadWork,
    /// Where to find the partition.
    pub registry: Arc<Registry>,
    /// Counts reads.
    pub statistics: Arc<Statistics>,
    /// Receives the outcome.
    pub events: Arc<EventQueue>,
}

impl Job for InternalReadJob {
    fn run(self: Box<Self>, worker: &ReaderWorker<'_>, _buffer: &mut Vec<u8>) {
        let outcome = match self.work.purpose {
            Purpose::Read => self
                .read_counted(&self.work)
                .map(TicketOutcome::InternalRead),
            Purpose::Load => load(&self.work, worker, |piece| self.read_counted(piece))
                .map(|records| TicketOutcome::InternalLoaded(Ok(records))),
        };
        self.complete(outcome.unwrap_or_else(|error| self.work.failed(error)));
    }

    fn fail(&self) {
        self.complete(self.work.failed(ErrorCode::NOT_LEADER_OR_FOLLOWER));
    }
}

impl InternalReadJob {
    /// May wait for the disk.
    fn read_counted(&self, work: &InternalReadWork) -> Result<InternalRead, ErrorCode> {
        let read = read(work, &self.registry)?;
        self.statistics.internal.read(&read);
        Ok(read)
    }

    fn complete(&self, outcome: TicketOutcome) {
        self.events.complete(self.work.ticket, outcome);
    }
}

/// May wait for the disk.
fn read(work: &InternalReadWork, registry: &Registry) -> Result<InternalRead, ErrorCode> {
    let (span, location) = locate(work, registry)?;
    let Some(location) = location else {
        return Ok(span.nothing());
    };
    let slice = match location.resolve(work.max_bytes, true, Wait::Blocking) {
        Ok(slice) if slice.is_empty() => return Ok(span.nothing()),
        Ok(slice) => slice,
        Err(ReadError::Corrupt(reason)) => return Ok(span.lost(reason)),
        Err(_) => return Err(ErrorCode::KAFKA_STORAGE_ERROR),
    };
    let bytes = read_whole(&slice, Wait::Blocking).map_err(|_| ErrorCode::KAFKA_STORAGE_ERROR)?;
    Ok(span.walk(&bytes, work.max_bytes))
}

/// Where to read; no location at the end of the log.
fn locate(
    work: &InternalReadWork,
    registry: &Registry,
) -> Result<(Span, Option<Location>), ErrorCode> {
    let partition = registry
        .partition(&work.topic, work.partition)
        .ok_or(ErrorCode::NOT_LEADER_OR_FOLLOWER)?;
    let mut state = partition.lock();
    let log = state.led()?;
    let offset = work.offset.max(log.log_start_offset());
    let end = log.durable_end_offset();
    let next_segment = log.next_segment_base(offset).unwrap_or(end).min(end);
    let span = Span {
        offset,
        next_segment,
        end,
    };
    if offset == end {
        return Ok((span, None));
    }
    match log.locate(offset, Isolation::DurableEnd) {
        Ok(location) if offset < end => Ok((span, Some(location))),
        Ok(_) | Err(ReadError::OffsetOutOfRange { .. }) => Err(ErrorCode::OFFSET_OUT_OF_RANGE),
        Err(_) => Err(ErrorCode::KAFKA_STORAGE_ERROR),
    }
}

/// All bytes of a slice; fewer if its file ends earlier.
pub fn read_whole(slice: &Slice, wait: Wait) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; slice.len()];
    let mut filled = 0;
    while filled < bytes.len() {
        match slice.read(filled, &mut bytes[filled..], wait)? {
            0 => break,
            count => filled += count,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

#[derive(Clone, Copy, Debug)]
struct Span {
    offset: i64,
    /// Base offset of the next segment, or the end.
    next_segment: i64,
    end: i64,
}

impl Span {
    /// No batch lies between the offset and the end, for instance after compaction.
    fn nothing(self) -> InternalRead {
        self.found(Vec::new(), self.end)
    }

    /// The rest of this segment is unreadable.
    fn lost(self, reason: String) -> InternalRead {
        let lost = damaged(self.offset, self.next_segment - 1, reason);
        self.found(vec![lost], self.next_segment)
    }

    fn found(self, batches: Vec<InternalBatch>, next_offset: i64) -> InternalRead {
        InternalRead {
            error_code: ErrorCode::NONE.0,
            batches,
            next_offset,
            end_offset: self.end,
        }
    }

    /// The batches of a slice; the last one may be incomplete. Expansion is bounded: the first
    /// batch that passes `max_bytes` is the last.
    fn walk(self, bytes: &[u8], max_bytes: usize) -> InternalRead {
        let mut found: Vec<InternalBatch> = Vec::new();
        // `next` may come from a damaged batch and only says where the next read begins. `floor`
        // comes from intact batches and checks those that follow.
        let (mut next, mut floor) = (self.offset, self.offset);
        let mut expanded_bytes = 0;
        let mut trouble = None;
        for view in Batches::new(bytes) {
            let view = match view {
                Ok(view) => view,
                Err(reason) => {
                    trouble = Some(reason.to_string());
                    break;
                }
            };
            if !self.is_in_place(&view.header, floor, found.is_empty()) {
                let reason = format!(
                    "a batch at {} to {} does not lie in [{floor}, {})",
                    view.header.base_offset,
                    view.header.last_offset(),
                    self.end
                );
                trouble.get_or_insert_with(|| reason.clone());
                found.push(damaged(floor, floor, reason));
                continue;
            }
            let batch = open(&view);
            expanded_bytes += batch.body.len();
            next = view.header.next_offset();
            floor = match batch.damage {
                None => next,
                Some(_) => floor.max(view.header.base_offset) + 1,
            };
            found.push(batch);
            if expanded_bytes >= max_bytes {
                break;
            }
        }
        if next > self.offset {
            // The next read begins at the batch that could not be followed.
            return self.found(found, next);
        }
        self.lost(trouble.unwrap_or_else(|| "a batch is cut off".to_owned()))
    }

    /// Whether the offsets are plausible: no checksum covers the base offset.
    fn is_in_place(self, header: &BatchHeader, floor: i64, is_first: bool) -> bool {
        let starts_well = header.base_offset >= floor || (is_first && header.base_offset >= 0);
        header.last_offset_delta >= 0
            && starts_well
            && (floor..self.end).contains(&header.last_offset())
    }
}

fn open(view: &BatchView<'_>) -> InternalBatch {
    let header = &view.header;
    match expand(view) {
        Ok(body) => InternalBatch {
            base_offset: header.base_offset,
            last_offset: header.last_offset(),
            producer_id: header.producer_id,
            producer_epoch: header.producer_epoch,
            is_transactional: header.is_transactional(),
            is_control: header.is_control(),
            body,
            damage: None,
        },
        Err(reason) => damaged(header.base_offset, header.last_offset(), reason),
    }
}

fn expand(view: &BatchView<'_>) -> Result<Vec<u8>, String> {
    batch::verify_crc(view.bytes).map_err(|error| error.to_string())?;
    let header = &view.header;
    let codec = header.compression().map_err(|error| error.to_string())?;
    let mut body = Vec::new();
    // Compaction leaves empty batches to preserve producer state.
    if header.record_count != 0 {
        decompress(codec, view.body(), &mut body, EXPANDED_BYTES_MAX_DEFAULT)
            .map_err(|error| error.to_string())?;
        walk_records(&body, header.record_count).map_err(|error| error.to_string())?;
    }
    Ok(body)
}

fn damaged(base_offset: i64, last_offset: i64, reason: String) -> InternalBatch {
    InternalBatch {
        base_offset,
        last_offset: last_offset.max(base_offset),
        producer_id: batch::NO_PRODUCER_ID,
        producer_epoch: NO_EPOCH,
        is_transactional: false,
        is_control: false,
        body: Vec::new(),
        damage: Some(reason),
    }
}

#[cfg(test)]
mod tests;
