//! Committed offsets: a group's table, and batches of commits on their way into it.

use std::sync::{Arc, Weak};

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyrklog_dataplane::{self as dataplane, CommittedOffset};

use crate::member_requests::OffsetCommit;

type TopicPartition = (PyBackedStr, i32);
/// Record offset, offset, leader epoch, metadata, commit and expiry time.
type Committed = (i64, i64, i32, String, i64, i64);

fn named((topic, partition): &TopicPartition) -> (&str, i32) {
    (topic, *partition)
}

fn to_python(found: CommittedOffset) -> Committed {
    (
        found.record_offset,
        found.offset,
        found.leader_epoch,
        found.metadata.into(),
        found.commit_ms,
        found.expire_ms,
    )
}

fn from_python(value: Committed) -> CommittedOffset {
    let (record_offset, offset, leader_epoch, metadata, commit_ms, expire_ms) = value;
    CommittedOffset {
        record_offset,
        offset,
        leader_epoch,
        metadata: metadata.into(),
        commit_ms,
        expire_ms,
    }
}

/// `pyrklog_dataplane::OffsetTable`.
#[pyclass(frozen, module = "pyrklog._core")]
pub struct OffsetTable(Arc<dataplane::OffsetTable>);

#[pymethods]
impl OffsetTable {
    #[new]
    fn new() -> Self {
        OffsetTable(Arc::default())
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    #[getter]
    fn pending(&self) -> usize {
        self.0.pending()
    }

    #[getter]
    fn is_unused(&self) -> bool {
        self.0.is_unused()
    }

    fn is_pending(&self, topic: &str, partition: i32) -> bool {
        self.0.is_pending(topic, partition)
    }

    fn get(&self, topic: &str, partition: i32) -> Option<Committed> {
        self.0.get(topic, partition).map(to_python)
    }

    fn items(&self) -> Vec<(dataplane::TopicPartition, Committed)> {
        let all = self.0.list().into_iter();
        all.map(|(key, value)| (key, to_python(value))).collect()
    }

    fn stage(&self, ticket: u64, partitions: Vec<TopicPartition>) {
        self.0.stage(ticket, partitions.iter().map(named));
    }

    fn stage_commit(&self, ticket: u64, commit: &Bound<'_, OffsetCommit>) -> bool {
        commit.get().0.stage(&self.0, ticket)
    }

    fn finish(&self, ticket: u64, offsets: Vec<(TopicPartition, Option<Committed>)>) {
        let offsets = offsets.iter().map(|(key, value)| {
            let (topic, partition) = named(key);
            (topic, partition, value.clone().map(from_python))
        });
        self.0.finish(ticket, offsets);
    }

    fn keep(&self, offsets: Vec<(TopicPartition, Committed)>) {
        let offsets = offsets.iter().map(|(key, value)| {
            let (topic, partition) = named(key);
            (topic, partition, from_python(value.clone()))
        });
        self.0.keep(offsets);
    }

    fn remove(&self, partitions: Vec<TopicPartition>) -> Vec<dataplane::TopicPartition> {
        self.0.remove(partitions.iter().map(named))
    }

    fn remove_unchanged(
        &self,
        records: Vec<(TopicPartition, i64)>,
    ) -> Vec<dataplane::TopicPartition> {
        let records = records.iter().map(|(key, record_offset)| {
            let (topic, partition) = named(key);
            (topic, partition, *record_offset)
        });
        self.0.remove_unchanged(records)
    }

    fn clear(&self) -> Vec<dataplane::TopicPartition> {
        self.0.clear()
    }
}

/// `pyrklog_dataplane::CommitBatch`, which goes, with all that its requests hold, when it is over.
#[pyclass(frozen, module = "pyrklog._core")]
pub struct CommitBatch(pub Weak<dataplane::CommitBatch>);

#[pymethods]
impl CommitBatch {
    #[getter]
    fn is_answered(&self) -> bool {
        let batch = self.0.upgrade();
        batch.is_none_or(|batch| batch.is_answered())
    }
}

/// `pyrklog_dataplane::commit_error`.
#[pyfunction]
pub fn commit_error(error: i16) -> i16 {
    dataplane::commit_error(pyrklog_wire::ErrorCode(error)).0
}
