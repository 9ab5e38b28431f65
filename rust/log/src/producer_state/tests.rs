use super::entry::BATCHES_MAX;
use super::*;
use crate::snapshot;
use pyrklog_wire::batch::BatchHeader;
use pyrklog_wire::builder::{BatchBuilder, transaction_marker};

mod repetitions;

const PRODUCER: i64 = 77;

fn data(epoch: i16, base_sequence: i32, count: i32) -> BatchInfo {
    let mut builder = BatchBuilder::new().producer(PRODUCER, epoch, base_sequence);
    for _ in 0..count {
        builder.append(1000, None, Some(b"v"));
    }
    info(&builder.build())
}

fn transactional(producer_id: i64, base_sequence: i32) -> BatchInfo {
    let mut builder = BatchBuilder::new()
        .producer(producer_id, 0, base_sequence)
        .transactional();
    builder.append(1000, None, Some(b"v"));
    info(&builder.build())
}

fn marker(producer_id: i64, epoch: i16, commit: bool, coordinator_epoch: i32) -> BatchInfo {
    let batch = transaction_marker(producer_id, epoch, commit, coordinator_epoch, 2000);
    BatchInfo::parse(&batch).expect("a marker")
}

fn info(batch: &[u8]) -> BatchInfo {
    BatchInfo::from_header(BatchHeader::parse(batch).expect("a batch"))
}

/// A log that only assigns offsets.
#[derive(Default)]
struct Offsets {
    states: ProducerStates,
    end: i64,
}

impl Offsets {
    fn append(&mut self, info: &BatchInfo, origin: Origin) -> Result<Check, ProducerError> {
        let check = self.states.check(info, origin)?;
        if !matches!(check, Check::Duplicate(_)) {
            self.push(info);
        }
        Ok(check)
    }

    fn push(&mut self, info: &BatchInfo) -> Option<AbortedTxn> {
        let completed = self.states.update(info, self.end, None);
        self.end += i64::from(info.last_offset_delta) + 1;
        completed
    }
}

fn out_of_order(
    epoch: i16,
    first: i32,
    last_epoch: i16,
    last: i32,
) -> Result<Check, ProducerError> {
    Err(ProducerError::OutOfOrderSequence {
        producer_id: PRODUCER,
        epoch,
        first_sequence: first,
        last_epoch,
        last_sequence: last,
    })
}

fn duplicate(base_offset: i64, last_offset: i64) -> Result<Check, ProducerError> {
    Ok(Check::Duplicate(DuplicateBatch {
        base_offset,
        last_offset,
        timestamp: 1000,
    }))
}

#[test]
fn batches_without_producer_id_are_not_looked_at() {
    let mut log = Offsets::default();
    let mut batch = data(0, 0, 1);
    batch.header.producer_id = -1;
    assert_eq!(log.append(&batch, Origin::Client), Ok(Check::NotIdempotent));
    assert!(log.states.is_empty());
}

#[test]
fn sequences_follow_one_another() {
    let mut log = Offsets::default();
    assert_eq!(log.append(&data(0, 0, 3), Origin::Client), Ok(Check::New));
    assert_eq!(log.append(&data(0, 3, 1), Origin::Client), Ok(Check::New));
    assert_eq!(
        log.append(&data(0, 5, 1), Origin::Client),
        out_of_order(0, 5, 0, 3)
    );
    assert_eq!(
        log.append(&data(0, 3, 2), Origin::Client),
        out_of_order(0, 3, 0, 3)
    );
    assert_eq!(log.append(&data(0, 4, 1), Origin::Client), Ok(Check::New));
    let code = log
        .append(&data(0, 9, 1), Origin::Client)
        .map_err(|error| error.code());
    assert_eq!(code, Err(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER));
}

#[test]
fn a_check_changes_nothing() {
    let mut log = Offsets::default();
    log.append(&data(0, 0, 3), Origin::Client).expect("first");
    for _ in 0..3 {
        assert_eq!(
            log.states.check(&data(0, 3, 1), Origin::Client),
            Ok(Check::New)
        );
    }
}

#[test]
fn a_retry_of_one_of_the_last_five_gets_its_offsets_back() {
    let mut log = Offsets::default();
    for i in 0..6 {
        log.append(&data(0, i * 10, 10), Origin::Client)
            .expect("in order");
    }
    // Five in flight may be resent in any order.
    for i in [5, 1, 3, 2, 4] {
        let first = i64::from(i) * 10;
        let again = log.append(&data(0, i * 10, 10), Origin::Client);
        assert_eq!(again, duplicate(first, first + 9), "batch {i}");
    }
    // The sixth to last is forgotten.
    assert_eq!(
        log.append(&data(0, 0, 10), Origin::Client),
        out_of_order(0, 0, 0, 59)
    );
    // A part of a remembered batch is no duplicate.
    assert_eq!(
        log.append(&data(0, 50, 5), Origin::Client),
        out_of_order(0, 50, 0, 59)
    );
    assert_eq!(log.end, 60);
    assert_eq!(BATCHES_MAX, 5);
}

#[test]
fn sequences_wrap_to_zero() {
    let mut log = Offsets::default();
    log.append(&data(0, i32::MAX - 1, 1), Origin::Client)
        .expect("unknown producers start anywhere");
    // MAX, 0, 1
    assert_eq!(
        log.append(&data(0, i32::MAX, 3), Origin::Client),
        Ok(Check::New)
    );
    assert_eq!(
        log.append(&data(0, i32::MAX, 3), Origin::Client),
        duplicate(1, 3)
    );
    assert_eq!(log.append(&data(0, 2, 1), Origin::Client), Ok(Check::New));
    let mut log = Offsets::default();
    log.append(&data(0, i32::MAX, 1), Origin::Client)
        .expect("ends at the largest");
    assert_eq!(log.append(&data(0, 0, 1), Origin::Client), Ok(Check::New));
    assert_eq!(log.append(&data(0, 0, 1), Origin::Client), duplicate(1, 1));
}

#[test]
fn a_new_epoch_starts_at_zero_and_fences_the_old() {
    let mut log = Offsets::default();
    log.append(&data(3, 7, 1), Origin::Client)
        .expect("unknown producers start anywhere");
    assert_eq!(
        log.append(&data(4, 8, 1), Origin::Client),
        out_of_order(4, 8, 3, 7)
    );
    assert_eq!(log.append(&data(4, 0, 1), Origin::Client), Ok(Check::New));
    let fenced = log.append(&data(3, 8, 1), Origin::Client);
    let expected = ProducerError::InvalidEpoch {
        producer_id: PRODUCER,
        epoch: 3,
        last_epoch: 4,
    };
    assert_eq!(expected.code(), ErrorCode::INVALID_PRODUCER_EPOCH);
    assert_eq!(fenced, Err(expected));
    // The old epoch's batches are no duplicates of the new one's.
    assert_eq!(
        log.append(&data(4, 7, 1), Origin::Client),
        out_of_order(4, 7, 4, 0)
    );
}

/// An idle producer's state expires; its next batch may have any sequence.
#[test]
fn an_idle_producer_goes_on_after_its_state_expired() {
    let mut log = Offsets::default();
    log.append(&data(0, 0, 5), Origin::Client).expect("first");
    assert_eq!(log.states.expire(1999, 1000), 0);
    assert_eq!(log.states.expire(2000, 1000), 1);
    assert_eq!(log.append(&data(0, 5, 5), Origin::Client), Ok(Check::New));
    assert_eq!(log.append(&data(0, 10, 1), Origin::Client), Ok(Check::New));
}

#[test]
fn batches_out_of_turn_are_early_or_late() {
    let mut offsets = Offsets::default();
    let ask = |offsets: &Offsets, batch: BatchInfo| offsets.states.out_of_turn(&batch);
    assert_eq!(
        ask(&offsets, data(0, 2, 2)),
        None,
        "its producer is unknown"
    );
    let mut next = i32::MAX - 3;
    for _ in 0..7 {
        offsets.append(&data(1, next, 2), Origin::Client).unwrap();
        next = next.wrapping_add(2) & i32::MAX;
    }
    // Offsets 0 to 13; the last five batches begin at sequence 0.
    let (early, late) = (
        Some(OutOfTurn::Early),
        Some(OutOfTurn::Late { end_offset: 4 }),
    );
    for (batch, expected) in [
        (data(1, next, 1), None),
        (data(1, next + 1, 1), early),
        (data(1, next - 2, 2), None),
        (data(1, next - 1, 2), None),
        (data(1, i32::MAX - 3, 2), late),
        (data(1, i32::MAX - 1, 2), late),
        (data(1, i32::MAX - 9, 2), None),
        (data(2, 0, 1), None),
        (data(2, 1, 1), early),
        (data(0, 9, 1), None),
        (marker(PRODUCER, 1, true, 0), None),
    ] {
        assert_eq!(ask(&offsets, batch), expected, "{batch:?}");
    }
}

#[test]
fn a_batch_at_sequence_zero_may_lack_the_one_before() {
    let mut offsets = Offsets::default();
    offsets
        .append(&data(1, i32::MAX - 3, 2), Origin::Client)
        .unwrap();
    assert!(!offsets.states.has_all_before(&data(1, 0, 1)));
    offsets
        .append(&data(1, i32::MAX - 1, 2), Origin::Client)
        .unwrap();
    assert!(offsets.states.has_all_before(&data(1, 0, 1)));
}

#[test]
fn an_open_transaction_keeps_its_producer_from_expiring() {
    let mut log = Offsets::default();
    log.append(&transactional(PRODUCER, 0), Origin::Client)
        .expect("begins");
    assert_eq!(log.states.expire(i64::MAX, 1), 0);
    log.push(&marker(PRODUCER, 0, true, 0));
    assert_eq!(log.states.expire(i64::MAX, 1), 1);
}

#[test]
fn coordinators_have_epochs_but_no_sequences() {
    let mut log = Offsets::default();
    for _ in 0..3 {
        assert_eq!(
            log.append(&data(1, -1, 1), Origin::Coordinator),
            Ok(Check::New)
        );
    }
    assert!(log.append(&data(0, -1, 1), Origin::Coordinator).is_err());
}

#[test]
fn replicas_accept_batches_of_the_leader_unchecked() {
    let mut log = Offsets::default();
    for batch in [data(5, 9, 1), data(5, 3, 1), data(4, 0, 1), data(4, 0, 1)] {
        assert_eq!(log.append(&batch, Origin::Replication), Ok(Check::New));
    }
}

#[test]
fn a_transaction_is_unstable_until_its_marker_is_replicated() {
    let mut log = Offsets {
        end: 10,
        ..Offsets::default()
    };
    assert_eq!(log.states.first_unstable(), None);
    let place = SegmentPosition {
        segment_base: 0,
        position: 4242,
    };
    log.states
        .update(&transactional(PRODUCER, 0), 10, Some(place));
    log.end = 11;
    log.push(&transactional(PRODUCER, 1));
    let start = TxnStart {
        producer_id: PRODUCER,
        first_offset: 10,
        place: Some(place),
    };
    assert_eq!(log.states.first_unstable(), Some(start));
    assert_eq!(log.states.first_open(), Some(start));
    log.states.on_high_watermark(12);
    assert_eq!(log.states.first_unstable(), Some(start));
    assert_eq!(log.push(&marker(PRODUCER, 0, true, 0)), None, "committed");
    assert_eq!(log.states.first_open(), None);
    // The marker is in the log, but not below the high watermark.
    log.states.on_high_watermark(12);
    assert_eq!(log.states.first_unstable(), Some(start));
    log.states.on_high_watermark(13);
    assert_eq!(log.states.first_unstable(), None);
    assert_eq!(log.states.first_open(), None);
}

#[test]
fn an_abort_names_the_next_open_transaction_as_last_stable_offset() {
    let mut log = Offsets::default();
    log.push(&transactional(1, 0));
    log.push(&transactional(2, 0));
    log.push(&transactional(1, 1));
    let aborted = log.push(&marker(1, 0, false, 0)).expect("aborted");
    let expected = AbortedTxn {
        producer_id: 1,
        first_offset: 0,
        last_offset: 3,
        last_stable_offset: 1,
    };
    assert_eq!(aborted, expected);
    let aborted = log.push(&marker(2, 0, false, 0)).expect("aborted");
    assert_eq!(aborted.last_stable_offset, 5);
}

#[test]
fn a_marker_without_records_here_moves_nothing() {
    let mut log = Offsets::default();
    assert_eq!(log.push(&marker(PRODUCER, 3, false, 8)), None);
    assert_eq!(log.states.first_unstable(), None);
    // But it fences older epochs, and older coordinators.
    assert!(log.states.check(&data(2, 0, 1), Origin::Client).is_err());
    let zombie = log
        .states
        .check(&marker(PRODUCER, 3, true, 7), Origin::Coordinator);
    let code = zombie.map_err(|error| error.code());
    assert_eq!(code, Err(ErrorCode::TRANSACTION_COORDINATOR_FENCED));
    assert_eq!(log.append(&data(3, 0, 1), Origin::Client), Ok(Check::New));
}

#[test]
fn a_batch_outside_an_open_transaction_is_refused() {
    let mut log = Offsets::default();
    log.push(&transactional(PRODUCER, 0));
    let refused = log
        .append(&data(0, 1, 1), Origin::Client)
        .map_err(|error| error.code());
    assert_eq!(refused, Err(ErrorCode::INVALID_TXN_STATE));
}

#[test]
fn sequences_go_on_over_a_marker_of_the_same_epoch() {
    let mut log = Offsets::default();
    log.push(&transactional(PRODUCER, 0));
    log.push(&marker(PRODUCER, 0, true, 0));
    assert_eq!(
        log.append(&transactional(PRODUCER, 1), Origin::Client),
        Ok(Check::New)
    );
    // A marker with a higher epoch (the coordinator fenced the producer) starts over.
    log.push(&marker(PRODUCER, 1, false, 0));
    let mut next = transactional(PRODUCER, 2);
    next.header.producer_epoch = 1;
    assert_eq!(log.append(&next, Origin::Client), out_of_order(1, 2, 1, -1));
    next.header.base_sequence = 0;
    assert_eq!(log.append(&next, Origin::Client), Ok(Check::New));
}

/// Entries are copied in any order under the log's lock; the writer sorts them.
#[test]
fn a_snapshot_of_many_producers_is_in_order() {
    let mut log = Offsets::default();
    for producer_id in (0..2000).map(|number| number * 7919 % 2003) {
        let mut info = data(0, 0, 1);
        info.header.producer_id = producer_id;
        log.push(&info);
    }
    let bytes = snapshot::encode_sorted(log.states.entries_unsorted());
    assert_eq!(bytes, snapshot::encode(&log.states.snapshot_entries()));
    let entries = snapshot::decode(&bytes).expect("as written");
    let is_before = |pair: &[ProducerEntry]| pair[0].producer_id < pair[1].producer_id;
    assert!(entries.len() == 2000 && entries.windows(2).all(is_before));
}

#[test]
fn a_snapshot_brings_back_the_last_batch_and_the_open_transaction() {
    let mut log = Offsets::default();
    for sequence in 0..3 {
        log.push(&transactional(PRODUCER, sequence));
    }
    log.push(&transactional(5, 0));
    log.push(&marker(5, 0, true, 9));
    let bytes = snapshot::encode(&log.states.snapshot_entries());
    let entries = snapshot::decode(&bytes).expect("as written");
    let ids: Vec<_> = entries.iter().map(|entry| entry.producer_id).collect();
    assert_eq!(ids, [5, PRODUCER]);
    assert_eq!(
        (entries[0].coordinator_epoch, entries[0].timestamp),
        (9, 2000)
    );

    let mut states = ProducerStates::new();
    states.load(&entries, 3000, 10_000);
    assert_eq!(states.snapshot_entries(), entries);
    assert_eq!(
        states.first_unstable().map(|start| start.first_offset),
        Some(0)
    );
    assert_eq!(
        states.check(&transactional(PRODUCER, 2), Origin::Client),
        duplicate(2, 2)
    );
    assert!(
        states
            .check(&transactional(PRODUCER, 1), Origin::Client)
            .is_err()
    );
    assert_eq!(
        states.check(&transactional(PRODUCER, 3), Origin::Client),
        Ok(Check::New)
    );

    // Producer 5 has expired; the other has an open transaction.
    states.load(&entries, 20_000, 10_000);
    assert_eq!(states.len(), 1);
}

#[test]
fn a_log_start_above_a_marker_ends_its_wait() {
    let mut log = Offsets::default();
    log.push(&transactional(PRODUCER, 0));
    log.push(&marker(PRODUCER, 0, false, 0));
    log.states.on_log_start(1);
    assert!(log.states.first_unstable().is_some());
    log.states.on_log_start(2);
    assert_eq!(log.states.first_unstable(), None);
}

mod properties {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// However batches of an idempotent producer are repeated, at most four batches back, each
        /// record is in the log once and every answer names its true offset.
        #[test]
        fn repeated_batches_are_stored_once(
            counts in proptest::collection::vec(1_i32..20, 1..40),
            repeats in proptest::collection::vec(0_usize..5, 40),
            start in prop_oneof![Just(0), Just(i32::MAX - 50)],
        ) {
            let mut log = Offsets::default();
            let mut sent = Vec::new();
            let mut sequence = start;
            for (i, count) in counts.iter().enumerate() {
                let batch = data(0, sequence, *count);
                prop_assert_eq!(log.append(&batch, Origin::Client), Ok(Check::New));
                let first_offset = log.end - i64::from(*count);
                sent.push((batch, first_offset, log.end - 1));
                sequence = sequence.wrapping_add(*count) & i32::MAX;
                let (again, first, last) = sent[i.saturating_sub(repeats[i])];
                prop_assert_eq!(log.append(&again, Origin::Client), duplicate(first, last));
            }
            let total: i64 = counts.iter().map(|count| i64::from(*count)).sum();
            prop_assert_eq!(log.end, total);
        }

        /// The first unstable offset, against a list of all transactions.
        #[test]
        fn the_first_unstable_offset_agrees_with_a_list(
            steps in proptest::collection::vec((0_i64..4, 0_u8..4), 1..60),
        ) {
            let mut log = Offsets::default();
            let mut txns: Vec<(i64, i64, Option<i64>)> = Vec::new();
            let mut high_watermark = 0;
            for (producer_id, action) in steps {
                let open = txns.iter().position(|txn| txn.0 == producer_id && txn.2.is_none());
                match action {
                    0 => {
                        high_watermark = log.end.min(high_watermark + 2);
                        log.states.on_high_watermark(high_watermark);
                    }
                    1 => {
                        if let Some(i) = open {
                            txns[i].2 = Some(log.end);
                        }
                        log.push(&marker(producer_id, 0, false, 0));
                    }
                    _ => {
                        if open.is_none() {
                            txns.push((producer_id, log.end, None));
                        }
                        log.push(&transactional(producer_id, 0));
                    }
                }
                let unstable = txns
                    .iter()
                    .filter(|txn| txn.2.is_none_or(|marker| marker >= high_watermark))
                    .map(|txn| txn.1)
                    .min();
                prop_assert_eq!(log.states.first_unstable().map(|start| start.first_offset), unstable);
            }
        }
    }
}
