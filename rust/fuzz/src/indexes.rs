//! The three indexes of a segment: written ones load, and a search in a loaded one agrees with a
//! list.

use pyrklog_log::AbortedTxn;
use pyrklog_log::offset_index::{OffsetEntry, OffsetIndex, OffsetIndexView};
use pyrklog_log::sparse_index;
use pyrklog_log::time_index::{self, TimeEntry, TimeIndexView};
use pyrklog_log::transaction_index::TransactionIndex;

use crate::script::{Damage, Script};
use crate::{Verdict, expect};

/// Searches one entry too far, on the heap or in a file; loads without checking the order; hides
/// transactions that began before the first offset.
pub const PLANTED: &[&str] = &[
    "search-off-by-one",
    "order-unchecked",
    "cold-time-off-by-one",
    "abort-not-told",
];

const BASE_OFFSET: i64 = 1000;
const INDEX_BYTES_MAX: usize = 4096;

pub fn run(script: &mut Script<'_>, planted: Option<&str>) -> Verdict {
    match script.below(3) {
        0 => offsets(script, planted),
        1 => times(script, planted),
        _ => transactions(script, planted),
    }
}

fn offsets(script: &mut Script<'_>, planted: Option<&str>) -> Verdict {
    let mut index = OffsetIndex::new(BASE_OFFSET, INDEX_BYTES_MAX);
    let (mut offset, mut position) = (BASE_OFFSET, 0);
    for _ in 0..script.below(12) {
        offset += 1 + script.below(40) as i64;
        position += 1 + script.below(5000) as u32;
        index
            .append(offset, position)
            .map_err(|error| format!("rising entries are refused: {error:?}"))?;
    }
    let mut bytes = index.as_bytes().to_vec();
    let damage = maybe_damage(script, &mut bytes);
    let log_size = u64::from(position) + 100;
    let view = if planted == Some("order-unchecked") {
        // The planted bug: whole entries are enough.
        bytes
            .len()
            .is_multiple_of(8)
            .then(|| OffsetIndexView::trusted(BASE_OFFSET, &bytes))
    } else {
        OffsetIndexView::checked(BASE_OFFSET, &bytes, log_size).ok()
    };
    let Some(view) = view else {
        return expect(damage != Damage::None, || {
            "what was written is refused".into()
        });
    };
    let entries: Vec<OffsetEntry> = view.iter().collect();
    let rises = |pair: &[OffsetEntry]| {
        pair[0].offset < pair[1].offset && pair[0].position < pair[1].position
    };
    expect(entries.windows(2).all(rises), || {
        format!("entries that do not rise are accepted: {entries:?}")
    })?;
    for _ in 0..4 {
        let target = BASE_OFFSET + script.below(600) as i64 - 20;
        let target = if script.bool() && !entries.is_empty() {
            script.pick(&entries).offset
        } else {
            target
        };
        let at_start = OffsetEntry {
            offset: BASE_OFFSET,
            position: 0,
        };
        let fits = |entry: &&OffsetEntry| entry.offset <= target;
        let wanted = entries.iter().rev().find(fits).copied().unwrap_or(at_start);
        let found = if planted == Some("search-off-by-one") {
            view.lookup(target - 1)
        } else {
            view.lookup(target)
        };
        expect(found == wanted, || {
            format!("{target} in {entries:?}: found {found:?}, not {wanted:?}")
        })?;
    }
    Ok(())
}

fn times(script: &mut Script<'_>, planted: Option<&str>) -> Verdict {
    let mut bytes = Vec::new();
    let (mut timestamp, mut offset) = (5000, BASE_OFFSET);
    for _ in 0..script.below(12) {
        timestamp += 1 + script.below(40) as i64;
        offset += 1 + script.below(40) as i64;
        bytes.extend(i64::to_be_bytes(timestamp));
        bytes.extend(((offset - BASE_OFFSET) as u32).to_be_bytes());
    }
    let damage = maybe_damage(script, &mut bytes);
    let Ok(view) = TimeIndexView::checked(BASE_OFFSET, &bytes) else {
        return expect(damage != Damage::None, || {
            "what was written is refused".into()
        });
    };
    let entries: Vec<TimeEntry> = view.iter().collect();
    for _ in 0..4 {
        let target = 4990 + script.below(600) as i64;
        let fits = |entry: &&TimeEntry| entry.timestamp <= target;
        let wanted = entries.iter().rev().find(fits).copied();
        let found = view.lookup(target);
        let holds = match wanted {
            Some(wanted) => found == wanted,
            None => found.offset == BASE_OFFSET,
        };
        expect(holds, || {
            format!("{target} in {entries:?}: found {found:?}, not {wanted:?}")
        })?;
        // The same without loading the file.
        let asked = match planted {
            Some("cold-time-off-by-one") => target - 1,
            _ => target,
        };
        let cold: TimeEntry = sparse_index::search(entries.len(), BASE_OFFSET, asked, |i| {
            let entry =
                bytes[i * time_index::ENTRY_BYTES..].first_chunk::<{ time_index::ENTRY_BYTES }>();
            entry.copied().ok_or("beyond the end")
        })?;
        expect(cold == found, || {
            format!("{target} in {entries:?}: on the heap {found:?}, in the file {cold:?}")
        })?;
    }
    Ok(())
}

fn transactions(script: &mut Script<'_>, planted: Option<&str>) -> Verdict {
    let mut index = TransactionIndex::new(BASE_OFFSET);
    let (mut last, mut stable) = (BASE_OFFSET, 0);
    for _ in 0..script.below(8) {
        let first_offset = last - script.below(30) as i64;
        last += 1 + script.below(40) as i64;
        let producer_id = script.below(5) as i64;
        stable = stable.max(last + 1 - script.below(20) as i64);
        let txn = AbortedTxn {
            producer_id,
            first_offset: first_offset.max(0),
            last_offset: last,
            last_stable_offset: stable,
        };
        index
            .append(txn)
            .map_err(|error| format!("rising entries are refused: {error:?}"))?;
    }
    let entries = index.entries().to_vec();
    let mut bytes = index.to_bytes();
    let damage = maybe_damage(script, &mut bytes);
    match TransactionIndex::load(BASE_OFFSET, &bytes) {
        Ok(loaded) if damage == Damage::None => {
            expect(loaded.entries() == entries, || {
                format!("written {entries:?}, read {:?}", loaded.entries())
            })?;
            collected(script, &loaded, planted)
        }
        Ok(loaded) => {
            let rises = |pair: &[AbortedTxn]| pair[0].last_offset < pair[1].last_offset;
            expect(loaded.entries().windows(2).all(rises), || {
                format!(
                    "entries that do not rise are accepted: {:?}",
                    loaded.entries()
                )
            })
        }
        Err(error) => expect(damage != Damage::None, || {
            format!("what was written is refused: {error}")
        }),
    }
}

/// A reader gets every transaction that touches its range, up to the entry after which all began
/// later.
fn collected(script: &mut Script<'_>, index: &TransactionIndex, planted: Option<&str>) -> Verdict {
    let from = BASE_OFFSET + script.below(250) as i64;
    let to = from + 1 + script.below(150) as i64;
    let mut found = Vec::new();
    let is_all = index.collect(from, to, usize::MAX, &mut found);
    if planted == Some("abort-not-told") {
        found.retain(|txn| txn.first_offset >= from);
    }
    let entries = index.entries();
    let last = entries.iter().position(|txn| txn.last_stable_offset >= to);
    expect(is_all == last.is_some(), || {
        format!("{from} to {to} in {entries:?}: all is {is_all}")
    })?;
    let asked = &entries[..last.map_or(entries.len(), |last| last + 1)];
    let touches = |txn: &&AbortedTxn| txn.last_offset >= from && txn.first_offset < to;
    let wanted: Vec<_> = asked.iter().filter(touches).copied().collect();
    expect(found == wanted, || {
        format!("{from} to {to} in {entries:?}: found {found:?}, not {wanted:?}")
    })
}

fn maybe_damage(script: &mut Script<'_>, bytes: &mut Vec<u8>) -> Damage {
    if script.bool() {
        script.damage(bytes)
    } else {
        Damage::None
    }
}
