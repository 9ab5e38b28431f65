//! The broker image and the commands that follow from it, from Python.

use pyo3::PyClass;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyrklog_dataplane::api;

use crate::classes::keyword_class;
use crate::log_config::LogConfig;

keyword_class! {
    /// `api::BrokerImage`.
    BrokerImage(api::BrokerImage) {
        id: i32,
        rack: Option<String>,
        endpoints: Vec<(String, String, u16)>,
    }
}

keyword_class! {
    /// `api::PartitionImage`.
    PartitionImage(api::PartitionImage) {
        index: i32,
        leader: i32,
        leader_epoch: i32,
        replicas: Vec<i32>,
        isr: Vec<i32>,
        offline: Vec<i32>,
    }
}

keyword_class! {
    /// `api::TopicImage`.
    TopicImage(api::TopicImage) {
        name: String,
        id: &[u8] = topic_id(id)?,
        internal: bool,
        partitions: Vec<Bound<'_, PartitionImage>> = inner(&partitions, |one| &one.0),
    }
    with {
        log: &Bound<'_, LogConfig>,
        min_insync_replicas: i32,
        leading_throttled: Option<Vec<(i32, i32)>>,
        following_throttled: Option<Vec<(i32, i32)>>,
    } => {
        config: api::TopicConfig {
            log: log.get().0.clone(),
            min_insync_replicas,
            throttled: api::Throttled {
                leading: throttled(leading_throttled),
                following: throttled(following_throttled),
            },
        },
    }
}

keyword_class! {
    /// `api::ImageDelta`.
    ImageDelta(api::ImageDelta) {
        version: u64,
        controller_id: i32,
        brokers: Vec<Bound<'_, BrokerImage>> = inner(&brokers, |one| &one.0),
        topics: Vec<Bound<'_, TopicImage>> = inner(&topics, |one| &one.0),
        removed_topics: Vec<String>,
    }
}

keyword_class! {
    /// `api::LeaderSpec`.
    LeaderSpec(api::LeaderSpec) {
        topic: String,
        partition: i32,
        leader_epoch: i32,
        replicas: Vec<i32>,
        isr: Vec<i32>,
        is_new: bool,
        is_held: bool,
    }
}

keyword_class! {
    /// `api::FollowerSpec`.
    FollowerSpec(api::FollowerSpec) {
        topic: String,
        partition: i32,
        leader: i32,
        leader_epoch: i32,
        replicas: Vec<i32>,
        isr: Vec<i32>,
        is_new: bool,
    }
}

/// `api::ThrottledReplicas`; `None` is all of them.
fn throttled(replicas: Option<Vec<(i32, i32)>>) -> api::ThrottledReplicas {
    replicas.map_or(api::ThrottledReplicas::All, api::ThrottledReplicas::these)
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
