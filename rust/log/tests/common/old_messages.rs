//! Segments as Kafka wrote them before 0.11, and all records of a log.

use std::path::Path;
use std::sync::Arc;

use pyrklog_log::compression::{CompressedStream, Lz4Header, decompress};
use pyrklog_log::disk::Disk;
use pyrklog_log::disk::testing::{FaultyDisk, MemDisk};
use pyrklog_log::{
    Identity, Isolation, Log, LogConfig, LogDir, LogEnv, OpenError, OpenReport, OpenState,
    PartitionFolder, Wait,
};
use pyrklog_wire::batch::{Batches, Compression, TIMESTAMP_TYPE_BIT, TimestampType};
use pyrklog_wire::message_set::{MAGIC_0, begin_wrapper, end_wrapper, write_message};
use pyrklog_wire::records::Records;

use super::{DIR, FOLDER, bytes, open_in};

pub const FIRST: &str = "00000000000000000000.log";
pub const CLEAN: OpenState = OpenState {
    clean: true,
    recovery_point: 0,
    cleaned_end: 0,
    log_start_offset: 0,
    high_watermark: 0,
};
pub const KILLED: OpenState = OpenState {
    clean: false,
    ..CLEAN
};

/// A folder that old Kafka left.
pub struct Old {
    pub memory: MemDisk,
    pub disk: FaultyDisk,
    pub config: LogConfig,
}

impl Old {
    pub fn new(segments: &[(&str, &[u8])]) -> Self {
        let memory = MemDisk::default();
        memory.create_dir_all(Path::new(FOLDER)).unwrap();
        let old = Self {
            disk: FaultyDisk::new(Arc::new(memory.clone())),
            memory,
            config: LogConfig::default(),
        };
        for (name, content) in segments {
            old.put(name, content);
        }
        old
    }

    pub fn put(&self, name: &str, content: &[u8]) {
        self.memory.put(&Path::new(FOLDER).join(name), content);
    }

    pub fn file(&self, name: &str) -> Option<Vec<u8>> {
        self.memory.content(&Path::new(FOLDER).join(name))
    }

    pub fn names(&self) -> Vec<String> {
        let files = self.memory.files().into_iter();
        let files = files.filter(|path| path.starts_with(DIR));
        files
            .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
            .collect()
    }

    pub fn try_open(&self, state: OpenState) -> Result<(Log, OpenReport), OpenError> {
        let env = LogEnv::new(Arc::new(self.disk.clone()), 16);
        open_in(env, &self.config, state, 1_000)
    }

    /// The directory as a broker finds it, and its folders.
    pub fn found(&self) -> (LogDir, Vec<PartitionFolder>) {
        let env = LogEnv::new(Arc::new(self.disk.clone()), 16);
        let identity = Identity {
            cluster_id: "cluster".to_owned(),
            node_id: 1,
        };
        let files = LogDir::open(env, Path::new(DIR), &identity).unwrap();
        let folders = files.partitions().unwrap();
        files.begin_seeing(&folders).unwrap();
        (files, folders)
    }

    /// Opens the log of such a directory.
    pub fn open_as_found(&self, state: OpenState) -> (Log, OpenReport) {
        let (files, _) = self.found();
        let (mut log, report) = open_in(files.env().clone(), &self.config, state, 1_000).unwrap();
        log.advance_high_watermark(log.durable_end_offset());
        (log, report)
    }

    pub fn open(&self, state: OpenState) -> (Log, OpenReport) {
        let (mut log, report) = self.try_open(state).unwrap();
        log.advance_high_watermark(log.durable_end_offset());
        (log, report)
    }
}

pub const OLD_CODECS: [Compression; 4] = [
    Compression::None,
    Compression::Gzip,
    Compression::Snappy,
    Compression::Lz4,
];

/// A record, as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rec {
    pub offset: i64,
    /// -1 in format 0.
    pub timestamp: i64,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
}

pub fn rec(offset: i64, timestamp: i64, value: &str) -> Rec {
    Rec {
        offset,
        timestamp,
        key: Some(format!("k{offset}").into_bytes()),
        value: Some(value.as_bytes().to_vec()),
    }
}

/// Records at these offsets, with rising timestamps where the format has some.
pub fn recs(magic: i8, offsets: impl IntoIterator<Item = i64>) -> Vec<Rec> {
    let timestamp = |offset| {
        if magic == MAGIC_0 {
            -1
        } else {
            10_000 + offset
        }
    };
    let one = |offset| rec(offset, timestamp(offset), &format!("value {offset}"));
    offsets.into_iter().map(one).collect()
}

/// Uncompressed messages; with `append_time` the broker set their timestamps.
pub fn messages(magic: i8, append_time: bool, recs: &[Rec]) -> Vec<u8> {
    let attributes = if append_time {
        TIMESTAMP_TYPE_BIT as i8
    } else {
        0
    };
    let mut set = Vec::new();
    for one in recs {
        let (key, value) = (one.key.as_deref(), one.value.as_deref());
        let format = (magic, attributes);
        write_message(&mut set, format, one.offset, one.timestamp, key, value);
    }
    set
}

/// One wrapper, or the messages without a codec. With append time the wrapper's counts.
pub fn set(magic: i8, codec: Compression, append_time: bool, recs: &[Rec]) -> Vec<u8> {
    if codec == Compression::None {
        return messages(magic, append_time, recs);
    }
    let first = recs[0].offset;
    let inner: Vec<Rec> = recs
        .iter()
        .map(|one| Rec {
            offset: if magic == MAGIC_0 {
                one.offset
            } else {
                one.offset - first
            },
            timestamp: if append_time { 7 } else { one.timestamp },
            ..one.clone()
        })
        .collect();
    let last = recs[recs.len() - 1].offset;
    let timestamp = recs.iter().map(|one| one.timestamp).max().unwrap();
    let time = if append_time {
        TIMESTAMP_TYPE_BIT as i8
    } else {
        0
    };
    let format = (magic, codec as i8 | time);
    wrapped(
        format,
        codec,
        &messages(magic, false, &inner),
        last,
        timestamp,
    )
}

/// A wrapper around any bytes.
pub fn wrapped(
    (magic, attributes): (i8, i8),
    codec: Compression,
    inner: &[u8],
    offset: i64,
    timestamp: i64,
) -> Vec<u8> {
    let mut out = Vec::new();
    let wrapper = begin_wrapper(&mut out, (magic, attributes));
    let header = match magic {
        MAGIC_0 => Lz4Header::Format0,
        _ => Lz4Header::Standard,
    };
    let mut stream = CompressedStream::new(codec, header, out).unwrap();
    stream.write(inner).unwrap();
    let mut out = stream.finish().unwrap();
    end_wrapper(&mut out, wrapper, offset, timestamp);
    out
}

/// All records from the log's start on. Batches that cannot be read are left out.
pub fn records(log: &Log) -> Vec<Rec> {
    let mut found = Vec::new();
    let mut offset = log.log_start_offset();
    while offset < log.log_end_offset() {
        let location = log.locate(offset, Isolation::DurableEnd).unwrap();
        let slice = location.resolve(1 << 20, true, Wait::Blocking).unwrap();
        let before = offset;
        for view in Batches::new(&bytes(&slice)) {
            let view = view.unwrap();
            offset = view.header.last_offset() + 1;
            found.extend(records_of(&view).into_iter().flatten());
        }
        assert!(offset > before, "nothing is read at {before}");
    }
    found.retain(|one| one.offset >= log.log_start_offset());
    found
}

/// `None` if the batch cannot be read.
pub fn records_of(view: &pyrklog_wire::batch::BatchView<'_>) -> Option<Vec<Rec>> {
    let header = view.header;
    pyrklog_wire::batch::verify_crc(view.bytes).ok()?;
    let mut body = Vec::new();
    let codec = header.compression().ok()?;
    decompress(codec, view.body(), &mut body, 1 << 27).ok()?;
    let records: Result<Vec<_>, _> = Records::new(&body).collect();
    let records = records.ok()?;
    (records.len() == header.record_count as usize).then_some(())?;
    let time = |delta: i64| match header.timestamp_type() {
        TimestampType::LogAppendTime => header.max_timestamp,
        TimestampType::CreateTime => header.base_timestamp.wrapping_add(delta),
    };
    let recs = records.iter().map(|record| Rec {
        offset: header.base_offset + i64::from(record.offset_delta),
        timestamp: time(record.timestamp_delta),
        key: record.key.map(<[u8]>::to_vec),
        value: record.value.map(<[u8]>::to_vec),
    });
    Some(recs.collect())
}
