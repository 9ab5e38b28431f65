//! Recovery: a log is filled, killed, perhaps loses unsynced data, and is damaged behind its
//! recovery point. It must open with a prefix of its records, keep synced ones, open again alike,
//! and accept and return new records.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pyrklog_log::disk::Disk;
use pyrklog_log::disk::testing::MemDisk;
use pyrklog_log::{
    BatchInfo, Isolation, Log, LogConfig, LogEnv, OpenRequest, OpenState, Origin, Slice, SyncScope,
    Wait,
};
use pyrklog_wire::batch::{Batches, HEADER_LEN};
use pyrklog_wire::builder::BatchBuilder;
use pyrklog_wire::records::Records;

use crate::script::Script;
use crate::{Verdict, expect};

/// Takes a killed log for a closed one; cuts a batch too many.
pub const PLANTED: &[&str] = &["killed-taken-for-closed", "one-batch-too-many"];

pub(crate) const DIR: &str = "/data";
pub(crate) const FOLDER: &str = "/data/t-0";
const NOW_MS: i64 = 1_000;

type Content = Vec<(i64, Vec<u8>)>;

struct Rig {
    disk: MemDisk,
    log: Log,
    appended: Content,
}

pub fn run(script: &mut Script<'_>, planted: Option<&str>) -> Verdict {
    let disk = MemDisk::default();
    disk.create_dir_all(Path::new(DIR)).map_err(text)?;
    let log = open(&disk, OpenState::default())?;
    let mut rig = Rig {
        disk,
        log,
        appended: Vec::new(),
    };
    for _ in 0..2 + script.below(10) {
        match script.below(6) {
            0 => rig.sync(),
            _ => rig.append(script)?,
        }
    }
    rig.write();
    let state = OpenState {
        clean: planted == Some("killed-taken-for-closed"),
        recovery_point: rig.log.recovery_point(),
        cleaned_end: 0,
        log_start_offset: rig.log.log_start_offset(),
        high_watermark: rig.log.high_watermark(),
    };
    let synced_end = state.recovery_point;
    rig.disk.kill_process();
    let Rig {
        disk,
        log,
        appended,
    } = rig;
    drop(log);
    damage(script, &disk, synced_end)?;
    if planted == Some("one-batch-too-many") {
        cut_last_batch(&disk);
    }
    let log = open(&disk, state)?;
    let found = content(&log)?;
    check(&found, &appended, synced_end)?;
    let mut again = Rig {
        disk,
        log,
        appended: found,
    };
    again.disk.kill_process();
    again.log = open(
        &again.disk,
        OpenState {
            clean: false,
            ..state
        },
    )?;
    let second = content(&again.log)?;
    expect(second == again.appended, || {
        format!(
            "opened twice: {} and {} records",
            again.appended.len(),
            second.len()
        )
    })?;
    again.append(script)?;
    again.write();
    let last = content(&again.log)?;
    expect(last == again.appended, || {
        "what is appended after a recovery is not read".into()
    })
}

fn check(found: &Content, appended: &Content, synced_end: i64) -> Verdict {
    // No checksum covers a batch's base offset: a larger one leaves a gap, as compaction does.
    let rises = found.windows(2).all(|pair| pair[0].0 < pair[1].0);
    let is_prefix = found.len() <= appended.len()
        && found
            .iter()
            .zip(appended)
            .all(|(one, other)| one.1 == other.1);
    expect(rises && is_prefix, || {
        format!("{found:?} is no prefix of {appended:?}")
    })?;
    let end = found.last().map_or(0, |(offset, _)| offset + 1);
    expect(end >= synced_end, || {
        format!("everything before {synced_end} was synced, {end} is the end")
    })
}

impl Rig {
    fn append(&mut self, script: &mut Script<'_>) -> Verdict {
        let mut builder = BatchBuilder::new();
        if script.one_in(3) {
            let sequence = i32::try_from(self.appended.len()).map_err(text)?;
            builder = builder.producer(sequence.into(), 0, 0);
        }
        let values = script.list(3, |script| script.bytes(60));
        let values = if values.is_empty() {
            vec![Vec::new()]
        } else {
            values
        };
        for value in &values {
            builder.append(NOW_MS, None, Some(value));
        }
        let mut batch = builder.build();
        let info = BatchInfo::parse(&batch).map_err(text)?;
        let appended = self
            .log
            .append(&mut batch, &info, Origin::Client, 0, NOW_MS)
            .map_err(text)?;
        self.appended.extend((appended.base_offset..).zip(values));
        if script.bool() {
            self.write();
        }
        Ok(())
    }

    fn write(&mut self) {
        while let Some(mut job) = self.log.take_writes() {
            let result = job.execute();
            self.log.complete_writes(job, result);
        }
        self.log
            .advance_high_watermark(self.log.durable_end_offset());
    }

    fn sync(&mut self) {
        self.write();
        while let Some(mut job) = self.log.take_sync(SyncScope::Written) {
            let result = job.execute();
            if !self.log.complete_sync(job, result) {
                break;
            }
        }
    }
}

/// Opens the log of [`FOLDER`].
pub(crate) fn open(disk: &MemDisk, state: OpenState) -> Result<Log, String> {
    let config = LogConfig {
        segment_bytes: 600,
        index_interval_bytes: 100,
        ..LogConfig::default()
    };
    let (mut log, _report) = Log::open(OpenRequest {
        env: LogEnv::new(Arc::new(disk.clone()), 16),
        log_dir: Path::new(DIR),
        topic: "t",
        partition: 0,
        topic_id: Some([7; 16]),
        config: Arc::new(config),
        state,
        now_ms: NOW_MS,
        producer_id_expiration_ms: 86_400_000,
    })
    .map_err(|error| format!("does not open: {error}"))?;
    log.advance_high_watermark(log.durable_end_offset());
    Ok(log)
}

/// Damages what may be lost: bytes of segments behind the recovery point, indexes, snapshots.
fn damage(script: &mut Script<'_>, disk: &MemDisk, synced_end: i64) -> Verdict {
    let last_log = last_segment(disk);
    for path in disk.files() {
        if !path.starts_with(FOLDER) || script.bool() {
            continue;
        }
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let Some(mut bytes) = disk.content(&path) else {
            continue;
        };
        let is_index = name.ends_with("index") || name.ends_with(".snapshot");
        let from = if name.ends_with(".log") {
            synced_bytes(&bytes, synced_end)
        } else if is_index && is_behind(&name, synced_end) {
            0
        } else {
            continue;
        };
        let is_durable = from == bytes.len() && Some(&path) != last_log.as_ref();
        if name.ends_with(".log") && is_durable {
            continue; // a crash cannot touch it
        }
        let mut tail = bytes.split_off(from);
        script.damage(&mut tail);
        bytes.extend(tail);
        disk.put(&path, &bytes);
    }
    Ok(())
}

/// The planted bug: recovery ends a batch too early.
fn cut_last_batch(disk: &MemDisk) {
    let Some(path) = last_segment(disk) else {
        return;
    };
    let bytes = disk.content(&path).unwrap_or_default();
    let batches = Batches::new(&bytes).map_while(Result::ok);
    let last = batches.last().map_or(0, |view| view.bytes.len());
    disk.put(&path, &bytes[..bytes.len() - last]);
}

fn last_segment(disk: &MemDisk) -> Option<PathBuf> {
    let is_log = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "log");
    disk.files().into_iter().filter(is_log).max()
}

/// Whether the file's segment reaches beyond the synced end; indexes before that are durable and
/// trusted.
fn is_behind(name: &str, synced_end: i64) -> bool {
    let number = name
        .split('.')
        .next()
        .and_then(|digits| digits.parse::<i64>().ok());
    number.is_some_and(|base| base >= synced_end)
}

/// Bytes of a segment's batches that begin before the recovery point, which may lie within one.
fn synced_bytes(bytes: &[u8], synced_end: i64) -> usize {
    let mut end = 0;
    for view in Batches::new(bytes).map_while(Result::ok) {
        if view.header.base_offset >= synced_end {
            break;
        }
        end += view.bytes.len();
    }
    end
}

fn content(log: &Log) -> Result<Content, String> {
    let mut found = Content::new();
    let mut offset = log.log_start_offset();
    while offset < log.log_end_offset() {
        let location = log.locate(offset, Isolation::DurableEnd).map_err(text)?;
        let slice = location
            .resolve(1 << 20, true, Wait::Blocking)
            .map_err(text)?;
        let bytes = whole(&slice)?;
        let before = offset;
        for view in Batches::new(&bytes) {
            let view = view.map_err(text)?;
            for record in Records::new(&view.bytes[HEADER_LEN..]) {
                let record = record.map_err(text)?;
                let at = view.header.base_offset + i64::from(record.offset_delta);
                if at >= offset {
                    found.push((at, record.value.unwrap_or_default().to_vec()));
                }
            }
            offset = view.header.last_offset() + 1;
        }
        expect(offset > before, || format!("nothing is read at {before}"))?;
    }
    Ok(found)
}

/// All bytes of a slice.
pub(crate) fn whole(slice: &Slice) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; slice.len()];
    let mut done = 0;
    while done < bytes.len() {
        match slice
            .read(done, &mut bytes[done..], Wait::Blocking)
            .map_err(text)?
        {
            0 => return Err("a slice ends before its length".into()),
            count => done += count,
        }
    }
    Ok(bytes)
}

pub(crate) fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
