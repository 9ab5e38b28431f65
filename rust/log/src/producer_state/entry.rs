//! One producer's state in one partition: its last batches and its open transaction.

use crate::batch_info::BatchInfo;
use crate::snapshot::ProducerEntry;

/// Batches remembered of each producer: an idempotent producer's limit in flight.
pub const BATCHES_MAX: usize = 5;
/// "No epoch".
pub const NO_EPOCH: i16 = -1;
/// "No sequence".
pub const NO_SEQUENCE: i32 = -1;
const NO_OFFSET: i64 = -1;
/// Written sequences are remembered this far back: half of all, since they wrap.
const WRITTEN_MAX: i32 = 1 << 30;

/// What is remembered of one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchMeta {
    /// Sequence of its last record.
    pub last_sequence: i32,
    /// Offset of its last record.
    pub last_offset: i64,
    /// Last offset less first offset.
    pub offset_delta: i32,
    /// Its largest timestamp (ms).
    pub timestamp: i64,
}

impl BatchMeta {
    /// Sequence of its first record; sequences wrap below 0 to 2^31-1.
    pub fn first_sequence(&self) -> i32 {
        if self.last_sequence < 0 {
            return self.last_sequence;
        }
        self.last_sequence.wrapping_sub(self.offset_delta) & i32::MAX
    }

    /// Offset of its first record.
    pub fn first_offset(&self) -> i64 {
        self.last_offset - i64::from(self.offset_delta)
    }
}

/// Invariants: `batches` are of `epoch` only, oldest first; `current_txn_first_offset` is set
/// exactly while the table of open transactions has its entry; `is_shortened` only with fewer
/// batches than are remembered; every sequence of `epoch` from `first_sequence` to the last one was
/// written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProducerState {
    pub epoch: i16,
    batches: [BatchMeta; BATCHES_MAX],
    batch_count: usize,
    /// [`NO_SEQUENCE`] while no batch is known.
    first_sequence: i32,
    /// It comes from a snapshot, which has the last batch only.
    is_shortened: bool,
    pub coordinator_epoch: i32,
    pub last_timestamp: i64,
    pub current_txn_first_offset: Option<i64>,
}

const NO_BATCH: BatchMeta = BatchMeta {
    last_sequence: NO_SEQUENCE,
    last_offset: NO_OFFSET,
    offset_delta: 0,
    timestamp: -1,
};

impl Default for ProducerState {
    fn default() -> Self {
        Self {
            epoch: NO_EPOCH,
            batches: [NO_BATCH; BATCHES_MAX],
            batch_count: 0,
            first_sequence: NO_SEQUENCE,
            is_shortened: false,
            coordinator_epoch: -1,
            last_timestamp: -1,
            current_txn_first_offset: None,
        }
    }
}

impl ProducerState {
    /// The remembered batches, oldest first.
    pub fn batches(&self) -> &[BatchMeta] {
        &self.batches[..self.batch_count]
    }

    /// Sequence of the last record, [`NO_SEQUENCE`] if no batch is known.
    pub fn last_sequence(&self) -> i32 {
        self.batches()
            .last()
            .map_or(NO_SEQUENCE, |batch| batch.last_sequence)
    }

    pub fn find(&self, info: &BatchInfo) -> Option<&BatchMeta> {
        let (first, last) = (info.base_sequence, info.last_sequence());
        self.batches()
            .iter()
            .filter(|_| info.producer_epoch == self.epoch)
            .find(|batch| batch.first_sequence() == first && batch.last_sequence == last)
    }

    /// As [`Self::written_below`], if the batch was forgotten only because of a snapshot.
    pub fn forgotten_below(&self, info: &BatchInfo) -> Option<i64> {
        self.written_below(info).filter(|_| self.is_shortened)
    }

    /// Whether batches are missing between the last one and this one, of the same epoch.
    pub fn is_ahead(&self, info: &BatchInfo) -> bool {
        (1..WRITTEN_MAX).contains(&distance(self.last_sequence(), info.base_sequence))
    }

    /// An offset behind the batch, if it was written and precedes all remembered ones.
    pub fn written_below(&self, info: &BatchInfo) -> Option<i64> {
        let oldest = self.batches().first()?;
        if info.producer_epoch != self.epoch || self.first_sequence < 0 || info.base_sequence < 0 {
            return None;
        }
        let from_first = |sequence: i32| distance(self.first_sequence, sequence);
        let (first, last) = (
            from_first(info.base_sequence),
            from_first(info.last_sequence()),
        );
        let is_before = first <= last && last < from_first(oldest.first_sequence());
        is_before.then(|| oldest.first_offset())
    }

    /// Sequences restart with an epoch: batches of another one are forgotten.
    pub fn set_epoch(&mut self, epoch: i16) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.batch_count = 0;
            self.first_sequence = NO_SEQUENCE;
            self.is_shortened = false;
        }
    }

    /// Remembers a batch and forgets the oldest of five.
    pub fn add_batch(&mut self, batch: BatchMeta) {
        let first_sequence = batch.first_sequence();
        let follows = self.batch_count > 0 && distance(self.last_sequence(), first_sequence) == 1;
        if !follows {
            // After its state expired a producer may start anywhere.
            self.first_sequence = first_sequence;
        } else if distance(self.first_sequence, batch.last_sequence) > WRITTEN_MAX {
            self.first_sequence = batch.last_sequence.wrapping_sub(WRITTEN_MAX) & i32::MAX;
        }
        if self.batch_count == BATCHES_MAX {
            self.batches.copy_within(1.., 0);
            self.batch_count -= 1;
        }
        self.batches[self.batch_count] = batch;
        self.batch_count += 1;
        self.is_shortened &= self.batch_count < BATCHES_MAX;
        self.last_timestamp = batch.timestamp;
    }

    /// Whether it was idle for long enough and has no open transaction.
    pub fn is_expired(&self, now_ms: i64, expiration_ms: i64) -> bool {
        let idle_ms = now_ms.saturating_sub(self.last_timestamp);
        self.current_txn_first_offset.is_none() && idle_ms >= expiration_ms
    }

    pub fn to_snapshot(&self, producer_id: i64) -> ProducerEntry {
        let last = self.batches().last().copied().unwrap_or(NO_BATCH);
        ProducerEntry {
            producer_id,
            epoch: self.epoch,
            last_sequence: last.last_sequence,
            last_offset: last.last_offset,
            offset_delta: last.offset_delta,
            timestamp: self.last_timestamp,
            coordinator_epoch: self.coordinator_epoch,
            current_txn_first_offset: self.current_txn_first_offset.unwrap_or(NO_OFFSET),
            // Omitted if it begins with the last batch.
            first_sequence: match self.first_sequence == last.first_sequence() {
                true => NO_SEQUENCE,
                false => self.first_sequence,
            },
        }
    }

    pub fn from_snapshot(entry: &ProducerEntry) -> Self {
        let mut state = Self {
            epoch: entry.epoch,
            ..Self::default()
        };
        if entry.last_offset >= 0 {
            state.add_batch(BatchMeta {
                last_sequence: entry.last_sequence,
                last_offset: entry.last_offset,
                offset_delta: entry.offset_delta,
                timestamp: entry.timestamp,
            });
            if entry.first_sequence >= 0 {
                state.first_sequence = entry.first_sequence;
            }
            state.is_shortened = true;
        }
        state.coordinator_epoch = entry.coordinator_epoch;
        state.last_timestamp = entry.timestamp;
        let first_offset = entry.current_txn_first_offset;
        state.current_txn_first_offset = (first_offset >= 0).then_some(first_offset);
        state
    }
}

/// How many sequences `later` lies behind `earlier`; 0 follows 2^31-1.
fn distance(earlier: i32, later: i32) -> i32 {
    later.wrapping_sub(earlier) & i32::MAX
}
