//! Sessions between requests, and who has to go when a new one comes.

use std::collections::{BTreeSet, HashMap};

use pyrklog_wire::ErrorCode;
use pyrklog_wire::fetch::FetchRequest;

use super::context::{FetchContext, Kind};
use super::session::{Asked, Session};
use super::{FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION_ID, next_epoch};
use pyrklog_control::image::Image;

/// A session unused for longer than this may be evicted by any other; one that has existed for
/// longer than this, by a larger one.
pub const EVICTION_MS: i64 = 120_000;

/// Partitions in all sessions together, at most and at least: Kafka's slots bound only the number of
/// sessions, and each may name as many partitions as a request.
const PARTITIONS_MAX: usize = 1_000_000;
const PARTITIONS_MIN: usize = 10_000;

/// Memory of a partition in a session, where each has a topic of its own.
const PARTITION_BYTES: usize = 512;

/// The longest legal topic name. Longer ones name nothing, and no session remembers them.
const TOPIC_NAME_BYTES_MAX: usize = 249;

impl Asked<'_> {
    /// Whether all names are of a bounded length.
    fn may_be_remembered(&self) -> bool {
        let topics = self.request.topics.iter();
        topics.map(|topic| topic.name.len()).max() <= Some(TOPIC_NAME_BYTES_MAX)
    }
}

/// What evicts what: the lower goes first, and only for one that is not lower.
type EvictableKey = (bool, usize, i32);

#[derive(Debug)]
struct Slot {
    /// Tells apart sessions that were given the same id.
    serial: u64,
    /// `None` while a request has it.
    session: Option<Box<Session>>,
    /// A follower's.
    is_privileged: bool,
    uses_topic_ids: bool,
    /// Of the next request.
    epoch: i32,
    created_ms: i64,
    last_used_ms: i64,
    /// Partitions, as of the last request's begin.
    size: usize,
}

/// Counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionStatistics {
    /// Sessions in the cache.
    pub sessions: usize,
    /// Their partitions.
    pub partitions: usize,
    /// Sessions evicted so far.
    pub evictions: u64,
}

/// The sessions of a broker, at most as many as it has slots
/// (`max.incremental.fetch.session.cache.slots`).
///
/// Who may evict (Kafka's rule): if the session that was used least recently has been idle for
/// longer than [`EVICTION_MS`], it goes. Otherwise the lowest evictable session goes if the new one
/// is not lower, ordered by (follower, partitions, id). A consumer's session is evictable by
/// followers from the start and by all after [`EVICTION_MS`]; a follower's only after that time.
#[derive(Debug)]
pub struct SessionCache {
    slots_max: usize,
    partitions_max: usize,
    slots: HashMap<i32, Slot>,
    by_last_use: BTreeSet<(i64, i32)>,
    evictable_by_all: BTreeSet<EvictableKey>,
    evictable_by_privileged: BTreeSet<EvictableKey>,
    partitions: usize,
    evictions: u64,
    sessions_made: u64,
}

impl SessionCache {
    /// An empty cache. With 0 slots no session is ever made.
    #[cfg(test)]
    pub fn new(slots_max: usize) -> Self {
        SessionCache::with_bounds(slots_max, PARTITIONS_MAX)
    }

    /// The same where sessions may take about `memory_bytes`.
    pub fn within(slots_max: usize, memory_bytes: usize) -> Self {
        let partitions = memory_bytes / PARTITION_BYTES;
        let partitions_max = partitions.clamp(PARTITIONS_MIN, PARTITIONS_MAX);
        SessionCache::with_bounds(slots_max, partitions_max)
    }

    /// The same with another bound on the partitions of all sessions.
    pub(super) fn with_bounds(slots_max: usize, partitions_max: usize) -> Self {
        SessionCache {
            slots_max,
            partitions_max,
            slots: HashMap::new(),
            by_last_use: BTreeSet::new(),
            evictable_by_all: BTreeSet::new(),
            evictable_by_privileged: BTreeSet::new(),
            partitions: 0,
            evictions: 0,
            sessions_made: 0,
        }
    }

    /// Counters as of now.
    pub fn statistics(&self) -> SessionStatistics {
        SessionStatistics {
            sessions: self.slots.len(),
            partitions: self.partitions,
            evictions: self.evictions,
        }
    }

    /// How many partitions the session has, 0 where there is none of this id.
    pub fn partitions_of(&self, id: i32) -> usize {
        self.slots.get(&id).map_or(0, |slot| slot.size)
    }

    /// Begins a request. `frame` is what the request was decoded from; `fresh_id` draws ids, of
    /// which those that are not positive or in use are passed over.
    ///
    /// # Errors
    /// FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH (also while another request of the
    /// session is under way), FETCH_SESSION_TOPIC_ID_ERROR (the session goes by names and the
    /// request by ids, or the other way round). The answer then holds no partition and
    /// [`NO_SESSION_ID`].
    pub fn begin(
        &mut self,
        request: &FetchRequest,
        frame: &[u8],
        version: i16,
        image: &Image,
        now_ms: i64,
        fresh_id: &mut dyn FnMut() -> i32,
    ) -> Result<FetchContext, ErrorCode> {
        let asked = Asked {
            request,
            frame,
            version,
            image,
        };
        if !matches!(request.session_epoch, INITIAL_EPOCH | FINAL_EPOCH) {
            return self.begin_incremental(&asked, now_ms);
        }
        if request.session_id != NO_SESSION_ID {
            self.remove(request.session_id);
        }
        let is_privileged = request.replica_id >= 0;
        let size = request.partitions.len();
        let wants_none = request.session_epoch == FINAL_EPOCH || !asked.may_be_remembered();
        if wants_none || !self.make_room(is_privileged, size, now_ms) {
            return Ok(FetchContext::sessionless(asked.targets()));
        }
        let session = Box::new(Session::new(&asked));
        let id = loop {
            let id = fresh_id();
            if id > 0 && !self.slots.contains_key(&id) {
                break id;
            }
        };
        let size = session.len();
        let serial = self.insert(id, is_privileged, asked.uses_topic_ids(), size, now_ms);
        Ok(FetchContext::new(Kind::Full(session), id, serial))
    }

    fn begin_incremental(
        &mut self,
        asked: &Asked<'_>,
        now_ms: i64,
    ) -> Result<FetchContext, ErrorCode> {
        let id = asked.request.session_id;
        let slot = self
            .slots
            .get_mut(&id)
            .ok_or(ErrorCode::FETCH_SESSION_ID_NOT_FOUND)?;
        if slot.epoch != asked.request.session_epoch {
            return Err(ErrorCode::INVALID_FETCH_SESSION_EPOCH);
        }
        if slot.uses_topic_ids != asked.uses_topic_ids() {
            return Err(ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR);
        }
        if !asked.may_be_remembered() {
            self.remove(id);
            return Err(ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
        }
        let mut session = slot
            .session
            .take()
            .ok_or(ErrorCode::INVALID_FETCH_SESSION_EPOCH)?;
        slot.epoch = next_epoch(slot.epoch);
        let (serial, size) = (slot.serial, slot.size);
        session.add(asked);
        session.forget(asked);
        if session.len() == 0 {
            // Nothing is left: the session ends, and the request stands alone.
            self.remove(id);
            return Ok(FetchContext::sessionless(asked.targets()));
        }
        if session.len() > size && !self.has_room_for(session.len() - size) {
            self.remove(id);
            return Err(ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
        }
        session.resolve(asked.image);
        self.touch(id, session.len(), now_ms);
        Ok(FetchContext::new(Kind::Incremental(session), id, serial))
    }

    /// Takes a request's session back after its answer was written. If the session was evicted or
    /// ended meanwhile, its client will learn that with its next request.
    pub fn finish(&mut self, context: FetchContext) {
        if let Some(slot) = self.slot_of(&context) {
            slot.session = context.into_session();
        }
    }

    /// Ends the session of a request that will not be answered: the client cannot know how far the
    /// session got.
    pub fn abandon(&mut self, context: FetchContext) {
        if self.slot_of(&context).is_some() {
            self.remove(context.session_id());
        }
    }

    fn slot_of(&mut self, context: &FetchContext) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(&context.session_id())?;
        (slot.serial == context.serial).then_some(slot)
    }

    fn insert(
        &mut self,
        id: i32,
        is_privileged: bool,
        uses_topic_ids: bool,
        size: usize,
        now_ms: i64,
    ) -> u64 {
        self.sessions_made += 1;
        let serial = self.sessions_made;
        let slot = Slot {
            serial,
            session: None,
            is_privileged,
            uses_topic_ids,
            epoch: next_epoch(INITIAL_EPOCH),
            created_ms: now_ms,
            last_used_ms: now_ms,
            size: 0,
        };
        self.slots.insert(id, slot);
        self.touch(id, size, now_ms);
        serial
    }

    /// Takes note of a use and of the session's size.
    fn touch(&mut self, id: i32, size: usize, now_ms: i64) {
        self.unlist(id);
        let Some(slot) = self.slots.get_mut(&id) else {
            return;
        };
        self.partitions = self.partitions - slot.size + size;
        slot.size = size;
        slot.last_used_ms = now_ms;
        let is_old = now_ms - slot.created_ms > EVICTION_MS;
        let key = (slot.is_privileged, size, id);
        self.by_last_use.insert((now_ms, id));
        if is_old || !slot.is_privileged {
            self.evictable_by_privileged.insert(key);
        }
        if is_old {
            self.evictable_by_all.insert(key);
        }
    }

    fn unlist(&mut self, id: i32) {
        let Some(slot) = self.slots.get(&id) else {
            return;
        };
        let key = (slot.is_privileged, slot.size, id);
        self.by_last_use.remove(&(slot.last_used_ms, id));
        self.evictable_by_all.remove(&key);
        self.evictable_by_privileged.remove(&key);
    }

    fn remove(&mut self, id: i32) {
        self.unlist(id);
        if let Some(slot) = self.slots.remove(&id) {
            self.partitions -= slot.size;
        }
    }

    fn has_room_for(&self, partitions: usize) -> bool {
        self.partitions + partitions <= self.partitions_max
    }

    /// Is there a free slot, if need be by evicting a session?
    fn make_room(&mut self, is_privileged: bool, size: usize, now_ms: i64) -> bool {
        while !self.has_room_for(size) {
            match self.by_last_use.first() {
                Some(&(last_used_ms, stale)) if now_ms - last_used_ms > EVICTION_MS => {
                    self.remove(stale);
                    self.evictions += 1;
                }
                _ => return false,
            }
        }
        if self.slots.len() < self.slots_max {
            return true;
        }
        let Some(&(last_used_ms, least_used)) = self.by_last_use.first() else {
            return false;
        };
        let victim = if now_ms - last_used_ms > EVICTION_MS {
            least_used
        } else {
            let evictable = match is_privileged {
                true => &self.evictable_by_privileged,
                false => &self.evictable_by_all,
            };
            match evictable.first() {
                Some(lowest) if (is_privileged, size, 0) >= *lowest => lowest.2,
                _ => return false,
            }
        };
        self.remove(victim);
        self.evictions += 1;
        true
    }
}
