//! Random steps of a log's threads, and the ways in which they end.

use proptest::prelude::*;
use pyrklog_log::SyncScope;
use pyrklog_log::disk::testing::{Fault, Operation};

use super::history::SLOTS;

#[derive(Clone, Debug)]
pub enum Step {
    Append {
        records: usize,
        size: usize,
    },
    /// In one of two transactions.
    AppendInTransaction {
        slot: usize,
        records: usize,
    },
    /// Its marker, if open.
    EndTransaction {
        slot: usize,
        commit: bool,
    },
    NewEpoch,
    Write,
    Sync(SyncScope),
    Checkpoint,
    DeleteRecords(usize),
    Retain,
    Truncate(usize),
    RestartClean,
    Kill,
    PowerLoss(u64),
    /// The disk fails from some operation on, while the log is written, synced and retained.
    FailingDisk(Break),
    /// The disk fails while the log is being opened after a crash.
    FailingOpen(Break),
    /// With a block cache: the process dies at the nth store or disk operation, within these steps.
    KillWithin(usize, Vec<Step>),
    /// The same during the opening after another kill.
    KillOpening(usize),
    /// The block cache's janitor has its turn.
    Tend,
    /// A writer's turn that leaves a partial page.
    WritePages,
    /// Time passes; writer and syncer do what is due (`flush.ms`).
    Wait(i64),
    /// A sync with other steps between: after its job was taken, and after it was executed.
    SyncAcross(Vec<Step>, Vec<Step>),
}

#[derive(Clone, Debug)]
pub struct Break {
    pub operation: Operation,
    pub skip: usize,
    pub fault: Fault,
    pub seed: Option<u64>,
}

fn broken() -> impl Strategy<Value = Break> {
    let operation = prop_oneof![
        4 => Just(Operation::Write),
        2 => Just(Operation::Sync),
        1 => Just(Operation::Open),
        1 => Just(Operation::SyncDir),
        1 => Just(Operation::Rename),
        1 => Just(Operation::Remove),
    ];
    let fault = prop_oneof![
        Just(Fault::InputOutput),
        (0_usize..300).prop_map(Fault::NoSpaceAfter),
    ];
    (operation, 0_usize..12, fault, any::<Option<u64>>()).prop_map(
        |(operation, skip, fault, seed)| Break {
            operation,
            skip,
            fault,
            seed,
        },
    )
}

fn in_transaction() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..SLOTS, 1_usize..4)
            .prop_map(|(slot, records)| Step::AppendInTransaction { slot, records }),
        2 => (0..SLOTS, any::<bool>())
            .prop_map(|(slot, commit)| Step::EndTransaction { slot, commit }),
    ]
}

pub fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => in_transaction(),
        12 => (1_usize..4, 0_usize..150).prop_map(|(records, size)| Step::Append { records, size }),
        1 => Just(Step::NewEpoch),
        5 => Just(Step::Write),
        2 => Just(Step::Sync(SyncScope::ClosedSegments)),
        2 => Just(Step::Sync(SyncScope::Written)),
        2 => Just(Step::Checkpoint),
        1 => (0_usize..100).prop_map(Step::DeleteRecords),
        1 => Just(Step::Retain),
        1 => (0_usize..100).prop_map(Step::Truncate),
        1 => Just(Step::RestartClean),
        2 => Just(Step::Kill),
        2 => any::<u64>().prop_map(Step::PowerLoss),
        1 => broken().prop_map(Step::FailingDisk),
        1 => broken().prop_map(Step::FailingOpen),
    ]
}

/// A step during a sync.
fn step_across() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1_usize..4, 0_usize..300).prop_map(|(records, size)| Step::Append { records, size }),
        3 => Just(Step::Write),
        1 => Just(Step::NewEpoch),
    ]
}

/// With `flush.ms`: time passes, and some syncs take time.
pub fn timed_step() -> impl Strategy<Value = Step> {
    let across = || prop::collection::vec(step_across(), 0..6);
    prop_oneof![
        8 => step(),
        3 => (0_i64..200).prop_map(Step::Wait),
        3 => (across(), across()).prop_map(|(before, after)| Step::SyncAcross(before, after)),
        1 => any::<u64>().prop_map(Step::PowerLoss),
    ]
}

/// A step that a kill may interrupt.
fn step_within() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => in_transaction(),
        8 => (1_usize..4, 0_usize..1500).prop_map(|(records, size)| Step::Append { records, size }),
        1 => Just(Step::NewEpoch),
        5 => Just(Step::Write),
        2 => Just(Step::Sync(SyncScope::ClosedSegments)),
        1 => Just(Step::Sync(SyncScope::Written)),
        1 => Just(Step::Retain),
        1 => (0_usize..100).prop_map(Step::Truncate),
        2 => Just(Step::Tend),
        4 => Just(Step::WritePages),
    ]
}

pub fn cached_step() -> impl Strategy<Value = Step> {
    let within = prop::collection::vec(step_within(), 1..12);
    prop_oneof![
        12 => step(),
        // Enough for whole pages.
        3 => (1_usize..4, 1000_usize..4000).prop_map(|(records, size)| Step::Append { records, size }),
        4 => (0_usize..300, within).prop_map(|(at, steps)| Step::KillWithin(at, steps)),
        1 => (0_usize..60).prop_map(Step::KillOpening),
        2 => Just(Step::Tend),
        4 => Just(Step::WritePages),
    ]
}

/// The source of a log's batches.
#[derive(Clone, Copy, Debug)]
pub enum Role {
    /// Producers: batches stay in the cache.
    Leads,
    /// A leader: batches stay in the cache until written.
    Follows,
    /// Alternates with each epoch.
    Changes,
}

impl Role {
    pub fn follows(self, epoch: i32) -> bool {
        match self {
            Role::Leads => false,
            Role::Follows => true,
            Role::Changes => epoch % 2 == 1,
        }
    }
}
