//! Committed offsets: a group's table, and batches of commits on their way into it.

use std::collections::HashSet;
use std::sync::{Arc, Weak};

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyrklog_dataplane::{self as dataplane, CommittedOffset, OffsetExpiry};

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

    fn page(
        &self,
        after: Option<TopicPartition>,
        max: usize,
    ) -> Vec<(dataplane::TopicPartition, Committed)> {
        let page = self.0.page(after.as_ref().map(named), max).into_iter();
        page.map(|(key, value)| (key, to_python(value))).collect()
    }

    fn topics(&self) -> Vec<String> {
        self.0.topics()
    }

    fn partitions(&self, topic: &str) -> Vec<i32> {
        self.0.partitions(topic)
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

    fn remove_expired(
        &self,
        now_ms: i64,
        retention_ms: i64,
        since_ms: Option<i64>,
        kept_topics: HashSet<PyBackedStr>,
        kept: HashSet<TopicPartition>,
    ) -> Vec<dataplane::TopicPartition> {
        let kept_topics: HashSet<&str> = kept_topics.iter().map(|topic| &**topic).collect();
        let kept: HashSet<(&str, i32)> = kept.iter().map(named).collect();
        let expiry = OffsetExpiry {
            now_ms,
            retention_ms,
            since_ms,
        };
        self.0.remove_expired(expiry, |topic, partition| {
            kept_topics.contains(topic) || kept.contains(&(topic, partition))
        })
    }

    fn clear(&self) -> Vec<dataplane::TopicPartition> {
        self.0.clear()
    }
}

/// `pyrklog_dataplane::CommitBatch`, freed with its requests when done.
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
