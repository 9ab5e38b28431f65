//! Which batches belong to aborted transactions, and which markers have nothing left to end, while
//! a log is walked from its start (Kafka: `CleanedTransactionMetadata`).

use std::collections::{HashMap, HashSet, VecDeque};

use pyrklog_wire::batch::BatchHeader;

use crate::batch_info::BatchInfo;
use crate::transaction_index::AbortedTxn;

/// The transactions at one point of a walk.
#[derive(Debug)]
pub(super) struct CleanedTransactions {
    /// Not begun yet, by first offset.
    aborted: VecDeque<AbortedTxn>,
    /// Begun and aborted later, by producer, and whether a batch of it was met.
    open: HashMap<i64, (AbortedTxn, bool)>,
    /// Producers with a batch of a transaction that will be committed.
    committing: HashSet<i64>,
}

/// What a control batch ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    /// No batch of the transaction is left, or the batch was emptied before.
    pub is_empty: bool,
    /// The aborted transaction that stays in the index with its marker.
    pub aborted: Option<AbortedTxn>,
}

impl CleanedTransactions {
    /// `aborted`: the aborted transactions that reach into what is walked.
    pub fn new(mut aborted: Vec<AbortedTxn>) -> Self {
        aborted.sort_by_key(|txn| txn.first_offset);
        Self {
            aborted: aborted.into(),
            open: HashMap::new(),
            committing: HashSet::new(),
        }
    }

    /// A data batch; whether its transaction was aborted.
    pub fn meet(&mut self, header: &BatchHeader) -> bool {
        self.begin_up_to(header.last_offset());
        if !header.is_transactional() {
            return false;
        }
        match self.open.get_mut(&header.producer_id) {
            Some((_, was_met)) => {
                *was_met = true;
                true
            }
            None => {
                self.committing.insert(header.producer_id);
                false
            }
        }
    }

    /// A control batch.
    pub fn end(&mut self, info: &BatchInfo) -> End {
        self.begin_up_to(info.last_offset());
        let producer_id = info.producer_id;
        let (is_empty, aborted) = match info.marker {
            None => (info.record_count == 0, None),
            Some(marker) if marker.commit => (!self.committing.remove(&producer_id), None),
            Some(_) => match self.open.remove(&producer_id) {
                Some((txn, true)) => (false, Some(txn)),
                _ => (true, None),
            },
        };
        End { is_empty, aborted }
    }

    fn begin_up_to(&mut self, offset: i64) {
        while let Some(&txn) = self
            .aborted
            .front()
            .filter(|txn| txn.first_offset <= offset)
        {
            self.aborted.pop_front();
            self.open.entry(txn.producer_id).or_insert((txn, false));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pyrklog_wire::batch::set_base_offset;
    use pyrklog_wire::builder::{BatchBuilder, transaction_marker};

    fn data(producer_id: i64, offset: i64) -> BatchHeader {
        let mut builder = BatchBuilder::new()
            .producer(producer_id, 0, 0)
            .transactional()
            .base_offset(offset);
        builder.append(0, Some(b"k"), Some(b"v"));
        BatchHeader::parse(&builder.build()).expect("a batch")
    }

    fn marker(producer_id: i64, offset: i64, commit: bool) -> BatchInfo {
        let mut batch = transaction_marker(producer_id, 0, commit, 0, 0);
        set_base_offset(&mut batch, offset);
        BatchInfo::parse(&batch).expect("a marker")
    }

    fn txn(producer_id: i64, first_offset: i64, last_offset: i64) -> AbortedTxn {
        AbortedTxn {
            producer_id,
            first_offset,
            last_offset,
            last_stable_offset: last_offset + 1,
        }
    }

    #[test]
    fn aborted_data_is_told_from_committed() {
        let aborted = txn(1, 10, 14);
        let mut walked = CleanedTransactions::new(vec![aborted]);
        assert!(!walked.meet(&data(1, 5)));
        let end = walked.end(&marker(1, 6, true));
        assert_eq!((end.is_empty, end.aborted), (false, None));
        assert!(walked.meet(&data(1, 10)));
        assert!(!walked.meet(&data(2, 11)));
        let end = walked.end(&marker(1, 14, false));
        assert_eq!((end.is_empty, end.aborted), (false, Some(aborted)));
        assert!(!walked.meet(&data(1, 15)));
        assert!(!walked.end(&marker(2, 16, true)).is_empty);
    }

    #[test]
    fn markers_without_data_end_nothing() {
        let mut walked = CleanedTransactions::new(vec![txn(1, 0, 4)]);
        let end = walked.end(&marker(1, 4, false));
        assert_eq!((end.is_empty, end.aborted), (true, None));
        assert!(walked.end(&marker(1, 5, true)).is_empty);
    }
}
