//! Each invariant fails on a partition that breaks it; such a partition is taken out of service.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use pyrklog_log::disk::Disk;
use pyrklog_log::disk::testing::MemDisk;
use pyrklog_log::{BatchInfo, LogConfig, LogEnv, OpenRequest, OpenState, Origin, Unwritten};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::builder::BatchBuilder;

use super::*;
use crate::directory::Directory;
use crate::internal_waiters::{AppendWaiter, Done};
use crate::partition::{
    FollowerFetch, LeaderAndIsr, Partition, PartitionGuard, ProduceWaiter, TAKEOVER_MS, Topic,
    WaitFor,
};
use pyrklog_control::image::TopicState;
use pyrklog_control::outbox::Outbox;
use pyrklog_control::seam::Throttled;

#[derive(Debug, Default)]
struct Failures(Mutex<Vec<String>>);

impl Directory for Failures {
    fn flush_bytes(&self) -> usize {
        usize::MAX
    }

    fn write(&self, _: Arc<Partition<Self>>) {}

    fn write_later(&self, _: Arc<Partition<Self>>) {}

    fn count(&self, _: Unwritten, _: Unwritten) {}

    fn high_watermark_moved(&self) {}

    fn partition_failed(
        &self,
        partition: &Partition<Self>,
        _: &mut PartitionState,
        reason: String,
    ) {
        self.0.lock().push(format!("{partition}: {reason}"));
    }
}

fn open_log() -> Log {
    let memory = MemDisk::default();
    memory.create_dir_all(Path::new("/data")).unwrap();
    let opened = Log::open(OpenRequest {
        env: LogEnv::new(Arc::new(memory), 16),
        log_dir: Path::new("/data"),
        topic: "t",
        partition: 3,
        topic_id: None,
        config: Arc::new(LogConfig::default()),
        state: OpenState::default(),
        now_ms: 0,
        producer_id_expiration_ms: i64::MAX,
    });
    opened.unwrap().0
}

fn append(state: &mut PartitionState, outbox: &mut Outbox) {
    let mut builder = BatchBuilder::new();
    builder.append(0, None, Some(b"x"));
    let mut batch = builder.build();
    let info = BatchInfo::parse(&batch).unwrap();
    let log = state.log.as_mut().unwrap();
    let appended = log.append(&mut batch, &info, Origin::Client, 5, 0).unwrap();
    state.appended(&appended, &Failures::default(), outbox);
}

/// Broker 1 leads in epoch 5, broker 2 has fetched up to offset 1; two records are unwritten.
fn led() -> Partition<Failures> {
    let topic = Topic::new(&TopicState {
        name: Arc::from("t"),
        id: [0; 16],
        internal: false,
        partitions: Vec::new(),
        log_config: Arc::default(),
        min_insync_replicas: 1,
        throttled: Arc::new(Throttled::default()),
    });
    let partition = Partition::new(Arc::new(topic), 3, Arc::default(), 1);
    let mut outbox = Outbox::new(1);
    let mut state = partition.lock();
    state.log = Some(open_log());
    assert!(state.set_leadership(decision(5, &[1, 2], &[1, 2]), 0));
    state.finish_transition();
    append(&mut state, &mut outbox);
    append(&mut state, &mut outbox);
    state.update_follower_fetch_state(FollowerFetch {
        connection: 1,
        id: 2,
        broker_epoch: 9,
        offset: 1,
        log_start_offset: 0,
        session: None,
        now_ms: 0,
    });
    assert_eq!(state.check_invariants(), Ok(()));
    drop(state);
    partition
}

fn decision<'a>(leader_epoch: i32, replicas: &'a [i32], isr: &'a [i32]) -> LeaderAndIsr<'a> {
    LeaderAndIsr {
        leader_to_follow: None,
        leader_epoch,
        replicas,
        isr,
        is_held: false,
        partial: &[],
    }
}

fn waiter(end_offset: i64) -> ProduceWaiter {
    ProduceWaiter {
        end_offset,
        thread: 0,
        index: 0,
        token: 1,
        sequence: 0,
    }
}

/// The broken invariant after this damage.
fn broken(damage: impl FnOnce(&mut PartitionState)) -> String {
    let partition = led();
    let mut state = partition.lock();
    damage(&mut state);
    state.check_invariants().unwrap_err()
}

#[test]
fn impossible_roles_are_found() {
    assert_eq!(broken(|state| state.log = None), "it has no log");
    let told = broken(|state| state.leader_to_follow = Some(2));
    assert_eq!(told, "it leads and follows broker Some(2)");
    let told = broken(|state| state.role = Role::Follower);
    assert_eq!(told, "it follows nobody");
    let told = broken(|state| state.leader_epoch = 4);
    assert_eq!(told, "the leader epoch fell from 5 to 4");
    let told = broken(|state| state.led_since = 6);
    assert_eq!(told, "it has led since epoch 6");
    let told = broken(|state| state.epoch_start = 3);
    assert_eq!(told, "its leader epoch starts at 3");
}

#[test]
fn impossible_in_sync_sets_are_found() {
    let told = broken(|state| state.isr = vec![2]);
    assert_eq!(told, "it leads and is not in sync: [2]");
    let told = "[1, 3] are in sync, [1, 2] are waited for";
    assert_eq!(broken(|state| state.isr = vec![1, 3]), told);
    let told = "[1, 2] are in sync, [1] are waited for";
    assert_eq!(broken(|state| state.members = vec![1]), told);
    let told = broken(|state| state.followers[0].last_fetch_offset = 3);
    assert_eq!(told, "replica 2 reaches 3");
}

#[test]
fn waiters_that_can_never_wake_are_found() {
    type Damage = fn(&mut PartitionState);
    let damages: [(Damage, &str); 4] = [
        (
            |state| assert!(state.durable_waiters.insert(waiter(3))),
            "Some(3) to Some(3) at 0",
        ),
        (
            |state| assert!(state.durable_waiters.insert(waiter(0))),
            "Some(0) to Some(0) at 0",
        ),
        (
            |state| assert!(state.replication_waiters.insert(waiter(3))),
            "Some(3) to Some(3) at 0",
        ),
        (
            |state| {
                state.internal.add_append(AppendWaiter {
                    done: Done::Ticket(1),
                    base_offset: 0,
                    end_offset: 0,
                });
            },
            "Some(0) to Some(0) at 0",
        ),
    ];
    for (damage, waiters) in damages {
        assert_eq!(
            broken(damage),
            format!("produce requests wait for {waiters}")
        );
    }
    let told = broken(|state| state.unwritten.bytes += 1);
    assert!(told.starts_with("the directory counts"), "{told}");
}

/// Uses a bug planted in the log.
#[test]
#[cfg(feature = "sim")]
fn broken_log_invariants_are_found() {
    let told = broken(|state| state.log.as_mut().unwrap().force_high_watermark(2));
    assert_eq!(told, "the high watermark is behind the durable end");
}

#[test]
fn a_decision_that_contradicts_itself_changes_nothing() {
    let partition = led();
    let mut state = partition.lock();
    assert!(!state.set_leadership(decision(6, &[1, 2], &[2]), 0));
    assert!(state.followers[0].tells_of_reaching(0));
    assert!(!state.set_isr(5, &[1, 2], &[2], false));
    assert!(
        state.followers[0].tells_of_reaching(0),
        "followers are proposed again"
    );
    assert!(!state.set_isr(5, &[1], &[1, 2], false));
    assert_eq!((state.leader_epoch, &state.isr[..]), (5, &[1, 2][..]));
}

/// The controller makes the targets the replicas first, and takes the others out of the ISR next.
#[test]
fn leader_tolerates_an_in_sync_broker_that_is_no_longer_a_replica() {
    let partition = led();
    let mut outbox = Outbox::new(1);
    {
        let mut state = partition.lock();
        assert!(state.set_leadership(decision(6, &[1, 4], &[1, 2, 4]), 0));
        assert_eq!((state.role, state.leader_epoch), (Role::Leader, 6));
        assert!(!state.raise_high_watermark(usize::MAX, &mut outbox));
    }
    let mut state = partition.lock();
    assert_eq!(serves(&mut state), Ok(()), "nothing is broken");
    assert!(state.set_leadership(decision(7, &[1, 4], &[1, 4]), 0));
}

#[test]
fn a_follower_that_comes_to_lead_has_just_taken_over_for_a_minute() {
    let partition = led();
    let mut state = partition.lock();
    let lead = decision(6, &[1, 2], &[1, 2]);
    let follow = LeaderAndIsr {
        leader_to_follow: Some(2),
        ..lead
    };
    assert!(!state.has_just_taken_over(0), "it led from the start");
    assert!(state.set_leadership(lead, 1_000));
    assert!(!state.has_just_taken_over(1_000), "it went on leading");
    assert!(state.set_leadership(follow, 2_000));
    assert!(state.set_leadership(lead, 3_000));
    state.finish_transition();
    assert!(state.has_just_taken_over(3_000 + TAKEOVER_MS - 1));
    assert!(!state.has_just_taken_over(3_000 + TAKEOVER_MS));
}

fn serves(state: &mut PartitionGuard<'_, Failures>) -> Result<(), ErrorCode> {
    state.led().map(drop)
}

#[test]
fn broken_partition_goes_offline_and_is_reported_once() {
    let partition = led();
    let mut outbox = Outbox::new(1);
    partition.lock().epoch_start = 7;
    for _ in 0..2 {
        let mut state = partition.lock();
        assert_eq!(state.role, Role::Offline);
        assert_eq!(serves(&mut state), Err(ErrorCode::KAFKA_STORAGE_ERROR));
        assert!(state.log.as_ref().unwrap().poisoned().is_some());
        assert!(!state.raise_high_watermark(usize::MAX, &mut outbox));
        assert!(
            !state.is_reached(WaitFor::Durable, 0),
            "nothing is acknowledged"
        );
        let log = state.log.as_ref().unwrap();
        assert!(log.writes(), "what was appended is written");
        assert_eq!(
            (log.unwritten(), log.has_unwritten()),
            (state.unwritten, true)
        );
    }
    let dir = partition.dir();
    let told = dir.0.lock();
    let [told] = &told[..] else {
        panic!("{told:?}")
    };
    let start = "t-3: t-3 is taken out of service, since it broke an invariant: its leader epoch \
                 starts at 7 (Leader, leader epoch 5, log start 0, ";
    assert!(told.starts_with(start), "{told}");
}

#[test]
fn broken_partition_acknowledges_nothing() {
    let partition = led();
    let mut outbox = Outbox::new(1);
    let mut state = partition.lock();
    let waits = state.wait_for(WaitFor::Durable, waiter(2));
    assert!(waits);
    let log = state.log.as_mut().unwrap();
    let mut job = log.take_writes().unwrap();
    let result = job.execute();
    assert!(log.complete_writes(job, result).durable_end_moved);
    state.led_since = 6;
    assert!(!state.raise_high_watermark(usize::MAX, &mut outbox));
    assert_eq!(state.waiting().0, 1);
    assert!(state.wait_for(WaitFor::Replication, waiter(1)));
}

#[test]
fn reading_a_partition_checks_no_invariants() {
    let partition = led();
    partition.state.lock().epoch_start = 7;
    assert_eq!(partition.lock().role, Role::Leader);
    assert!(partition.dir().0.lock().is_empty());
}

/// Both records wait for the disk, and followers are not shown them before.
#[test]
fn a_disk_that_stands_still_removes_no_follower_from_the_isr() {
    let partition = led();
    let mut outbox = Outbox::new(1);
    let mut state = partition.lock();
    let fetches = |state: &mut PartitionState, now_ms| {
        state.update_follower_fetch_state(FollowerFetch {
            connection: 1,
            id: 2,
            broker_epoch: 9,
            offset: 0,
            log_start_offset: 0,
            session: None,
            now_ms,
        });
    };
    fetches(&mut state, 59_000);
    assert!(state.behind(60_000, 30_000).is_empty());
    let log = state.log.as_mut().unwrap();
    let mut job = log.take_writes().unwrap();
    let result = job.execute();
    log.complete_writes(job, result);
    state.count_unwritten(&Failures::default());
    state.raise_high_watermark(usize::MAX, &mut outbox);
    assert!(state.behind(60_000, 30_000).is_empty());
    assert_eq!(state.behind(90_000, 30_000), [2]);
}
