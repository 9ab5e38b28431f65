//! Columns of bytes as they grow.

use arrow_array::BinaryArray;
use arrow_buffer::{Buffer, NullBuffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::ArrowError;

/// Binary or string data with its offsets.
#[derive(Debug)]
pub(crate) struct BytesBuilder {
    offsets: Vec<i32>,
    data: Vec<u8>,
    nulls: NullBufferBuilder,
}

impl BytesBuilder {
    pub fn new() -> Self {
        BytesBuilder {
            offsets: vec![0],
            data: Vec::new(),
            nulls: NullBufferBuilder::new(0),
        }
    }

    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    #[inline]
    pub fn push(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => {
                self.data.extend_from_slice(bytes);
                self.nulls.append_non_null();
            }
            None => self.nulls.append_null(),
        }
        // The builder is full long before 2 GiB.
        self.offsets.push(self.data.len() as i32);
    }

    /// The parts. The next batch's vectors begin a little larger than these were: growing would
    /// double them.
    pub fn finish(&mut self) -> (OffsetBuffer<i32>, Buffer, Option<NullBuffer>) {
        let (rows, bytes) = (self.offsets.len(), self.data.len());
        let mut offsets = Vec::with_capacity(with_slack(rows));
        offsets.push(0);
        let offsets = std::mem::replace(&mut self.offsets, offsets);
        let data = std::mem::replace(&mut self.data, Vec::with_capacity(with_slack(bytes)));
        let nulls = self.nulls.finish();
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        (offsets, Buffer::from_vec(data), nulls)
    }

    pub fn finish_binary(&mut self) -> Result<BinaryArray, ArrowError> {
        let (offsets, data, nulls) = self.finish();
        BinaryArray::try_new(offsets, data, nulls)
    }
}

fn with_slack(len: usize) -> usize {
    len + len / 16
}

/// The vector; the next one begins a little larger.
pub(crate) fn take<T>(vector: &mut Vec<T>) -> Vec<T> {
    let empty = Vec::with_capacity(with_slack(vector.len()));
    std::mem::replace(vector, empty)
}
