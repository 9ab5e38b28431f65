//! Partitions of a session, or of a request without one.

use std::collections::HashMap;
use std::collections::hash_map;
use std::sync::Arc;

use pyrklog_wire::ErrorCode;
use pyrklog_wire::fetch::{FetchPartition, FetchRequest, FetchTopic, TOPIC_IDS_SINCE};

use super::watching::Watching;
use pyrklog_base::ids::TopicId;
use pyrklog_control::image::{Image, NO_TOPIC_ID};
use pyrklog_replica::fetch_watch::Marked;
#[cfg(debug_assertions)]
use pyrklog_replica::partition::PartitionState;
use pyrklog_storage::log_dir_state::Partition;

/// A fetched partition.
#[derive(Clone, Debug)]
pub struct Target {
    /// Topic name; `None` while the id is unknown.
    pub topic: Option<Arc<str>>,
    /// Topic id, zero if the client uses names.
    pub id: TopicId,
    /// Partition index.
    pub partition: i32,
    /// The client's leader epoch, -1 unknown.
    pub current_leader_epoch: i32,
    /// First offset wanted.
    pub fetch_offset: i64,
    /// Epoch of the client's last record, -1 unknown.
    pub last_fetched_epoch: i32,
    /// The follower's log start offset, -1 for consumers.
    pub log_start_offset: i64,
    /// Limit of bytes.
    pub max_bytes: i32,
    /// High watermark last told to the client, -1 none.
    pub(super) told_high_watermark: i64,
    /// Log start offset last told to the client, -1 none.
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

    /// Why the image alone rules out reading: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, or
    /// INCONSISTENT_TOPIC_ID for a topic that was recreated under its name during the session.
    pub fn refusal(&self, image: &Image) -> Option<ErrorCode> {
        let Some(name) = &self.topic else {
            return Some(ErrorCode::UNKNOWN_TOPIC_ID);
        };
        let Some(topic) = image.topic(name) else {
            return Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        };
        if self.id != NO_TOPIC_ID && self.id != topic.id {
            return Some(ErrorCode::INCONSISTENT_TOPIC_ID);
        }
        match topic.partition(self.partition) {
            Some(_) => None,
            None => Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
        }
    }

    /// Looks up a name that was unknown. A known name stays, so that a recreated topic is noticed.
    pub(super) fn resolve(&mut self, image: &Image) {
        if self.topic.is_none() {
            let known = image.topic_by_id(&self.id);
            self.topic = known.map(|known| Arc::clone(&known.name));
        }
    }

    /// Whether the client was told another high watermark, or none.
    pub fn is_news(&self, high_watermark: i64) -> bool {
        self.told_high_watermark != high_watermark
    }

    /// Whether the client was last told this.
    #[cfg(debug_assertions)]
    pub fn was_told(&self, high_watermark: i64, log_start: i64) -> bool {
        (self.told_high_watermark, self.told_log_start) == (high_watermark, log_start)
    }

    fn ask(&mut self, asked: &FetchPartition) {
        if asked.current_leader_epoch != self.current_leader_epoch {
            // An answer of the previous epoch may have been lost.
            self.told_high_watermark = -1;
        }
        self.current_leader_epoch = asked.current_leader_epoch;
        self.fetch_offset = asked.fetch_offset;
        self.last_fetched_epoch = asked.last_fetched_epoch;
        self.log_start_offset = asked.log_start_offset;
        self.max_bytes = asked.max_bytes;
    }

    pub(super) fn has_topic_of(&self, other: &Target) -> bool {
        self.id == other.id && (self.id != NO_TOPIC_ID || self.topic == other.topic)
    }
}

/// A request with the frame it was decoded from.
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

    /// Name (if known) and id of a requested topic.
    fn resolve(&self, topic: &FetchTopic) -> (Option<Arc<str>>, TopicId) {
        if self.uses_topic_ids() {
            let known = self.image.topic_by_id(&topic.id);
            return (known.map(|known| Arc::clone(&known.name)), topic.id);
        }
        let name = topic.name.text(self.frame);
        let known = self.known_name(topic).map(Arc::clone);
        (Some(known.unwrap_or_else(|| Arc::from(name))), NO_TOPIC_ID)
    }

    /// The topic's name in the image.
    pub fn known_name(&self, topic: &FetchTopic) -> Option<&Arc<str>> {
        let known = self.image.topic(topic.name.text(self.frame));
        known.map(|known| &known.name)
    }

    /// Partitions of a request without a session, in its order. For duplicates the last one counts,
    /// at the position of the first, as in Kafka.
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

/// Up to this many partitions are compared one by one; more use a map.
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
    let mut firsts = HashMap::with_capacity(targets.len());
    let mut merged: Vec<Target> = Vec::with_capacity(targets.len());
    for target in targets {
        match firsts.entry((target.topic.clone(), target.id, target.partition)) {
            hash_map::Entry::Occupied(first) => merged[*first.get()] = target,
            hash_map::Entry::Vacant(vacant) => {
                vacant.insert(merged.len());
                merged.push(target);
            }
        }
    }
    merged
}

#[derive(Debug)]
pub(super) struct Entry {
    pub target: Target,
    /// The partition that the session watches.
    pub watched: Option<Arc<Partition>>,
    /// Lower is read earlier.
    pub rank: u64,
    /// It is in [`FetchSession::due`].
    is_due: bool,
    /// The current request looks at it.
    pub is_chosen: bool,
}

/// A topic of a session.
#[derive(Debug, Default)]
struct TopicIndex {
    /// Numbers of its partitions in [`FetchSession::entries`].
    numbers: HashMap<i32, u32>,
    /// Its name was in no image when the session met it: the session holds the memory.
    owns_name: bool,
}

/// A session with more free numbers than this, and than partitions, is compacted.
const FREE_NUMBERS_MAX: usize = 64;

/// A session's partitions. Each keeps its number, its index here, until the session is compacted.
#[derive(Debug, Default)]
pub(super) struct FetchSession {
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    by_name: HashMap<Arc<str>, TopicIndex>,
    by_id: HashMap<TopicId, TopicIndex>,
    /// Topics of `by_name` with a name of their own.
    own_names: usize,
    next_rank: u64,
    /// Numbers that the next request looks at.
    due: Vec<u32>,
    pub watching: Watching,
}

impl FetchSession {
    /// Partitions of a full request; of duplicates the last counts.
    pub fn new(asked: &Asked<'_>) -> Self {
        let mut session = FetchSession::default();
        session.add(asked);
        session
    }

    /// Adds or changes the request's partitions and makes them due.
    pub fn add(&mut self, asked: &Asked<'_>) {
        for topic in &asked.request.topics {
            // Names are resolved only for new partitions.
            let mut resolved = None;
            for partition in asked.request.partitions_of(topic) {
                match self.number_of(asked, topic, partition.index) {
                    Some(number) => {
                        if let Some(entry) = self.entry_mut(number) {
                            entry.target.ask(partition);
                        }
                        self.make_due(number);
                    }
                    None => {
                        let (name, id) = resolved.get_or_insert_with(|| self.resolve(asked, topic));
                        let target = Target::new(name.clone(), *id, partition);
                        let number = self.insert(target);
                        let index = self.index_mut(asked, topic, name.as_ref());
                        index.numbers.insert(partition.index, number);
                    }
                }
            }
        }
    }

    fn number_of(&self, asked: &Asked<'_>, topic: &FetchTopic, index: i32) -> Option<u32> {
        let numbers = match asked.uses_topic_ids() {
            true => self.by_id.get(&topic.id),
            false => self.by_name.get(topic.name.text(asked.frame)),
        };
        numbers?.numbers.get(&index).copied()
    }

    /// [`Asked::resolve`], with the session's memory of a name that it has already.
    fn resolve(&self, asked: &Asked<'_>, topic: &FetchTopic) -> (Option<Arc<str>>, TopicId) {
        if !asked.uses_topic_ids()
            && let Some((name, _)) = self.by_name.get_key_value(topic.name.text(asked.frame))
        {
            return (Some(Arc::clone(name)), NO_TOPIC_ID);
        }
        asked.resolve(topic)
    }

    fn index_mut(
        &mut self,
        asked: &Asked<'_>,
        topic: &FetchTopic,
        name: Option<&Arc<str>>,
    ) -> &mut TopicIndex {
        match name {
            Some(name) if !asked.uses_topic_ids() => {
                let own_names = &mut self.own_names;
                self.by_name.entry(Arc::clone(name)).or_insert_with(|| {
                    let owns_name = asked.known_name(topic).is_none();
                    *own_names += usize::from(owns_name);
                    TopicIndex {
                        owns_name,
                        ..TopicIndex::default()
                    }
                })
            }
            _ => self.by_id.entry(topic.id).or_default(),
        }
    }

    fn insert(&mut self, target: Target) -> u32 {
        let entry = Entry {
            target,
            watched: None,
            rank: self.next_rank,
            is_due: false,
            is_chosen: false,
        };
        self.next_rank += 1;
        let number = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX)
        });
        self.entries[number as usize] = Some(entry);
        self.make_due(number);
        number
    }

    /// Removes the partitions that a request forgets.
    pub fn forget(&mut self, asked: &Asked<'_>) {
        for topic in &asked.request.forgotten {
            let index = if asked.uses_topic_ids() {
                self.by_id.get_mut(&topic.id)
            } else {
                self.by_name.get_mut(topic.name.text(asked.frame))
            };
            let Some(index) = index else { continue };
            for partition in asked.request.forgotten_of(topic) {
                let Some(number) = index.numbers.remove(partition) else {
                    continue;
                };
                if let Some(entry) = self.entries[number as usize].take()
                    && let Some(watched) = &entry.watched
                {
                    self.watching.leave(watched);
                }
                self.free.push(number);
            }
        }
        if self.free.len() > FREE_NUMBERS_MAX.max(self.len()) {
            self.compact();
        } else if !asked.request.forgotten.is_empty() {
            self.forget_topics();
        }
    }

    /// Removes topics without partitions.
    fn forget_topics(&mut self) {
        self.by_name.retain(|_, index| {
            let is_used = !index.numbers.is_empty();
            self.own_names -= usize::from(!is_used && index.owns_name);
            is_used
        });
        self.by_id.retain(|_, index| !index.numbers.is_empty());
    }

    /// Frees free numbers. All partitions are looked at and watched anew.
    fn compact(&mut self) {
        self.stop_watching();
        let mut entries: Vec<Entry> = std::mem::take(&mut self.entries)
            .into_iter()
            .flatten()
            .collect();
        entries.sort_unstable_by_key(|entry| entry.rank);
        self.forget_topics();
        for index in self.by_name.values_mut().chain(self.by_id.values_mut()) {
            index.numbers = HashMap::new();
        }
        self.by_name.shrink_to_fit();
        self.by_id.shrink_to_fit();
        (self.free, self.due) = (Vec::new(), Vec::new());
        for (number, entry) in (0..).zip(entries) {
            let Target { topic, id, .. } = &entry.target;
            let by_name = topic.as_ref().and_then(|name| self.by_name.get_mut(name));
            let index = match by_name {
                Some(index) => index,
                None => self.by_id.entry(*id).or_default(),
            };
            index.numbers.insert(entry.target.partition, number);
            self.entries.push(Some(Entry {
                is_due: false,
                ..entry
            }));
            self.make_due(number);
        }
    }

    /// Number of partitions.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Its memory in partitions: a name of its own counts as one more.
    pub fn size(&self) -> usize {
        self.len() + self.own_names
    }

    pub fn entry(&self, number: u32) -> Option<&Entry> {
        self.entries.get(number as usize)?.as_ref()
    }

    pub fn entry_mut(&mut self, number: u32) -> Option<&mut Entry> {
        self.entries.get_mut(number as usize)?.as_mut()
    }

    /// All partitions with their numbers.
    pub fn entries(&self) -> impl Iterator<Item = (u32, &Entry)> {
        (0..)
            .zip(&self.entries)
            .filter_map(|(number, entry)| Some((number, entry.as_ref()?)))
    }

    /// The partition of a number that a request looks at. Panics for any other.
    pub fn target(&self, number: u32) -> &Target {
        match self.entry(number) {
            Some(entry) => &entry.target,
            None => panic!("number {number} of a session is free"),
        }
    }

    /// The next request looks at this partition.
    pub fn make_due(&mut self, number: u32) {
        if let Some(Some(entry)) = self.entries.get_mut(number as usize)
            && !entry.is_due
        {
            entry.is_due = true;
            self.due.push(number);
        }
    }

    /// The same for all partitions.
    pub fn make_all_due(&mut self) {
        for number in (0..).take(self.entries.len()) {
            self.make_due(number);
        }
    }

    /// The same for those for which `is_as_found` no longer holds.
    pub fn make_changed_due(&mut self, is_as_found: impl Fn(&Target, &Arc<Partition>) -> bool) {
        let changed = self.entries().filter(|(_, entry)| {
            let watched = entry.watched.as_ref();
            !watched.is_some_and(|watched| is_as_found(&entry.target, watched))
        });
        for number in changed.map(|(number, _)| number).collect::<Vec<u32>>() {
            self.make_due(number);
        }
    }

    /// Number of partitions that the next request looks at besides those it names.
    pub fn due(&self) -> usize {
        self.due.len() + self.watching.marked()
    }

    /// Takes the marks; the caller then looks at their partitions.
    fn take_marks(&self) -> Vec<Marked> {
        let marks = self.watching.take_marks();
        for mark in marks.iter().filter(|mark| mark.is_last_news) {
            let entry = self.entry(mark.number);
            if let Some(watched) = entry.and_then(|entry| entry.watched.as_ref()) {
                self.watching.hear_again(watched);
            }
        }
        marks
    }

    /// Takes the numbers to look at, in reading order.
    pub fn choose(&mut self, image: &Image) -> Vec<u32> {
        for mark in self.take_marks() {
            self.make_due(mark.number);
        }
        let mut chosen = std::mem::take(&mut self.due);
        chosen.retain(|number| match self.entry_mut(*number) {
            Some(entry) => {
                entry.is_due = false;
                entry.is_chosen = true;
                entry.target.resolve(image);
                true
            }
            None => false,
        });
        chosen.sort_unstable_by_key(|number| self.rank(*number));
        chosen
    }

    /// Further numbers that changed since the request began, in order of change, and whether one of
    /// them demands an answer.
    pub fn choose_more(&mut self) -> (Vec<u32>, bool) {
        let mut more = Vec::new();
        let mut must_answer = false;
        for mark in self.take_marks() {
            must_answer |= mark.must_answer;
            if mark.is_to_renew {
                self.make_due(mark.number);
            }
            if let Some(entry) = self.entry_mut(mark.number)
                && entry.watched.is_some()
                && !std::mem::replace(&mut entry.is_chosen, true)
            {
                more.push(mark.number);
            }
        }
        (more, must_answer)
    }

    /// Reading order of a partition.
    pub fn rank(&self, number: u32) -> u64 {
        self.entry(number).map_or(u64::MAX, |entry| entry.rank)
    }

    /// A request that looked at this partition is answered; with records the partition goes last.
    pub fn end_look(&mut self, number: u32, had_records: bool) {
        let next_rank = &mut self.next_rank;
        if let Some(Some(entry)) = self.entries.get_mut(number as usize) {
            entry.is_chosen = false;
            if had_records {
                entry.rank = *next_rank;
                *next_rank += 1;
            }
        }
    }

    /// Watches this partition under the number instead of the previous one.
    pub fn watch(&mut self, number: u32, partition: Option<&Arc<Partition>>) {
        let Some(Some(entry)) = self.entries.get_mut(number as usize) else {
            return;
        };
        if entry.watched.as_ref().map(Arc::as_ptr) == partition.map(Arc::as_ptr) {
            return;
        }
        if let Some(before) = entry.watched.take() {
            self.watching.leave(&before);
        }
        if let Some(partition) = partition {
            self.watching.join(partition, number);
            entry.watched = Some(Arc::clone(partition));
        }
    }

    /// Checks that every partition that is not due has no news or was marked since, and that a
    /// replica's fetches count for it.
    #[cfg(debug_assertions)]
    pub fn check_settled(&self, is_news: impl Fn(&Target, &mut PartitionState) -> bool) {
        let is_settled = |entry: &Entry| !entry.is_due && !entry.is_chosen;
        for (number, entry) in self.entries().filter(|(_, entry)| is_settled(entry)) {
            let Some(partition) = &entry.watched else {
                panic!("{:?} is settled, and not watched", entry.target);
            };
            let mut state = partition.lock();
            let (is_news, counts) = (
                is_news(&entry.target, &mut state),
                self.watching.counts(&state),
            );
            assert!(
                !is_news && counts || self.watching.is_marked(number),
                "no mark tells of news ({is_news}) or of an uncounted fetch ({counts}): {:?}, \
                 {:?} in epoch {}, high watermark {}",
                entry.target,
                state.role,
                state.leader_epoch,
                state.high_watermark(),
            );
        }
    }

    /// Ends all watching and forgets the marks.
    pub fn stop_watching(&mut self) {
        for entry in self.entries.iter_mut().flatten() {
            if let Some(watched) = entry.watched.take() {
                self.watching.leave(&watched);
            }
        }
        self.watching.reset();
    }
}

impl Drop for FetchSession {
    fn drop(&mut self) {
        self.stop_watching();
    }
}
