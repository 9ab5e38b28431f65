//! A log against a list: whatever happens and however it dies, the readable records are a prefix of
//! the appended ones; written ones survive the process, synced ones the machine.
//!
//! One idempotent producer writes outside of transactions, and each transaction has its own. After
//! each restart producer state, last stable offset and aborted transactions are checked as well.

mod common;

use common::cached::Life;
use common::model::Model;
use common::steps::{Role, Step, cached_step, step, timed_step};
use proptest::prelude::*;

/// `LOG_CRASH_CASES` histories (default 1,200).
fn cases() -> u32 {
    std::env::var("LOG_CRASH_CASES").map_or(1_200, |text| text.parse().expect("a number"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn readable_records_are_the_appended_ones(steps in prop::collection::vec(step(), 1..80)) {
        let mut model = Model::new(i64::MAX);
        for step in &steps {
            model.apply(step);
            model.check();
        }
    }

    #[test]
    fn acknowledged_records_survive_power_loss_with_flush_messages_1(
        steps in prop::collection::vec(step(), 1..80)
    ) {
        let mut model = Model::new(1);
        for step in &steps {
            model.apply(step);
            model.check();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    /// Syncs by `flush.ms` and `flush.messages` take time, segments roll meanwhile, and the machine
    /// loses power: everything below the recovery point or older than `flush.ms` survives.
    #[test]
    fn records_older_than_flush_ms_survive_power_loss(
        steps in prop::collection::vec(timed_step(), 1..80),
        flush_ms in prop_oneof![Just(1_i64), Just(7), Just(60)],
        flush_messages in prop_oneof![Just(i64::MAX), Just(5)],
    ) {
        let mut model = Model::timed(flush_ms, flush_messages);
        for step in &steps {
            model.apply(step);
            model.check();
        }
    }
}

/// Each history has many kills, so there are fewer histories.
fn cached_cases() -> u32 {
    (cases() / 20).max(250)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cached_cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn acknowledged_records_in_the_cache_survive_a_kill_at_any_step(
        steps in prop::collection::vec(cached_step(), 1..60),
        segments_kib in prop_oneof![Just(0), Just(10), Just(60)],
        anonymous in prop_oneof![1 => Just(0_usize), 2 => 0_usize..20],
        role in prop_oneof![Just(Role::Leads), Just(Role::Follows), Just(Role::Changes)],
    ) {
        let mut model = Model::with_cache(segments_kib);
        model.anonymous = anonymous;
        model.role = role;
        for step in &steps {
            model.apply(step);
            model.check();
        }
    }
}

/// A kill may tear an aborted transaction's entry while its records are only in the block cache.
#[test]
fn a_torn_entry_of_the_transaction_index_is_entered_again() {
    let (slot, records, size, commit) = (0, 1, 1000, false);
    let within = Step::AppendInTransaction { slot, records };
    let last = [
        Step::EndTransaction { slot, commit },
        Step::Append { records, size },
        Step::WritePages,
        within.clone(),
        Step::Write,
    ];
    let mut torn = 0;
    for at in 0..400 {
        let mut model = Model::with_cache(60);
        for step in [Step::Tend, Step::Append { records, size }, within.clone()] {
            model.apply(&step);
        }
        model.apply(&Step::KillWithin(at, last.to_vec()));
        model.check();
        let is_torn = |note: &String| note.contains(".txnindex");
        torn += usize::from(model.notes.iter().any(is_torn));
    }
    assert!(torn > 0);
}

/// Includes entries from before the last producer snapshot.
#[test]
fn a_damaged_transaction_index_is_filled_again_beside_unwritten_records() {
    let mut model = Model::with_cache(60);
    for commit in [false, true, false, false] {
        let slot = 0;
        model.apply(&Step::AppendInTransaction { slot, records: 2 });
        model.apply(&Step::EndTransaction { slot, commit });
        model.apply(&Step::Write);
        model.apply(&Step::RestartClean);
    }
    model.append(1, 40);
    model.lose(None);
    let files = model.rig.files();
    let index = files.iter().find(|name| name.ends_with(".txnindex"));
    model
        .rig
        .put_file(index.expect("some were aborted"), b"abc");
    model.restart(Life::Again);
    model.check();
}
