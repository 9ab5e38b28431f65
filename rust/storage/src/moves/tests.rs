//! Requests alone, without threads.

use std::path::Path;

use pyrklog_control::image::TopicState;
use pyrklog_control::seam::{CacheConfig, CleanerConfig, PlaneConfig, ReadPath, Throttled};
use pyrklog_log::disk::RealDisk;
use pyrklog_log::{Identity, LogDir, LogEnv};
use pyrklog_replica::partition::Topic;

use super::*;
use crate::muted_queue::MutedQueue;

fn config() -> PlaneConfig {
    PlaneConfig {
        node_id: 1,
        cluster_id: "test".into(),
        network_threads: 1,
        reader_threads: 1,
        recovery_threads_per_dir: 1,
        writer_threads_per_dir: 1,
        socket_request_max_bytes: 1 << 20,
        receive_buffers_max_bytes: 1 << 20,
        control_queue_max_requests: 1,
        connections_max_idle_ms: 1,
        max_connections: 1,
        max_connections_per_ip: 1,
        socket_send_buffer_bytes: -1,
        socket_receive_buffer_bytes: -1,
        fetch_max_bytes: 1 << 20,
        fetch_session_slots: 1,
        fetch_read_path: ReadPath::Auto,
        unwritten_max_bytes: Some(1 << 20),
        cache: CacheConfig::off(),
        log_dirs: Vec::new(),
        recovery_checkpoint_interval_ms: 1,
        log_start_checkpoint_interval_ms: 1,
        high_watermark_checkpoint_interval_ms: 1,
        retention_check_interval_ms: 1,
        cleaner: CleanerConfig::default(),
        move_threads: 0,
        producer_id_expiration_ms: 1,
        auto_create_topics: false,
        cluster: None,
    }
}

fn dir(root: &Path, index: usize) -> Arc<LogDirState> {
    let identity = Identity {
        cluster_id: "test".into(),
        node_id: 1,
    };
    let env = LogEnv::new(Arc::new(RealDisk), 16);
    let files = LogDir::open(env, &root.join(index.to_string()), &identity).unwrap();
    LogDirState::new(index, files, &config(), MutedQueue::new(1 << 20, 1))
}

/// Three directories; the partition is in the first.
pub(crate) fn rig(root: &Path) -> (Vec<Arc<LogDirState>>, Arc<Partition>) {
    let dirs: Vec<_> = (0..3).map(|index| dir(root, index)).collect();
    let topic = Topic::new(&TopicState {
        name: Arc::from("t"),
        id: [0; 16],
        internal: false,
        partitions: Vec::new(),
        log_config: Arc::default(),
        min_insync_replicas: 1,
        throttled: Arc::new(Throttled::default()),
    });
    let partition = Partition::new(Arc::new(topic), 0, Arc::clone(&dirs[0]), 1);
    (dirs, Arc::new(partition))
}

fn folder() -> FutureFolder {
    FutureFolder {
        name: "t-0.00000000000000000000000000000000-future".into(),
        topic: "t".into(),
        partition: 0,
        topic_id: None,
    }
}

/// (moves under way, for a thread, without a folder).
fn counts(moves: &Moves) -> (usize, usize, usize) {
    let inner = moves.inner.lock();
    (inner.moves.len(), inner.due.len(), inner.unmade.len())
}

#[test]
fn requests_that_end_each_other_leave_one_move() {
    let root = tempfile::tempdir().unwrap();
    let (dirs, partition) = rig(root.path());
    let moves = Moves::default();
    for round in 0..1_000 {
        moves.redirect(&partition, &dirs[1 + round % 2], folder());
    }
    assert_eq!(counts(&moves), (1, 1, 1));
    moves.redirect(&partition, &dirs[0], folder());
    assert_eq!(counts(&moves), (0, 0, 0));
}

/// Each has a folder that is to be removed.
#[test]
fn moves_that_were_made_are_ended_by_a_thread_first() {
    let root = tempfile::tempdir().unwrap();
    let (dirs, partition) = rig(root.path());
    let moves = Moves::default();
    for (round, to) in [1, 2, 1, 0].into_iter().enumerate() {
        if let Some(made) = moves.take_unmade() {
            made.copying.lock().stage = Stage::Made;
        }
        moves.redirect(&partition, &dirs[to], folder());
        let under_way = usize::from(to != 0);
        assert_eq!(counts(&moves), (under_way, round + under_way, under_way));
    }
    while let Some(ended) = moves.take_first_ended() {
        assert_eq!(ended.fate(), Fate::Ends);
    }
    assert_eq!(counts(&moves), (0, 0, 0));
}

/// A swap waits behind the partition's earlier commands, and others behind it.
#[test]
fn few_swaps_of_a_directory_wait_at_a_time() {
    let root = tempfile::tempdir().unwrap();
    let (dirs, partition) = rig(root.path());
    let moves = Moves::default();
    moves.redirect(&partition, &dirs[1], folder());
    let one = moves.next().unwrap();
    for _ in 0..SWAPS_MAX {
        assert!(moves.may_queue_swap(&one));
    }
    assert!(!moves.may_queue_swap(&one));
    moves.redirect(&partition, &dirs[2], folder());
    let other = moves.inner.lock().moves.values().next().cloned().unwrap();
    assert!(moves.may_queue_swap(&other));
    moves.swap_has_run(&one);
    assert!(moves.may_queue_swap(&one));
    assert!(!moves.may_queue_swap(&one));
}

/// The first one's swap could not be done just then, and it ends, since another took its place.
#[test]
fn a_directory_that_is_asked_for_again_gets_a_move_of_its_own() {
    let root = tempfile::tempdir().unwrap();
    let (dirs, partition) = rig(root.path());
    let moves = Moves::default();
    moves.redirect(&partition, &dirs[1], folder());
    let first = moves.next().unwrap();
    first.copying.lock().stage = Stage::Open;
    first.is_swapping.store(true, Ordering::Release);
    moves.redirect(&partition, &dirs[2], folder());
    moves.again(Arc::clone(&first), 0);
    assert_eq!(first.fate(), Fate::Ends);
    moves.redirect(&partition, &dirs[1], folder());
    let last = moves.inner.lock().moves.values().next().cloned().unwrap();
    assert_eq!((last.destination.index, last.fate()), (1, Fate::GoesOn));
    assert!(last.waits_for_another() && !Arc::ptr_eq(&last, &first));
}
