//! The broker image and the commands that follow from it, read from `plane/values.py`.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pyrklog_dataplane::seam;

use crate::fields::{each, field, fields, read, topic_id};
use crate::log_config::log_config;

/// Reads an `ImageDelta`.
pub fn image_delta(delta: &Bound<'_, PyAny>) -> PyResult<seam::ImageDelta> {
    let py = delta.py();
    let mut topics = Topics::default();
    Ok(
        read!(delta => seam::ImageDelta { version, controller_id, removed_topics } with {
            brokers: fields(delta, intern!(py, "brokers"), broker_image)?,
            topics: fields(delta, intern!(py, "topics"), |topic| topics.read(topic))?,
        }),
    )
}

/// Reads each `LeaderSpec`.
pub fn leader_specs(specs: &[Bound<'_, PyAny>]) -> PyResult<Vec<seam::LeaderSpec>> {
    each(specs, |spec| {
        Ok(read!(spec => seam::LeaderSpec {
            topic, partition, leader_epoch, replicas, isr, is_new, is_held, partial
        }))
    })
}

/// Reads each `FollowerSpec`.
pub fn follower_specs(specs: &[Bound<'_, PyAny>]) -> PyResult<Vec<seam::FollowerSpec>> {
    each(specs, |spec| {
        Ok(read!(spec => seam::FollowerSpec {
            topic, partition, leader, leader_epoch, replicas, isr, is_new, is_partial
        }))
    })
}

fn broker_image(broker: &Bound<'_, PyAny>) -> PyResult<seam::BrokerImage> {
    Ok(read!(broker => seam::BrokerImage { id, rack, endpoints }))
}

fn partition_image(partition: &Bound<'_, PyAny>) -> PyResult<seam::PartitionImage> {
    let index = intern!(partition.py(), "partition");
    Ok(
        read!(partition => seam::PartitionImage { leader, leader_epoch, replicas, isr, offline }
        with { index: field(partition, index)? }),
    )
}

/// The topics of one delta. Most share one set of options, so the last one is kept.
#[derive(Default)]
struct Topics<'py> {
    last: Option<(Bound<'py, PyAny>, pyrklog_log::LogConfig)>,
}

impl<'py> Topics<'py> {
    fn read(&mut self, topic: &Bound<'py, PyAny>) -> PyResult<seam::TopicImage> {
        let py = topic.py();
        let id: Bound<'py, PyBytes> = field(topic, intern!(py, "id"))?;
        let throttled: Bound<'py, PyAny> = field(topic, intern!(py, "throttled"))?;
        Ok(read!(topic => seam::TopicImage { name, internal } with {
            id: topic_id(id.as_bytes())?,
            config: read!(topic => seam::TopicConfig { min_insync_replicas } with {
                log: self.log_config(field(topic, intern!(py, "log"))?)?,
                throttled: seam::Throttled {
                    leading: replicas(field(&throttled, intern!(py, "leading"))?),
                    following: replicas(field(&throttled, intern!(py, "following"))?),
                },
            }),
            partitions: fields(topic, intern!(py, "partitions"), partition_image)?,
        }))
    }

    fn log_config(&mut self, log: Bound<'py, PyAny>) -> PyResult<pyrklog_log::LogConfig> {
        if let Some((last, config)) = &self.last
            && last.eq(&log)?
        {
            return Ok(config.clone());
        }
        let config = log_config(&log)?;
        self.last = Some((log, config.clone()));
        Ok(config)
    }
}

/// `None` is all of them.
fn replicas(listed: Option<Vec<(i32, i32)>>) -> seam::ThrottledReplicas {
    listed.map_or(seam::ThrottledReplicas::All, seam::ThrottledReplicas::these)
}
