//! Appends to internal topics and reads of them, as the control plane makes them.

use std::path::{Path, PathBuf};

use pyrklog_dataplane::seam::*;
use pyrklog_log::disk::RealDisk;
use pyrklog_wire::ErrorCode;

use super::{TestPlane, config};

pub const TOPIC: &str = "__consumer_offsets";
pub const NONE: i16 = ErrorCode::NONE.0;

pub type Pairs<'a> = &'a [(&'a str, Option<&'a str>)];

pub fn terms() -> InternalAppend<'static> {
    InternalAppend {
        topic: TOPIC,
        partition: 0,
        timestamp_ms: 1_700_000_000_000,
        codec: 0,
        expected_epoch: 0,
        producer: None,
        guard: None,
    }
}

pub fn append(test: &TestPlane, terms: &InternalAppend<'_>, pairs: Pairs<'_>) -> TicketId {
    let records = pairs
        .iter()
        .map(|(key, value)| (key.as_bytes(), value.map(str::as_bytes)));
    test.plane.append_internal(terms, records).unwrap()
}

/// Error code and base offset.
pub fn appended(test: &mut TestPlane, ticket: TicketId) -> (i16, i64) {
    match test.ticket(ticket) {
        TicketOutcome::InternalAppended {
            error_code,
            base_offset,
        } => (error_code, base_offset),
        other => panic!("{other:?}"),
    }
}

pub fn append_now(
    test: &mut TestPlane,
    terms: &InternalAppend<'_>,
    pairs: Pairs<'_>,
) -> (i16, i64) {
    let ticket = append(test, terms, pairs);
    appended(test, ticket)
}

pub fn read(test: &mut TestPlane, offset: i64, max_bytes: usize) -> InternalRead {
    let ticket = test.plane.read_internal(TOPIC, 0, offset, max_bytes);
    match test.ticket(ticket.unwrap()) {
        TicketOutcome::InternalRead(read) => read,
        other => panic!("{other:?}"),
    }
}

/// (base offset, last offset, damaged).
pub fn outline(read: &InternalRead) -> Vec<(i64, i64, bool)> {
    let of = |batch: &InternalBatch| (batch.base_offset, batch.last_offset, batch.damage.is_some());
    read.batches.iter().map(of).collect()
}

pub fn segment(dir: &Path) -> PathBuf {
    dir.join(format!("logs/{TOPIC}-0/{:020}.log", 0))
}

pub fn start(dir: &Path) -> TestPlane {
    let mut test = TestPlane::start(dir);
    test.create(TOPIC, 1);
    test
}

/// Without a cache: reads must come from the files.
pub fn start_through(dir: &Path) -> TestPlane {
    let config = config(vec![dir.join("logs")]);
    let mut test = TestPlane::start_with(config, std::sync::Arc::new(RealDisk));
    test.create(TOPIC, 1);
    test
}
