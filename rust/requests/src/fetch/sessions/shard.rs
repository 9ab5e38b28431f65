//! A part of the sessions, under its own mutex.

use std::collections::{BTreeSet, HashMap};

use super::session::FetchSession;

/// A session unused for longer may be evicted by any other; one that is older, by a larger one.
pub const EVICTION_MS: i64 = 120_000;

/// Eviction order: the lowest goes first, and only for one that is not lower. (follower,
/// partitions, id).
pub type EvictableKey = (bool, usize, i32);

#[derive(Debug)]
pub struct CachedSession {
    /// Distinguishes sessions with the same id.
    pub serial: u64,
    /// `None` during a request.
    pub session: Option<Box<FetchSession>>,
    /// A follower's session.
    pub is_privileged: bool,
    pub uses_topic_ids: bool,
    /// Epoch of the next request.
    pub epoch: i32,
    pub created_ms: i64,
    pub last_used_ms: i64,
    /// [`FetchSession::size`] as of the last request's begin.
    pub size: usize,
}

impl CachedSession {
    fn key(&self, id: i32) -> EvictableKey {
        (self.is_privileged, self.size, id)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Shard {
    sessions: HashMap<i32, CachedSession>,
    by_last_use: BTreeSet<(i64, i32)>,
    evictable_by_all: BTreeSet<EvictableKey>,
    evictable_by_privileged: BTreeSet<EvictableKey>,
}

impl Shard {
    pub fn get(&self, id: i32) -> Option<&CachedSession> {
        self.sessions.get(&id)
    }

    pub fn get_mut(&mut self, id: i32) -> Option<&mut CachedSession> {
        self.sessions.get_mut(&id)
    }

    /// Adds a session, used now.
    pub fn insert(&mut self, id: i32, cached: CachedSession) {
        let (size, now_ms) = (cached.size, cached.last_used_ms);
        self.sessions.insert(id, cached);
        self.touch(id, size, now_ms);
    }

    /// Notes a use and the session's size.
    pub fn touch(&mut self, id: i32, size: usize, now_ms: i64) {
        self.unlist(id);
        let Some(cached) = self.sessions.get_mut(&id) else {
            return;
        };
        cached.size = size;
        cached.last_used_ms = now_ms;
        let is_old = now_ms - cached.created_ms > EVICTION_MS;
        let key = cached.key(id);
        self.by_last_use.insert((now_ms, id));
        if is_old || !cached.is_privileged {
            self.evictable_by_privileged.insert(key);
        }
        if is_old {
            self.evictable_by_all.insert(key);
        }
    }

    fn unlist(&mut self, id: i32) {
        let Some(cached) = self.sessions.get(&id) else {
            return;
        };
        let key = cached.key(id);
        self.by_last_use.remove(&(cached.last_used_ms, id));
        self.evictable_by_all.remove(&key);
        self.evictable_by_privileged.remove(&key);
    }

    /// Removes a session. Drop it without the shard's mutex: that locks all its partitions.
    pub fn remove(&mut self, id: i32) -> Option<CachedSession> {
        self.unlist(id);
        self.sessions.remove(&id)
    }

    /// (last use, id) of the least recently used session.
    pub fn least_used(&self) -> Option<(i64, i32)> {
        self.by_last_use.first().copied()
    }

    /// The session that goes first for a new one of a follower (`by_privileged`) or of a consumer.
    pub fn lowest_evictable(&self, by_privileged: bool) -> Option<EvictableKey> {
        let evictable = match by_privileged {
            true => &self.evictable_by_privileged,
            false => &self.evictable_by_all,
        };
        evictable.first().copied()
    }

    /// Whether a session is still where [`Shard::least_used`] or [`Shard::lowest_evictable`] found
    /// it.
    pub fn is_victim(&self, victim: Victim, by_privileged: bool) -> bool {
        match victim {
            Victim::Stale(last_used_ms, id) => self.by_last_use.contains(&(last_used_ms, id)),
            Victim::Lowest(key) if by_privileged => self.evictable_by_privileged.contains(&key),
            Victim::Lowest(key) => self.evictable_by_all.contains(&key),
        }
    }
}

/// A session to evict.
#[derive(Clone, Copy, Debug)]
pub enum Victim {
    /// Unused for long: (last use, id).
    Stale(i64, i32),
    /// Lower than the new one.
    Lowest(EvictableKey),
}

impl Victim {
    pub fn id(self) -> i32 {
        match self {
            Victim::Stale(_, id) | Victim::Lowest((_, _, id)) => id,
        }
    }
}
