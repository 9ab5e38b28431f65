use super::super::guards::{Afterwards, GUARD_MS, GUARDS_MAX, GuardNumber, GuardOwner};
use super::*;
use crate::producer_state::Origin;
use pyrklog_wire::ErrorCode;
use pyrklog_wire::batch::BatchHeader;
use pyrklog_wire::builder::{BatchBuilder, transaction_marker};

const PRODUCER: i64 = 7;
const TXN: u64 = 1 << 63;

fn owner(producer_id: i64) -> GuardOwner {
    GuardOwner {
        producer_id,
        epoch: 0,
        transactional_id: TXN,
    }
}

fn data(epoch: i16, sequence: i32) -> BatchInfo {
    let mut builder = BatchBuilder::new()
        .producer(PRODUCER, epoch, sequence)
        .transactional();
    builder.append(1_000, None, Some(b"v"));
    BatchInfo::from_header(BatchHeader::parse(&builder.build()).unwrap())
}

fn marker(epoch: i16) -> BatchInfo {
    BatchInfo::parse(&transaction_marker(PRODUCER, epoch, true, 0, 2_000)).unwrap()
}

/// A partition that appends what it admits.
#[derive(Default)]
struct Partition {
    states: ProducerStates,
    end: i64,
}

impl Partition {
    fn ask(&mut self, info: &BatchInfo) -> Verification {
        self.ask_as(info, TXN)
    }

    fn ask_as(&mut self, info: &BatchInfo, transactional_id: u64) -> Verification {
        let asked = self.states.begin_verification_of(info, transactional_id, 0);
        asked.unwrap()
    }

    /// The question of [`Partition::guard`] is over.
    fn end(&mut self, proof: Proof, afterwards: Afterwards) {
        let Proof::Guard { number, .. } = proof else {
            panic!("no guard")
        };
        self.states
            .end_verification(owner(PRODUCER), number, afterwards);
    }

    fn guard(&mut self, info: &BatchInfo) -> Proof {
        match self.ask(info) {
            Verification::Needed(number) => Proof::Guard {
                number,
                begins_at_zero: false,
            },
            other => panic!("{other:?}"),
        }
    }

    fn append(&mut self, info: &BatchInfo, proof: Proof) -> Result<(), ErrorCode> {
        let states = &self.states;
        states
            .check_verified(info, proof)
            .and_then(|()| states.check(info, Origin::Client))
            .map_err(|error| error.code())?;
        self.push(info);
        Ok(())
    }

    fn push(&mut self, info: &BatchInfo) {
        self.states.update(info, self.end, None);
        self.end += 1;
    }
}

#[test]
fn a_transaction_is_asked_about_until_it_is_open() {
    let mut log = Partition::default();
    let first = data(0, 0);
    let proof = log.guard(&first);
    assert_eq!(log.guard(&first), proof, "a second request shares it");
    let unproven = log.append(&first, Proof::OpenTransaction);
    assert_eq!(unproven, Err(ErrorCode::INVALID_TXN_STATE));
    assert_eq!(log.append(&first, proof), Ok(()));
    assert_eq!(log.ask(&data(0, 1)), Verification::Unneeded);
    assert_eq!(log.append(&data(0, 1), Proof::OpenTransaction), Ok(()));
    // It is sent again after the marker: the answer was lost.
    log.push(&marker(0));
    assert_eq!(log.ask(&data(0, 1)), Verification::Unneeded);
    assert_eq!(
        log.states
            .check_verified(&data(0, 1), Proof::OpenTransaction),
        Ok(())
    );
    let next = log.guard(&data(0, 2));
    assert_ne!(next, proof);
    assert_eq!(log.append(&data(0, 2), next), Ok(()));
}

#[test]
fn a_marker_voids_the_guard() {
    let mut log = Partition::default();
    let proof = log.guard(&data(0, 0));
    log.push(&marker(0));
    assert_eq!(
        log.append(&data(0, 0), proof),
        Err(ErrorCode::INVALID_TXN_STATE)
    );
    // The next one has a guard of its own; the late batch still has none.
    let other = log.guard(&data(0, 0));
    assert_eq!(
        log.append(&data(0, 0), proof),
        Err(ErrorCode::INVALID_TXN_STATE)
    );
    assert_eq!(log.append(&data(0, 0), other), Ok(()));
}

#[test]
fn a_marker_does_not_void_the_guard_of_a_later_epoch() {
    let mut log = Partition::default();
    let first = log.guard(&data(0, 0));
    assert_eq!(log.append(&data(0, 0), first), Ok(()));
    let next = log.guard(&data(1, 0));
    log.push(&marker(0));
    assert_eq!(log.append(&data(1, 0), next), Ok(()));
}

#[test]
fn a_newer_epoch_and_a_new_leader_void_the_guard() {
    let mut log = Partition::default();
    let old = log.guard(&data(0, 0));
    let new = log.guard(&data(1, 0));
    assert_eq!(log.append(&data(1, 0), new), Ok(()));
    assert_eq!(
        log.append(&data(0, 0), old),
        Err(ErrorCode::INVALID_PRODUCER_EPOCH)
    );
    let refused = log.states.begin_verification_of(&data(0, 0), TXN, 0);
    assert_eq!(
        refused.unwrap_err().code(),
        ErrorCode::INVALID_PRODUCER_EPOCH
    );

    let mut log = Partition::default();
    let proof = log.guard(&data(0, 0));
    log.states.void_guards();
    assert_eq!(
        log.append(&data(0, 0), proof),
        Err(ErrorCode::INVALID_TXN_STATE)
    );
}

#[test]
fn a_lower_epoch_does_not_void_the_guard_of_a_higher_one() {
    let mut log = Partition::default();
    let (old, new) = (log.guard(&data(0, 0)), log.guard(&data(1, 0)));
    assert_eq!(log.append(&data(0, 0), old), Ok(()));
    assert_eq!(log.append(&data(1, 0), new), Ok(()));
}

#[test]
fn the_lowest_sequence_that_asked_enters_first() {
    let mut log = Partition::default();
    // The request with sequence 0 failed, and the next one comes first.
    let proof = log.guard(&data(0, 0));
    assert_eq!(log.guard(&data(0, 1)), proof);
    let early = log.append(&data(0, 1), proof);
    assert_eq!(early, Err(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER));
    assert_eq!(log.append(&data(0, 0), proof), Ok(()));
    assert_eq!(log.append(&data(0, 1), proof), Ok(()));
}

#[test]
fn version_2_begins_with_sequence_0_where_nothing_is_known() {
    let mut log = Partition::default();
    let Proof::Guard { number, .. } = log.guard(&data(0, 5)) else {
        panic!("no guard")
    };
    let strict = Proof::Guard {
        number,
        begins_at_zero: true,
    };
    let refused = log.append(&data(0, 5), strict);
    assert_eq!(refused, Err(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER));
    let lax = Proof::Guard {
        number,
        begins_at_zero: false,
    };
    assert_eq!(log.append(&data(0, 5), lax), Ok(()));
}

#[test]
fn batches_outside_of_transactions_need_no_proof() {
    let log = Partition::default();
    let mut plain = BatchBuilder::new().producer(PRODUCER, 0, 0);
    plain.append(1_000, None, Some(b"v"));
    let plain = BatchInfo::from_header(BatchHeader::parse(&plain.build()).unwrap());
    let proof = Proof::OpenTransaction;
    assert_eq!(log.states.check_verified(&plain, proof), Ok(()));
    assert_eq!(
        log.states.check_verified(&data(0, 0), Proof::Waived),
        Ok(())
    );
}

fn begin(states: &mut ProducerStates, id: i64, now_ms: i64) -> Option<GuardNumber> {
    match states.begin_verification(owner(id), 0, now_ms).unwrap() {
        Verification::Needed(number) => Some(number),
        Verification::Full => None,
        Verification::Unneeded => panic!("nothing is open"),
    }
}

#[test]
fn guards_are_bounded_and_the_old_ones_go() {
    let mut states = ProducerStates::new();
    for id in 0..GUARDS_MAX as i64 {
        begin(&mut states, id, 0).unwrap();
    }
    assert_eq!(begin(&mut states, -5, GUARD_MS - 1), None);
    let known = begin(&mut states, 3, GUARD_MS - 1);
    assert!(known.is_some(), "it was asked before");
    assert!(begin(&mut states, -5, GUARD_MS).is_some());
    assert_eq!(states.guard_count(), 2, "3 was asked again");
}

#[test]
fn refused_questions_leave_no_guard_and_kept_ones_make_room() {
    let mut states = ProducerStates::new();
    for id in 0..2 * GUARDS_MAX as i64 {
        let number = begin(&mut states, id, 0).unwrap();
        states.end_verification(owner(id), number, Afterwards::Closed);
    }
    assert_eq!(states.guard_count(), 0);
    let asked = begin(&mut states, -1, 0);
    for id in 0..2 * GUARDS_MAX as i64 {
        let number = begin(&mut states, id, 1 + id).unwrap();
        states.end_verification(owner(id), number, Afterwards::Kept);
    }
    assert_eq!(states.guard_count(), GUARDS_MAX);
    assert_eq!(begin(&mut states, -1, 0), asked, "it is being asked about");
}

#[test]
fn a_guard_closes_with_its_last_question() {
    let mut log = Partition::default();
    let proof = log.guard(&data(0, 3));
    assert_eq!(log.guard(&data(0, 3)), proof);
    log.end(proof, Afterwards::Closed);
    assert_eq!(log.states.guard_count(), 1);
    log.end(proof, Afterwards::Closed);
    assert_eq!(log.states.guard_count(), 0);
    let next = log.guard(&data(0, 3));
    log.end(proof, Afterwards::Closed);
    assert_eq!(
        log.append(&data(0, 3), proof),
        Err(ErrorCode::INVALID_TXN_STATE)
    );
    assert_eq!(log.append(&data(0, 3), next), Ok(()));
    log.end(next, Afterwards::Kept);
    assert_eq!(log.states.guard_count(), 0);
}

#[test]
fn another_transactional_id_has_another_guard() {
    let mut log = Partition::default();
    let Verification::Needed(number) = log.ask_as(&data(0, 0), 0) else {
        panic!("no guard")
    };
    let proof = log.guard(&data(0, 5));
    assert_eq!(log.append(&data(0, 5), proof), Ok(()));
    assert_eq!(log.states.guard_count(), 0, "{number} is void too");
    let stranger = log.ask_as(&data(1, 0), u64::MAX);
    let own = log.guard(&data(1, 0));
    log.push(&marker(1));
    assert_eq!(log.states.guard_count(), 0, "{stranger:?} {own:?}");
}

#[test]
fn markers_of_version_2_have_a_new_epoch() {
    let mut log = Partition::default();
    log.push(&data(4, 0));
    let refused = log.states.check_bumped_epoch(&marker(4)).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::INVALID_PRODUCER_EPOCH);
    assert_eq!(log.states.check_bumped_epoch(&marker(5)), Ok(()));
    log.push(&marker(5));
    // The coordinator sends it again; it did not get the answer.
    assert_eq!(log.states.check_bumped_epoch(&marker(5)), Ok(()));
    log.push(&data(5, 0));
    assert!(log.states.check_bumped_epoch(&marker(5)).is_err(), "late");
}

#[test]
fn open_transactions_are_described_first() {
    let mut states = ProducerStates::new();
    for id in 0..20 {
        let mut builder = BatchBuilder::new().producer(id, 3, 0);
        if id == 11 {
            builder = builder.transactional();
        }
        builder.append(1_000 + id, None, Some(b"v"));
        let info = BatchInfo::from_header(BatchHeader::parse(&builder.build()).unwrap());
        states.update(&info, id, None);
    }
    states.update(
        &BatchInfo::parse(&transaction_marker(12, 4, false, 9, 5_000)).unwrap(),
        20,
        None,
    );
    let open = ActiveProducer {
        id: 11,
        epoch: 3,
        last_sequence: 0,
        last_timestamp: 1_011,
        coordinator_epoch: -1,
        txn_start_offset: 11,
    };
    assert_eq!(states.active(1), [open]);
    let all = states.active(100);
    assert_eq!(all.len(), 20);
    let ended = all.iter().find(|one| one.id == 12).unwrap();
    let facts = (ended.epoch, ended.last_sequence, ended.last_timestamp);
    assert_eq!(facts, (4, -1, 5_000));
    assert_eq!((ended.coordinator_epoch, ended.txn_start_offset), (9, -1));
}
