//! Checks whether cache blocks of an earlier run fit the files.

use std::sync::Arc;

use pyrklog_arena::{CachedSegment, PartitionName};

use crate::cache::LogCache;
use crate::dir_cache::{Claimed, FoundSegments, has_unwritten};
use crate::disk::{DiskFile, read_exact_at};
use crate::env::LogEnv;
use crate::names::FileKind;
use crate::open::unwritten::Unwritten;
use crate::open::{Loader, OpenError, OpenRequest};
use crate::segment::{ActiveSegment, Segment};
use crate::wait::Wait;

/// Bytes to compare between file and block: enough to detect another file.
const COMPARED_BYTES: u32 = 4096;

pub(super) struct Claim {
    name: PartitionName,
    claimed: Claimed,
}

impl Claim {
    pub fn new(request: &OpenRequest<'_>) -> Result<Claim, OpenError> {
        let nothing = Claim::nothing(request);
        let claimed = request.env.claim(&nothing.name);
        Ok(Claim {
            claimed: claimed.map_err(OpenError::Corrupt)?,
            ..nothing
        })
    }

    /// For a log that does not use the cache.
    pub fn nothing(request: &OpenRequest<'_>) -> Claim {
        Claim {
            name: PartitionName {
                topic: request.topic.to_owned(),
                partition: request.partition,
                topic_id: request.topic_id.unwrap_or_default(),
            },
            claimed: Claimed::default(),
        }
    }

    /// See [`LogEnv::set_cache`].
    pub fn is_same_boot(&self) -> bool {
        self.claimed.is_same_boot
    }

    pub fn segments(&self) -> FoundSegments {
        let found = self.claimed.found.as_ref();
        found.map_or_else(FoundSegments::new, |found| found.segments.clone())
    }

    /// Whether the log had no producers when its process was killed.
    pub fn has_no_producers(&self) -> bool {
        let (Some(arena), Some(found)) = (&self.claimed.arena, &self.claimed.found) else {
            return false;
        };
        arena.has_no_producers(found.slot)
    }

    /// The log could not be opened. If a later try may find them useful, returns the blocks; else
    /// quarantines them.
    pub fn end(self, env: &LogEnv, error: &OpenError) {
        match self.claimed.found {
            Some(found) if error.keeps_cache() => env.unclaim(&self.name, found),
            Some(found) => env.quarantine(&self.name, found, &error.to_string()),
            None => {}
        }
    }

    /// The log's further use of the cache. Invalidates blocks that did not become part of it: after
    /// a kill they could not be told from new ones.
    pub fn into_cache(self, segments: &[Arc<Segment>], has_producers: bool) -> Option<LogCache> {
        let arena = self.claimed.arena?;
        for blocks in self
            .claimed
            .found
            .iter()
            .flat_map(|found| found.segments.values())
        {
            let is_its = |segment: &Arc<Segment>| {
                let cached = segment.cached();
                cached.is_some_and(|cached| Arc::ptr_eq(cached, blocks))
            };
            if !segments.iter().any(is_its) {
                blocks.cut(0);
            }
        }
        let slot = self.claimed.found.map(|found| found.slot);
        Some(LogCache::new(&arena, self.name, slot, has_producers))
    }
}

impl Loader<'_> {
    /// Whether the cache holds bytes that the files lack.
    pub(super) fn has_unwritten(&self) -> bool {
        has_unwritten(&self.blocks)
    }

    /// Gives a segment its blocks, if they fit the `file_len` bytes of its file.
    ///
    /// # Errors
    /// The blocks hold bytes that the file lacks and contradict it.
    pub(super) fn attach_blocks(
        &self,
        segment: &Arc<Segment>,
        file_len: u64,
    ) -> Result<(), OpenError> {
        let Some(cached) = self.blocks.get(&segment.base_offset()) else {
            return Ok(());
        };
        let Some(end) = cached.end() else {
            return Ok(());
        };
        let Some(from) = cached.unwritten_from() else {
            // Everything is in the file, which wins in doubt.
            if u64::from(end) <= file_len && is_equal(segment, cached, end, end)? {
                segment.cached_or(|| Arc::clone(cached));
            }
            return Ok(());
        };
        let contradiction = if file_len < u64::from(from) {
            Some(format!(
                "has {file_len} bytes, but {from} were written to it"
            ))
        } else if file_len > u64::from(end) {
            Some(format!("has {file_len} bytes, but the log ends at {end}"))
        } else if !cached.holds(from, end) {
            Some(format!(
                "lacks bytes from {from} on that the cache does not hold"
            ))
        } else if !is_equal(segment, cached, from, file_len as u32)? {
            Some("differs from what was written to it".to_owned())
        } else {
            None
        };
        if let Some(what) = contradiction {
            let path = segment.path(FileKind::Log);
            let arena = cached.arena().path().display();
            return Err(OpenError::Corrupt(format!(
                "{} {what}; the rest of its records is kept in {arena}. Was it changed by another broker?",
                path.display()
            )));
        }
        segment.cut(u64::from(from));
        segment.cached_or(|| Arc::clone(cached));
        segment.set_size(u64::from(end));
        Ok(())
    }

    /// Whether a file differs from what was written to it, so that more than a kill has happened
    /// and every batch must be checked.
    pub(super) fn has_changed_file(&self, segments: &[Arc<Segment>]) -> bool {
        segments.iter().any(|segment| {
            let blocks = self.blocks.get(&segment.base_offset());
            segment.cached().is_none() && blocks.is_some_and(|blocks| blocks.end().is_some())
        })
    }

    pub(super) fn unwritten(
        segment: &Arc<Segment>,
        closing: Option<ActiveSegment>,
    ) -> Option<Unwritten> {
        let cached = segment.cached()?;
        Some(Unwritten {
            segment: Arc::clone(segment),
            from: cached.unwritten_from()?,
            end: cached.end()?,
            closing,
        })
    }
}

/// Whether file and blocks agree about the last bytes before `written` and up to `file_end`, which
/// an interrupted write may have left.
fn is_equal(
    segment: &Arc<Segment>,
    cached: &Arc<CachedSegment>,
    written: u32,
    file_end: u32,
) -> Result<bool, OpenError> {
    let start = cached.reaches_back(written, written.saturating_sub(COMPARED_BYTES));
    if start >= file_end {
        return Ok(true);
    }
    let file = segment.log_file(Wait::Blocking)?;
    let mut at = start;
    while at < file_end {
        let mut block = vec![0; ((file_end - at) as usize).min(1 << 20)];
        let count = cached.copy(at, &mut block);
        if count == 0 {
            return Ok(false);
        }
        if !has_bytes(&*file, at, &block[..count])? {
            return Ok(false);
        }
        at += count as u32;
    }
    Ok(true)
}

fn has_bytes(file: &dyn DiskFile, position: u32, expected: &[u8]) -> Result<bool, OpenError> {
    let mut found = vec![0; expected.len()];
    read_exact_at(file, &mut found, u64::from(position))?;
    Ok(found == expected)
}
