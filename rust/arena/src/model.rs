//! Commit, read, write behind, reclaim and truncate, in every order of their threads, with a kill
//! after every store; and planted faults, each of which must be found.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::arena::Arena;
use crate::attach::inspect;
use crate::explore::{Body, Fault, Invariant, Schedule, step};
use crate::layout::CHUNK_BYTES;
use crate::segment::{CachedSegment, Rate};
use crate::slots::PartitionName;

/// Fills more than one of the smallest blocks, so that it needs a chunk of its own.
const LARGE_BYTES: usize = 20_000;

/// One partition with one segment: what it should hold, and its file.
struct Partition {
    segment: Arc<CachedSegment>,
    slot: u32,
    content: u8,
    file: Mutex<Vec<u8>>,
    /// Bytes whose append has returned.
    acknowledged: AtomicUsize,
    /// Cut to nothing: none of its blocks count any more.
    is_cut: AtomicBool,
    /// A follower: written bytes need not be in the arena.
    is_transient: AtomicBool,
}

fn byte(content: u8, position: usize) -> u8 {
    content.wrapping_add((position % 251) as u8)
}

fn bytes(content: u8, from: usize, to: usize) -> Vec<u8> {
    (from..to).map(|position| byte(content, position)).collect()
}

impl Partition {
    fn new(arena: &Arc<Arena>, index: i32, content: u8) -> Arc<Partition> {
        let name = PartitionName {
            topic: "model".to_owned(),
            partition: index,
            topic_id: [7; 16],
        };
        let slot = arena.slot(&name).expect("a slot is ready");
        Partition::over(arena.segment(slot, 0), slot.index, content)
    }

    fn over(segment: Arc<CachedSegment>, slot: u32, content: u8) -> Arc<Partition> {
        Arc::new(Partition {
            segment,
            slot,
            content,
            file: Mutex::default(),
            acknowledged: AtomicUsize::new(0),
            is_cut: AtomicBool::new(false),
            is_transient: AtomicBool::new(false),
        })
    }

    /// Appends what follows; without room it writes to the file itself, like a log.
    fn append(&self, len: usize, rate: &mut Rate) {
        let from = self.acknowledged.load(Ordering::SeqCst);
        let batch = bytes(self.content, from, from + len);
        rate.is_transient = self.is_transient.load(Ordering::SeqCst);
        if !self.segment.append(rate, from as u32, &batch, 0) {
            self.write(from + len);
        }
        self.acknowledged.store(from + len, Ordering::SeqCst);
    }

    /// Writes the file up to `end`, and tells the arena.
    fn write(&self, end: usize) {
        let from = self.file.lock().unwrap().len();
        let guard = self.segment.arena().enter();
        let cached = self.segment.end().map_or(from, |cached| cached as usize);
        let slices = self
            .segment
            .range(&guard, from as u32, cached.min(end) as u32);
        let slices = slices.expect("what is not written is there");
        step();
        let mut file = self.file.lock().unwrap();
        for slice in &slices {
            file.extend_from_slice(slice);
        }
        let written = file.len();
        assert_eq!(*file, bytes(self.content, 0, written), "what was written");
        let rest = bytes(self.content, written, end);
        file.extend(rest);
        drop(file);
        drop(guard);
        self.segment.set_written(written as u32);
    }

    /// The writer: writes while there is anything.
    fn write_behind(&self) {
        if let Some(end) = self.segment.end()
            && end as usize > self.file.lock().unwrap().len()
        {
            self.write(end as usize);
        }
    }

    /// Looks `position` up and sends slowly what it finds.
    fn read(&self, position: usize) {
        let guard = self.segment.arena().enter();
        let Some(found) = self.segment.slice(&guard, position as u32) else {
            return;
        };
        step();
        let expected = bytes(self.content, position, position + found.len());
        assert_eq!(found, expected, "as it was looked up");
        step();
        assert_eq!(found, expected, "to the end");
    }

    /// After a kill: whatever counts is right, and nothing acknowledged is missing.
    fn check(&self, arena: &Arena, is_required: bool) -> Result<(), String> {
        let memory = &arena.memory;
        let seen = inspect(memory, None, arena.capacity)?;
        let file = self.file.lock().unwrap();
        let mut end = file.len();
        let mut blocks: Vec<_> = seen
            .blocks
            .iter()
            .filter(|found| found.slot == self.slot)
            .collect();
        blocks.sort_by_key(|found| found.block.position);
        for found in blocks {
            let block = found.block;
            if let Some(damage) = &found.damage {
                return Err(damage.clone());
            }
            let (from, to) = (
                block.position as usize,
                (block.position + block.len) as usize,
            );
            if from < to && self.is_cut.load(Ordering::SeqCst) {
                return Err("what was cut has come back".to_owned());
            }
            // SAFETY: one thread runs at a time, and it is this one.
            let held = unsafe { memory.lend(block.payload(), to - from) };
            if is_required && held != bytes(self.content, from, to) {
                return Err(format!(
                    "{from}..{to} is committed and not what was appended"
                ));
            }
            if is_required && block.written > 0 && from + block.written as usize > file.len() {
                return Err(format!("{} bytes at {from} are not written", block.written));
            }
            if from <= end {
                end = end.max(to);
            }
        }
        let acknowledged = self.acknowledged.load(Ordering::SeqCst);
        if is_required && end < acknowledged {
            return Err(format!("{acknowledged} bytes acknowledged, {end} are left"));
        }
        Ok(())
    }
}

fn arena(chunks: u32) -> Arc<Arena> {
    grown(chunks, chunks)
}

/// With memory for some of its chunks.
fn grown(chunks: u32, populated: u32) -> Arc<Arena> {
    let mut arena = Arena::anonymous(u64::from(chunks) * CHUNK_BYTES as u64).expect("memory");
    Arc::get_mut(&mut arena).expect("nobody else").set_guards(3);
    arena.grow(populated).expect("memory");
    arena
}

fn janitor(arena: &Arc<Arena>) -> Body {
    let arena = Arc::clone(arena);
    Box::new(move || {
        arena.reclaim(true);
        arena.collect();
    })
}

/// A janitor that also gives back free chunks.
fn shrinking_janitor(arena: &Arc<Arena>) -> Body {
    let arena = Arc::clone(arena);
    Box::new(move || {
        arena.reclaim(true);
        arena.collect();
        arena.give_back(1).expect("the machine can do that");
    })
}

fn each(arena: &Arc<Arena>, partitions: &[&Arc<Partition>]) -> Invariant {
    let arena = Arc::clone(arena);
    let partitions: Vec<_> = partitions.iter().map(|one| Arc::clone(one)).collect();
    Box::new(move || {
        partitions
            .iter()
            .try_for_each(|one| one.check(&arena, true))
    })
}

/// A reader of a written block, an append that can get only that block's chunk, a janitor.
fn read_and_reclaim() -> (Vec<Body>, Invariant) {
    let arena = arena(1);
    let (old, new) = (Partition::new(&arena, 0, 1), Partition::new(&arena, 1, 100));
    old.append(100, &mut Rate::default());
    old.write(100);
    let invariant = each(&arena, &[&old, &new]);
    let bodies: Vec<Body> = vec![
        Box::new(move || old.read(10)),
        Box::new(move || new.append(LARGE_BYTES, &mut Rate::default())),
        janitor(&arena),
    ];
    (bodies, invariant)
}

/// Two appends, the second over two blocks; the writer behind them; a janitor.
fn commit_and_write() -> (Vec<Body>, Invariant) {
    let arena = arena(2);
    let log = Partition::new(&arena, 0, 1);
    let invariant = each(&arena, &[&log]);
    let writer = Arc::clone(&log);
    let bodies: Vec<Body> = vec![
        Box::new(move || {
            let mut rate = Rate::default();
            log.append(50, &mut rate);
            log.append(5_000, &mut rate);
        }),
        Box::new(move || writer.write_behind()),
        janitor(&arena),
    ];
    (bodies, invariant)
}

/// A log is cut and goes on with other bytes, beside a reader of the old ones and a janitor.
fn truncate() -> (Vec<Body>, Invariant) {
    let arena = arena(1);
    let old = Partition::new(&arena, 0, 1);
    old.append(100, &mut Rate::default());
    old.write(100);
    let (reader, log) = (Arc::clone(&old), Arc::clone(&old));
    let (watched, seen) = (Arc::clone(&arena), Arc::clone(&arena));
    let fresh: Arc<Mutex<Option<Arc<Partition>>>> = Arc::default();
    let after = Arc::clone(&fresh);
    let invariant: Invariant = Box::new(move || match &*after.lock().unwrap() {
        Some(after) => after.check(&seen, true),
        None => old.check(&seen, !old.is_cut.load(Ordering::SeqCst)),
    });
    let bodies: Vec<Body> = vec![
        Box::new(move || {
            let slot = watched
                .known_slot(&PartitionName {
                    topic: "model".to_owned(),
                    partition: 0,
                    topic_id: [7; 16],
                })
                .expect("it has one");
            let next = watched.kill_blocks(slot);
            log.acknowledged.store(0, Ordering::SeqCst);
            log.is_cut.store(true, Ordering::SeqCst);
            step();
            let is_taken = log.segment.append(&mut Rate::default(), 100, &[1; 10], 0);
            assert!(!is_taken, "a segment that is dead takes nothing");
            let segment = watched.segment(next, 0);
            let new = Partition::over(segment, next.index, 50);
            *fresh.lock().unwrap() = Some(Arc::clone(&new));
            new.append(40, &mut Rate::default());
        }),
        Box::new(move || reader.read(10)),
        janitor(&arena),
    ];
    (bodies, invariant)
}

/// A follower's appends, the writer behind them, and a reader. A spare chunk serves appends that
/// come while a given-up block is being read.
fn copy_and_write() -> (Vec<Body>, Invariant) {
    let arena = arena(2);
    let log = Partition::new(&arena, 0, 1);
    log.is_transient.store(true, Ordering::SeqCst);
    log.append(60, &mut Rate::default());
    let invariant = each(&arena, &[&log]);
    let (writer, reader) = (Arc::clone(&log), Arc::clone(&log));
    let bodies: Vec<Body> = vec![
        Box::new(move || {
            let mut rate = Rate::default();
            log.append(50, &mut rate);
            log.append(70, &mut rate);
        }),
        Box::new(move || {
            writer.write_behind();
            arena.collect();
        }),
        Box::new(move || reader.read(10)),
    ];
    (bodies, invariant)
}

/// A reader of a written block, an append that would take that block's chunk, a janitor that gives
/// its memory back.
fn read_and_give_back() -> (Vec<Body>, Invariant) {
    let arena = arena(1);
    let (old, new) = (Partition::new(&arena, 0, 1), Partition::new(&arena, 1, 100));
    old.append(100, &mut Rate::default());
    old.write(100);
    let invariant = each(&arena, &[&old, &new]);
    let bodies: Vec<Body> = vec![
        Box::new(move || old.read(10)),
        Box::new(move || new.append(LARGE_BYTES, &mut Rate::default())),
        shrinking_janitor(&arena),
    ];
    (bodies, invariant)
}

/// A chunk gets memory by an append, and loses it again when it is written.
fn grow_and_give_back() -> (Vec<Body>, Invariant) {
    let arena = grown(2, 1);
    arena.set_allowance(1);
    let log = Partition::new(&arena, 0, 1);
    let invariant = each(&arena, &[&log]);
    let shrinking = shrinking_janitor(&arena);
    let bodies: Vec<Body> = vec![
        Box::new(move || {
            log.append(LARGE_BYTES, &mut Rate::default());
            log.write_behind();
        }),
        shrinking,
    ];
    (bodies, invariant)
}

type Scenario = fn() -> (Vec<Body>, Invariant);

/// More take minutes and find nothing else; `MODEL_INTERRUPTIONS` overrides it.
const INTERRUPTIONS_MAX: usize = 2;

fn explore(make: Scenario, fault: Option<Fault>) -> Result<usize, String> {
    let asked = std::env::var("MODEL_INTERRUPTIONS");
    let schedule = Schedule {
        interruptions_max: asked.map_or(INTERRUPTIONS_MAX, |text| text.parse().expect("a number")),
        fault,
    };
    schedule.explore(make)
}

#[test]
fn a_reader_and_a_reclaimer_in_every_order() {
    let orders = explore(read_and_reclaim, None).unwrap();
    println!("{orders} orders");
    assert!(orders > 1_000, "{orders}");
}

#[test]
fn a_commit_and_its_writer_in_every_order() {
    let orders = explore(commit_and_write, None).unwrap();
    println!("{orders} orders");
    assert!(orders > 1_000, "{orders}");
}

#[test]
fn a_truncation_and_a_reader_in_every_order() {
    let orders = explore(truncate, None).unwrap();
    println!("{orders} orders");
    assert!(orders > 1_000, "{orders}");
}

#[test]
fn a_follower_its_writer_and_a_reader_in_every_order() {
    let orders = explore(copy_and_write, None).unwrap();
    println!("{orders} orders");
    assert!(orders > 1_000, "{orders}");
}

#[test]
fn memory_that_is_given_back_in_every_order() {
    for make in [read_and_give_back, grow_and_give_back] {
        let orders = explore(make, None).unwrap();
        println!("{orders} orders");
        assert!(orders > 100, "{orders}");
    }
}

#[test]
fn every_injected_fault_is_found() {
    let planted: [(Fault, Scenario); 12] = [
        (Fault::GivenBackStillFree, read_and_give_back),
        (Fault::GuardsNotAwaited, read_and_give_back),
        (Fault::GuardsNotAwaited, copy_and_write),
        (Fault::UnwrittenReclaimed, copy_and_write),
        (Fault::CommittedFirst, copy_and_write),
        (Fault::GuardsNotAwaited, read_and_reclaim),
        (Fault::GuardLeftEarly, read_and_reclaim),
        (Fault::ReclaimedFound, read_and_reclaim),
        (Fault::UnwrittenReclaimed, commit_and_write),
        (Fault::CommittedFirst, commit_and_write),
        (Fault::StateFirst, commit_and_write),
        (Fault::GenerationIgnored, truncate),
    ];
    for (fault, make) in planted {
        let found = explore(make, Some(fault));
        assert!(
            found.is_err(),
            "{fault:?} was not found in {found:?} orders"
        );
    }
}
