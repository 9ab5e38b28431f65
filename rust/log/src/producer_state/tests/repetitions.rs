//! Retries by producers whose state went through a snapshot.

use super::*;

impl Offsets {
    /// As an orderly restart does.
    fn reload(&mut self) {
        let bytes = snapshot::encode(&self.states.snapshot_entries());
        let entries = snapshot::decode(&bytes).expect("as written");
        self.states.load(&entries, 0, i64::MAX);
    }
}

/// `end_offset` is that of the first remembered batch.
fn forgotten(
    first_sequence: i32,
    last_sequence: i32,
    end_offset: i64,
) -> Result<Check, ProducerError> {
    Err(ProducerError::Forgotten {
        producer_id: PRODUCER,
        first_sequence,
        last_sequence,
        end_offset,
    })
}

/// As after a roll and a kill, or an orderly restart, with five batches in flight.
#[test]
fn retry_of_a_batch_missing_in_the_snapshot_is_recognised() {
    let mut log = Offsets::default();
    for sequence in [0, 2, 4, 6] {
        log.push(&data(0, sequence, 2));
    }
    log.reload();
    assert_eq!(
        log.append(&data(0, 0, 2), Origin::Client),
        forgotten(0, 7, 6)
    );
    assert_eq!(log.append(&data(0, 6, 2), Origin::Client), duplicate(6, 7));
    assert_eq!(log.append(&data(0, 8, 1), Origin::Client), Ok(Check::New));
    assert_eq!(
        log.append(&data(0, 4, 2), Origin::Client),
        forgotten(4, 8, 6)
    );
    assert_eq!(
        log.append(&data(0, 10, 1), Origin::Client),
        out_of_order(0, 10, 0, 8),
        "a gap"
    );
    assert_eq!(
        log.append(&data(0, 5, 2), Origin::Client),
        out_of_order(0, 5, 0, 8),
        "half of it"
    );
    for sequence in 9..12 {
        assert_eq!(
            log.append(&data(0, sequence, 1), Origin::Client),
            Ok(Check::New)
        );
    }
    assert_eq!(
        log.append(&data(0, 4, 2), Origin::Client),
        out_of_order(0, 4, 0, 11),
        "as much is known as ever"
    );
}

/// The first batch was refused and the second one, in flight, accepted: an unknown producer may
/// start anywhere.
#[test]
fn unwritten_batch_is_not_taken_for_a_retry() {
    let mut log = Offsets::default();
    log.push(&data(0, 5, 2));
    log.push(&data(0, 7, 2));
    log.reload();
    assert_eq!(
        log.append(&data(0, 0, 5), Origin::Client),
        out_of_order(0, 0, 0, 8),
    );
    assert_eq!(
        log.append(&data(0, 4, 3), Origin::Client),
        out_of_order(0, 4, 0, 8),
        "some of it was"
    );
    assert_eq!(
        log.append(&data(0, 5, 2), Origin::Client),
        forgotten(5, 8, 2)
    );
    // Its state expired, and it continued with an unexpected sequence.
    log.states.expire(i64::MAX, 0);
    log.push(&data(0, 20, 2));
    log.push(&data(0, 22, 2));
    log.reload();
    assert_eq!(
        log.append(&data(0, 5, 2), Origin::Client),
        out_of_order(0, 5, 0, 23),
    );
    assert_eq!(
        log.append(&data(0, 20, 2), Origin::Client),
        forgotten(20, 23, 6)
    );
    // Recovery walks a log with gaps from compaction or expiry.
    log.push(&data(0, 30, 2));
    log.reload();
    assert!(log.append(&data(0, 24, 2), Origin::Client).is_err());
    assert_eq!(
        log.append(&data(0, 22, 2), Origin::Client),
        out_of_order(0, 22, 0, 31),
    );
}

#[test]
fn retries_are_recognised_where_sequences_wrap() {
    let mut log = Offsets::default();
    log.push(&data(0, i32::MAX - 3, 2));
    log.push(&data(0, i32::MAX - 1, 4));
    log.push(&data(0, 2, 1));
    log.push(&data(0, 3, 1));
    log.reload();
    let repeated = [(i32::MAX - 3, 2), (i32::MAX - 1, 4), (2, 1)];
    for (sequence, count) in repeated {
        let answer = log.append(&data(0, sequence, count), Origin::Client);
        assert_eq!(answer, forgotten(sequence, 3, 7));
    }
    assert_eq!(
        log.append(&data(0, i32::MAX - 4, 1), Origin::Client),
        out_of_order(0, i32::MAX - 4, 0, 3)
    );
}

/// After more records than there are sequences, one half of them back is a future one.
#[test]
fn batch_half_of_all_sequences_back_is_not_taken_for_a_retry() {
    let mut log = Offsets::default();
    for round in 0..3 {
        let mut batch = data(0, round << 29, 1);
        batch.header.last_offset_delta = (1 << 29) - 1;
        log.push(&batch);
    }
    log.push(&data(0, 3 << 29, 1));
    log.reload();
    let last = 3 << 29;
    assert_eq!(
        log.append(&data(0, 10, 1), Origin::Client),
        out_of_order(0, 10, 0, last)
    );
    let near = (1 << 29) + 10;
    assert_eq!(
        log.append(&data(0, near, 1), Origin::Client),
        forgotten(near, last, i64::from(last))
    );
}
