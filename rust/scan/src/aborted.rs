//! Which batches belong to aborted transactions.

use std::collections::HashSet;

use pyrklog_wire::batch::BatchHeader;
use pyrklog_wire::fetch::AbortedTransaction;

/// Type of a marker that aborts, behind the version in a control record's key.
const ABORT: i16 = 0;

/// The aborted transactions of one answer, while its batches are read in order.
///
/// A transaction hides its producer's batches from its first offset on until its marker.
#[derive(Debug, Default)]
pub(crate) struct AbortedTransactions {
    /// By first offset, descending.
    to_come: Vec<AbortedTransaction>,
    producers: HashSet<i64>,
}

impl AbortedTransactions {
    pub fn new(list: &[AbortedTransaction]) -> Self {
        let mut to_come = list.to_vec();
        to_come.sort_by_key(|one| std::cmp::Reverse(one.first_offset));
        AbortedTransactions {
            to_come,
            producers: HashSet::new(),
        }
    }

    /// Whether the next batch is to be left out. `control_key` is the first key of a control batch.
    pub fn hides(&mut self, header: &BatchHeader, control_key: Option<&[u8]>) -> bool {
        if !header.has_producer() {
            return false;
        }
        while let Some(next) = self.to_come.last()
            && next.first_offset <= header.last_offset()
        {
            self.producers.insert(next.producer_id);
            self.to_come.pop();
        }
        if header.is_control() {
            if control_key.is_some_and(is_abort) {
                self.producers.remove(&header.producer_id);
            }
            return false;
        }
        header.is_transactional() && self.producers.contains(&header.producer_id)
    }
}

fn is_abort(key: &[u8]) -> bool {
    matches!(key, [_, _, a, b, ..] if i16::from_be_bytes([*a, *b]) == ABORT)
}
