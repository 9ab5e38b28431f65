//! Shared by the log's tests: a directory on a disk in memory, and short names for the steps of a
//! broker's threads.
#![allow(dead_code)] // Each test crate uses its own part.

pub mod cached;
pub mod cleaning;
pub mod history;
pub mod killed_disk;
pub mod model;
pub mod old_messages;
pub mod steps;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cached::CacheRig;
pub use cached::Life;
use killed_disk::KilledDisk;

use pyrklog_log::disk::Disk;
use pyrklog_log::disk::testing::{Fault, FaultyDisk, MemDisk, Operation};
use pyrklog_log::{
    AppendError, Appended, BatchInfo, Isolation, Log, LogConfig, LogEnv, OpenReport, OpenRequest,
    OpenState, Origin, ReadError, Slice, SyncScope, Wait,
};
use pyrklog_wire::batch::{Batches, HEADER_LEN};
use pyrklog_wire::builder::BatchBuilder;
use pyrklog_wire::records::Records;

pub const DIR: &str = "/data";
pub const FOLDER: &str = "/data/t-0";

/// One log on a disk in memory.
pub struct Rig {
    pub memory: MemDisk,
    pub disk: FaultyDisk,
    pub config: LogConfig,
    pub now_ms: i64,
    pub epoch: i32,
    pub log: Log,
    pub report: OpenReport,
    pub cache: Option<CacheRig>,
}

/// Segments of 1,000 bytes with an index entry about every 200.
pub fn small() -> LogConfig {
    LogConfig {
        segment_bytes: 1000,
        index_interval_bytes: 200,
        ..LogConfig::default()
    }
}

const OPEN_SEGMENTS: usize = 16;

impl Rig {
    pub fn new(config: LogConfig) -> Self {
        let memory = MemDisk::default();
        let disk = FaultyDisk::new(Arc::new(memory.clone()));
        Self::start(memory, disk, config, None, OPEN_SEGMENTS)
    }

    /// The same with a limit of open segments, beyond which small ones grow.
    pub fn with_open_segments(config: LogConfig, open_segments: usize) -> Self {
        let memory = MemDisk::default();
        let disk = FaultyDisk::new(Arc::new(memory.clone()));
        Self::start(memory, disk, config, None, open_segments)
    }

    /// The same with a block cache.
    pub fn with_cache(config: LogConfig) -> Self {
        let memory = MemDisk::default();
        let cache = CacheRig::new();
        let inner = KilledDisk {
            inner: Arc::new(memory.clone()),
            fuse: cache.fuse.clone(),
        };
        let disk = FaultyDisk::new(Arc::new(inner));
        Self::start(memory, disk, config, Some(cache), OPEN_SEGMENTS)
    }

    fn start(
        memory: MemDisk,
        disk: FaultyDisk,
        config: LogConfig,
        mut cache: Option<CacheRig>,
        open_segments: usize,
    ) -> Self {
        memory.create_dir_all(Path::new(DIR)).unwrap();
        let env = LogEnv::new(Arc::new(disk.clone()), open_segments);
        if let Some(cache) = &mut cache {
            cache.give(&env, Life::Fresh);
        }
        let (log, report) = open_in(env, &config, OpenState::default(), 1_000).unwrap();
        Self {
            memory,
            disk,
            config,
            now_ms: 1_000,
            epoch: 0,
            log,
            report,
            cache,
        }
    }

    pub fn reopen(&mut self, state: OpenState) -> &OpenReport {
        self.reopen_in(state, Life::Fresh)
    }

    pub fn reopen_in(&mut self, state: OpenState, life: Life) -> &OpenReport {
        let (log, report) = self.try_open(state, life).unwrap();
        self.log = log;
        self.report = report;
        self.check_invariants();
        &self.report
    }

    pub fn try_open(
        &mut self,
        state: OpenState,
        life: Life,
    ) -> Result<(Log, OpenReport), pyrklog_log::OpenError> {
        let env = LogEnv::new(Arc::new(self.disk.clone()), OPEN_SEGMENTS);
        if let Some(cache) = &mut self.cache {
            cache.give(&env, life);
        }
        open_in(env, &self.config, state, self.now_ms)
    }

    /// Closes in order and opens again.
    pub fn restart_clean(&mut self) -> &OpenReport {
        self.log.close_cleanly().unwrap();
        self.memory.sync_file_system(Path::new(DIR)).unwrap();
        let state = self.state(true);
        self.reopen(state)
    }

    /// The process dies.
    pub fn restart_killed(&mut self) -> &OpenReport {
        self.memory.kill_process();
        let state = self.state(false);
        self.reopen_in(state, Life::Again)
    }

    /// The checkpoints' values now.
    pub fn state(&self, clean: bool) -> OpenState {
        OpenState {
            clean,
            recovery_point: self.log.recovery_point(),
            cleaned_end: 0,
            log_start_offset: self.log.log_start_offset(),
            high_watermark: self.log.high_watermark(),
        }
    }

    pub fn append(&mut self, batch: &mut [u8]) -> Result<Appended, AppendError> {
        self.append_as(batch, Origin::Client)
    }

    pub fn append_as(&mut self, batch: &mut [u8], origin: Origin) -> Result<Appended, AppendError> {
        let info = BatchInfo::parse(batch).unwrap();
        let appended = self
            .log
            .append(batch, &info, origin, self.epoch, self.now_ms);
        self.check_invariants();
        appended
    }

    pub fn check_invariants(&mut self) {
        assert_eq!(self.log.check_invariants(), Ok(()));
    }

    /// Appends one batch of records with these values, written and visible.
    pub fn put(&mut self, values: &[&str]) -> Appended {
        let appended = self.append(&mut batch(self.now_ms, values)).unwrap();
        self.drain();
        appended
    }

    /// The writer's turn; then everything written is visible.
    pub fn drain(&mut self) {
        self.write();
        self.log
            .advance_high_watermark(self.log.durable_end_offset());
    }

    pub fn write(&mut self) {
        while let Some(mut job) = self.log.take_writes() {
            self.check_invariants();
            let result = job.execute();
            self.log.complete_writes(job, result);
            self.check_invariants();
        }
    }

    /// One write job, which leaves a partial page.
    pub fn write_pages(&mut self) {
        if let Some(mut job) = self.log.take_whole_pages() {
            let result = job.execute();
            self.log.complete_writes(job, result);
        }
    }

    pub fn sync(&mut self, scope: SyncScope) {
        while let Some(mut job) = self.log.take_sync(scope) {
            let result = job.execute();
            let is_more = self.log.complete_sync(job, result);
            self.check_invariants();
            if !is_more {
                break;
            }
        }
    }

    /// Fails all operations of a kind after `skip` more.
    pub fn break_disk(&self, operation: Operation, skip: usize, fault: Fault) {
        self.disk.fail(operation, "", skip, usize::MAX, fault);
    }

    /// Retention's turn on a disk that may fail.
    pub fn retain_if_possible(&mut self) {
        if self.log.retention_candidates(self.now_ms).load().is_ok()
            && let Some(mut removed) = self.log.plan_retention(self.now_ms).removed
            && removed.rename().is_ok()
        {
            let _left_over = removed.delete();
        }
    }

    /// Retention's whole turn, with files deleted at once.
    pub fn retain(&mut self) -> usize {
        let before = self.log.segment_count();
        loop {
            self.log.retention_candidates(self.now_ms).load().unwrap();
            let retention = self.log.plan_retention(self.now_ms);
            self.check_invariants();
            if let Some(mut removed) = retention.removed {
                removed.rename().unwrap();
                removed.delete().unwrap();
            }
            self.write();
            if !retention.again {
                return before.saturating_sub(self.log.segment_count());
            }
        }
    }

    pub fn read(&self, offset: i64, max_bytes: usize) -> Result<Vec<u8>, ReadError> {
        self.read_as(offset, max_bytes, Isolation::HighWatermark)
    }

    pub fn read_as(
        &self,
        offset: i64,
        max_bytes: usize,
        isolation: Isolation,
    ) -> Result<Vec<u8>, ReadError> {
        let slice = self
            .log
            .locate(offset, isolation)?
            .resolve(max_bytes, true, Wait::Blocking)?;
        Ok(bytes(&slice))
    }

    /// All visible records from the log start on: (offset, value).
    pub fn contents(&self) -> Vec<(i64, String)> {
        let mut records = Vec::new();
        let mut offset = self.log.log_start_offset();
        loop {
            let bytes = self.read(offset, 1 << 20).unwrap();
            let found = records_in(&bytes);
            let Some((last, _)) = found.last() else {
                return records;
            };
            let next = last + 1;
            records.extend(found.into_iter().filter(|(found, _)| *found >= offset));
            offset = next;
        }
    }

    pub fn files(&self) -> Vec<String> {
        let name = |path: PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
        let files = self.memory.files().into_iter();
        files
            .filter(|path| path.starts_with(FOLDER))
            .map(name)
            .collect()
    }

    pub fn file(&self, name: &str) -> Vec<u8> {
        let path = Path::new(FOLDER).join(name);
        self.memory
            .content(&path)
            .unwrap_or_else(|| panic!("{name} is not there"))
    }

    pub fn put_file(&self, name: &str, content: &[u8]) {
        self.memory.put(&Path::new(FOLDER).join(name), content);
    }

    pub fn remove_file(&self, name: &str) {
        self.memory
            .remove_file(&Path::new(FOLDER).join(name))
            .unwrap();
    }
}

pub fn open(
    disk: &FaultyDisk,
    config: &LogConfig,
    state: OpenState,
    now_ms: i64,
) -> Result<(Log, OpenReport), pyrklog_log::OpenError> {
    open_in(
        LogEnv::new(Arc::new(disk.clone()), 16),
        config,
        state,
        now_ms,
    )
}

pub fn open_in(
    env: Arc<LogEnv>,
    config: &LogConfig,
    state: OpenState,
    now_ms: i64,
) -> Result<(Log, OpenReport), pyrklog_log::OpenError> {
    Log::open(request(env, config, state, now_ms))
}

pub fn request(
    env: Arc<LogEnv>,
    config: &LogConfig,
    state: OpenState,
    now_ms: i64,
) -> OpenRequest<'static> {
    OpenRequest {
        env,
        log_dir: Path::new(DIR),
        topic: "t",
        partition: 0,
        topic_id: Some([7; 16]),
        config: Arc::new(config.clone()),
        state,
        now_ms,
        producer_id_expiration_ms: 86_400_000,
    }
}

/// One batch whose records have one timestamp.
pub fn batch(timestamp: i64, values: &[&str]) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for value in values {
        builder.append(timestamp, None, Some(value.as_bytes()));
    }
    builder.build()
}

/// One batch of an idempotent producer.
pub fn produced(producer_id: i64, sequence: i32, values: &[&str]) -> Vec<u8> {
    let mut builder = BatchBuilder::new().producer(producer_id, 0, sequence);
    for value in values {
        builder.append(1_000, None, Some(value.as_bytes()));
    }
    builder.build()
}

/// One batch of a transaction.
pub fn transactional(producer_id: i64, sequence: i32, values: &[&str]) -> Vec<u8> {
    let mut builder = BatchBuilder::new()
        .producer(producer_id, 0, sequence)
        .transactional();
    for value in values {
        builder.append(1_000, None, Some(value.as_bytes()));
    }
    builder.build()
}

pub fn bytes(slice: &Slice) -> Vec<u8> {
    read(slice).unwrap()
}

/// All bytes of a slice.
pub fn read(slice: &Slice) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; slice.len()];
    let mut done = 0;
    while done < bytes.len() {
        let n = slice.read(done, &mut bytes[done..], Wait::Blocking)?;
        assert!(n > 0, "a slice ends before its length");
        done += n;
    }
    Ok(bytes)
}

/// (offset, value) of the whole, uncompressed data batches in a reply.
pub fn records_in(bytes: &[u8]) -> Vec<(i64, String)> {
    let mut found = Vec::new();
    for view in Batches::new(bytes) {
        let view = view.unwrap();
        pyrklog_wire::batch::verify_crc(view.bytes).unwrap();
        if view.header.is_control() {
            found.push((view.header.last_offset(), "<control>".to_owned()));
            continue;
        }
        for record in Records::new(&view.bytes[HEADER_LEN..]) {
            let record = record.unwrap();
            let value = String::from_utf8(record.value.unwrap_or_default().to_vec()).unwrap();
            found.push((
                view.header.base_offset + i64::from(record.offset_delta),
                value,
            ));
        }
    }
    found
}
