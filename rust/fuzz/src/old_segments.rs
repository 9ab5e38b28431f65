//! Segments of formats 0 and 1, as old Kafka left them: built, perhaps damaged, and opened. What was
//! not damaged is in the log, everything in it was written, and a second opening finds the same.

use std::path::Path;

use pyrklog_log::compression::{CompressedStream, Lz4Header, decompress};
use pyrklog_log::disk::Disk;
use pyrklog_log::disk::testing::MemDisk;
use pyrklog_log::{Isolation, Log, OpenState, Wait};
use pyrklog_wire::batch::{BatchView, Batches, Compression, verify_crc};
use pyrklog_wire::message_set::{
    MAGIC_0, MAGIC_1, begin_wrapper, crc32, end_wrapper, next_len, write_message,
};
use pyrklog_wire::records::Records;

use crate::recovery::{self, DIR, FOLDER, open, text};
use crate::script::{Damage, Script};
use crate::{Verdict, expect, memory};

/// Ignores checksums; gives records other offsets.
pub const PLANTED: &[&str] = &["checksum-ignored", "offsets-anew"];

/// Buffers of the walk and of the new segments, and what codecs need.
const FIXED_BYTES: usize = 40 << 20;
const MEMORY_FACTOR: usize = 4096;
const EXPANDED_BYTES_MAX: usize = 100 << 20;
const SETS_MAX: usize = 5;
const SECOND_MIN: i64 = 1_000;
const CRC_AT: usize = 12;
const MAGIC_AT: usize = 16;
const CRC_FROM: usize = 16;

type KeyAndValue = (Option<Vec<u8>>, Option<Vec<u8>>);

/// Offset, key, value.
type Content = Vec<(i64, Option<Vec<u8>>, Option<Vec<u8>>)>;

pub fn run(script: &mut Script<'_>, planted: Option<&str>) -> Verdict {
    let disk = MemDisk::default();
    disk.create_dir_all(Path::new(FOLDER)).map_err(text)?;
    disk.create_dir_all(Path::new(DIR)).map_err(text)?;
    let mut written = Content::new();
    let mut is_hostile = false;
    let mut next = 0;
    let mut bytes = 0;
    let mut is_damaged = false;
    let mut is_mended = false;
    let mut is_known = true;
    // Without compaction a gap behind what was synced is a loss.
    let bases: &[i64] = script.pick(&[&[0], &[0, SECOND_MIN]]);
    for &base_offset in bases {
        next = next.max(base_offset);
        let mut content = Vec::new();
        for _ in 0..script.below(SETS_MAX) {
            is_hostile |= append(script, &mut content, &mut next, &mut written)?;
        }
        if script.one_in(3) {
            is_damaged |= script.damage(&mut content) != Damage::None;
            is_mended |= script.one_in(4) && mend(&mut content);
        }
        if planted == Some("checksum-ignored") {
            mend(&mut content);
        }
        // It could be anything: then the log is refused, as one with a damaged batch there is.
        is_known &= content.is_empty() || matches!(content.get(MAGIC_AT), Some(0 | 1));
        bytes += content.len();
        let path = Path::new(FOLDER).join(format!("{base_offset:020}.log"));
        disk.put(&path, &content);
    }
    let state = OpenState {
        clean: script.bool(),
        recovery_point: bases[bases.len() - 1],
        ..OpenState::default()
    };
    let budget = bytes + FIXED_BYTES / MEMORY_FACTOR;
    let log = memory::bounded(budget, MEMORY_FACTOR, || open(&disk, state))?;
    let log = match log {
        Err(_) if !is_known => return Ok(()),
        log => log?,
    };
    let mut found = content(&log)?;
    if planted == Some("offsets-anew") {
        (0..)
            .zip(&mut found)
            .for_each(|(offset, one)| one.0 = offset);
    }
    if !is_damaged && !is_hostile {
        expect(found == written, || format!("{written:?} became {found:?}"))?;
    }
    let (found_values, written_values) = (values(&found), values(&written));
    let mut left = written_values.iter();
    let is_part = found_values
        .iter()
        .all(|one| left.any(|other| other == one));
    expect(is_mended || is_part, || {
        format!("{found:?} is no part of {written:?}")
    })?;
    drop(log);
    let again = content(&open(&disk, state)?)?;
    let again_values = values(&again);
    expect(again_values == found_values, || {
        format!("opened twice: {found:?} and {again:?}")
    })
}

/// Without offsets, which no checksum covers.
fn values(content: &Content) -> Vec<KeyAndValue> {
    let values = content.iter().map(|one| (one.1.clone(), one.2.clone()));
    values.collect()
}

/// Appends messages or a wrapper; true if it cannot be read.
fn append(
    script: &mut Script<'_>,
    content: &mut Vec<u8>,
    next: &mut i64,
    written: &mut Content,
) -> Result<bool, String> {
    let magic = script.pick(&[MAGIC_0, MAGIC_1]);
    let codec = script.pick(&[
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
    ]);
    let first = *next;
    let mut inner = Vec::new();
    let mut recs = Content::new();
    for _ in 0..1 + script.below(4) {
        *next += script.pick(&[0, 0, 0, 1, 30]);
        let (key, value) = (
            script.option(|script| script.bytes(8)),
            script.option(|script| script.bytes(40)),
        );
        let is_relative = magic == MAGIC_1 && codec != Compression::None;
        let offset = if is_relative { *next - first } else { *next };
        let timestamp = script.below(10_000) as i64;
        write_message(
            &mut inner,
            (magic, 0),
            offset,
            timestamp,
            key.as_deref(),
            value.as_deref(),
        );
        recs.push((*next, key, value));
        *next += 1;
    }
    if codec == Compression::None {
        content.extend(inner);
        written.extend(recs);
        return Ok(false);
    }
    let mut is_hostile = false;
    if script.one_in(6) {
        is_hostile = script.damage(&mut inner) != Damage::None;
    }
    if script.one_in(8) {
        is_hostile = true;
        inner = wrapped(magic, codec, &inner, *next - 1).map_err(text)?;
    }
    if script.one_in(20) {
        is_hostile = true;
        inner.resize(1 << 20, 0);
    }
    content.extend(wrapped(magic, codec, &inner, *next - 1).map_err(text)?);
    written.extend(recs);
    Ok(is_hostile)
}

fn wrapped(magic: i8, codec: Compression, inner: &[u8], last: i64) -> std::io::Result<Vec<u8>> {
    let mut out = Vec::new();
    let wrapper = begin_wrapper(&mut out, (magic, codec as i8));
    let header = match magic {
        MAGIC_0 => Lz4Header::Format0,
        _ => Lz4Header::Standard,
    };
    let mut stream = CompressedStream::new(codec, header, out)?;
    stream.write(inner)?;
    let mut out = stream.finish()?;
    end_wrapper(&mut out, wrapper, last, 9_999);
    Ok(out)
}

/// Sets each whole message's checksum right.
fn mend(bytes: &mut [u8]) -> bool {
    let (mut at, mut is_mended) = (0, false);
    while let Ok(Some(len)) = next_len(&bytes[at..]) {
        let Some(message) = bytes.get_mut(at..at + len) else {
            break;
        };
        let crc = crc32(&message[CRC_FROM..]).to_be_bytes();
        is_mended |= message[CRC_AT..CRC_FROM] != crc;
        message[CRC_AT..CRC_FROM].copy_from_slice(&crc);
        at += len;
    }
    is_mended
}

/// The records that can be read.
fn content(log: &Log) -> Result<Content, String> {
    let mut found = Content::new();
    let mut offset = log.log_start_offset();
    while offset < log.log_end_offset() {
        let location = log.locate(offset, Isolation::DurableEnd).map_err(text)?;
        let slice = location
            .resolve(1 << 20, true, Wait::Blocking)
            .map_err(text)?;
        let bytes = recovery::whole(&slice)?;
        let before = offset;
        for view in Batches::new(&bytes) {
            let view = view.map_err(text)?;
            found.extend(records(&view).into_iter().flatten());
            offset = offset.max(view.header.last_offset() + 1);
        }
        if bytes.is_empty() {
            break; // the last segment has nothing yet, and begins behind a gap
        }
        expect(offset > before, || format!("nothing is read at {before}"))?;
    }
    Ok(found)
}

fn records(view: &BatchView<'_>) -> Option<Content> {
    verify_crc(view.bytes).ok()?;
    let mut body = Vec::new();
    let codec = view.header.compression().ok()?;
    decompress(codec, view.body(), &mut body, EXPANDED_BYTES_MAX).ok()?;
    let records: Result<Vec<_>, _> = Records::new(&body).collect();
    let records = records.ok()?;
    (records.len() == view.header.record_count as usize).then_some(())?;
    let found = records.iter().map(|record| {
        let offset = view.header.base_offset + i64::from(record.offset_delta);
        (
            offset,
            record.key.map(<[u8]>::to_vec),
            record.value.map(<[u8]>::to_vec),
        )
    });
    Some(found.collect())
}
