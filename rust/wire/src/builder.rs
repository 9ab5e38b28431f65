//! Builds record batches: for internal topics, markers, the load generator and tests.

use crate::batch::{
    self, BatchHeader, CONTROL_BIT, Compression, HEADER_LEN, LENGTH_PREFIX_LEN, TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT, TimestampType,
};
use crate::varint::{varint_len, varlong_len, write_varint, write_varlong};

/// A header to append: key, and value or null.
pub type HeaderToWrite<'a> = (&'a [u8], Option<&'a [u8]>);

/// Builds one batch of format v2. Offsets count from the base offset, sequence numbers from the
/// base sequence. The leader epoch is -1 unless set.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    header: BatchHeader,
    records: Vec<u8>,
    next_offset_delta: i32,
    first_timestamp: Option<i64>,
}

impl Default for BatchBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl BatchBuilder {
    /// An empty batch at base offset 0, without a producer, CreateTime.
    pub fn new() -> Self {
        BatchBuilder {
            header: BatchHeader {
                base_offset: 0,
                batch_length: 0,
                partition_leader_epoch: -1,
                crc: 0,
                attributes: 0,
                last_offset_delta: -1,
                base_timestamp: batch::NO_TIMESTAMP,
                max_timestamp: batch::NO_TIMESTAMP,
                producer_id: batch::NO_PRODUCER_ID,
                producer_epoch: -1,
                base_sequence: -1,
                record_count: 0,
            },
            records: Vec::new(),
            next_offset_delta: 0,
            first_timestamp: None,
        }
    }

    /// Sets the base offset.
    pub fn base_offset(mut self, offset: i64) -> Self {
        self.header.base_offset = offset;
        self
    }

    /// Sets the partition leader epoch.
    pub fn leader_epoch(mut self, epoch: i32) -> Self {
        self.header.partition_leader_epoch = epoch;
        self
    }

    /// Sets producer id, epoch and the first record's sequence number.
    pub fn producer(mut self, id: i64, epoch: i16, base_sequence: i32) -> Self {
        self.header.producer_id = id;
        self.header.producer_epoch = epoch;
        self.header.base_sequence = base_sequence;
        self
    }

    /// Marks the batch as part of a transaction.
    pub fn transactional(mut self) -> Self {
        self.header.attributes |= TRANSACTIONAL_BIT;
        self
    }

    /// Marks the batch as a control batch.
    pub fn control(mut self) -> Self {
        self.header.attributes |= CONTROL_BIT;
        self
    }

    /// Sets who set the timestamps.
    pub fn timestamp_type(mut self, kind: TimestampType) -> Self {
        match kind {
            TimestampType::CreateTime => self.header.attributes &= !TIMESTAMP_TYPE_BIT,
            TimestampType::LogAppendTime => self.header.attributes |= TIMESTAMP_TYPE_BIT,
        }
        self
    }

    /// Records so far.
    pub fn record_count(&self) -> i32 {
        self.header.record_count
    }

    /// Bytes of the batch so far.
    pub fn size_bytes(&self) -> usize {
        HEADER_LEN + self.records.len()
    }

    /// Appends a record without headers. `timestamp` is in milliseconds.
    pub fn append(&mut self, timestamp: i64, key: Option<&[u8]>, value: Option<&[u8]>) {
        self.append_with_headers(timestamp, key, value, &[]);
    }

    /// Appends a record with headers.
    pub fn append_with_headers(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[HeaderToWrite<'_>],
    ) {
        let first = *self.first_timestamp.get_or_insert(timestamp);
        self.header.max_timestamp = self.header.max_timestamp.max(timestamp);
        let delta = timestamp.wrapping_sub(first);
        encode_record(
            &mut self.records,
            delta,
            self.next_offset_delta,
            key,
            value,
            headers,
        );
        self.header.last_offset_delta = self.next_offset_delta;
        self.next_offset_delta += 1;
        self.header.record_count += 1;
    }

    /// Leaves out `count` offsets, as compaction does.
    pub fn skip_offsets(&mut self, count: i32) {
        self.next_offset_delta += count;
        self.header.last_offset_delta = self.next_offset_delta - 1;
    }

    /// The batch, uncompressed, with its CRC.
    pub fn build(self) -> Vec<u8> {
        self.build_compressed(Compression::None, <[u8]>::to_vec)
    }

    /// The batch with its records compressed by `compress` and marked with `codec`.
    pub fn build_compressed(
        mut self,
        codec: Compression,
        compress: impl FnOnce(&[u8]) -> Vec<u8>,
    ) -> Vec<u8> {
        let body = compress(&self.records);
        self.header.attributes |= codec as i16;
        self.header.base_timestamp = self.first_timestamp.unwrap_or(batch::NO_TIMESTAMP);
        let length = HEADER_LEN - LENGTH_PREFIX_LEN + body.len();
        self.header.batch_length = i32::try_from(length).expect("a batch over 2 GiB");
        let mut bytes = Vec::with_capacity(HEADER_LEN + body.len());
        bytes.extend_from_slice(&self.header.to_bytes());
        bytes.extend_from_slice(&body);
        batch::refresh_crc(&mut bytes);
        bytes
    }
}

/// Appends one record in the form of an uncompressed body.
pub fn encode_record(
    out: &mut Vec<u8>,
    timestamp_delta: i64,
    offset_delta: i32,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: &[HeaderToWrite<'_>],
) {
    let headers_len: usize = headers
        .iter()
        .map(|(key, value)| nullable_len(Some(key)) + nullable_len(*value))
        .sum();
    let length = 1
        + varlong_len(timestamp_delta)
        + varint_len(offset_delta)
        + nullable_len(key)
        + nullable_len(value)
        + varint_len(headers.len() as i32)
        + headers_len;
    write_varint(out, i32::try_from(length).expect("a record over 2 GiB"));
    out.push(0);
    write_varlong(out, timestamp_delta);
    write_varint(out, offset_delta);
    write_nullable(out, key);
    write_nullable(out, value);
    write_varint(out, headers.len() as i32);
    for (key, value) in headers {
        write_nullable(out, Some(key));
        write_nullable(out, *value);
    }
}

fn nullable_len(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(1, |bytes| varint_len(bytes.len() as i32) + bytes.len())
}

fn write_nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    write_varint(out, bytes.map_or(-1, |bytes| bytes.len() as i32));
    out.extend_from_slice(bytes.unwrap_or_default());
}

/// A transaction marker: one control record, key (version 0, type 0 = abort or 1 = commit), value
/// (version 0, coordinator epoch), without a sequence number.
pub fn transaction_marker(
    producer_id: i64,
    producer_epoch: i16,
    commit: bool,
    coordinator_epoch: i32,
    timestamp: i64,
) -> Vec<u8> {
    let mut builder = BatchBuilder::new()
        .producer(producer_id, producer_epoch, -1)
        .transactional()
        .control();
    let mut value = [0; 6];
    value[2..].copy_from_slice(&coordinator_epoch.to_be_bytes());
    builder.append(timestamp, Some(&[0, 0, 0, u8::from(commit)]), Some(&value));
    builder.build()
}
