//! What a partition still has to send: an open batch, and full ones in order.

use std::collections::VecDeque;
use std::time::Instant;

use pyrklog_client::Backoff;
use pyrklog_compression::{compress, with_decompressed};
use pyrklog_wire::batch::{BatchHeader, Compression, HEADER_LEN};
use pyrklog_wire::builder::{BatchBuilder, HeaderToWrite};
use pyrklog_wire::records::Records;

use crate::coordinators::ProducerId;
use crate::error::{ErrorKind, ProduceError, Result};
use crate::rows::Row;

/// Of a batch that is divided: our own, so it expands to what it was made of.
const EXPANDED_BYTES_MAX: usize = i32::MAX as usize;

/// Most offsets from a batch's first record to its last one.
const SPAN_MAX: i64 = 1 << 30;

/// How batches are made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recipe {
    pub producer: ProducerId,
    pub is_transactional: bool,
    pub codec: Compression,
    /// Batches bring their offsets, and have no producer.
    pub keeps_offsets: bool,
}

impl Recipe {
    fn builder(&self, base_sequence: i32, base_offset: i64) -> BatchBuilder {
        if self.keeps_offsets {
            return BatchBuilder::new().base_offset(base_offset);
        }
        let builder = BatchBuilder::new().producer(self.producer.0, self.producer.1, base_sequence);
        match self.is_transactional {
            true => builder.transactional(),
            false => builder,
        }
    }

    /// `expected_end` is where the log is to end before the batch.
    fn finish(&self, builder: BatchBuilder, expected_end: i64) -> Result<Full> {
        let records = builder.record_count();
        let full = |bytes| Full {
            bytes,
            records,
            first_try: None,
            expected_end,
        };
        if self.codec == Compression::None {
            return Ok(full(builder.build()));
        }
        let mut failure = None;
        let bytes = builder.build_compressed(self.codec, |records| {
            let mut out = Vec::new();
            if let Err(error) = compress(self.codec, records, &mut out) {
                failure = Some(error.to_string());
            }
            out
        });
        match failure {
            None => Ok(full(bytes)),
            Some(text) => Err(ProduceError::new(ErrorKind::Resources, text)),
        }
    }
}

/// A batch as it is sent.
#[derive(Debug)]
pub(crate) struct Full {
    pub bytes: Vec<u8>,
    pub records: i32,
    pub first_try: Option<Instant>,
    /// Where the log is to end before, if batches bring their offsets.
    pub expected_end: i64,
}

/// A partition.
#[derive(Debug, Default)]
pub(crate) struct Partition {
    open: Option<BatchBuilder>,
    pub queue: VecDeque<Full>,
    /// The first batch of the queue is on its way.
    pub in_flight: bool,
    /// Not before then, after a failure.
    pub retry_at: Option<Instant>,
    pub backoff: Backoff,
    /// Why the first batch of the queue was not taken.
    pub reason: String,
    /// The transaction has it.
    pub is_added: bool,
    /// The first batch of the queue was sent, and the connection lost before its answer.
    pub is_unanswered: bool,
    pub acknowledged: u64,
    /// Of the last batch, before compression: the next one is likely as large.
    last_bytes: usize,
    next_sequence: i32,
    /// Where the log ends once all full batches are there, if batches bring their offsets.
    pub end: Option<i64>,
}

impl Partition {
    /// Appends a row; the bytes by which what is to be sent has grown.
    pub fn push(
        &mut self,
        recipe: &Recipe,
        row: &Row<'_>,
        timestamp: i64,
        headers: &[HeaderToWrite<'_>],
    ) -> usize {
        let offset = row.offset.filter(|_| recipe.keeps_offsets);
        let mut grown = 0;
        let (sequence, likely) = (self.next_sequence, self.last_bytes);
        let open = self.open.get_or_insert_with(|| {
            grown += HEADER_LEN;
            let base_offset = offset.unwrap_or_default();
            recipe.builder(sequence, base_offset).reserve(likely)
        });
        let before = open.size_bytes();
        if let Some(offset) = offset {
            // The caller has asked `takes`.
            open.skip_offsets((offset - open.end_offset()) as i32);
        }
        open.append_with_headers(timestamp, row.key, row.value, headers);
        grown + open.size_bytes() - before
    }

    /// Whether a record at `offset` can follow in the open batch; `None` if in no batch.
    pub fn takes(&self, offset: i64) -> Option<bool> {
        let Some(open) = &self.open else {
            return (offset >= self.end?).then_some(true);
        };
        let is_behind = offset >= open.end_offset();
        is_behind.then(|| offset - open.first_offset() <= SPAN_MAX)
    }

    /// Bytes of the open batch.
    pub fn open_bytes(&self) -> usize {
        self.open.as_ref().map_or(0, BatchBuilder::size_bytes)
    }

    /// Closes the open batch. Its bytes before and after.
    ///
    /// # Errors
    /// `Resources`.
    pub fn seal(&mut self, recipe: &Recipe) -> Result<(usize, usize)> {
        let Some(open) = self.open.take() else {
            return Ok((0, 0));
        };
        let before = open.size_bytes();
        self.last_bytes = before;
        // Sequence numbers follow 2^31-1 with 0.
        self.next_sequence = self.next_sequence.wrapping_add(open.record_count()) & i32::MAX;
        let (expected_end, end) = (self.end.unwrap_or_default(), open.end_offset());
        if recipe.keeps_offsets {
            self.end = Some(end);
        }
        let full = recipe.finish(open, expected_end)?;
        let after = full.bytes.len();
        self.queue.push_back(full);
        Ok((before, after))
    }

    /// The first batch is in the log.
    pub fn acknowledge(&mut self) -> Option<Full> {
        self.in_flight = false;
        self.is_unanswered = false;
        self.retry_at = None;
        self.backoff.reset();
        let full = self.queue.pop_front()?;
        self.acknowledged += full.records as u64;
        Some(full)
    }

    /// The first batch is to be sent again.
    pub fn refuse(&mut self, now: Instant, reason: String) {
        self.in_flight = false;
        self.retry_at = Some(now + self.backoff.next_wait());
        self.reason = reason;
    }

    /// Forgets all that is to be sent. The bytes of the open batch, and of full ones.
    pub fn drop_unsent(&mut self) -> (usize, usize) {
        let open = self.open.take().map_or(0, |open| open.size_bytes());
        let queued = self.queue.drain(..).map(|full| full.bytes.len()).sum();
        (open, queued)
    }

    /// Divides the first batch in two, with the same sequence numbers. The bytes by which what is
    /// to be sent has grown.
    ///
    /// # Errors
    /// `TooLarge` for a single record.
    pub fn halve(&mut self, recipe: &Recipe) -> Result<isize> {
        self.in_flight = false;
        let Some(full) = self.queue.pop_front() else {
            return Ok(0);
        };
        if full.records < 2 {
            let text = format!("a record takes {} bytes", full.bytes.len());
            return Err(ProduceError::new(ErrorKind::TooLarge, text));
        }
        let wrong = |text: String| ProduceError::new(ErrorKind::Protocol, text);
        let header = BatchHeader::parse(&full.bytes).map_err(|error| wrong(error.to_string()))?;
        let (body, middle) = (&full.bytes[HEADER_LEN..], full.records / 2);
        let codec = recipe.codec;
        let halves = with_decompressed(codec, body, EXPANDED_BYTES_MAX, |records| {
            divide(recipe, &header, records, (middle, full.expected_end))
        });
        let (first, second) = halves.map_err(|error| wrong(error.to_string()))??;
        let grown = first.bytes.len() + second.bytes.len();
        self.queue.push_front(second);
        self.queue.push_front(Full {
            first_try: full.first_try,
            ..first
        });
        Ok(grown as isize - full.bytes.len() as isize)
    }
}

fn divide(
    recipe: &Recipe,
    header: &BatchHeader,
    records: &[u8],
    (middle, expected_end): (i32, i64),
) -> Result<(Full, Full)> {
    let mut first = recipe.builder(header.base_sequence, header.base_offset);
    let mut second = None;
    for (number, record) in (0..).zip(Records::new(records)) {
        let record =
            record.map_err(|error| ProduceError::new(ErrorKind::Protocol, error.to_string()))?;
        let headers: Vec<HeaderToWrite<'_>> =
            record.headers().map(|one| (one.key, one.value)).collect();
        let offset = header.base_offset + i64::from(record.offset_delta);
        let half = match number < middle {
            true => &mut first,
            false => second.get_or_insert_with(|| {
                let sequence = header.base_sequence.wrapping_add(middle) & i32::MAX;
                recipe.builder(sequence, offset)
            }),
        };
        if recipe.keeps_offsets {
            half.skip_offsets((offset - half.end_offset()) as i32);
        }
        let timestamp = header.base_timestamp.wrapping_add(record.timestamp_delta);
        half.append_with_headers(timestamp, record.key, record.value, &headers);
    }
    let middle_end = first.end_offset();
    let second = second.ok_or_else(|| {
        let text = "a batch has fewer records than it says";
        ProduceError::new(ErrorKind::Protocol, text)
    })?;
    Ok((
        recipe.finish(first, expected_end)?,
        recipe.finish(second, middle_end)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pyrklog_wire::batch::verify_crc;

    fn recipe(codec: Compression) -> Recipe {
        Recipe {
            producer: (7, 3),
            is_transactional: true,
            codec,
            keeps_offsets: false,
        }
    }

    fn row(value: &[u8]) -> Row<'_> {
        Row {
            key: Some(b"k"),
            value: Some(value),
            topic: None,
            partition: None,
            timestamp: None,
            offset: None,
        }
    }

    type Seen = Vec<(i32, i64, Vec<u8>)>;

    /// Sequence, timestamp and value of each record.
    fn seen(partition: &Partition) -> Seen {
        let mut all = Vec::new();
        for full in &partition.queue {
            verify_crc(&full.bytes).unwrap();
            let header = BatchHeader::parse(&full.bytes).unwrap();
            assert!(header.is_transactional());
            assert_eq!((header.producer_id, header.producer_epoch), (7, 3));
            assert_eq!(header.record_count, full.records);
            let codec = header.compression().unwrap();
            with_decompressed(codec, &full.bytes[HEADER_LEN..], 1 << 20, |records| {
                for record in Records::new(records) {
                    let record = record.unwrap();
                    assert_eq!(record.header_count, 1);
                    all.push((
                        header.base_sequence.wrapping_add(record.offset_delta) & i32::MAX,
                        header.base_timestamp + record.timestamp_delta,
                        record.value.unwrap().to_vec(),
                    ));
                }
            })
            .unwrap();
        }
        all
    }

    #[test]
    fn halves_have_the_same_records_with_the_same_sequences() {
        for codec in [Compression::None, Compression::Zstd, Compression::Lz4] {
            let mut partition = Partition {
                next_sequence: i32::MAX - 2,
                ..Partition::default()
            };
            let mut bytes = 0;
            for number in 0..7 {
                let value = vec![number; 10];
                let at = 100 - i64::from(number);
                bytes += partition.push(&recipe(codec), &row(&value), at, &[(b"h", None)]);
            }
            assert_eq!(bytes, partition.open_bytes());
            let (before, after) = partition.seal(&recipe(codec)).unwrap();
            assert_eq!(before, bytes);
            let whole = seen(&partition);
            let sequences: Vec<i32> = whole.iter().map(|one| one.0).collect();
            let last = i32::MAX;
            assert_eq!(sequences, [last - 2, last - 1, last, 0, 1, 2, 3]);
            partition.in_flight = true;
            let grown = partition.halve(&recipe(codec)).unwrap();
            assert!(!partition.in_flight);
            assert_eq!(partition.queue.len(), 2);
            let total: usize = partition.queue.iter().map(|full| full.bytes.len()).sum();
            assert_eq!(total as isize, after as isize + grown);
            assert_eq!(seen(&partition), whole);
        }
    }

    /// (base offset, expected end, offsets of the records) of each batch.
    fn offsets(partition: &Partition) -> Vec<(i64, i64, Vec<i64>)> {
        let of = |full: &Full| {
            verify_crc(&full.bytes).unwrap();
            let header = BatchHeader::parse(&full.bytes).unwrap();
            assert_eq!((header.producer_id, header.base_sequence), (-1, -1));
            let base = header.base_offset;
            let records = Records::new(&full.bytes[HEADER_LEN..]);
            let deltas: Vec<i32> = records.map(|one| one.unwrap().offset_delta).collect();
            assert_eq!(deltas.last(), Some(&header.last_offset_delta));
            let all = deltas.iter().map(|delta| base + i64::from(*delta));
            (base, full.expected_end, all.collect())
        };
        partition.queue.iter().map(of).collect()
    }

    fn keeping() -> Recipe {
        Recipe {
            keeps_offsets: true,
            is_transactional: false,
            ..recipe(Compression::None)
        }
    }

    fn kept(begin: i64, batches: &[&[i64]]) -> Partition {
        let mut partition = Partition {
            end: Some(begin),
            ..Partition::default()
        };
        for batch in batches {
            for offset in *batch {
                assert_eq!(partition.takes(*offset), Some(true));
                let at = Row {
                    offset: Some(*offset),
                    ..row(b"v")
                };
                partition.push(&keeping(), &at, 1, &[]);
            }
            partition.seal(&keeping()).unwrap();
        }
        partition
    }

    #[test]
    fn records_keep_their_offsets_and_batches_follow_each_other() {
        let partition = kept(3, &[&[7, 8, 20], &[30], &[31, 32]]);
        assert_eq!(
            offsets(&partition),
            [
                (7, 3, vec![7, 8, 20]),
                (30, 21, vec![30]),
                (31, 31, vec![31, 32])
            ]
        );
    }

    #[test]
    fn halves_keep_offsets_with_their_gaps() {
        let mut partition = kept(0, &[&[5, 6, 90, 91, 200]]);
        partition.halve(&keeping()).unwrap();
        let halves = [(5, 0, vec![5, 6]), (90, 7, vec![90, 91, 200])];
        assert_eq!(offsets(&partition), halves);
    }

    #[test]
    fn what_goes_back_fits_in_no_batch_and_what_is_far_in_another_one() {
        let mut partition = kept(10, &[&[10]]);
        assert_eq!(partition.takes(10), None);
        assert_eq!(partition.takes(11), Some(true));
        let at = Row {
            offset: Some(40),
            ..row(b"v")
        };
        partition.push(&keeping(), &at, 1, &[]);
        assert_eq!(partition.takes(40), None);
        assert_eq!(partition.takes(40 + SPAN_MAX), Some(true));
        assert_eq!(partition.takes(41 + SPAN_MAX), Some(false));
        assert_eq!(
            Partition::default().takes(0),
            None,
            "where it ends is unknown"
        );
    }

    #[test]
    fn a_single_record_is_not_halved() {
        let mut partition = Partition::default();
        partition.push(&recipe(Compression::None), &row(b"v"), 1, &[]);
        partition.seal(&recipe(Compression::None)).unwrap();
        let error = partition.halve(&recipe(Compression::None)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::TooLarge);
    }
}
