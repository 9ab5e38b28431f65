//! Random histories with compaction: the last value of each key is what it would be without, also
//! when the process or the machine dies at any step of it.

use std::collections::BTreeMap;

use crate::common::Life;
use crate::common::cleaning::{CleanRig, compacted};
use proptest::prelude::*;
use pyrklog_log::OpenState;
use pyrklog_log::cleaner::MapLimits;
use pyrklog_log::disk::testing::{Fault, Operation};
use pyrklog_wire::builder::BatchBuilder;

const OPERATIONS: [Operation; 6] = [
    Operation::Open,
    Operation::Write,
    Operation::Sync,
    Operation::SyncDir,
    Operation::Rename,
    Operation::Remove,
];

/// `LOG_CLEAN_CASES` histories (default 300).
fn cases() -> u32 {
    std::env::var("LOG_CLEAN_CASES").map_or(300, |text| text.parse().expect("a number"))
}

/// How a run ends.
#[derive(Clone, Copy, Debug)]
enum Death {
    Kill,
    PowerLoss(u64),
}

#[derive(Clone, Debug)]
enum Step {
    /// Of a producer without transactions; `None` as value deletes.
    Put(Vec<(u8, Option<u16>)>),
    /// In the transaction of a producer.
    PutIn(usize, Vec<(u8, Option<u16>)>),
    End(usize, bool),
    /// So many milliseconds pass.
    Wait(i64),
    Clean,
    /// With room for so many keys.
    CleanPart(usize),
    /// The disk refuses all operations of a kind after some; then the run ends.
    DieCleaning(usize, usize, Death),
    Die(Death),
    Restart,
    /// Records that no other replica has are cut.
    CutUnreplicated(u8),
}

fn pairs() -> impl Strategy<Value = Vec<(u8, Option<u16>)>> {
    let pair = (0_u8..12, prop::option::weighted(0.8, 0_u16..1000));
    prop::collection::vec(pair, 1..4)
}

fn death() -> impl Strategy<Value = Death> {
    prop_oneof![Just(Death::Kill), any::<u64>().prop_map(Death::PowerLoss)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => pairs().prop_map(Step::Put),
        8 => (0_usize..2, pairs()).prop_map(|(who, pairs)| Step::PutIn(who, pairs)),
        5 => (0_usize..2, any::<bool>()).prop_map(|(who, commit)| Step::End(who, commit)),
        2 => (1_i64..80).prop_map(Step::Wait),
        5 => Just(Step::Clean),
        2 => (1_usize..6).prop_map(Step::CleanPart),
        3 => (0_usize..OPERATIONS.len(), 0_usize..24, death())
            .prop_map(|(operation, skip, death)| Step::DieCleaning(operation, skip, death)),
        1 => death().prop_map(Step::Die),
        1 => Just(Step::Restart),
        1 => (0_u8..12).prop_map(Step::CutUnreplicated),
    ]
}

/// Offset, key and value.
type Written = (i64, String, Option<String>);

/// A transactional producer and what its open transaction wrote.
#[derive(Debug, Default)]
struct Producer {
    sequence: i32,
    open: Vec<Written>,
    is_open: bool,
}

struct World {
    log: CleanRig,
    /// The committed record with the largest offset of each key.
    values: BTreeMap<String, (i64, Option<String>)>,
    producers: [Producer; 2],
    plain_sequence: i32,
}

impl World {
    fn new(log: CleanRig) -> Self {
        Self {
            log,
            values: BTreeMap::new(),
            producers: Default::default(),
            plain_sequence: 0,
        }
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Put(pairs) => {
                let builder = BatchBuilder::new().producer(9, 0, self.plain_sequence);
                self.plain_sequence += pairs.len() as i32;
                let texts = self.put(builder, pairs);
                self.commit(texts);
            }
            Step::PutIn(who, pairs) => {
                let producer = &mut self.producers[*who];
                let (id, sequence) = (*who as i64, producer.sequence);
                producer.sequence += pairs.len() as i32;
                producer.is_open = true;
                let builder = BatchBuilder::new()
                    .producer(id, 0, sequence)
                    .transactional();
                let texts = self.put(builder, pairs);
                self.producers[*who].open.extend(texts);
            }
            Step::End(who, commit) => {
                let producer = &mut self.producers[*who];
                if std::mem::take(&mut producer.is_open) {
                    let texts = std::mem::take(&mut producer.open);
                    self.log.end(*who as i64, 0, *commit);
                    if *commit {
                        self.commit(texts);
                    }
                }
            }
            Step::Wait(ms) => self.log.rig.now_ms += ms,
            Step::Clean => {
                self.sync();
                self.log.clean().unwrap();
            }
            Step::CleanPart(keys) => {
                self.sync();
                let whole = self.log.limits;
                self.log.limits = MapLimits {
                    buffer_bytes: 24 * (keys + 1),
                    load_factor: 1.0,
                    ..whole
                };
                self.log.clean().unwrap();
                self.log.limits = whole;
            }
            Step::DieCleaning(operation, skip, death) => {
                self.sync();
                let rig = &self.log.rig;
                rig.break_disk(OPERATIONS[*operation], *skip, Fault::InputOutput);
                let _as_far_as_it_came = self.log.clean();
                self.log.rig.disk.heal();
                self.die(*death);
            }
            Step::Die(death) => {
                self.sync();
                self.die(*death);
            }
            Step::Restart => {
                self.log.rig.restart_clean();
                self.log.rig.drain();
            }
            Step::CutUnreplicated(key) => self.cut_unreplicated(*key),
        }
    }

    fn put(&mut self, builder: BatchBuilder, pairs: &[(u8, Option<u16>)]) -> Vec<Written> {
        let texts: Vec<(String, Option<String>)> = pairs
            .iter()
            .map(|(key, value)| (format!("k{key}"), value.map(|value| format!("{value:030}"))))
            .collect();
        let pairs: Vec<_> = texts
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_deref()))
            .collect();
        let base_offset = self.log.put_as(builder, &pairs).base_offset;
        let offsets = base_offset..;
        let records = offsets.zip(texts);
        records.map(|(at, (key, value))| (at, key, value)).collect()
    }

    /// A transaction may commit what others have overwritten since.
    fn commit(&mut self, records: Vec<Written>) {
        for (offset, key, value) in records {
            let last = self.values.entry(key).or_insert((-1, None));
            if offset > last.0 {
                *last = (offset, value);
            }
        }
    }

    fn sync(&mut self) {
        self.log.rig.drain();
        self.log.rig.sync(pyrklog_log::SyncScope::Written);
    }

    fn die(&mut self, death: Death) {
        let state = OpenState {
            clean: false,
            ..self.log.rig.state(false)
        };
        let life = match death {
            Death::Kill => {
                self.log.rig.memory.kill_process();
                Life::Again
            }
            Death::PowerLoss(seed) => {
                self.log.rig.memory.reboot(seed);
                Life::Fresh
            }
        };
        let end = self.log.rig.log.log_end_offset();
        self.log.rig.reopen_in(state, life);
        let log = &self.log.rig.log;
        assert_eq!(log.log_end_offset(), end, "{:?}", self.log.rig.report);
        self.log.rig.drain();
    }

    /// A follower's log is cut to its high watermark, below which alone is cleaned.
    fn cut_unreplicated(&mut self, key: u8) {
        let rig = &mut self.log.rig;
        let key = format!("k{key}");
        let mut batch = crate::common::cleaning::keyed(
            BatchBuilder::new(),
            rig.now_ms,
            &[(&key, Some("unreplicated"))],
        );
        rig.append(&mut batch).unwrap();
        rig.write();
        let cut = rig.log.high_watermark();
        let job = rig
            .log
            .begin_truncation(cut, rig.now_ms, 86_400_000)
            .unwrap();
        let mut job = job.unwrap();
        let result = job.execute();
        rig.log.complete_truncation(job, result);
        assert!(rig.log.swapped_end() <= cut);
        rig.check_invariants();
    }

    /// Open transactions hide what was committed behind them, so they are left out.
    fn check(&mut self) {
        if !self.producers.iter().any(|producer| producer.is_open) {
            let has_value = |(key, (_, value)): (&String, &(i64, Option<String>))| {
                value.clone().map(|value| (key.clone(), value))
            };
            let expected: BTreeMap<_, _> = self.values.iter().filter_map(has_value).collect();
            assert_eq!(self.log.last_values(), expected);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn last_values_are_those_of_the_history(steps in prop::collection::vec(step(), 1..70)) {
        let mut world = World::new(CleanRig::new(compacted(500)));
        for step in &steps {
            world.apply(step);
            world.check();
        }
    }

    #[test]
    fn and_beside_the_block_cache(steps in prop::collection::vec(step(), 1..50)) {
        let mut world = World::new(CleanRig::with_cache(compacted(500)));
        for step in &steps {
            world.apply(step);
            world.check();
        }
    }
}

/// Some segments with overwritten, deleted and aborted records.
fn filled() -> World {
    let mut world = World::new(CleanRig::new(compacted(500)));
    for i in 0..12 {
        let who = usize::from(i) % 2;
        for step in [
            Step::Put(vec![(i % 3, Some(u16::from(i))), (7, None)]),
            Step::PutIn(who, vec![(i % 5, Some(100 + u16::from(i)))]),
            Step::End(who, i % 3 == 0),
        ] {
            world.apply(&step);
        }
    }
    world.sync();
    world
}

/// Each operation of a cleaning fails once, and what had no sync is lost in several ways.
#[test]
fn every_step_may_be_the_last() {
    let mut deaths = 0;
    for operation in OPERATIONS {
        for skip in 0.. {
            let mut was_reached = false;
            for seed in 0..9 {
                let mut world = filled();
                world
                    .log
                    .rig
                    .break_disk(operation, skip, Fault::InputOutput);
                let cleaned = world.log.clean();
                world.log.rig.disk.heal();
                was_reached |= cleaned.is_err();
                let death = match seed {
                    0 => Death::Kill,
                    seed => Death::PowerLoss(seed),
                };
                world.die(death);
                world.check();
                // It can be cleaned again, and is then as clean as any.
                world.sync();
                world.log.clean().unwrap();
                world.check();
                deaths += 1;
            }
            if !was_reached {
                break;
            }
        }
    }
    assert!(deaths > 200, "{deaths}");
}

/// The opening that finishes a swap dies as well.
#[test]
fn every_step_of_finishing_a_swap_may_be_the_last() {
    for operation in [Operation::Rename, Operation::Remove, Operation::SyncDir] {
        for skip in 0..12 {
            for seed in 0..6 {
                let mut world = filled();
                // The new segment counts, and its sources are still there.
                let rig = &world.log.rig;
                rig.disk
                    .fail(Operation::Rename, ".log", 1, usize::MAX, Fault::InputOutput);
                world.log.clean().unwrap_err();
                world.log.rig.disk.heal();
                let swaps = world.log.rig.files();
                assert!(
                    swaps.iter().any(|name| name.ends_with(".log.swap")),
                    "{swaps:?}"
                );
                let state = world.log.rig.state(false);
                world
                    .log
                    .rig
                    .break_disk(operation, skip, Fault::InputOutput);
                let _perhaps = world.log.rig.try_open(state, Life::Fresh);
                world.log.rig.disk.heal();
                if seed > 0 {
                    world.log.rig.memory.reboot(seed);
                }
                world.log.rig.reopen(state);
                world.log.rig.drain();
                world.check();
            }
        }
    }
}
