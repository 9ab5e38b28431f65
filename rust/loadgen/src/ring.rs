//! The frames that a producing connection sends repeatedly.

use crate::batch::Batch;
use crate::error::Result;
use crate::messages::{ProduceTerms, produce_request};
use pyrklog_wire::Span;
use std::sync::Arc;

/// Parts of a frame in different places of memory.
pub const PIECES: usize = 3;
/// A larger ring shares its batch, so that the generator reads what it sends from the processor's
/// cache, however many partitions it sends to.
const OWN_BYTES_MAX: usize = 1 << 20;

/// A Produce frame. Its correlation id is its place in the ring: enough where replies come in
/// order, and it spares writing to the frame.
#[derive(Debug)]
pub struct Frame {
    /// The whole frame, or what precedes a shared batch.
    head: Vec<u8>,
    batch: Body,
    records: u32,
}

#[derive(Debug)]
enum Body {
    /// In the frame's own memory.
    Own(Span),
    Shared {
        batch: Arc<[u8]>,
        tail: Vec<u8>,
    },
}

impl Frame {
    fn own(
        place: usize,
        target: (&str, i32),
        terms: &ProduceTerms<'_>,
        batch: &Batch,
    ) -> Result<Self> {
        let (head, span) = produce_request(place as i32, target, terms, &batch.bytes)?;
        Ok(Self {
            head,
            batch: Body::Own(span),
            records: batch.records,
        })
    }

    fn shared(self, bytes: &Arc<[u8]>) -> Self {
        let Body::Own(span) = self.batch else {
            return self;
        };
        let tail = self.head[span.end()..].to_vec();
        let mut head = self.head;
        head.truncate(span.start());
        head.shrink_to_fit();
        Self {
            head,
            batch: Body::Shared {
                batch: Arc::clone(bytes),
                tail,
            },
            records: self.records,
        }
    }

    /// Bytes to be sent.
    pub fn len(&self) -> usize {
        self.pieces(0).iter().map(|piece| piece.len()).sum()
    }

    /// Never: a frame has at least a header.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Size of its batch.
    pub fn batch_bytes(&self) -> usize {
        match &self.batch {
            Body::Own(span) => span.len(),
            Body::Shared { batch, .. } => batch.len(),
        }
    }

    /// Records of its batch.
    pub fn records(&self) -> u32 {
        self.records
    }

    /// The batch, if it is this frame's own.
    pub fn batch_mut(&mut self) -> Option<&mut [u8]> {
        match &self.batch {
            Body::Own(span) => Some(span.of_mut(&mut self.head)),
            Body::Shared { .. } => None,
        }
    }

    /// What is to be sent, in order, without its first `skip` bytes; pieces may be empty.
    pub fn pieces(&self, mut skip: usize) -> [&[u8]; PIECES] {
        let whole: [&[u8]; PIECES] = match &self.batch {
            Body::Own(_) => [&self.head, &[], &[]],
            Body::Shared { batch, tail } => [&self.head, batch, tail],
        };
        whole.map(|piece| {
            let (_, rest) = piece.split_at(skip.min(piece.len()));
            skip -= piece.len() - rest.len();
            rest
        })
    }
}

/// A frame for each of `partitions`.
///
/// # Errors
/// As [`produce_request`].
pub fn build(
    topic: &str,
    partitions: &[i32],
    terms: &ProduceTerms<'_>,
    batch: &Batch,
) -> Result<Vec<Frame>> {
    let bytes: Arc<[u8]> = batch.bytes.as_slice().into();
    let share = batch.bytes.len().saturating_mul(partitions.len()) > OWN_BYTES_MAX;
    let mut ring = Vec::with_capacity(partitions.len());
    for (place, partition) in partitions.iter().enumerate() {
        let frame = Frame::own(place, (topic, *partition), terms, batch)?;
        ring.push(if share { frame.shared(&bytes) } else { frame });
    }
    Ok(ring)
}

/// Frames with writable batches of their own: one after the other for each of `partitions`,
/// `rounds` times.
///
/// # Errors
/// As [`produce_request`].
pub fn build_own(
    topic: &str,
    partitions: &[i32],
    rounds: usize,
    terms: &ProduceTerms<'_>,
    batch: &Batch,
) -> Result<Vec<Frame>> {
    let each_round = std::iter::repeat_n(partitions, rounds).flatten();
    let build =
        |(place, partition): (usize, &i32)| Frame::own(place, (topic, *partition), terms, batch);
    each_round.enumerate().map(build).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch;

    fn whole(frame: &Frame, skip: usize) -> Vec<u8> {
        frame.pieces(skip).concat()
    }

    #[test]
    fn a_shared_batch_makes_the_same_frame() {
        let batch = batch::build(100, 16_384, 1);
        let partitions: Vec<i32> = (0..100).collect();
        let terms = ProduceTerms::plain(1, 30_000);
        let shared = build("t", &partitions, &terms, &batch).unwrap();
        let own = build_own("t", &partitions, 1, &terms, &batch).unwrap();
        for (mut one, other) in shared.into_iter().zip(own) {
            let bytes = whole(&one, 0);
            assert_eq!(bytes, whole(&other, 0));
            assert_eq!(
                (one.len(), one.batch_bytes()),
                (bytes.len(), batch.bytes.len())
            );
            assert!(one.batch_mut().is_none());
            for skip in [
                1,
                one.head.len(),
                one.head.len() + 5,
                bytes.len() - 1,
                bytes.len(),
            ] {
                assert_eq!(whole(&one, skip), bytes[skip..], "{skip}");
            }
        }
    }

    #[test]
    fn few_partitions_keep_batches_of_their_own() {
        let batch = batch::build(100, 16_384, 1);
        let mut ring = build(
            "t",
            &[0, 1, 2, 3, 4, 5],
            &ProduceTerms::plain(1, 30_000),
            &batch,
        )
        .unwrap();
        assert_eq!(ring[0].batch_mut().unwrap(), batch.bytes);
        assert_eq!(ring[5].records(), batch.records);
        assert!(!ring[5].is_empty());
    }
}
