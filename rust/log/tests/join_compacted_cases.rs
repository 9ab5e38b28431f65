//! Back-fills of compacted logs, case by case (`expansion.md`, section 6).

use std::path::Path;
use std::sync::Arc;

use crate::common::cleaning::CleanRig;
use crate::common::killed_disk::KilledDisk;
use crate::common::*;
use crate::join::{batches, raw, start_of};
use crate::join_compacted::{LEADER, Progress, World, begin_at, complete, config};
use pyrklog_arena::Fuse;
use pyrklog_log::disk::Disk;
use pyrklog_log::disk::testing::MemDisk;
use pyrklog_log::{
    FillError, FillOrigin, Log, LogConfig, LogEnv, OpenState, StartAtEnd, SyncScope, Wait,
};
use pyrklog_wire::batch;

/// Several segments whose replicas are cleaned once, and a replica that began behind them.
fn begun() -> World {
    let mut world = filled();
    for which in 0..3 {
        world.clean(which);
    }
    begin_behind(&mut world);
    world
}

fn filled() -> World {
    let mut world = World::new();
    for i in 0..16_u16 {
        world.put_plain(&[((i % 3) as u8, Some(i)), (5, None)]);
        world.put_in(usize::from(i) % 2, &[((i % 5) as u8, Some(100 + i))]);
        world.end(usize::from(i) % 2, i % 3 == 0);
    }
    world
}

fn begin_behind(world: &mut World) {
    world.begin();
    for i in 0..4 {
        world.put_plain(&[(6, Some(i))]);
    }
}

fn new(world: &mut World) -> &mut Rig {
    &mut world.new.as_mut().unwrap().rig
}

#[test]
fn segments_of_a_cleaned_log_are_joined_with_their_gaps() {
    let mut world = begun();
    world.finish();
    assert!(world.joined > 2, "{} segments", world.joined);
    let source = &world.logs[1].rig;
    let (start, end) = (source.log.log_start_offset(), source.log.log_end_offset());
    let expected = raw(source, start, end);
    let headers = batches(&expected);
    assert!((headers.len() as i64) < end - start, "there are gaps");
    let new = &world.new.as_ref().unwrap().rig;
    assert_eq!(raw(new, start, end), expected);
    assert_eq!(new.log.log_start_offset(), start);
    world.check();
}

#[test]
fn another_log_is_taken_only_if_it_is_clean_beyond_the_start() {
    let mut world = begun();
    let start = new(&mut world).log.log_start_offset();
    let of = |broker, opening| FillOrigin { broker, opening };
    let log = &new(&mut world).log;
    assert!(log.may_fill_from(of(1, 5), 0) && log.may_fill_from(of(2, 6), 0));
    while world.joined == 0 {
        assert_eq!(world.ask(300), Progress::Goes);
    }
    let opening = world.logs[1].rig.log.opening();
    for restarts in [false, true] {
        if restarts {
            world.reopen_new(None);
        }
        let log = &new(&mut world).log;
        assert!(log.may_fill_from(of(1, opening), 0), "the same");
        assert!(
            !log.may_fill_from(of(1, opening + 1), start - 1),
            "opened again"
        );
        assert!(
            !log.may_fill_from(of(2, opening), start - 1),
            "another broker's"
        );
        assert!(log.may_fill_from(of(2, opening), start), "it is clean");
    }
    let opening = world.logs[1].rig.log.opening();
    world.reopen_source();
    assert_ne!(world.logs[1].rig.log.opening(), opening);
}

/// What was joined while the topic was not compacted came from any log.
#[test]
fn what_has_no_origin_goes_with_no_log() {
    let mut world = filled();
    begin_behind(&mut world);
    while world.joined == 0 {
        world.ask(300);
    }
    let partial = || Path::new(FOLDER).join("partial");
    let content = |world: &mut World| new(world).memory.content(&partial()).unwrap();
    assert!(content(&mut world).starts_with(b"1\n"));
    let plain = LogConfig {
        cleanup_compact: false,
        ..config()
    };
    let log = &mut new(&mut world).log;
    log.set_config(Arc::new(plain));
    let end = log.log_start_offset();
    let origin = log.fill_origin().unwrap();
    assert!(log.plan_compacted_fill(0, origin).is_none());
    let source = world.logs[1].rig.log.fill_source(end).unwrap();
    let aborted = source.load_aborted(Wait::Blocking).unwrap();
    let bytes = raw(&world.logs[1].rig, source.begin(), end);
    let log = &mut new(&mut world).log;
    let mut fill = log.plan_fill(source.begin()).unwrap().open();
    fill.add(&bytes).unwrap();
    complete(log, fill.finish(&aborted, 5_000).unwrap()).unwrap();
    log.set_config(Arc::new(config()));
    assert_eq!(log.fill_origin(), None);
    assert!(!log.may_fill_from(origin, i64::MAX));
    assert!(content(&mut world).starts_with(b"0\n"));
}

#[test]
fn segment_that_is_cleaned_meanwhile_is_another_one() {
    let mut world = begun();
    let end = new(&mut world).log.log_start_offset();
    let before = world.logs[1].rig.log.fill_source(end).unwrap().segment_id();
    assert_eq!(
        world.logs[1].rig.log.fill_source(end).unwrap().segment_id(),
        before
    );
    for i in 0..20 {
        world.put_plain(&[(1, Some(i))]);
    }
    world.clean(1);
    let after = world.logs[1].rig.log.fill_source(end).unwrap().segment_id();
    assert_ne!(before, after);
}

/// All that the oldest segments had was overwritten later.
#[test]
fn emptied_segments_lead_to_the_leaders_start() {
    let mut world = World::new();
    for i in 0..12 {
        world.put_plain(&[(i % 3, Some(1))]);
    }
    for i in 0..12 {
        world.put_plain(&[(i % 3, Some(2))]);
    }
    world.clean(1);
    let first = batches(&raw(&world.logs[1].rig, 0, 24));
    let first = batch::BatchHeader::parse(&first[0]).unwrap().base_offset;
    assert!(first > 12);
    world.begin();
    world.put_plain(&[(7, Some(1))]);
    world.finish();
    assert_eq!(new(&mut world).log.log_start_offset(), 0);
    world.reopen_new(None);
    world.check();
}

/// The leader copied a compacted log: it met the first batch of an epoch later than there was one.
#[test]
fn epoch_may_begin_earlier_than_the_leader_knows() {
    let mut world = World::new();
    for epoch in 0..4 {
        world.logs[LEADER].rig.epoch = epoch;
        for i in 0..4 {
            world.put_plain(&[(i, Some(epoch as u16))]);
        }
    }
    let state = world.logs[LEADER].rig.log.end_state();
    let known: Vec<_> = state
        .epochs
        .iter()
        .map(|e| (e.epoch, e.start_offset))
        .collect();
    let late = known.iter().map(|(epoch, begin)| match begin {
        0 => (*epoch, 0),
        begin => (*epoch, begin + 2),
    });
    let producers = pyrklog_log::snapshot::encode_sorted(state.producers.clone());
    let start = StartAtEnd::received(state.offset, late, &producers).unwrap();
    let mut rig = CleanRig::new(config());
    begin_at(&mut rig.rig, &start);
    world.new = Some(rig);
    world.put_plain(&[(7, Some(1))]);
    let origin = FillOrigin {
        broker: 1,
        opening: 1,
    };
    let source = &world.logs[1].rig;
    let begin = source.log.fill_source(state.offset).unwrap().begin();
    let bytes = raw(source, begin, state.offset);
    for epoch in [0, 7] {
        let mut wrong = batches(&bytes);
        let last = wrong.len() - 1;
        batch::set_partition_leader_epoch(&mut wrong[last], epoch);
        let log = &new(&mut world).log;
        let mut fill = log.plan_compacted_fill(begin, origin).unwrap().open();
        let refused = fill.add(&wrong.concat());
        assert!(
            matches!(refused, Err(FillError::Unfit(_))),
            "{epoch}: {refused:?}"
        );
        fill.discard().unwrap();
    }
    world.finish();
    world.check();
}

#[test]
fn partial_log_is_not_cleaned_and_nothing_of_a_whole_one_is_clean() {
    let mut world = begun();
    for i in 0..20 {
        world.put_plain(&[(1, Some(i))]);
    }
    let new_rig = world.new.as_mut().unwrap();
    new_rig.rig.sync(SyncScope::Written);
    assert!(new_rig.begin().is_none());
    world.finish();
    let new_rig = world.new.as_mut().unwrap();
    assert_eq!(new_rig.rig.log.clean_below(), 0);
    assert!(new_rig.clean().unwrap());
    assert!(new_rig.rig.log.clean_below() > 0);
}

#[test]
fn wrong_segments_are_refused() {
    let mut world = begun();
    let end = new(&mut world).log.log_start_offset();
    let source = &world.logs[1].rig;
    let begin = source.log.fill_source(end).unwrap().begin();
    let right = batches(&raw(source, begin, end));
    assert!(right.len() > 1);
    let origin = FillOrigin {
        broker: 1,
        opening: 1,
    };
    let mut swapped = right.clone();
    swapped.swap(0, 1);
    let mut broken = right.clone();
    *broken[1].last_mut().unwrap() ^= 1;
    for wrong in [swapped, broken] {
        let log = &new(&mut world).log;
        let mut fill = log.plan_compacted_fill(begin, origin).unwrap().open();
        let refused = fill.add(&wrong.concat());
        assert!(matches!(refused, Err(FillError::Unfit(_))), "{refused:?}");
        fill.discard().unwrap();
    }
    // Without a batch behind the end it is not known whether more comes.
    let log = &new(&mut world).log;
    let mut fill = log.plan_compacted_fill(begin, origin).unwrap().open();
    fill.add(&right[..right.len() - 1].concat()).unwrap();
    assert!(!fill.is_complete());
    fill.discard().unwrap();
}

/// A kill, or a loss of power, at any step of a join.
#[test]
fn an_interrupted_back_fill_goes_on() {
    let mut seen = (false, false);
    for steps in 0..70 {
        for seed in [None, Some(steps as u64), Some(steps as u64 + 1_000)] {
            // The first segment, which names its log, or the second.
            for joined in [0, 1] {
                let mut world = begun();
                while world.joined < joined {
                    world.ask(300);
                }
                let rig = new(&mut world);
                let before = rig.log.log_start_offset();
                let state = rig.state(true);
                rig.log.close_cleanly().unwrap();
                rig.memory.sync_file_system(Path::new(DIR)).unwrap();
                let memory = rig.memory.clone();
                interrupt(&world, &memory, state, steps, seed);
                let rig = new(&mut world);
                let unclean = OpenState {
                    clean: false,
                    ..state
                };
                let env = LogEnv::new(Arc::new(memory), 16);
                let (log, _) = open_in(env, &rig.config, unclean, 1_000).unwrap();
                rig.log = log;
                rig.check_invariants();
                assert!(rig.log.is_partial() && !rig.log.ends_before_its_start());
                let is_joined = rig.log.log_start_offset() < before;
                match is_joined {
                    true => seen.1 = true,
                    false => seen.0 = true,
                }
                let left = rig.files();
                assert!(left.iter().all(|one| !one.ends_with(".fill")), "{left:?}");
                if is_joined || joined > 0 {
                    let other = FillOrigin {
                        broker: 2,
                        opening: 1,
                    };
                    assert!(!rig.log.may_fill_from(other, 0), "its origin is known");
                }
                world.finish();
                assert_eq!(
                    new(&mut world).log.log_start_offset(),
                    0,
                    "{steps} {seed:?} {joined}"
                );
                world.check();
            }
        }
    }
    assert_eq!(seen, (true, true));
}

/// Joins a segment of the source; after some steps the process dies, or with a seed the machine.
fn interrupt(world: &World, memory: &MemDisk, state: OpenState, steps: i64, seed: Option<u64>) {
    let fuse = Fuse::default();
    let disk = KilledDisk {
        inner: Arc::new(memory.clone()),
        fuse: fuse.clone(),
    };
    let env = LogEnv::new(Arc::new(disk), 16);
    let (mut log, _) = open_in(env, &config(), state, 1_000).unwrap();
    fuse.burn_after(steps);
    let _interrupted = join_one(&world.logs[1].rig, &mut log);
    drop(log);
    match seed {
        Some(seed) => memory.reboot(seed),
        None => memory.kill_process(),
    }
}

fn join_one(source: &Rig, log: &mut Log) -> Result<(), FillError> {
    let end = log.log_start_offset();
    let told = source.log.fill_source(end).unwrap();
    let origin = FillOrigin {
        broker: 1,
        opening: source.log.opening(),
    };
    assert!(log.may_fill_from(origin, 0));
    let plan = log.plan_compacted_fill(told.begin(), origin).unwrap();
    let mut fill = plan.open();
    fill.add(&raw(source, told.begin(), source.log.log_end_offset()))?;
    let aborted = told.load_aborted(Wait::Blocking).unwrap();
    complete(log, fill.finish(&aborted, 5_000)?)
}

/// What is left after a kill between two starts is not followed on: its leader's log is another than
/// the one that the joined segments came from.
#[test]
fn interrupted_restart_is_known_as_one() {
    let mut seen = false;
    for steps in 0..40 {
        let mut world = begun();
        while world.joined < 2 {
            world.ask(300);
        }
        let start = start_of(&world.logs[LEADER].rig.log);
        let rig = new(&mut world);
        let state = rig.state(true);
        let before = raw(rig, rig.log.log_start_offset(), rig.log.log_end_offset());
        rig.log.close_cleanly().unwrap();
        rig.memory.sync_file_system(Path::new(DIR)).unwrap();
        let memory = rig.memory.clone();
        let fuse = Fuse::default();
        let disk = KilledDisk {
            inner: Arc::new(memory.clone()),
            fuse: fuse.clone(),
        };
        let env = LogEnv::new(Arc::new(disk), 16);
        let (mut log, _) = open_in(env, &config(), state, 1_000).unwrap();
        fuse.burn_after(steps);
        let mut job = log.begin_at_end(&start, 1_000, 86_400_000).unwrap();
        let _interrupted = job.execute();
        drop((job, log));
        memory.kill_process();
        let unclean = OpenState {
            clean: false,
            ..state
        };
        let env = LogEnv::new(Arc::new(memory), 16);
        let (log, _) = open_in(env, &config(), unclean, 1_000).unwrap();
        rig.log = log;
        rig.drain();
        let (start, end) = (rig.log.log_start_offset(), rig.log.log_end_offset());
        seen |= rig.log.ends_before_its_start();
        // Without its last new records it follows on, as after any loss.
        let is_as_before = || before.starts_with(&raw(rig, start, end));
        assert!(
            rig.log.ends_before_its_start() || rig.log.is_empty() || is_as_before(),
            "{steps}: {start} to {end}"
        );
    }
    assert!(seen);
}
