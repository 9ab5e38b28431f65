//! Back-fills of compacted logs (`expansion.md`, section 6): the last value of each key is that of
//! the history, whatever is cleaned, written, read and restarted meanwhile.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::common::cleaning::{CleanRig, compacted};
use crate::common::*;
use crate::join::{batches, raw, start_of};
use pyrklog_log::{
    AbortedTxn, Fill, FillError, FillOrigin, JoinJob, Log, LogConfig, OpenState, Origin,
    StartAtEnd, SyncScope, Wait,
};
use pyrklog_wire::builder::BatchBuilder;

const EXPIRATION_MS: i64 = 86_400_000;
pub const LEADER: usize = 0;
/// A key of its own.
const OTHER: u8 = 8;

/// `LOG_FILL_CASES` histories (default 300).
fn cases() -> u32 {
    std::env::var("LOG_FILL_CASES").map_or(300, |text| text.parse().expect("a number"))
}

pub fn config() -> LogConfig {
    compacted(400)
}

/// A segment that arrives.
struct Incoming {
    fill: Fill,
    aborted: Vec<AbortedTxn>,
    segment_id: u64,
    opening: i64,
}

#[derive(Debug, Default)]
struct Producer {
    sequence: i32,
    open: Vec<(i64, String, Option<String>)>,
    is_open: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Progress {
    /// It has all.
    Whole,
    Goes,
    /// This source's log does not go with what was joined.
    Refused,
}

/// Three replicas with everything, the first of which leads, and one that began at its end.
pub struct World {
    pub logs: Vec<CleanRig>,
    pub new: Option<CleanRig>,
    incoming: Option<Incoming>,
    source: usize,
    /// The committed record with the largest offset of each key.
    values: BTreeMap<String, (i64, Option<String>)>,
    producers: [Producer; 2],
    pub joined: usize,
    /// Another source is asked after each segment, in the end.
    wanders: bool,
}

impl World {
    pub fn new() -> World {
        World {
            logs: (0..3).map(|_| CleanRig::new(config())).collect(),
            new: None,
            incoming: None,
            source: 1,
            values: BTreeMap::new(),
            producers: Default::default(),
            joined: 0,
            wanders: false,
        }
    }

    fn leader(&mut self) -> &mut Rig {
        &mut self.logs[LEADER].rig
    }

    /// The other replicas follow.
    fn follow(&mut self, from: i64) {
        let leader = &self.logs[LEADER].rig;
        let bytes = raw(leader, from, leader.log.log_end_offset());
        for rig in self.logs[1..].iter_mut().chain(&mut self.new) {
            for mut one in batches(&bytes) {
                rig.rig.append_as(&mut one, Origin::Replication).unwrap();
                rig.rig.drain();
            }
        }
    }

    fn put(
        &mut self,
        builder: BatchBuilder,
        pairs: &[(u8, Option<u16>)],
    ) -> Vec<(i64, String, Option<String>)> {
        let texts: Vec<(String, Option<String>)> = pairs
            .iter()
            .map(|(key, value)| (format!("k{key}"), value.map(|value| format!("{value:030}"))))
            .collect();
        let pairs: Vec<_> = texts
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_deref()))
            .collect();
        let base_offset = self.logs[LEADER].put_as(builder, &pairs).base_offset;
        self.follow(base_offset);
        let records = (base_offset..).zip(texts);
        records.map(|(at, (key, value))| (at, key, value)).collect()
    }

    pub fn put_plain(&mut self, pairs: &[(u8, Option<u16>)]) {
        let records = self.put(BatchBuilder::new(), pairs);
        self.commit(records);
    }

    pub fn put_in(&mut self, who: usize, pairs: &[(u8, Option<u16>)]) {
        let producer = &mut self.producers[who];
        let builder = BatchBuilder::new()
            .producer(who as i64, 0, producer.sequence)
            .transactional();
        producer.sequence += pairs.len() as i32;
        producer.is_open = true;
        let records = self.put(builder, pairs);
        self.producers[who].open.extend(records);
    }

    pub fn end(&mut self, who: usize, commit: bool) {
        let producer = &mut self.producers[who];
        if !std::mem::take(&mut producer.is_open) {
            return;
        }
        let records = std::mem::take(&mut producer.open);
        let offset = self.logs[LEADER].end(who as i64, 0, commit);
        self.follow(offset);
        if commit {
            self.commit(records);
        }
    }

    fn commit(&mut self, records: Vec<(i64, String, Option<String>)>) {
        for (offset, key, value) in records {
            let last = self.values.entry(key).or_insert((-1, None));
            if offset > last.0 {
                *last = (offset, value);
            }
        }
    }

    fn wait(&mut self, ms: i64) {
        for rig in self.logs.iter_mut().chain(&mut self.new) {
            rig.rig.now_ms += ms;
        }
    }

    pub fn clean(&mut self, which: usize) {
        let Some(rig) = self.logs.iter_mut().chain(&mut self.new).nth(which) else {
            return;
        };
        rig.rig.sync(SyncScope::Written);
        rig.clean().unwrap();
    }

    /// The first cleaning removes what was deleted, the second one the tombstones.
    fn purge(&mut self, which: usize) {
        self.clean(which);
        self.wait(200);
        for value in 0..5 {
            self.put_plain(&[(OTHER, Some(value))]);
        }
        self.clean(which);
    }

    /// The new replica begins at the leader's end.
    pub fn begin(&mut self) {
        self.let_go();
        let start = start_of(&self.logs[LEADER].rig.log);
        let now_ms = self.leader().now_ms;
        let new = self.new.get_or_insert_with(|| CleanRig::new(config()));
        new.rig.now_ms = now_ms;
        begin_at(&mut new.rig, &start);
    }

    fn let_go(&mut self) {
        if let Some(incoming) = self.incoming.take() {
            incoming.fill.discard().unwrap();
        }
    }

    /// Asks the source for the next bytes, as the back-fill does.
    pub fn ask(&mut self, bytes: usize) -> Progress {
        let leader_start = self.logs[LEADER].rig.log.log_start_offset();
        let Some(new) = &mut self.new else {
            return Progress::Whole;
        };
        let end = new.rig.log.log_start_offset();
        if !new.rig.log.is_partial() || end <= leader_start {
            return Progress::Whole;
        }
        let source = &self.logs[self.source].rig;
        let told = source.log.fill_source(end).expect("it has them");
        let Some(incoming) = &mut self.incoming else {
            let origin = FillOrigin {
                broker: self.source as i32,
                opening: source.log.opening(),
            };
            if !new.rig.log.may_fill_from(origin, source.log.clean_below()) {
                return Progress::Refused;
            }
            let plan = new.rig.log.plan_compacted_fill(told.begin(), origin);
            self.incoming = Some(Incoming {
                fill: plan.expect("nothing is in the way").open(),
                aborted: told.load_aborted(Wait::Blocking).unwrap(),
                segment_id: told.segment_id(),
                opening: origin.opening,
            });
            return Progress::Goes;
        };
        if !incoming.fill.is_complete() {
            let found = source.read(incoming.fill.next_offset(), bytes).unwrap();
            incoming.fill.add(&found).unwrap();
            return Progress::Goes;
        }
        let incoming = self.incoming.take().unwrap();
        let is_same =
            incoming.segment_id == told.segment_id() && incoming.opening == source.log.opening();
        match is_same {
            true => {
                let job = incoming.fill.finish(&incoming.aborted, 5_000).unwrap();
                complete(&mut new.rig.log, job).unwrap();
                new.rig.check_invariants();
                new.rig.write();
                self.joined += 1;
            }
            false => incoming.fill.discard().unwrap(),
        }
        Progress::Goes
    }

    fn next_source(&mut self) {
        self.let_go();
        self.source = (self.source + 1) % self.logs.len();
    }

    pub fn reopen_source(&mut self) {
        let rig = &mut self.logs[self.source];
        let cleaned_end = rig.checkpoint.unwrap_or(0);
        let state = OpenState {
            cleaned_end,
            ..rig.rig.state(false)
        };
        rig.rig.sync(SyncScope::Written);
        rig.rig.memory.kill_process();
        rig.rig.reopen_in(state, Life::Again);
        rig.rig.drain();
    }

    pub fn reopen_new(&mut self, power_loss: Option<u64>) {
        // Its files are removed by the next opening.
        self.incoming = None;
        let Some(new) = &mut self.new else { return };
        new.rig.sync(SyncScope::Written);
        let start = new.rig.log.log_start_offset();
        let state = new.rig.state(false);
        match power_loss {
            None => new.rig.memory.kill_process(),
            Some(seed) => new.rig.memory.reboot(seed),
        }
        let life = match power_loss {
            None => Life::Again,
            Some(_) => Life::Fresh,
        };
        new.rig.reopen_in(state, life);
        new.rig.drain();
        assert_eq!(new.rig.log.log_start_offset(), start);
        assert!(new.rig.files().iter().all(|one| !one.ends_with(".fill")));
    }

    /// Until the new replica is an ordinary one.
    pub fn finish(&mut self) {
        for who in 0..2 {
            self.end(who, who == 0);
        }
        let mut refused = 0;
        loop {
            let joined = self.joined;
            let progress = self.ask(300);
            if self.wanders && self.joined > joined {
                self.next_source();
            }
            match progress {
                Progress::Whole => break,
                Progress::Goes => refused = 0,
                Progress::Refused if refused < self.logs.len() => {
                    refused += 1;
                    self.next_source();
                }
                Progress::Refused => self.begin(),
            }
        }
        let Some(new) = &mut self.new else { return };
        if let Some(job) = new.rig.log.whole_job() {
            job.execute().unwrap();
            new.rig.log.become_whole();
        }
    }

    pub fn check(&mut self) {
        let has_value = |(key, (_, value)): (&String, &(i64, Option<String>))| {
            value.clone().map(|value| (key.clone(), value))
        };
        let expected: BTreeMap<_, _> = self.values.iter().filter_map(has_value).collect();
        let Some(new) = &mut self.new else { return };
        assert_eq!(new.last_values(), expected, "as it is");
        // Its own cleaner is the next to work on it.
        for _ in 0..2 {
            new.rig.now_ms += 200;
            new.rig.sync(SyncScope::Written);
            new.clean().unwrap();
            new.checkpoint = None;
            assert_eq!(new.last_values(), expected, "cleaned");
        }
    }
}

pub fn begin_at(rig: &mut Rig, start: &StartAtEnd) {
    let mut job = rig.log.begin_at_end(start, 1_000, EXPIRATION_MS).unwrap();
    let result = job.execute();
    rig.log.complete_truncation(job, result);
}

pub fn complete(log: &mut Log, mut job: JoinJob) -> Result<(), FillError> {
    log.begin_join(&mut job)?;
    let result = job.execute();
    log.complete_join(job, result)
}

#[derive(Clone, Debug)]
enum Step {
    Put(Vec<(u8, Option<u16>)>),
    PutIn(usize, Vec<(u8, Option<u16>)>),
    End(usize, bool),
    Wait(i64),
    Clean(usize),
    /// What was deleted goes, and its tombstones.
    Purge(usize),
    Begin,
    /// So many times, for some bytes.
    Ask(usize, usize),
    NextSource,
    ReopenSource,
    ReopenNew(Option<u64>),
}

fn pairs() -> impl Strategy<Value = Vec<(u8, Option<u16>)>> {
    let pair = (0_u8..8, prop::option::weighted(0.6, 0_u16..1000));
    prop::collection::vec(pair, 1..4)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => pairs().prop_map(Step::Put),
        5 => (0_usize..2, pairs()).prop_map(|(who, pairs)| Step::PutIn(who, pairs)),
        4 => (0_usize..2, any::<bool>()).prop_map(|(who, commit)| Step::End(who, commit)),
        4 => (1_i64..120).prop_map(Step::Wait),
        8 => (0_usize..4).prop_map(Step::Clean),
        2 => (0_usize..3).prop_map(Step::Purge),
    ]
}

/// While the new replica is back-filled.
fn late_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => step(),
        3 => (0_usize..4).prop_map(Step::Purge),
        1 => Just(Step::Begin),
        9 => (1_usize..6, prop_oneof![Just(1_usize), Just(200)])
            .prop_map(|(times, bytes)| Step::Ask(times, bytes)),
        3 => Just(Step::NextSource),
        1 => Just(Step::ReopenSource),
        1 => prop::option::of(any::<u64>()).prop_map(Step::ReopenNew),
    ]
}

impl World {
    fn apply(&mut self, step: &Step) {
        match step {
            Step::Put(pairs) => self.put_plain(pairs),
            Step::PutIn(who, pairs) => self.put_in(*who, pairs),
            Step::End(who, commit) => self.end(*who, *commit),
            Step::Wait(ms) => self.wait(*ms),
            Step::Clean(which) => self.clean(*which),
            Step::Purge(which) => self.purge(*which),
            Step::Begin => self.begin(),
            Step::Ask(times, bytes) => {
                for _ in 0..*times {
                    self.ask(*bytes);
                }
            }
            Step::NextSource => self.next_source(),
            Step::ReopenSource => {
                self.let_go();
                self.reopen_source();
            }
            Step::ReopenNew(power_loss) => self.reopen_new(*power_loss),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn back_filled_values_are_those_of_the_history(
        before in prop::collection::vec(step(), 20..60),
        after in prop::collection::vec(late_step(), 1..60),
        wanders in any::<bool>(),
    ) {
        let mut world = World::new();
        world.wanders = wanders;
        for step in &before {
            world.apply(step);
        }
        world.begin();
        for step in &after {
            world.apply(step);
        }
        world.finish();
        world.check();
    }
}
