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
    /// Room for the header, then the records.
    bytes: Vec<u8>,
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
            bytes: vec![0; HEADER_LEN],
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

    /// The offset behind the last record.
    pub fn end_offset(&self) -> i64 {
        self.header.base_offset + i64::from(self.next_offset_delta)
    }

    /// The first offset.
    pub fn first_offset(&self) -> i64 {
        self.header.base_offset
    }

    /// Bytes of the batch so far.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Makes room for a batch of so many bytes before compression, which then does not move while
    /// it grows.
    pub fn reserve(mut self, bytes: usize) -> Self {
        self.bytes.reserve(bytes.saturating_sub(self.bytes.len()));
        self
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
            &mut self.bytes,
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

    /// The batch, uncompressed, with its CRC. The records are not copied.
    pub fn build(mut self) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.bytes);
        self.finish(&mut bytes);
        bytes
    }

    /// The batch with its records compressed by `compress` and marked with `codec`.
    pub fn build_compressed(
        mut self,
        codec: Compression,
        compress: impl FnOnce(&[u8]) -> Vec<u8>,
    ) -> Vec<u8> {
        let body = compress(&self.bytes[HEADER_LEN..]);
        self.header.attributes |= codec as i16;
        let mut bytes = Vec::with_capacity(HEADER_LEN + body.len());
        bytes.resize(HEADER_LEN, 0);
        bytes.extend_from_slice(&body);
        self.finish(&mut bytes);
        bytes
    }

    /// Writes the header of a batch whose body is there.
    fn finish(&mut self, bytes: &mut [u8]) {
        self.header.base_timestamp = self.first_timestamp.unwrap_or(batch::NO_TIMESTAMP);
        let length = bytes.len() - LENGTH_PREFIX_LEN;
        self.header.batch_length = i32::try_from(length).expect("a batch over 2 GiB");
        bytes[..HEADER_LEN].copy_from_slice(&self.header.to_bytes());
        batch::refresh_crc(bytes);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_the_same_bytes_however_it_is_built() {
        let fill = |mut builder: BatchBuilder| {
            for number in 0..100 {
                let key = [number; 3];
                let headers: [HeaderToWrite<'_>; 2] = [(b"a", None), (b"b", Some(&key))];
                builder.append_with_headers(1000 - i64::from(number), Some(&key), None, &headers);
            }
            builder
        };
        let new = || BatchBuilder::new().producer(7, 3, 9).transactional();
        let (plain, reserved) = (fill(new()), fill(new().reserve(1 << 16)));
        assert_eq!(plain.size_bytes(), reserved.size_bytes());
        let size = plain.size_bytes();
        let copied = fill(new()).build_compressed(Compression::None, <[u8]>::to_vec);
        let bytes = plain.build();
        assert_eq!(bytes.len(), size);
        assert_eq!(bytes, reserved.build());
        assert_eq!(bytes, copied);
        batch::verify_crc(&bytes).unwrap();
        let header = BatchHeader::parse(&bytes).unwrap();
        assert_eq!((header.total_len(), header.record_count), (size, 100));
        assert_eq!((header.base_timestamp, header.max_timestamp), (1000, 1000));
    }
}
