//! The small text files of a log directory: parsed as written; damaged ones parsed or refused.

use pyrklog_log::checkpoint::{self, OffsetRow};
use pyrklog_log::leader_epochs::LeaderEpochs;
use pyrklog_log::meta_properties::MetaProperties;
use pyrklog_log::partition_metadata::{PartitionMetadata, encode_uuid, parse_uuid};

use crate::script::Script;
use crate::{Verdict, expect, memory};

/// Ignores the count of lines; drops the last line.
pub const PLANTED: &[&str] = &["count-ignored", "last-line-lost"];

const PATH: &str = "checkpoint";
const MEMORY_FACTOR: usize = 64;

pub fn run(script: &mut Script<'_>, planted: Option<&str>) -> Verdict {
    match script.below(4) {
        0 => offsets(script, planted),
        1 => epochs(script),
        2 => properties(script),
        _ => metadata(script),
    }
}

fn offsets(script: &mut Script<'_>, planted: Option<&str>) -> Verdict {
    let rows = script.list(6, |script| OffsetRow {
        topic: script.topic(),
        partition: script.below(100) as i32,
        offset: script.i64(),
    });
    let mut bytes = checkpoint::encode_offsets(&rows).into_bytes();
    expect(parse(&bytes, planted).as_ref() == Ok(&rows), || {
        format!("{rows:?} are read as {:?}", parse(&bytes, planted))
    })?;
    if script.bool() {
        // A whole line more or less than the count says.
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let mut lines: Vec<&str> = text.lines().collect();
        if script.bool() {
            lines.push("more 0 7");
        } else if !rows.is_empty() {
            lines.pop();
        } else {
            return Ok(());
        }
        let changed = lines.join("\n") + "\n";
        return expect(parse(changed.as_bytes(), planted).is_err(), || {
            format!("{changed:?} is accepted")
        });
    }
    script.damage(&mut bytes);
    memory::bounded(bytes.len(), MEMORY_FACTOR, || {
        parse(&bytes, planted).is_ok()
    })?;
    memory::bounded(bytes.len(), MEMORY_FACTOR, || {
        checkpoint::parse_clean_shutdown(&bytes).is_some()
    })?;
    Ok(())
}

fn parse(bytes: &[u8], planted: Option<&str>) -> Result<Vec<OffsetRow>, String> {
    let read =
        |bytes: &[u8]| checkpoint::parse_offsets(PATH, bytes).map_err(|error| error.to_string());
    match planted {
        Some("count-ignored") => {
            let text = String::from_utf8_lossy(bytes);
            let lines: Vec<&str> = text.lines().collect();
            let rows = lines.get(2..).unwrap_or_default();
            read(format!("0\n{}\n{}\n", rows.len(), rows.join("\n")).as_bytes())
        }
        Some("last-line-lost") => read(bytes).map(|mut rows| {
            rows.pop();
            rows
        }),
        _ => read(bytes),
    }
}

fn epochs(script: &mut Script<'_>) -> Verdict {
    let mut epochs = LeaderEpochs::new();
    let (mut epoch, mut offset) = (0, 0);
    for _ in 0..script.below(6) {
        epoch += 1 + script.below(3) as i32;
        offset += script.below(50) as i64;
        epochs.assign(epoch, offset);
    }
    let mut bytes = epochs.encode().into_bytes();
    let read = LeaderEpochs::parse(PATH, &bytes).map_err(|error| error.to_string())?;
    expect(read.entries() == epochs.entries(), || {
        format!("{:?} is read as {:?}", epochs.entries(), read.entries())
    })?;
    script.damage(&mut bytes);
    if let Ok(read) = LeaderEpochs::parse(PATH, &bytes) {
        let rises = read.entries().windows(2).all(|pair| {
            pair[0].epoch < pair[1].epoch && pair[0].start_offset < pair[1].start_offset
        });
        expect(rises, || {
            format!("epochs that do not rise are kept: {:?}", read.entries())
        })?;
        let (target, end) = (script.below(20) as i32, script.below(400) as i64);
        let (found, _) = read.end_offset_for(target, end);
        expect(found <= target, || {
            format!("epoch {target} is answered with {found}")
        })?;
    }
    Ok(())
}

fn properties(script: &mut Script<'_>) -> Verdict {
    let written = MetaProperties {
        version: script.below(2) as i32,
        node_id: Some(script.below(1 << 20) as i32),
        cluster_id: Some(format!("c{}", script.topic())),
        directory_id: script.bool().then(|| [1 + script.below(200) as u8; 16]),
    };
    let mut bytes = written.encode().into_bytes();
    let read = MetaProperties::parse(PATH, &bytes).map_err(|error| error.to_string())?;
    expect(read == written, || {
        format!("{written:?} is read as {read:?}")
    })?;
    script.damage(&mut bytes);
    memory::bounded(bytes.len(), MEMORY_FACTOR, || {
        MetaProperties::parse(PATH, &bytes).is_ok()
    })?;
    Ok(())
}

fn metadata(script: &mut Script<'_>) -> Verdict {
    let mut topic_id = [0; 16];
    topic_id[..8].copy_from_slice(&script.i64().to_be_bytes());
    topic_id[15] = 1;
    let written = PartitionMetadata {
        version: 0,
        topic_id,
        is_partial: false,
    };
    expect(
        parse_uuid(&encode_uuid(&topic_id)) == Some(topic_id),
        || format!("{topic_id:?} is not read back"),
    )?;
    let mut bytes = written.encode().into_bytes();
    let read = PartitionMetadata::parse(PATH, &bytes).map_err(|error| error.to_string())?;
    expect(read == written, || {
        format!("{written:?} is read as {read:?}")
    })?;
    script.damage(&mut bytes);
    let read = memory::bounded(bytes.len(), MEMORY_FACTOR, || {
        PartitionMetadata::parse(PATH, &bytes)
    })?;
    let is_none = read.is_ok_and(|read| read.topic_id == [0; 16]);
    expect(!is_none, || "the id of nothing is accepted".into())
}
