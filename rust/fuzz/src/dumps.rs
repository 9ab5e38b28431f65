//! `pyrklog log dump` of a folder's files: a sound file shows no damage, a flipped bit in a batch
//! does, and any bytes are read to their end within memory bounds.

use std::path::Path;

use pyrklog_log::dump::{Beside, Options, Row, Source, Value, dump};

use crate::history::History;
use crate::script::Script;
use crate::{Verdict, expect, memory};

/// Passes damage silently; stops at the first damage.
pub const PLANTED: &[&str] = &["damage-not-told", "no-row-of-a-sound-batch"];

/// Limit of rows per byte of a file: each index entry may be damaged as well.
const ROWS_A_BYTE: usize = 4;
/// Rows repeat keys, values and names.
const MEMORY_FACTOR: usize = 4_000;
/// Where the bytes under a batch's checksum begin.
const CRC_START: usize = 21;

pub fn run(script: &mut Script<'_>, planted: Option<&str>) -> Verdict {
    let history = History::make(script)?;
    let files = history.files();
    let path = &files[script.below(files.len())];
    let content = history.content(path);
    // An index is held against its segment.
    let log = || Some(history.content(&path.with_extension("log")));
    let sound = rows(path, content.clone(), log(), planted)?;
    expect(!sound.iter().any(is_damage), || format!("sound: {sound:?}"))?;

    let is_log = path.extension().is_some_and(|kind| kind == "log");
    if is_log {
        let batches = sound.iter().filter(|row| is_kind(row, "batch")).count();
        expect(content.is_empty() || batches > 0, || {
            format!("{} bytes without a batch", content.len())
        })?;
    }
    if is_log && content.len() > CRC_START {
        let mut flipped = content.clone();
        // In the first batch, where only the checksum detects it.
        flipped[CRC_START + 2] ^= 1 << script.below(8);
        let found = rows(path, flipped, None, planted)?;
        expect(found.iter().any(is_damage), || {
            format!("a flipped bit is not told: {found:?}")
        })?;
    }
    let mut damaged = content;
    script.damage(&mut damaged);
    match rows(path, damaged, log(), planted) {
        Err(problem) if problem.starts_with("dump: ") => Ok(()),
        other => other.map(drop),
    }
}

fn rows(
    path: &Path,
    content: Vec<u8>,
    log: Option<Vec<u8>>,
    planted: Option<&str>,
) -> Result<Vec<Row>, String> {
    let rows_max = 16 + ROWS_A_BYTE * content.len();
    let bytes = content.len() + log.as_ref().map_or(0, Vec::len) + 1_000;
    let mut rows = memory::bounded(bytes, MEMORY_FACTOR, || {
        collect(path, content, log, rows_max)
    })??;
    expect(rows.len() <= rows_max, || "more rows than bytes".into())?;
    match planted {
        Some("damage-not-told") => rows.retain(|row| !is_damage(row)),
        Some("no-row-of-a-sound-batch") => rows.retain(|row| !is_kind(row, "batch")),
        _ => {}
    }
    Ok(rows)
}

fn collect(
    path: &Path,
    content: Vec<u8>,
    log: Option<Vec<u8>>,
    rows_max: usize,
) -> Result<Vec<Row>, String> {
    let options = Options {
        records: true,
        verify: true,
    };
    let beside = Beside {
        log: log.map(|log| Box::new(log) as Box<dyn Source>),
        leader_epochs: None,
    };
    let dump = dump(path, Box::new(content), beside, options);
    let dump = dump.map_err(|error| format!("dump: {error}"))?;
    dump.take(rows_max + 1)
        .map(|row| row.map_err(|error| format!("dump: {error}")))
        .collect()
}

fn is_damage(row: &Row) -> bool {
    is_kind(row, "damage")
}

fn is_kind(row: &Row, kind: &str) -> bool {
    let named =
        |(name, value): &(&str, Value)| *name == "kind" && *value == Value::Text(kind.to_owned());
    row.iter().any(named)
}
