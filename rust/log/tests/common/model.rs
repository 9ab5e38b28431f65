//! A log and the list of its appends, through steps, crashes and failing disks.

use pyrklog_arena::Fuse;
use pyrklog_log::{
    Appended, Isolation, LogConfig, OpenState, Origin, SyncScope, TimeSpec, TruncateError, Wait,
};
use pyrklog_wire::batch::{set_base_offset, set_partition_leader_epoch};
use pyrklog_wire::builder::{BatchBuilder, transaction_marker};

use super::Rig;
use super::cached::Life;
use super::history::{History, Kind, NOBODY, PLAIN};
use super::steps::{Break, Role, Step};

/// Value, epoch and timestamp of each appended offset from 0.
pub struct Model {
    pub rig: Rig,
    records: Vec<(String, i32, i64)>,
    /// Who wrote them.
    history: History,
    checkpoint: OpenState,
    written: u64,
    /// Notes from restarts.
    pub notes: Vec<String>,
    /// Whose log it is.
    pub role: Role,
    /// Number of further batches without a producer.
    pub anonymous: usize,
    /// When each record arrived.
    came_ms: Vec<i64>,
    /// The epochs of deleted records are forgotten, even if a crash brings the records back.
    epochs_from: i64,
}

impl Model {
    pub fn new(flush_messages: i64) -> Self {
        Self::over(Rig::new(Self::config(flush_messages)))
    }

    pub fn with_cache(segments_kib: u32) -> Self {
        let config = Self::config(i64::MAX);
        Self::over(Rig::with_cache(match segments_kib {
            0 => config,
            kib => LogConfig {
                segment_bytes: kib * 1024,
                retention_bytes: i64::from(kib) * 2 * 1024,
                ..config
            },
        }))
    }

    /// With `flush.ms`, and perhaps `flush.messages`.
    pub fn timed(flush_ms: i64, flush_messages: i64) -> Self {
        Self::over(Rig::new(LogConfig {
            flush_ms,
            ..Self::config(flush_messages)
        }))
    }

    fn config(flush_messages: i64) -> LogConfig {
        LogConfig {
            flush_messages,
            segment_bytes: 700,
            index_interval_bytes: 150,
            retention_bytes: 1_500,
            retention_ms: -1,
            ..LogConfig::default()
        }
    }

    fn over(rig: Rig) -> Self {
        Self {
            rig,
            records: Vec::new(),
            history: History::default(),
            checkpoint: OpenState::default(),
            written: 0,
            notes: Vec::new(),
            role: Role::Leads,
            anonymous: 0,
            came_ms: Vec::new(),
            epochs_from: 0,
        }
    }

    pub fn apply(&mut self, step: &Step) {
        match step {
            Step::Append { records, size } => self.append(*records, *size),
            Step::AppendInTransaction { slot, records } => {
                self.write_in_transaction(*slot, *records, 40).unwrap();
            }
            Step::EndTransaction { slot, commit } => {
                let _unless_none_is_open = self.end_transaction(*slot, *commit);
            }
            Step::NewEpoch => self.rig.epoch += 1,
            Step::Write => self.rig.drain(),
            Step::Sync(scope) => self.rig.sync(*scope),
            Step::Checkpoint => self.checkpoint = self.rig.state(false),
            Step::DeleteRecords(percent) => {
                let (start, end) = (
                    self.rig.log.log_start_offset(),
                    self.rig.log.high_watermark(),
                );
                let target = start + (end - start) * *percent as i64 / 100;
                let target = target.min(self.history.first_open().unwrap_or(target).max(start));
                assert_eq!(self.rig.log.advance_log_start(target).unwrap(), target);
            }
            Step::Retain => {
                self.rig.write();
                if self.history.first_open().is_none() {
                    self.rig.retain();
                }
                self.checkpoint = self.rig.state(false);
            }
            Step::Truncate(percent) => self.truncate(*percent),
            Step::RestartClean => {
                self.rig.restart_clean();
                assert_eq!(self.rig.report.truncated_bytes, 0);
                assert_eq!(self.rig.log.log_end_offset(), self.records.len() as i64);
                self.checkpoint = self.rig.state(false);
            }
            Step::Kill => {
                let written = self.rig.log.durable_end_offset();
                self.crash(None);
                assert_eq!(self.rig.log.log_end_offset(), written);
                assert_eq!(self.rig.report.truncated_bytes, 0);
            }
            Step::PowerLoss(seed) => self.crash(Some(*seed)),
            Step::FailingDisk(broken) => {
                self.append(1, 60);
                self.append(2, 120);
                self.rig
                    .break_disk(broken.operation, broken.skip, broken.fault);
                self.rig.drain();
                self.rig.sync(SyncScope::Written);
                self.retain_if_possible();
                self.rig.disk.heal();
                self.crash(broken.seed);
            }
            Step::FailingOpen(broken) => self.fail_opening(broken),
            Step::KillWithin(at, steps) => self.kill_within(*at, steps),
            Step::KillOpening(at) => self.kill_opening(*at),
            Step::WritePages => self.rig.write_pages(),
            Step::Wait(ms) => self.wait(*ms),
            Step::SyncAcross(before, after) => self.sync_across(before, after),
            Step::Tend => {
                if let Some(cache) = &self.rig.cache {
                    cache.tend();
                }
            }
        }
        self.rig.check_invariants();
    }

    /// Writer and syncer are punctual, so nothing older than `flush.ms` is lost.
    fn wait(&mut self, ms: i64) {
        for _ in 0..ms {
            self.rig.now_ms += 1;
            self.rig.drain();
            let due_ms = self.rig.log.next_flush_due_ms();
            if due_ms.is_some_and(|due_ms| due_ms <= self.rig.now_ms) {
                self.rig.sync(SyncScope::Written);
            }
            let synced = self.rig.log.synced_end();
            let synced = synced.max(self.rig.log.log_start_offset()) as usize;
            let oldest_ms = self.came_ms.get(synced).copied();
            let age_ms = oldest_ms.map_or(0, |came_ms| self.rig.now_ms - came_ms);
            assert!(age_ms < self.rig.config.flush_ms, "{age_ms}");
        }
    }

    fn sync_across(&mut self, before: &[Step], after: &[Step]) {
        let Some(mut job) = self.rig.log.take_sync(SyncScope::Written) else {
            return;
        };
        before.iter().for_each(|step| self.apply(step));
        let result = job.execute();
        after.iter().for_each(|step| self.apply(step));
        self.rig.log.complete_sync(job, result);
    }

    fn fail_opening(&mut self, broken: &Break) {
        let kept = self.lose(broken.seed);
        self.rig
            .break_disk(broken.operation, broken.skip, broken.fault);
        let state = OpenState {
            clean: false,
            ..self.checkpoint
        };
        // Whether it fails depends on the amount of work.
        let life = life(broken.seed);
        let _perhaps = self.rig.try_open(state, life);
        self.rig.disk.heal();
        if let Some(seed) = broken.seed {
            self.rig.memory.reboot(seed ^ 1);
        }
        self.restart(life);
        assert!(self.rig.log.log_end_offset() >= kept);
    }

    fn kill_opening(&mut self, at: usize) {
        let kept = self.lose(None);
        let state = OpenState {
            clean: false,
            ..self.checkpoint
        };
        self.fuse().burn_after(at as i64);
        let opened = self.rig.try_open(state, Life::Again);
        if let Ok((mut log, _)) = opened {
            // Writing what the block cache holds completes recovery.
            while let Some(mut job) = log.take_writes() {
                let result = job.execute();
                log.complete_writes(job, result);
            }
        }
        self.fuse().burn_after(i64::MAX);
        self.restart(Life::Again);
        assert!(self.rig.log.log_end_offset() >= kept);
    }

    fn fuse(&self) -> &Fuse {
        &self.rig.cache.as_ref().expect("a cache").fuse
    }

    /// Runs `steps` until the process dies at step `at` of cache or disk, or after them.
    fn kill_within(&mut self, at: usize, steps: &[Step]) {
        let mut kept = self.rig.log.durable_end_offset();
        self.fuse().burn_after(at as i64);
        for step in steps {
            if self.fuse().left() <= 0 || self.rig.log.poisoned().is_some() {
                break;
            }
            match step {
                Step::Append { records, size } => {
                    let appended = self.try_append(*records, *size);
                    kept = self.kept(appended, kept);
                }
                Step::AppendInTransaction { slot, records } => {
                    let appended = self.write_in_transaction(*slot, *records, 300);
                    kept = self.kept(appended, kept);
                }
                Step::EndTransaction { slot, commit } => {
                    let appended = self.end_transaction(*slot, *commit);
                    kept = self.kept(appended, kept);
                }
                Step::NewEpoch => self.rig.epoch += 1,
                Step::Write => {
                    self.rig.drain();
                    if self.fuse().left() > 0 {
                        kept = self.rig.log.durable_end_offset();
                    }
                }
                Step::Sync(scope) => self.rig.sync(*scope),
                Step::Retain => self.retain_if_possible(),
                Step::Truncate(percent) => {
                    // The kill decides whether truncated records come back.
                    kept = kept.min(self.cut(*percent));
                    if self.fuse().left() > 0 && self.rig.log.poisoned().is_none() {
                        let end = self.rig.log.log_end_offset() as usize;
                        self.forget(end);
                        // Nothing is appended before the checkpoints are written.
                        self.checkpoint = self.rig.state(false);
                    } else {
                        break;
                    }
                }
                Step::Tend | Step::WritePages => self.apply(step),
                _ => unreachable!("not within"),
            }
        }
        self.fuse().burn_after(i64::MAX);
        self.restart(Life::Again);
        assert!(self.rig.log.log_end_offset() >= kept, "{kept}");
        let end = self.rig.log.log_end_offset();
        self.restart(Life::Again);
        assert_eq!(
            self.rig.log.log_end_offset(),
            end,
            "once more, nothing changes"
        );
    }

    /// What must survive a kill: everything, if the append was acknowledged.
    fn kept(&self, appended: Option<Appended>, before: i64) -> i64 {
        let durable_end_moved = appended.is_some_and(|appended| appended.durable_end_moved);
        match durable_end_moved && self.fuse().left() > 0 {
            true => self.rig.log.durable_end_offset(),
            false => before,
        }
    }

    /// Not below an open transaction, whose state a log may then forget.
    fn retain_if_possible(&mut self) {
        if self.history.first_open().is_none() {
            self.rig.retain_if_possible();
        }
    }

    /// Begins to truncate the log; returns the offset.
    fn cut(&mut self, percent: usize) -> i64 {
        let (start, end) = (
            self.rig.log.log_start_offset(),
            self.rig.log.log_end_offset(),
        );
        let target = start + (end - start) * percent as i64 / 100;
        if self.history.is_beyond(target, start) {
            return end;
        }
        self.rig.write();
        let begun = self
            .rig
            .log
            .begin_truncation(target, self.rig.now_ms, 86_400_000);
        if let Ok(Some(mut job)) = begun {
            let result = job.execute();
            self.rig.log.complete_truncation(job, result);
        }
        // A whole batch goes; if that reaches below the log start, everything.
        if target - 4 < start { 0 } else { target - 4 }
    }

    /// A power failure, or without a seed a kill.
    fn crash(&mut self, seed: Option<u64>) {
        let kept = self.lose(seed);
        self.restart(life(seed));
        assert!(self.rig.log.log_end_offset() >= kept);
    }

    /// Loses what may be lost; returns the end of what must survive.
    pub fn lose(&mut self, seed: Option<u64>) -> i64 {
        match seed {
            Some(seed) => {
                self.rig.memory.reboot(seed);
                match self.rig.config.flush_messages {
                    // Acknowledged data was synced first, directory entries included.
                    1 => self.rig.log.durable_end_offset(),
                    _ => self.rig.log.synced_end(),
                }
            }
            None => {
                self.rig.memory.kill_process();
                self.rig.log.durable_end_offset()
            }
        }
    }

    pub fn append(&mut self, records: usize, size: usize) {
        let sequence = self.records.len() as i64;
        let appended = self.try_append(records, size).unwrap();
        assert!(!appended.duplicate);
        assert_eq!(appended.base_offset, sequence);
    }

    fn try_append(&mut self, records: usize, size: usize) -> Option<Appended> {
        let producer = if self.is_anonymous() { NOBODY } else { PLAIN };
        self.write_as(producer, records, size)
    }

    fn is_anonymous(&mut self) -> bool {
        let is_it = self.anonymous > 0;
        self.anonymous -= usize::from(is_it);
        is_it
    }

    fn write_as(&mut self, producer: i64, records: usize, size: usize) -> Option<Appended> {
        let sequence = self.history.sequence(producer);
        let builder = BatchBuilder::new();
        let mut builder = match producer {
            NOBODY => builder,
            PLAIN => builder.producer(producer, 0, sequence),
            _ => builder.producer(producer, 0, sequence).transactional(),
        };
        for _ in 0..records {
            self.written += 1;
            let timestamp = 1_000 + (self.written as i64 * 7919) % 500;
            let value = format!("{} {}", self.written, "x".repeat(size));
            builder.append(timestamp, None, Some(value.as_bytes()));
            self.records.push((value, self.rig.epoch, timestamp));
            self.came_ms.push(self.rig.now_ms);
            self.history.kinds.push(Kind::Data(producer));
        }
        self.put(builder.build(), Origin::Client)
    }

    /// Appends a batch; for a follower, with its leader's offset and epoch.
    fn put(&mut self, mut batch: Vec<u8>, origin: Origin) -> Option<Appended> {
        if !self.role.follows(self.rig.epoch) {
            return self.rig.append_as(&mut batch, origin).ok();
        }
        set_base_offset(&mut batch, self.rig.log.log_end_offset());
        set_partition_leader_epoch(&mut batch, self.rig.epoch);
        self.rig.append_as(&mut batch, Origin::Replication).ok()
    }

    fn write_in_transaction(
        &mut self,
        slot: usize,
        records: usize,
        size: usize,
    ) -> Option<Appended> {
        if self.is_anonymous() {
            return self.write_as(NOBODY, records, size);
        }
        let producer = self.history.begin(slot, self.rig.log.log_start_offset());
        self.write_as(producer, records, size)
    }

    fn end_transaction(&mut self, slot: usize, commit: bool) -> Option<Appended> {
        let start = self.rig.log.log_start_offset();
        let producer = self.history.open(slot, start)?;
        let timestamp = 1_000;
        self.records
            .push(("<control>".to_owned(), self.rig.epoch, timestamp));
        self.came_ms.push(self.rig.now_ms);
        self.history.kinds.push(Kind::Marker { producer, commit });
        let marker = transaction_marker(producer, 0, commit, 0, timestamp);
        self.put(marker, Origin::Coordinator)
    }

    fn truncate(&mut self, percent: usize) {
        let (start, end) = (
            self.rig.log.log_start_offset(),
            self.rig.log.log_end_offset(),
        );
        let target = start + (end - start) * percent as i64 / 100;
        if self.history.is_beyond(target, start) {
            return;
        }
        let begin = |rig: &mut Rig| rig.log.begin_truncation(target, rig.now_ms, 86_400_000);
        let mut begun = begin(&mut self.rig);
        if matches!(begun, Err(TruncateError::Busy)) {
            self.rig.write();
            begun = begin(&mut self.rig);
        }
        let Some(mut job) = begun.unwrap() else {
            return;
        };
        let result = job.execute();
        self.rig.log.complete_truncation(job, result);
        let left = self.rig.log.log_end_offset();
        assert!(
            left <= target && left > target - 4,
            "at most the batch of the offset goes too"
        );
        self.forget(left as usize);
        self.checkpoint = self.rig.state(false);
    }

    /// Opens what is left and adopts its end.
    pub fn restart(&mut self, life: Life) {
        let state = OpenState {
            clean: false,
            ..self.checkpoint
        };
        self.rig.reopen_in(state, life);
        self.notes.extend_from_slice(&self.rig.report.notes);
        if self.rig.report.checkpoint_is_stale {
            self.checkpoint = self.rig.state(false);
        }
        self.rig.drain();
        let end = self.rig.log.log_end_offset() as usize;
        assert!(end <= self.records.len());
        self.forget(end);
    }

    /// Everything from `end` on is gone.
    fn forget(&mut self, end: usize) {
        self.records.truncate(end);
        self.came_ms.truncate(end);
        self.history.kinds.truncate(end);
    }

    pub fn check(&mut self) {
        let log = &self.rig.log;
        assert_eq!(log.poisoned(), None);
        assert_eq!(log.log_end_offset(), self.records.len() as i64);
        assert!(log.recovery_point() <= log.durable_end_offset());
        let start = log.log_start_offset();
        let visible = start as usize..log.high_watermark().max(start) as usize;
        let values = self.records[visible.clone()]
            .iter()
            .map(|(value, _, _)| value.clone());
        let expected: Vec<_> = (start..).zip(values).collect();
        assert_eq!(self.rig.contents(), expected);
        self.history.check(&self.rig);
        self.check_epochs();
        self.check_times(visible);
    }

    fn check_epochs(&mut self) {
        self.epochs_from = self.epochs_from.max(self.rig.log.log_start_offset());
        let start = self.epochs_from as usize;
        for epoch in self.records[start.min(self.records.len())..]
            .iter()
            .map(|record| record.1)
        {
            let end = self.records.iter().position(|record| record.1 > epoch);
            let end = end.unwrap_or(self.records.len()) as i64;
            assert_eq!(self.rig.log.end_offset_for_epoch(epoch), (epoch, end));
        }
    }

    fn check_times(&self, visible: std::ops::Range<usize>) {
        let records = &self.records[visible.clone()];
        for timestamp in [0, 1_100, 1_250, 1_400, 1_499, 1_500] {
            let first = records.iter().position(|record| record.2 >= timestamp);
            let query = self
                .rig
                .log
                .offset_for_time(TimeSpec::At(timestamp), Isolation::HighWatermark);
            let found = query.resolve(Wait::Blocking).unwrap();
            let expected = first.map(|i| (visible.start + i) as i64);
            assert_eq!(found.map(|found| found.offset), expected, "at {timestamp}");
        }
    }
}

/// A rebooted machine has no block cache.
fn life(seed: Option<u64>) -> Life {
    match seed {
        Some(_) => Life::Fresh,
        None => Life::Again,
    }
}
