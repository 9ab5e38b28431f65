//! A log on a disk in memory, closed in order, with everything that was appended.

use std::path::{Path, PathBuf};

use pyrklog_log::disk::Disk;
use pyrklog_log::disk::testing::MemDisk;
use pyrklog_log::{BatchInfo, Isolation, Log, OpenState, Origin, Wait};
use pyrklog_wire::batch::{Batches, HEADER_LEN, verify_crc};
use pyrklog_wire::builder::BatchBuilder;
use pyrklog_wire::records::Records;

use crate::recovery::{self, text};
use crate::script::Script;

const NOW_MS: i64 = 1_000;
const BATCHES_MAX: usize = 24;
const VALUE_BYTES_MAX: usize = 60;

/// Offset and value of each record.
pub type Content = Vec<(i64, String)>;

/// See the module.
pub struct History {
    pub disk: MemDisk,
    pub appended: Content,
    end: i64,
}

impl History {
    /// A log of some batches in some segments, written and closed.
    pub fn make(script: &mut Script<'_>) -> Result<Self, String> {
        let disk = MemDisk::default();
        let folder = Path::new(recovery::FOLDER);
        disk.create_dir_all(folder).map_err(text)?;
        let mut log = recovery::open(&disk, OpenState::default())?;
        let mut appended = Content::new();
        for _ in 0..script.below(BATCHES_MAX + 1) {
            append(script, &mut log, &mut appended)?;
        }
        log.close_cleanly().map_err(text)?;
        let end = log.log_end_offset();
        Ok(Self {
            disk,
            appended,
            end,
        })
    }

    /// Opens the log as one that was closed in order.
    pub fn open(&self) -> Result<Log, String> {
        let state = OpenState {
            clean: true,
            recovery_point: self.end,
            cleaned_end: 0,
            log_start_offset: 0,
            high_watermark: self.end,
        };
        recovery::open(&self.disk, state)
    }

    /// The files of the partition's folder.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut files = self.disk.files();
        files.retain(|path| path.starts_with(recovery::FOLDER));
        files
    }

    /// Content of a file, empty where there is none.
    pub fn content(&self, path: &Path) -> Vec<u8> {
        self.disk.content(path).unwrap_or_default()
    }
}

fn append(script: &mut Script<'_>, log: &mut Log, appended: &mut Content) -> Result<(), String> {
    let mut builder = BatchBuilder::new();
    for _ in 0..=script.below(3) {
        let offset = appended.len() as i64;
        let value = format!("{offset} {}", "x".repeat(script.below(VALUE_BYTES_MAX)));
        builder.append(NOW_MS + offset, None, Some(value.as_bytes()));
        appended.push((offset, value));
    }
    let mut batch = builder.build();
    let info = BatchInfo::parse(&batch).map_err(text)?;
    log.append(&mut batch, &info, Origin::Client, 0, NOW_MS)
        .map_err(text)?;
    while let Some(mut job) = log.take_writes() {
        let result = job.execute();
        log.complete_writes(job, result);
    }
    log.advance_high_watermark(log.durable_end_offset());
    Ok(())
}

/// The whole batches, with right checksums, that a consumer reads from an offset on.
pub fn read(log: &Log, offset: i64, max_bytes: usize) -> Result<Content, String> {
    let location = log.locate(offset, Isolation::HighWatermark).map_err(text)?;
    let slice = location.resolve(max_bytes, true, Wait::Blocking);
    let slice = slice.map_err(text)?;
    let bytes = recovery::whole(&slice)?;
    let mut found = Content::new();
    for view in Batches::new(&bytes) {
        let view = view.map_err(text)?;
        verify_crc(view.bytes).map_err(text)?;
        for record in Records::new(&view.bytes[HEADER_LEN..]) {
            let record = record.map_err(text)?;
            let at = view.header.base_offset + i64::from(record.offset_delta);
            let value = String::from_utf8_lossy(record.value.unwrap_or_default());
            found.push((at, value.into_owned()));
        }
    }
    Ok(found)
}
