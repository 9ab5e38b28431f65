//! The broker image and the commands that follow from it, from Python.

use pyo3::PyClass;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyrklog_dataplane::api;

use crate::log_config::LogConfig;

/// `api::BrokerImage`.
#[pyclass(frozen, module = "pyrklog._core")]
pub struct BrokerImage(api::BrokerImage);

#[pymethods]
impl BrokerImage {
    #[new]
    #[pyo3(signature = (*, id, rack, endpoints))]
    fn new(id: i32, rack: Option<String>, endpoints: Vec<(String, String, u16)>) -> Self {
        Self(api::BrokerImage {
            id,
            rack,
            endpoints,
        })
    }
}

/// `api::PartitionImage`.
#[pyclass(frozen, module = "pyrklog._core")]
pub struct PartitionImage(api::PartitionImage);

#[pymethods]
impl PartitionImage {
    #[new]
    #[pyo3(signature = (*, index, leader, leader_epoch, replicas, isr, offline))]
    fn new(
        index: i32,
        leader: i32,
        leader_epoch: i32,
        replicas: Vec<i32>,
        isr: Vec<i32>,
        offline: Vec<i32>,
    ) -> Self {
        Self(api::PartitionImage {
            index,
            leader,
            leader_epoch,
            replicas,
            isr,
            offline,
        })
    }
}

/// `api::TopicImage`.
#[pyclass(frozen, module = "pyrklog._core")]
pub struct TopicImage(api::TopicImage);

#[pymethods]
impl TopicImage {
    #[new]
    #[pyo3(signature = (
        *, name, id, internal, log, min_insync_replicas, leading_throttled, following_throttled,
        partitions
    ))]
    #[expect(
        clippy::too_many_arguments,
        reason = "one keyword a field, as in the stub"
    )]
    fn new(
        name: String,
        id: &[u8],
        internal: bool,
        log: &Bound<'_, LogConfig>,
        min_insync_replicas: i32,
        leading_throttled: Option<Vec<(i32, i32)>>,
        following_throttled: Option<Vec<(i32, i32)>>,
        partitions: Vec<Bound<'_, PartitionImage>>,
    ) -> PyResult<Self> {
        Ok(Self(api::TopicImage {
            name,
            id: topic_id(id)?,
            internal,
            config: api::TopicConfig {
                log: log.get().0.clone(),
                min_insync_replicas,
                throttled: api::Throttled {
                    leading: throttled(leading_throttled),
                    following: throttled(following_throttled),
                },
            },
            partitions: inner(&partitions, |partition| &partition.0),
        }))
    }
}

/// `api::ThrottledReplicas`; `None` is all of them.
fn throttled(replicas: Option<Vec<(i32, i32)>>) -> api::ThrottledReplicas {
    replicas.map_or(api::ThrottledReplicas::All, api::ThrottledReplicas::these)
}

/// `api::ImageDelta`.
#[pyclass(frozen, module = "pyrklog._core")]
pub struct ImageDelta(pub api::ImageDelta);

#[pymethods]
impl ImageDelta {
    #[new]
    #[pyo3(signature = (*, version, controller_id, brokers, topics, removed_topics))]
    fn new(
        version: u64,
        controller_id: i32,
        brokers: Vec<Bound<'_, BrokerImage>>,
        topics: Vec<Bound<'_, TopicImage>>,
        removed_topics: Vec<String>,
    ) -> Self {
        Self(api::ImageDelta {
            version,
            controller_id,
            brokers: inner(&brokers, |broker| &broker.0),
            topics: inner(&topics, |topic| &topic.0),
            removed_topics,
        })
    }
}

/// `api::LeaderSpec`.
#[pyclass(frozen, module = "pyrklog._core")]
pub struct LeaderSpec(pub api::LeaderSpec);

#[pymethods]
impl LeaderSpec {
    #[new]
    #[pyo3(signature = (*, topic, partition, leader_epoch, replicas, isr, is_new, is_held))]
    fn new(
        topic: String,
        partition: i32,
        leader_epoch: i32,
        replicas: Vec<i32>,
        isr: Vec<i32>,
        is_new: bool,
        is_held: bool,
    ) -> Self {
        Self(api::LeaderSpec {
            topic,
            partition,
            leader_epoch,
            replicas,
            isr,
            is_new,
            is_held,
        })
    }
}

/// `api::FollowerSpec`.
#[pyclass(frozen, module = "pyrklog._core")]
pub struct FollowerSpec(pub api::FollowerSpec);

#[pymethods]
impl FollowerSpec {
    #[new]
    #[pyo3(signature = (*, topic, partition, leader, leader_epoch, replicas, isr, is_new))]
    fn new(
        topic: String,
        partition: i32,
        leader: i32,
        leader_epoch: i32,
        replicas: Vec<i32>,
        isr: Vec<i32>,
        is_new: bool,
    ) -> Self {
        Self(api::FollowerSpec {
            topic,
            partition,
            leader,
            leader_epoch,
            replicas,
            isr,
            is_new,
        })
    }
}

/// Clones what the Python objects wrap.
pub fn inner<T: PyClass<Frozen = pyo3::pyclass::boolean_struct::True> + Sync, U: Clone>(
    wrapped: &[Bound<'_, T>],
    field: impl Fn(&T) -> &U,
) -> Vec<U> {
    wrapped
        .iter()
        .map(|object| field(object.get()).clone())
        .collect()
}

fn topic_id(id: &[u8]) -> PyResult<api::TopicId> {
    id.try_into()
        .map_err(|_| PyValueError::new_err(format!("a topic id has 16 bytes, not {}", id.len())))
}
