//! Sessions between requests, and their eviction.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use pyrklog_wire::ErrorCode;
use pyrklog_wire::fetch::FetchRequest;
use pyrklog_wire::reader::REQUEST_ELEMENTS_MAX;

use super::context::{FetchContext, Kind};
use super::session::{Asked, FetchSession};
use super::shard::{CachedSession, EVICTION_MS, Shard, Victim};
use super::watching::SessionReader;
use super::{FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION_ID, next_epoch};
use pyrklog_base::ids::TOPIC_NAME_BYTES_MAX;
use pyrklog_control::image::Image;

/// Mutexes that sessions are spread over by id.
const SHARDS: usize = 16;

/// Bounds on the limit of partitions in all sessions. Kafka's slots bound only the number of
/// sessions, and each may name as many partitions as a request.
const PARTITIONS_MAX: usize = 1_000_000;
const PARTITIONS_MIN: usize = 10_000;

/// Memory of a session's partition that has its own topic; a name that only the session knows takes
/// as much again.
const PARTITION_BYTES: usize = 512;

/// Whether a request ends the session that it names.
fn is_full_fetch(request: &FetchRequest) -> bool {
    matches!(request.session_epoch, INITIAL_EPOCH | FINAL_EPOCH)
}

impl Asked<'_> {
    /// Whether no name is too long. Illegal ones name nothing.
    fn may_be_remembered(&self) -> bool {
        let topics = self.request.topics.iter();
        topics.map(|topic| topic.name.len()).max() <= Some(TOPIC_NAME_BYTES_MAX)
    }

    /// At least the [`FetchSession::size`] of a session of this request alone.
    fn size(&self) -> usize {
        let named = self.request.partitions.len();
        if self.uses_topic_ids() {
            return named;
        }
        let topics = self.request.topics.iter();
        let unknown = topics.filter(|topic| self.known_name(topic).is_none());
        let own_names: HashSet<&str> = unknown.map(|topic| topic.name.text(self.frame)).collect();
        named + own_names.len()
    }
}

/// Counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionStatistics {
    /// Sessions in the cache.
    pub sessions: usize,
    /// Their partitions; a topic's name that only its session knows counts as one more.
    pub partitions: usize,
    /// Sessions evicted so far.
    pub evictions: u64,
}

/// A broker's sessions, at most `max.incremental.fetch.session.cache.slots`.
///
/// Eviction (Kafka's rule): the least recently used session goes if it was idle for longer than
/// [`EVICTION_MS`]. Otherwise the lowest evictable session, ordered by (follower, partitions, id),
/// goes unless the new one is lower. A consumer's session is evictable by followers at once and by
/// all after [`EVICTION_MS`]; a follower's only after that time. Where partitions rather than slots
/// are short, followers evict consumers' sessions.
///
/// A request locks its session's shard only to find it. Making a session locks `making`, then one
/// shard after another. Sessions are dropped without these locks, since dropping locks partitions.
#[derive(Debug)]
pub struct SessionCache {
    slots_max: usize,
    partitions_max: usize,
    shards: [Mutex<Shard>; SHARDS],
    /// One session is made at a time, so that the bounds hold over all shards.
    making: Mutex<()>,
    sessions: AtomicUsize,
    partitions: AtomicUsize,
    evictions: AtomicU64,
    sessions_made: AtomicU64,
}

impl SessionCache {
    /// An empty cache. With 0 slots no session is made.
    #[cfg(test)]
    pub fn new(slots_max: usize) -> Self {
        SessionCache::with_bounds(slots_max, PARTITIONS_MAX)
    }

    /// The same for sessions of about `memory_bytes`.
    pub fn within(slots_max: usize, memory_bytes: usize) -> Self {
        let partitions = memory_bytes / PARTITION_BYTES;
        let partitions_max = partitions.clamp(PARTITIONS_MIN, PARTITIONS_MAX);
        SessionCache::with_bounds(slots_max, partitions_max)
    }

    /// The same with another bound on all sessions' partitions.
    pub(super) fn with_bounds(slots_max: usize, partitions_max: usize) -> Self {
        SessionCache {
            slots_max,
            partitions_max,
            shards: Default::default(),
            making: Mutex::default(),
            sessions: AtomicUsize::new(0),
            partitions: AtomicUsize::new(0),
            evictions: AtomicU64::new(0),
            sessions_made: AtomicU64::new(0),
        }
    }

    /// The current counters.
    pub fn statistics(&self) -> SessionStatistics {
        SessionStatistics {
            sessions: self.sessions.load(Ordering::Relaxed),
            partitions: self.partitions.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
        }
    }

    fn shard(&self, id: i32) -> &Mutex<Shard> {
        &self.shards[id as usize % SHARDS]
    }

    /// Number of a session's partitions that a request of `reader` looks at besides those it names,
    /// or no longer watches since it ends the session; 0 if the session is unknown. `versions` as
    /// in [`FetchContext::open`].
    pub fn due_of(
        &self,
        request: &FetchRequest,
        reader: &SessionReader,
        versions: (u64, u64),
    ) -> usize {
        let id = request.session_id;
        let shard = self.shard(id).lock();
        let Some(session) = shard.get(id).and_then(|cached| cached.session.as_deref()) else {
            return 0;
        };
        let watching = &session.watching;
        let looks_at_all = watching.is_of_another(reader) || !watching.has_seen(versions);
        match looks_at_all || is_full_fetch(request) {
            true => session.len(),
            false => session.due(),
        }
    }

    /// Begins a request, decoded from `frame`. `fresh_id` draws ids; those that are not positive or
    /// in use are skipped.
    ///
    /// # Errors
    /// FETCH_SESSION_ID_NOT_FOUND; INVALID_FETCH_SESSION_EPOCH (also while another request of the
    /// session is under way); FETCH_SESSION_TOPIC_ID_ERROR (the session uses names and the request
    /// ids, or vice versa). The answer then has no partitions and [`NO_SESSION_ID`].
    pub fn begin(
        &self,
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
        if !is_full_fetch(request) {
            return self.begin_incremental(&asked, now_ms);
        }
        if request.session_id != NO_SESSION_ID {
            self.remove(request.session_id);
        }
        let is_privileged = request.replica_id >= 0;
        let size = asked.size();
        let wants_none = request.session_epoch == FINAL_EPOCH || !asked.may_be_remembered();
        if wants_none || !self.make_room(is_privileged, size, now_ms) {
            return Ok(FetchContext::sessionless(asked.targets()));
        }
        let session = Box::new(FetchSession::new(&asked));
        // Duplicates were counted.
        self.partitions
            .fetch_sub(size - session.size(), Ordering::Relaxed);
        let serial = self.sessions_made.fetch_add(1, Ordering::Relaxed) + 1;
        let cached = CachedSession {
            serial,
            session: None,
            is_privileged,
            uses_topic_ids: asked.uses_topic_ids(),
            epoch: next_epoch(INITIAL_EPOCH),
            created_ms: now_ms,
            last_used_ms: now_ms,
            size: session.size(),
        };
        let id = self.insert(cached, fresh_id);
        Ok(FetchContext::new(Kind::Full(session), id, serial))
    }

    fn insert(&self, cached: CachedSession, fresh_id: &mut dyn FnMut() -> i32) -> i32 {
        loop {
            let id = fresh_id();
            if id <= 0 {
                continue;
            }
            let mut shard = self.shard(id).lock();
            if shard.get(id).is_none() {
                shard.insert(id, cached);
                return id;
            }
        }
    }

    fn begin_incremental(&self, asked: &Asked<'_>, now_ms: i64) -> Result<FetchContext, ErrorCode> {
        let id = asked.request.session_id;
        let (mut session, serial, size) = self.take_session(asked, now_ms)?;
        if !asked.may_be_remembered() {
            self.remove_own(id, serial);
            return Err(ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
        }
        session.add(asked);
        session.forget(asked);
        if session.len() == 0 {
            // Nothing is left: the session ends, and the request has none.
            self.remove_own(id, serial);
            return Ok(FetchContext::sessionless(asked.targets()));
        }
        let is_too_large = session.len() > REQUEST_ELEMENTS_MAX;
        if is_too_large || !self.resize(asked, serial, (size, session.size()), now_ms) {
            self.remove_own(id, serial);
            return Err(ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
        }
        Ok(FetchContext::new(Kind::Incremental(session), id, serial))
    }

    /// Takes a session out for its next request: (session, serial number, size).
    fn take_session(
        &self,
        asked: &Asked<'_>,
        now_ms: i64,
    ) -> Result<(Box<FetchSession>, u64, usize), ErrorCode> {
        let id = asked.request.session_id;
        let mut shard = self.shard(id).lock();
        let cached = shard
            .get_mut(id)
            .ok_or(ErrorCode::FETCH_SESSION_ID_NOT_FOUND)?;
        if cached.epoch != asked.request.session_epoch {
            return Err(ErrorCode::INVALID_FETCH_SESSION_EPOCH);
        }
        if cached.uses_topic_ids != asked.uses_topic_ids() {
            return Err(ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR);
        }
        let session = cached
            .session
            .take()
            .ok_or(ErrorCode::INVALID_FETCH_SESSION_EPOCH)?;
        cached.epoch = next_epoch(cached.epoch);
        let (serial, size) = (cached.serial, cached.size);
        shard.touch(id, size, now_ms);
        Ok((session, serial, size))
    }

    /// Changes a session's size, `(before, after)`; false without room. An evicted session no longer
    /// counts.
    fn resize(
        &self,
        asked: &Asked<'_>,
        serial: u64,
        (before, after): (usize, usize),
        now_ms: i64,
    ) -> bool {
        if after == before {
            return true;
        }
        let grown = after.saturating_sub(before);
        // Dropped after the mutexes are released.
        let mut evicted = Vec::new();
        if !self.reserve(grown) {
            let _one_at_a_time = self.making.lock();
            let is_privileged = asked.request.replica_id >= 0;
            if !self.make_partitions(is_privileged, grown, now_ms, &mut evicted) {
                return false;
            }
        }
        let id = asked.request.session_id;
        let mut shard = self.shard(id).lock();
        let is_own = shard.get(id).is_some_and(|own| own.serial == serial);
        let freed = if is_own {
            shard.touch(id, after, now_ms);
            before.saturating_sub(after)
        } else {
            grown
        };
        self.partitions.fetch_sub(freed, Ordering::Relaxed);
        true
    }

    fn reserve(&self, partitions: usize) -> bool {
        let add = |now: usize| Some(now + partitions).filter(|all| *all <= self.partitions_max);
        self.partitions
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .is_ok()
    }

    /// Returns a request's session after its answer was written. If it was evicted or ended
    /// meanwhile, the client learns so with its next request.
    pub fn finish(&self, context: FetchContext) {
        let (id, serial) = (context.session_id(), context.serial);
        let Some(session) = context.into_session() else {
            return;
        };
        let mut shard = self.shard(id).lock();
        let own = shard.get_mut(id).filter(|cached| cached.serial == serial);
        let lost = match own {
            Some(cached) => cached.session.replace(session),
            None => Some(session),
        };
        drop(shard);
        drop(lost);
    }

    /// Ends the session of a request that stays unanswered: the client cannot know the session's
    /// state.
    pub fn abandon(&self, context: FetchContext) {
        self.remove_own(context.session_id(), context.serial);
    }

    fn remove(&self, id: i32) {
        self.remove_if(id, |_| true);
    }

    /// Ends a request's session, unless the id now names another one.
    fn remove_own(&self, id: i32, serial: u64) {
        self.remove_if(id, |cached| cached.serial == serial);
    }

    fn remove_if(&self, id: i32, is_wanted: impl Fn(&CachedSession) -> bool) {
        let mut shard = self.shard(id).lock();
        let removed = match shard.get(id).is_some_and(is_wanted) {
            true => shard.remove(id),
            false => None,
        };
        if let Some(cached) = &removed {
            self.uncount(cached);
        }
        drop(shard);
        drop(removed);
    }

    fn uncount(&self, cached: &CachedSession) {
        self.partitions.fetch_sub(cached.size, Ordering::Relaxed);
        self.sessions.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a session of this size if a slot is free or can be freed by eviction.
    fn make_room(&self, is_privileged: bool, size: usize, now_ms: i64) -> bool {
        // Dropped after the mutex is released.
        let mut evicted = Vec::new();
        let _one_at_a_time = self.making.lock();
        if !self.make_partitions(is_privileged, size, now_ms, &mut evicted) {
            return false;
        }
        while self.sessions.load(Ordering::Relaxed) >= self.slots_max {
            let Some(victim) = self.victim(is_privileged, size, now_ms) else {
                self.partitions.fetch_sub(size, Ordering::Relaxed);
                return false;
            };
            evicted.extend(self.evict(victim, is_privileged));
        }
        self.sessions.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Reserves partitions, if need be those of stale sessions; for a follower of any consumers'.
    fn make_partitions(
        &self,
        is_privileged: bool,
        count: usize,
        now_ms: i64,
        evicted: &mut Vec<CachedSession>,
    ) -> bool {
        if count > self.partitions_max {
            return false;
        }
        let may_go = |victim: &Victim| match victim {
            Victim::Stale(..) => true,
            Victim::Lowest((is_followers, ..)) => is_privileged && !is_followers,
        };
        while !self.reserve(count) {
            let victim = self.victim(is_privileged, count, now_ms);
            let Some(victim) = victim.filter(may_go) else {
                return false;
            };
            evicted.extend(self.evict(victim, is_privileged));
        }
        true
    }

    fn least_used(&self) -> Option<(i64, i32)> {
        let of_shards = self.shards.iter();
        of_shards
            .filter_map(|shard| shard.lock().least_used())
            .min()
    }

    /// The session to evict for a new one of this size.
    fn victim(&self, is_privileged: bool, size: usize, now_ms: i64) -> Option<Victim> {
        let (last_used_ms, id) = self.least_used()?;
        if now_ms - last_used_ms > EVICTION_MS {
            return Some(Victim::Stale(last_used_ms, id));
        }
        let of_shards = self.shards.iter();
        let lowest = of_shards
            .filter_map(|shard| shard.lock().lowest_evictable(is_privileged))
            .min()?;
        ((is_privileged, size, 0) >= lowest).then_some(Victim::Lowest(lowest))
    }

    /// Evicts a session, unless it was used or ended meanwhile.
    fn evict(&self, victim: Victim, by_privileged: bool) -> Option<CachedSession> {
        let mut shard = self.shard(victim.id()).lock();
        if !shard.is_victim(victim, by_privileged) {
            return None;
        }
        let removed = shard.remove(victim.id())?;
        self.uncount(&removed);
        self.evictions.fetch_add(1, Ordering::Relaxed);
        Some(removed)
    }
}
