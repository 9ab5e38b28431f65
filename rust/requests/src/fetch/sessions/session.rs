//! The partitions of one fetch, in the order in which they are to be read.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use pyrklog_wire::fetch::{FetchPartition, FetchRequest, FetchTopic, TOPIC_IDS_SINCE};

use pyrklog_base::ids::TopicId;
use pyrklog_control::image::{Image, NO_TOPIC_ID};

/// A partition that is fetched.
#[derive(Clone, Debug)]
pub struct Target {
    /// Topic name; `None` while the id is unknown.
    pub topic: Option<Arc<str>>,
    /// Topic id, zero where the client goes by names.
    pub id: TopicId,
    /// Partition index.
    pub partition: i32,
    /// Leader epoch that the client knows, -1 unknown.
    pub current_leader_epoch: i32,
    /// First offset wanted.
    pub fetch_offset: i64,
    /// Epoch of the last record that the client has, -1 unknown.
    pub last_fetched_epoch: i32,
    /// The follower's log start offset, -1 for consumers.
    pub log_start_offset: i64,
    /// The most bytes of this partition.
    pub max_bytes: i32,
    /// High watermark as last told to the client, -1 not yet.
    pub(super) told_high_watermark: i64,
    /// Log start offset as last told to the client, -1 not yet.
    pub(super) told_log_start: i64,
}

impl Target {
    fn new(topic: Option<Arc<str>>, id: TopicId, asked: &FetchPartition) -> Self {
        let mut target = Target {
            topic,
            id,
            partition: asked.index,
            current_leader_epoch: -1,
            fetch_offset: -1,
            last_fetched_epoch: -1,
            log_start_offset: -1,
            max_bytes: -1,
            told_high_watermark: -1,
            told_log_start: -1,
        };
        target.ask(asked);
        target
    }

    /// Whether the client was told another high watermark than this, or none.
    pub fn is_news(&self, high_watermark: i64) -> bool {
        self.told_high_watermark != high_watermark
    }

    fn ask(&mut self, asked: &FetchPartition) {
        if asked.current_leader_epoch != self.current_leader_epoch {
            // An answer of the epoch before may have been dropped.
            self.told_high_watermark = -1;
        }
        self.current_leader_epoch = asked.current_leader_epoch;
        self.fetch_offset = asked.fetch_offset;
        self.last_fetched_epoch = asked.last_fetched_epoch;
        self.log_start_offset = asked.log_start_offset;
        self.max_bytes = asked.max_bytes;
    }

    /// Is the other one of the same topic?
    pub(super) fn has_topic_of(&self, other: &Target) -> bool {
        self.id == other.id && (self.id != NO_TOPIC_ID || self.topic == other.topic)
    }
}

/// A request with the frame that its places point into.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub request: &'a FetchRequest,
    pub frame: &'a [u8],
    pub version: i16,
    pub image: &'a Image,
}

impl Asked<'_> {
    pub fn uses_topic_ids(&self) -> bool {
        self.version >= TOPIC_IDS_SINCE
    }

    /// Name (if known) and id of a topic of the request.
    fn resolve(&self, topic: &FetchTopic) -> (Option<Arc<str>>, TopicId) {
        if self.uses_topic_ids() {
            let known = self.image.topic_by_id(&topic.id);
            return (known.map(|known| Arc::clone(&known.name)), topic.id);
        }
        let name = topic.name.text(self.frame);
        let name = match self.image.topic(name) {
            Some(known) => Arc::clone(&known.name),
            None => Arc::from(name),
        };
        (Some(name), NO_TOPIC_ID)
    }

    /// The partitions of a request without a session, in its order. For one that is named twice
    /// the last word counts, at the place of the first, as in Kafka.
    pub fn targets(&self) -> Vec<Target> {
        let mut targets = Vec::with_capacity(self.request.partitions.len());
        for topic in &self.request.topics {
            let (name, id) = self.resolve(topic);
            for asked in self.request.partitions_of(topic) {
                targets.push(Target::new(name.clone(), id, asked));
            }
        }
        if targets.len() <= COMPARED_MAX {
            merge_few(&mut targets);
            targets
        } else {
            merge_many(targets)
        }
    }
}

/// Up to this many partitions are compared one by one; more are looked up.
const COMPARED_MAX: usize = 16;

fn merge_few(targets: &mut Vec<Target>) {
    let mut at = 1;
    while at < targets.len() {
        let again = &targets[at];
        let first = targets[..at]
            .iter()
            .position(|first| first.partition == again.partition && first.has_topic_of(again));
        match first {
            Some(first) => targets[first] = targets.remove(at),
            None => at += 1,
        }
    }
}

fn merge_many(targets: Vec<Target>) -> Vec<Target> {
    let mut places = HashMap::with_capacity(targets.len());
    let mut merged: Vec<Target> = Vec::with_capacity(targets.len());
    for target in targets {
        match places.entry((target.topic.clone(), target.id, target.partition)) {
            Entry::Occupied(first) => merged[*first.get()] = target,
            Entry::Vacant(place) => {
                place.insert(merged.len());
                merged.push(target);
            }
        }
    }
    merged
}

/// Where the partitions of one topic are in [`Session::targets`].
#[derive(Clone, Debug, Default)]
struct TopicIndex {
    by_partition: HashMap<i32, usize>,
}

/// The partitions of a session.
#[derive(Clone, Debug, Default)]
pub(super) struct Session {
    targets: Vec<Target>,
    /// Positions in `targets`, in the order of reading.
    order: Vec<usize>,
    by_name: HashMap<Arc<str>, TopicIndex>,
    by_id: HashMap<TopicId, TopicIndex>,
}

impl Session {
    /// The partitions of a full request; one that is named twice counts as asked last.
    pub fn new(asked: &Asked<'_>) -> Self {
        let mut session = Session::default();
        session.add(asked);
        session
    }

    /// Adds or changes the partitions of a request.
    pub fn add(&mut self, asked: &Asked<'_>) {
        for topic in &asked.request.topics {
            let partitions = asked.request.partitions_of(topic);
            if asked.uses_topic_ids() {
                let index = self.by_id.entry(topic.id).or_default();
                let resolve = || asked.resolve(topic);
                add_topic(
                    &mut self.targets,
                    &mut self.order,
                    index,
                    partitions,
                    resolve,
                );
                continue;
            }
            let name = topic.name.text(asked.frame);
            let resolve = || asked.resolve(topic);
            if !self.by_name.contains_key(name) {
                self.by_name.insert(Arc::from(name), TopicIndex::default());
            }
            if let Some(index) = self.by_name.get_mut(name) {
                add_topic(
                    &mut self.targets,
                    &mut self.order,
                    index,
                    partitions,
                    resolve,
                );
            }
        }
    }

    /// Removes what a request forgets.
    pub fn forget(&mut self, asked: &Asked<'_>) {
        let mut gone = vec![];
        for topic in &asked.request.forgotten {
            let index = if asked.uses_topic_ids() {
                self.by_id.get_mut(&topic.id)
            } else {
                self.by_name.get_mut(topic.name.text(asked.frame))
            };
            let Some(index) = index else { continue };
            let forgotten = asked.request.forgotten_of(topic);
            gone.extend(
                forgotten
                    .iter()
                    .filter_map(|part| index.by_partition.remove(part)),
            );
        }
        if !gone.is_empty() {
            self.compact(gone);
        }
    }

    /// Takes the targets at the positions `gone` out.
    fn compact(&mut self, mut gone: Vec<usize>) {
        gone.sort_unstable();
        let is_gone = |position: usize| gone.binary_search(&position).is_ok();
        let moved = |position: usize| position - gone.partition_point(|at| *at < position);
        self.order.retain(|position| !is_gone(*position));
        self.order
            .iter_mut()
            .for_each(|position| *position = moved(*position));
        let mut position = 0;
        self.targets.retain(|_| {
            position += 1;
            !is_gone(position - 1)
        });
        self.by_name
            .retain(|_, index| !index.by_partition.is_empty());
        self.by_id.retain(|_, index| !index.by_partition.is_empty());
        let indexes = self.by_name.values_mut().chain(self.by_id.values_mut());
        for at in indexes.flat_map(|index| index.by_partition.values_mut()) {
            *at = moved(*at);
        }
    }

    /// Looks up names that were unknown so far. A name once known stays, so that a topic that was
    /// recreated under it is noticed as such.
    pub fn resolve(&mut self, image: &Image) {
        for target in self
            .targets
            .iter_mut()
            .filter(|target| target.topic.is_none())
        {
            target.topic = image
                .topic_by_id(&target.id)
                .map(|known| Arc::clone(&known.name));
        }
    }

    pub fn len(&self) -> usize {
        self.order.len()
    }

    pub fn target(&self, index: usize) -> &Target {
        &self.targets[self.order[index]]
    }

    pub fn target_mut(&mut self, index: usize) -> &mut Target {
        &mut self.targets[self.order[index]]
    }

    /// Moves the partitions at these places of the order behind all others, in their order.
    pub fn move_back(&mut self, is_served: &[bool]) {
        let order = std::mem::take(&mut self.order);
        let served = |at: &usize| is_served.get(*at).copied().unwrap_or(false);
        let (back, front): (Vec<_>, Vec<_>) = (0..order.len()).partition(served);
        self.order = front.into_iter().chain(back).map(|at| order[at]).collect();
    }
}

fn add_topic(
    targets: &mut Vec<Target>,
    order: &mut Vec<usize>,
    index: &mut TopicIndex,
    partitions: &[FetchPartition],
    resolve: impl FnOnce() -> (Option<Arc<str>>, TopicId),
) {
    // Names are looked up only if there is something new.
    let mut resolve = Some(resolve);
    let mut resolved = (None, NO_TOPIC_ID);
    for asked in partitions {
        if let Some(at) = index.by_partition.get(&asked.index) {
            targets[*at].ask(asked);
            continue;
        }
        if let Some(resolve) = resolve.take() {
            resolved = resolve();
        }
        let (name, id) = &resolved;
        index.by_partition.insert(asked.index, targets.len());
        order.push(targets.len());
        targets.push(Target::new(name.clone(), *id, asked));
    }
}
