//! What a broker does not know of what is to be read. One that has just started, or is cut off, knows
//! less than others, or what was there before: it is not believed alone.

use std::collections::BTreeMap;
use std::time::Instant;

use pyrklog_client::{Metadata, Topic};
use pyrklog_wire::{ErrorCode, Uuid};

use crate::doubts::Doubts;
use crate::error::{ErrorKind, ScanError};
use crate::options::{ALL_PARTITIONS, ScanOptions};

/// By topic, what is missing of it.
pub(crate) type Missing = BTreeMap<String, ScanError>;

/// Topics of which each broker that was asked lacks something.
#[derive(Debug)]
pub(crate) struct Absence {
    missing: Missing,
    pub doubts: Doubts,
}

impl Absence {
    pub fn new(missing: Missing) -> Absence {
        Absence {
            missing,
            doubts: Doubts::new(Instant::now()),
        }
    }

    /// With what another broker lacks. What it has is not absent: if that is all of it, doubts begin
    /// anew.
    pub fn and(mut self, mut missing: Missing) -> Absence {
        self.missing.retain(|topic, _| missing.contains_key(topic));
        if self.missing.is_empty() {
            return Absence::new(missing);
        }
        for (topic, error) in &mut self.missing {
            if let Some(last) = missing.remove(topic) {
                *error = last;
            }
        }
        self
    }

    /// What is missing of the first topic. What not all brokers have said may pass.
    pub fn error(&self, is_sure: bool) -> ScanError {
        let first = self.missing.values().next();
        let (kind, text) = first.map_or((ErrorKind::UnknownTopic, ""), |one| (one.kind, &one.text));
        match is_sure {
            true => ScanError::new(kind, text),
            false => {
                let text = format!("{text}; not all brokers have said so");
                ScanError::new(ErrorKind::LeaderNotAvailable, text)
            }
        }
    }
}

/// What a broker's metadata lack of topics, partitions and places that the options name.
pub(crate) fn absent(options: &ScanOptions, metadata: &Metadata) -> Missing {
    let mut missing = Missing::new();
    for wanted in &options.topics {
        let name = wanted.topic.as_str();
        let known = metadata.topics.get(name);
        let unknown = known.is_none_or(|one| one.error == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        let error = match known {
            Some(topic) if !unknown => {
                if topic.error != ErrorCode::NONE {
                    continue;
                }
                lacking(options, topic, wanted.partitions.as_deref())
            }
            _ => {
                let text = format!("topic {name} does not exist");
                Some(ScanError::new(ErrorKind::UnknownTopic, text))
            }
        };
        if let Some(error) = error {
            missing.insert(name.to_owned(), error);
        }
    }
    missing
}

fn lacking(options: &ScanOptions, topic: &Topic, wanted: Option<&[i32]>) -> Option<ScanError> {
    let name = &topic.name;
    if let Some(id) = options.topic_ids.get(&**name)
        && [*id, topic.id].iter().all(|one| *one != Uuid::default())
        && *id != topic.id
    {
        let text = format!("topic {name} was deleted and created anew: it has another id");
        return Some(ScanError::new(ErrorKind::TopicDeleted, text));
    }
    let is_missing = |partition: &i32| topic.partition(*partition).is_none();
    if let Some(partition) = wanted.into_iter().flatten().find(|one| is_missing(one)) {
        let count = topic.partitions.len();
        let text = format!("topic {name} has no partition {partition}, but {count} of them");
        return Some(ScanError::new(ErrorKind::UnknownTopic, text));
    }
    if wanted.is_some() {
        return None;
    }
    let places = options.starts.keys().chain(options.ends.keys());
    let mut of_topic = places
        .filter(|place| *place.0 == **name && place.1 != ALL_PARTITIONS)
        .map(|place| place.1);
    let partition = of_topic.find(is_missing)?;
    let text = format!("a place is given for {name}-{partition}, which does not exist");
    Some(ScanError::new(ErrorKind::UnknownTopic, text))
}
