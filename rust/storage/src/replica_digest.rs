//! Digests of this broker's replica of a partition. `pyrklog log verify` compares digests of the
//! same offsets from each replica.
//!
//! A digest ([`BatchDigest`]) is of the whole batches of an offset range.
//!
//! One thread per log directory reads bounded pieces, a bounded number per request. So digests
//! delay neither clients nor coordinators, and a log may have any length.

use std::sync::Arc;

use pyrklog_log::{BatchDigest, Isolation, ReadError, Wait};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::batch::{self, BatchView, Batches};

use crate::internal_read::read_whole;
use crate::log_dir_state::Registry;
use crate::log_manager::LogManager;
use crate::reader_queue::{Job, Kind, ReaderWorker};
use pyrklog_base::ids::TicketId;
use pyrklog_control::event_queue::EventQueue;
use pyrklog_control::seam::{DigestRange, DigestedBatch, ReplicaDigest, TicketOutcome};

/// Bytes read at once; a larger batch is read whole.
const CHUNK_BYTES: usize = 1 << 20;

/// A digest job.
#[derive(Debug)]
pub struct DigestWork {
    ticket: TicketId,
    topic: Box<str>,
    partition: i32,
    range: DigestRange,
    registry: Arc<Registry>,
    events: Arc<EventQueue>,
}

impl Job for DigestWork {
    fn run(self: Box<Self>, worker: &ReaderWorker<'_>, _buffer: &mut Vec<u8>) {
        match self.digest(worker) {
            Ok(digest) => self.complete(digest),
            Err(error) => self.end(error),
        }
    }

    fn fail(&self) {
        self.end(ErrorCode::NOT_LEADER_OR_FOLLOWER);
    }
}

/// See `DataPlane::replica_digest`.
pub fn replica_digest(
    logs: &LogManager,
    topic: &str,
    partition: i32,
    range: DigestRange,
) -> TicketId {
    let ticket = logs.tickets.next();
    let work = DigestWork {
        ticket,
        topic: topic.into(),
        partition,
        range,
        registry: Arc::clone(&logs.registry),
        events: Arc::clone(&logs.events),
    };
    match logs.registry.partition(topic, partition) {
        None => work.end(ErrorCode::NOT_LEADER_OR_FOLLOWER),
        Some(hosted) => {
            let queue = logs.readers.for_kind(hosted.dir().index, Kind::Digest);
            if let Err(work) = logs.readers.submit(queue, Box::new(work)) {
                work.end(ErrorCode::REQUEST_TIMED_OUT);
            }
        }
    }
    ticket
}

impl DigestWork {
    fn end(&self, error: ErrorCode) {
        self.complete(ReplicaDigest::failed(error.0));
    }

    fn complete(&self, digest: ReplicaDigest) {
        let outcome = TicketOutcome::ReplicaDigest(digest);
        self.events.complete(self.ticket, outcome);
    }

    fn digest(&self, worker: &ReaderWorker<'_>) -> Result<ReplicaDigest, ErrorCode> {
        let offsets = self.offsets()?;
        let mut chain = Chain::new(self.range);
        if chain.next < self.range.end
            && (chain.next < offsets.log_start_offset || self.range.end > offsets.log_end_offset)
        {
            return Err(ErrorCode::OFFSET_OUT_OF_RANGE);
        }
        while !chain.is_done() {
            worker.step();
            let bytes = self.read(offsets.leader_epoch, chain.next)?;
            chain.add_batches(bytes.as_deref());
        }
        Ok(ReplicaDigest {
            next_offset: chain.next,
            digest: chain.digest.value(),
            batches: chain.batches,
            damaged_offset: chain.damaged.unwrap_or(-1),
            first: chain.first,
            ..offsets
        })
    }

    /// The replica's offsets now, and no batches.
    fn offsets(&self) -> Result<ReplicaDigest, ErrorCode> {
        let hosted = self.registry.partition(&self.topic, self.partition);
        let hosted = hosted.ok_or(ErrorCode::NOT_LEADER_OR_FOLLOWER)?;
        let mut state = hosted.lock();
        let leader_epoch = state.leader_epoch;
        let log = state.shown(false)?;
        let compacted_end = hosted.dir().files.cleaned_end(&self.topic, self.partition);
        Ok(ReplicaDigest {
            leader_epoch,
            compacted_end: compacted_end.unwrap_or(-1).max(log.swapped_end()),
            log_start_offset: log.log_start_offset(),
            high_watermark: log.high_watermark(),
            log_end_offset: log.durable_end_offset(),
            ..ReplicaDigest::failed(ErrorCode::NONE.0)
        })
    }

    /// The bytes from the batch that holds `offset` on; `None` if the log is damaged there.
    fn read(&self, leader_epoch: i32, offset: i64) -> Result<Option<Vec<u8>>, ErrorCode> {
        let hosted = self.registry.partition(&self.topic, self.partition);
        let hosted = hosted.ok_or(ErrorCode::NOT_LEADER_OR_FOLLOWER)?;
        let mut state = hosted.lock();
        if state.leader_epoch != leader_epoch {
            // What was read so far may have been truncated since.
            return Err(ErrorCode::FENCED_LEADER_EPOCH);
        }
        let located = state.shown(false)?.locate(offset, Isolation::DurableEnd);
        drop(state);
        let slice = located.and_then(|place| place.resolve(CHUNK_BYTES, true, Wait::PastCache));
        match slice {
            Ok(slice) => match read_whole(&slice, Wait::PastCache) {
                Ok(bytes) => Ok(Some(bytes)),
                Err(_) => Err(ErrorCode::KAFKA_STORAGE_ERROR),
            },
            Err(ReadError::Corrupt(_)) => Ok(None),
            // Retention has removed it.
            Err(ReadError::OffsetOutOfRange { .. }) => Err(ErrorCode::OFFSET_OUT_OF_RANGE),
            Err(_) => Err(ErrorCode::KAFKA_STORAGE_ERROR),
        }
    }
}

#[derive(Debug)]
struct Chain {
    range: DigestRange,
    /// The offset after the last included batch.
    next: i64,
    digest: BatchDigest,
    batches: i64,
    bytes: usize,
    first: Option<DigestedBatch>,
    damaged: Option<i64>,
    is_broken: bool,
}

impl Chain {
    fn new(range: DigestRange) -> Chain {
        Chain {
            range,
            next: range.start,
            digest: BatchDigest::default(),
            batches: 0,
            bytes: 0,
            first: None,
            damaged: None,
            is_broken: false,
        }
    }

    fn is_done(&self) -> bool {
        self.next >= self.range.end || self.bytes >= self.range.max_bytes || self.is_broken
    }

    /// Adds the batches of a piece, the last of which may be incomplete; `None` is an unreadable
    /// piece. Ends where the next batch cannot be found.
    fn add_batches(&mut self, bytes: Option<&[u8]>) {
        if bytes.is_some_and(<[u8]>::is_empty) {
            // No batch lies between here and the end of the log, for instance after compaction.
            self.next = self.range.end;
            return;
        }
        let began = self.next;
        for view in Batches::new(bytes.unwrap_or_default()) {
            let Ok(view) = view else { break };
            let last_offset = view.header.last_offset();
            if last_offset < self.next {
                break;
            }
            if last_offset >= self.range.end {
                self.next = self.range.end;
                return;
            }
            self.add(&view);
            if self.is_done() {
                return;
            }
        }
        if self.next == began {
            self.damaged.get_or_insert(began);
            self.is_broken = true;
        }
    }

    fn add(&mut self, view: &BatchView<'_>) {
        let header = &view.header;
        let crc = batch::compute_crc(view.bytes);
        if crc != header.crc {
            self.damaged.get_or_insert(self.next);
        }
        self.digest.add(header, crc);
        self.first.get_or_insert(DigestedBatch {
            base_offset: header.base_offset,
            last_offset: header.last_offset(),
            leader_epoch: header.partition_leader_epoch,
            crc,
        });
        self.batches += 1;
        self.bytes += view.bytes.len();
        self.next = header.next_offset();
    }
}
