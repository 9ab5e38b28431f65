//! Cleaning a log of a test, and what its readers see.

use std::collections::{BTreeMap, HashSet, VecDeque};

use pyrklog_log::cleaner::{CleanError, CleanJob, CleaningRules, CleaningStats, MapLimits};
use pyrklog_log::{AbortedTxn, Appended, Isolation, LogConfig, Origin, SyncScope, Wait};
use pyrklog_wire::batch::{BatchHeader, Batches, HEADER_LEN};
use pyrklog_wire::builder::{BatchBuilder, transaction_marker};
use pyrklog_wire::records::Records;

use super::Rig;

/// Key, and value or a tombstone.
pub type Pair<'a> = (&'a str, Option<&'a str>);

pub const LIMITS: MapLimits = MapLimits {
    buffer_bytes: 1 << 20,
    load_factor: 0.9,
    seed: 11,
};

/// Everything dirty is cleaned; tombstones stay for 100 ms.
pub const EAGER: CleaningRules = CleaningRules {
    min_dirty_ratio: 0.0,
    min_lag_ms: 0,
    max_lag_ms: i64::MAX,
    delete_retention_ms: 100,
};

/// Compacted, with segments of some batches.
pub fn compacted(segment_bytes: u32) -> LogConfig {
    LogConfig {
        segment_bytes,
        index_interval_bytes: 150,
        cleanup_compact: true,
        cleanup_delete: false,
        ..LogConfig::default()
    }
}

pub fn keyed(builder: BatchBuilder, timestamp: i64, pairs: &[Pair<'_>]) -> Vec<u8> {
    let mut builder = builder;
    for (key, value) in pairs {
        builder.append(timestamp, Some(key.as_bytes()), value.map(str::as_bytes));
    }
    builder.build()
}

/// A log and its cleaner's checkpoint.
pub struct CleanRig {
    pub rig: Rig,
    pub checkpoint: Option<i64>,
    pub rules: CleaningRules,
    pub limits: MapLimits,
    /// Of the last cleaning.
    pub stats: CleaningStats,
    /// Told after each segment.
    pub swapped_ends: Vec<i64>,
    /// Replaced files are not deleted yet.
    pub keeps_files: bool,
}

impl CleanRig {
    pub fn new(config: LogConfig) -> Self {
        Self::over(Rig::new(config))
    }

    pub fn with_cache(config: LogConfig) -> Self {
        Self::over(Rig::with_cache(config))
    }

    fn over(rig: Rig) -> Self {
        Self {
            rig,
            checkpoint: None,
            rules: EAGER,
            limits: LIMITS,
            stats: CleaningStats::default(),
            swapped_ends: Vec::new(),
            keeps_files: false,
        }
    }

    pub fn put(&mut self, pairs: &[Pair<'_>]) -> Appended {
        self.put_as(BatchBuilder::new(), pairs)
    }

    pub fn put_as(&mut self, builder: BatchBuilder, pairs: &[Pair<'_>]) -> Appended {
        let mut batch = keyed(builder, self.rig.now_ms, pairs);
        let appended = self.rig.append(&mut batch).unwrap();
        self.rig.drain();
        appended
    }

    pub fn end(&mut self, producer_id: i64, epoch: i16, commit: bool) -> i64 {
        let mut marker = transaction_marker(producer_id, epoch, commit, 0, self.rig.now_ms);
        let appended = self.rig.append_as(&mut marker, Origin::Coordinator);
        self.rig.drain();
        appended.unwrap().base_offset
    }

    /// A new segment begins: what was put before can be cleaned.
    pub fn roll(&mut self) {
        let segments = self.rig.log.segment_count();
        let mut filler = 0;
        while self.rig.log.segment_count() == segments {
            self.put(&[("filler", Some(&format!("{filler:050}")))]);
            filler += 1;
        }
        self.rig.sync(SyncScope::Written);
    }

    /// Cleans, if there is something to clean, and deletes the replaced files. Returns whether it
    /// did.
    pub fn clean(&mut self) -> Result<bool, CleanError> {
        let Some(mut job) = self.begin() else {
            return Ok(false);
        };
        let cleaned = self.clean_with(&mut job);
        self.stats = job.stats();
        cleaned.map(|()| {
            self.note_cleaned(job.end());
            true
        })
    }

    /// As the cleaner's threads do: after each segment, and after the last.
    fn note_cleaned(&mut self, end: i64) {
        self.checkpoint = self.checkpoint.max(Some(end));
    }

    pub fn begin(&mut self) -> Option<CleanJob> {
        let candidate = self.rig.log.cleaning_candidate(self.checkpoint)?;
        let plan = candidate.assess(self.rules, self.rig.now_ms).unwrap()?;
        plan.is_worthwhile()
            .then(|| self.rig.log.begin_cleaning(plan).unwrap())
    }

    pub fn clean_with(&mut self, job: &mut CleanJob) -> Result<(), CleanError> {
        job.build_map(self.limits, &mut |_: u64| true)?;
        while let Some(mut swap) = job.next_group(&mut |_: u64| true)? {
            self.rig.log.begin_swap(&mut swap)?;
            self.rig.check_invariants();
            let result = swap.execute();
            self.rig.check_invariants();
            let now_ms = self.rig.now_ms;
            let swapped = self.rig.log.swapped_end();
            let removed = self.rig.log.complete_swap(swap, result, now_ms)?;
            self.rig.check_invariants();
            self.note_cleaned(self.rig.log.swapped_end());
            self.swapped_ends.push(self.rig.log.swapped_end());
            assert!(swapped <= self.rig.log.swapped_end());
            if !self.keeps_files {
                removed.delete()?;
            }
        }
        Ok(())
    }

    /// What a consumer of committed data keeps: the last value of each key.
    pub fn last_values(&self) -> BTreeMap<String, String> {
        let mut values = BTreeMap::new();
        for (_, key, value) in self.committed() {
            match value {
                Some(value) => values.insert(key, value),
                None => values.remove(&key),
            };
        }
        values
    }

    /// All committed records: offset, key, value.
    pub fn committed(&self) -> Vec<(i64, String, Option<String>)> {
        let log = &self.rig.log;
        let mut found = Vec::new();
        let mut offset = log.log_start_offset();
        loop {
            let location = log.locate(offset, Isolation::Committed).unwrap();
            let slice = location.resolve(600, true, Wait::Blocking).unwrap();
            let mut aborted = log.aborted_transactions(&slice).unwrap().unwrap().into();
            let bytes = super::bytes(&slice);
            let next = read_committed(&bytes, offset, &mut aborted, &mut found);
            let Some(next) = next else {
                return found;
            };
            assert!(next > offset, "{next} after {offset}");
            offset = next;
        }
    }

    /// The headers of all batches in files.
    pub fn headers(&self) -> Vec<BatchHeader> {
        let mut headers = Vec::new();
        for name in self
            .rig
            .files()
            .iter()
            .filter(|name| name.ends_with(".log"))
        {
            let content = self.rig.file(name);
            headers.extend(Batches::new(&content).map(|view| view.unwrap().header));
        }
        headers
    }
}

/// As a consumer does with one answer; returns where it fetches next.
fn read_committed(
    bytes: &[u8],
    from: i64,
    aborted: &mut VecDeque<AbortedTxn>,
    found: &mut Vec<(i64, String, Option<String>)>,
) -> Option<i64> {
    let mut aborting = HashSet::new();
    let mut next = None;
    for view in Batches::new(bytes) {
        let view = view.unwrap();
        pyrklog_wire::batch::verify_crc(view.bytes).unwrap();
        let header = view.header;
        next = Some(header.next_offset());
        while let Some(txn) = aborted
            .front()
            .filter(|txn| txn.first_offset <= header.last_offset())
        {
            aborting.insert(txn.producer_id);
            aborted.pop_front();
        }
        if header.is_control() {
            let is_abort = |record: &Records<'_>| {
                let first = record.clone().next();
                first.is_some_and(|record| record.unwrap().key.unwrap()[3] == 0)
            };
            if is_abort(&Records::new(&view.bytes[HEADER_LEN..])) {
                aborting.remove(&header.producer_id);
            }
            continue;
        }
        if header.is_transactional() && aborting.contains(&header.producer_id) {
            continue;
        }
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        for record in Records::new(&view.bytes[HEADER_LEN..]) {
            let record = record.unwrap();
            let offset = header.base_offset + i64::from(record.offset_delta);
            if offset >= from {
                found.push((offset, text(record.key.unwrap()), record.value.map(text)));
            }
        }
    }
    next
}
