//! The rows of a `.txnindex`, checked against the markers in its segment.

use std::io;

use super::header_scan::HeaderScan;
use super::index_rows::open_log;
use super::{Options, Row, RowSource, Source, Value, damage, read_whole};
use crate::transaction_index::{AbortedTxn, ENTRY_BYTES};

pub(super) fn open(
    file: &dyn Source,
    log: Option<Box<dyn Source>>,
    base_offset: i64,
    options: Options,
) -> io::Result<Box<dyn RowSource>> {
    let bytes = read_whole(file)?;
    let (mut log, mut rows) = open_log(log, options)?;
    let mut before = base_offset - 1;
    for (i, chunk) in bytes.chunks(ENTRY_BYTES).enumerate() {
        let position = (i * ENTRY_BYTES) as u64;
        let Some(entry) = chunk.first_chunk() else {
            let message = format!(
                "the file ends with {} bytes, less than an entry of {ENTRY_BYTES}",
                chunk.len()
            );
            rows.push(damage(position, None, message));
            break;
        };
        let (version, txn) = AbortedTxn::decode(entry);
        rows.push(entry_row(i, version, &txn));
        let mut faults = order_faults(version, &txn, before);
        if let Some(log) = &mut log {
            faults.extend(marker_fault(log, &txn)?);
        }
        let offset = Some(txn.last_offset);
        rows.extend(
            faults
                .into_iter()
                .map(|message| damage(position, offset, message)),
        );
        before = before.max(txn.last_offset);
    }
    Ok(Box::new(rows))
}

fn entry_row(i: usize, version: i16, txn: &AbortedTxn) -> Row {
    vec![
        ("kind", Value::text("aborted_txn")),
        ("entry", Value::Int(i as i64)),
        ("version", Value::Int(version.into())),
        ("producer_id", Value::Int(txn.producer_id)),
        ("first_offset", Value::Int(txn.first_offset)),
        ("last_offset", Value::Int(txn.last_offset)),
        ("last_stable_offset", Value::Int(txn.last_stable_offset)),
    ]
}

fn order_faults(version: i16, txn: &AbortedTxn, before: i64) -> Vec<String> {
    let mut faults = Vec::new();
    if version != 0 {
        faults.push(format!("version {version} is unknown"));
    }
    if txn.last_offset <= before {
        faults.push(format!(
            "the marker at {} does not rise above {before}",
            txn.last_offset
        ));
    }
    if txn.first_offset > txn.last_offset {
        faults.push(format!(
            "the transaction begins at {}, behind its marker at {}",
            txn.first_offset, txn.last_offset
        ));
    }
    faults
}

/// Walks to the marker's offset: the batch there must end a transaction of the producer.
fn marker_fault(log: &mut HeaderScan, txn: &AbortedTxn) -> io::Result<Option<String>> {
    while let Some((_, header)) = log.peek()? {
        if header.base_offset > txn.last_offset {
            break;
        }
        log.skip(&header);
        if header.base_offset == txn.last_offset {
            let fits = header.is_control() && header.producer_id == txn.producer_id;
            return Ok((!fits).then(|| {
                format!(
                    "offset {} holds no marker of producer {}",
                    txn.last_offset, txn.producer_id
                )
            }));
        }
    }
    Ok(Some(format!(
        "no batch begins at offset {}",
        txn.last_offset
    )))
}
