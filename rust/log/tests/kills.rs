//! kill -9 at named points, on a real disk: a child process appends, rolls, retains, truncates and
//! recovers until it is killed; its parent opens what is left.
//!
//! The child announces each append, and what is safe afterwards; the parent checks that.
//! `LOG_KILLS` is the number of kills per point (default 12).

mod common;
#[path = "common/killing_disk.rs"]
mod killing_disk;

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use common::records_in;
use killing_disk::{KillingDisk, Phase, Point};
use pyrklog_log::disk::{Disk, RealDisk};
use pyrklog_log::{
    BatchInfo, Checkpoint, Identity, Isolation, Log, LogConfig, LogDir, LogEnv, OpenReport,
    OpenRequest, Origin, SyncScope, TruncateError, Wait,
};
use pyrklog_wire::builder::BatchBuilder;

const NOW_MS: i64 = 1_000;
const EXPIRATION_MS: i64 = 86_400_000;
const PRODUCER: i64 = 7;
const STEPS_MAX: usize = 4_000;
/// Each kill is this many operations later than the previous one.
const SKIP_STRIDE: usize = 3;

fn kills() -> usize {
    std::env::var("LOG_KILLS").map_or(12, |text| text.parse().expect("LOG_KILLS is a number"))
}

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 900,
        index_interval_bytes: 100,
        retention_bytes: 4_000,
        retention_ms: -1,
        ..LogConfig::default()
    }
}

/// A log in a directory, as in a broker.
struct Home {
    dir: LogDir,
    log: Log,
    report: OpenReport,
}

fn open(disk: Arc<dyn Disk>, path: &Path) -> Home {
    let identity = Identity {
        cluster_id: "cluster".to_owned(),
        node_id: 1,
    };
    let env = LogEnv::new(disk, 16);
    let dir = LogDir::open(Arc::clone(&env), path, &identity).unwrap();
    let (log, report) = Log::open(OpenRequest {
        env,
        log_dir: path,
        topic: "t",
        partition: 0,
        topic_id: Some([7; 16]),
        config: Arc::new(config()),
        state: dir.open_state("t", 0),
        now_ms: NOW_MS,
        producer_id_expiration_ms: EXPIRATION_MS,
    })
    .unwrap();
    let mut home = Home { dir, log, report };
    home.write();
    home
}

impl Home {
    fn write(&mut self) {
        while let Some(mut job) = self.log.take_writes() {
            let result = job.execute();
            self.log.complete_writes(job, result);
        }
        let end = self.log.durable_end_offset();
        self.log.advance_high_watermark(end);
    }

    fn checkpoint(&mut self) {
        while let Some(mut job) = self.log.take_sync(SyncScope::Written) {
            let result = job.execute();
            if !self.log.complete_sync(job, result) {
                break;
            }
        }
        assert_eq!(self.log.poisoned(), None);
        let row = [("t", 0, self.log.recovery_point())];
        self.dir
            .write_checkpoint(Checkpoint::RecoveryPoint, &row)
            .unwrap();
    }

    fn contents(&self) -> BTreeMap<i64, String> {
        let mut found = BTreeMap::new();
        let mut offset = self.log.log_start_offset();
        loop {
            let place = self.log.locate(offset, Isolation::HighWatermark).unwrap();
            let slice = place.resolve(1 << 20, true, Wait::Blocking).unwrap();
            let records = records_in(&common::bytes(&slice));
            let Some((last, _)) = records.last() else {
                return found;
            };
            let next = last + 1;
            found.extend(records.into_iter().filter(|(at, _)| *at >= offset));
            offset = next;
        }
    }
}

// --- the child -----------------------------------------------------------------------------------

/// A small random generator, independent of library versions.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as usize % sides
    }
}

/// Runs only in a child process.
#[test]
fn child() {
    let Ok(folder) = std::env::var("KILLS_FOLDER") else {
        return;
    };
    println!(); // the harness has begun this line
    let number = |name: &str| -> usize { std::env::var(name).unwrap().parse().unwrap() };
    let point = std::env::var("KILLS_POINT").unwrap();
    let point = Point::ALL
        .iter()
        .find(|(name, _)| *name == point)
        .unwrap()
        .1;
    let disk = KillingDisk::new(point, number("KILLS_SKIP"));
    disk.enter(Phase::Opening);
    let mut home = open(Arc::new(disk.clone()), Path::new(&folder));
    disk.enter(Phase::Running);
    let mut dice = Dice(number("KILLS_SEED") as u64);
    for round in 0..STEPS_MAX {
        match dice.roll(40) {
            0 => retain(&mut home, &disk),
            1 => truncate(&mut home, &disk, &mut dice),
            2 | 3 => home.checkpoint(),
            _ => append(&mut home, round, &mut dice),
        }
    }
}

fn append(home: &mut Home, round: usize, dice: &mut Dice) {
    let base = home.log.log_end_offset();
    let mut builder = BatchBuilder::new().producer(PRODUCER, 0, base as i32);
    for offset in base..base + 1 + dice.roll(3) as i64 {
        let value = format!("{offset}.{round}.{}", "x".repeat(dice.roll(60)));
        println!("@appending {offset} {value}");
        builder.append(NOW_MS, None, Some(value.as_bytes()));
    }
    let mut batch = builder.build();
    let info = BatchInfo::parse(&batch).unwrap();
    let appended = home
        .log
        .append(&mut batch, &info, Origin::Client, 0, NOW_MS);
    assert!(!appended.unwrap().duplicate);
    home.write();
    println!("@safe {}", home.log.durable_end_offset());
}

fn retain(home: &mut Home, disk: &KillingDisk) {
    home.log.retention_candidates(NOW_MS).load().unwrap();
    let retention = home.log.plan_retention(NOW_MS);
    println!("@starting {}", home.log.log_start_offset());
    disk.enter(Phase::Retaining);
    let row = [("t", 0, home.log.log_start_offset())];
    home.dir
        .write_checkpoint(Checkpoint::LogStart, &row)
        .unwrap();
    if let Some(mut removed) = retention.removed {
        removed.rename().unwrap();
        removed.delete().unwrap();
    }
    home.write();
    disk.enter(Phase::Running);
}

fn truncate(home: &mut Home, disk: &KillingDisk, dice: &mut Dice) {
    let end = home.log.log_end_offset();
    let target = (end - dice.roll(25) as i64).max(home.log.log_start_offset());
    println!("@truncating {target}");
    disk.enter(Phase::Truncating);
    match home.log.begin_truncation(target, NOW_MS, EXPIRATION_MS) {
        Ok(Some(mut job)) => {
            let result = job.execute();
            home.log.complete_truncation(job, result);
        }
        Ok(None) => {}
        Err(TruncateError::Busy) => unreachable!("everything is written"),
        Err(error) => panic!("{error}"),
    }
    home.write();
    disk.enter(Phase::Running);
    println!("@truncated {}", home.log.log_end_offset());
}

// --- the parent ----------------------------------------------------------------------------------

/// A log's announcements over all runs.
#[derive(Debug, Default)]
struct Told {
    values: BTreeMap<i64, String>,
    safe: i64,
    start: i64,
    killed: Option<String>,
}

impl Told {
    fn listen(&mut self, output: &str) {
        self.killed = None;
        for line in output.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| -> i64 { words[at].parse().unwrap() };
            match words[0] {
                "@appending" => {
                    self.values.insert(number(1), words[2].to_owned());
                }
                "@safe" => self.safe = number(1),
                "@starting" => self.start = number(1),
                "@truncating" => self.safe = self.safe.min(number(1) - 3),
                "@truncated" => {
                    self.safe = number(1);
                    self.values.split_off(&number(1));
                }
                "@killed" => self.killed = Some(line.to_owned()),
                _ => {}
            }
        }
    }

    /// Opens the log twice; the second time nothing is left to do.
    fn check(&mut self, folder: &Path) {
        let first = open(Arc::new(RealDisk), folder);
        let contents = first.contents();
        let end = first.log.log_end_offset();
        let killed = &self.killed;
        assert!(
            end >= self.safe,
            "{killed:?}: {} was safe, {end} is left",
            self.safe
        );
        let start = first.log.log_start_offset();
        assert!(
            start <= self.start,
            "{killed:?}: starts at {start}, not {}",
            self.start
        );
        for (offset, value) in &contents {
            assert_eq!(self.values.get(offset), Some(value), "{killed:?}");
        }
        assert_eq!(contents.len() as i64, end - start, "{killed:?}: a hole");
        assert_eq!(first.log.poisoned(), None);
        drop(first);
        let again = open(Arc::new(RealDisk), folder);
        assert_eq!(again.report.truncated_bytes, 0, "{killed:?}");
        assert_eq!(again.log.log_end_offset(), end);
        assert_eq!(again.contents(), contents);
        self.safe = end;
        self.values.split_off(&end);
    }
}

fn run_child(folder: &Path, point: &str, seed: usize, skip: usize) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--nocapture", "--test-threads=1"])
        .env("KILLS_FOLDER", folder)
        .env("KILLS_POINT", point)
        .env("KILLS_SEED", seed.to_string())
        .env("KILLS_SKIP", skip.to_string())
        .output()
        .unwrap()
}

/// The same log lives through all kills of a point.
fn kill_at(point: &str) {
    let folder = tempfile::tempdir().unwrap();
    let mut told = Told::default();
    let mut landed = 0;
    for seed in 0..kills() {
        let skip = match point {
            // An opening has few operations, so its kill comes sooner.
            "recovery" => seed % 6,
            _ => seed * SKIP_STRIDE,
        };
        if point == "recovery" {
            // Something to recover.
            let output = run_child(folder.path(), "append", seed, 40);
            told.listen(&String::from_utf8_lossy(&output.stdout));
        }
        let output = run_child(folder.path(), point, seed, skip);
        let said = String::from_utf8_lossy(&output.stdout);
        told.listen(&said);
        let died = output.status.signal() == Some(9);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(died, told.killed.is_some(), "{errors}");
        assert!(died || output.status.success(), "{errors}");
        landed += usize::from(died);
        told.check(folder.path());
    }
    assert!(
        landed >= kills().min(10),
        "only {landed} kills landed in {point}"
    );
}

#[test]
fn killed_in_append() {
    kill_at("append");
}

#[test]
fn killed_in_roll() {
    kill_at("roll");
}

#[test]
fn killed_in_index_write() {
    kill_at("index-write");
}

#[test]
fn killed_in_truncation() {
    kill_at("truncation");
}

#[test]
fn killed_in_retention() {
    kill_at("retention");
}

#[test]
fn killed_in_snapshot() {
    kill_at("snapshot");
}

#[test]
fn killed_in_recovery() {
    kill_at("recovery");
}
