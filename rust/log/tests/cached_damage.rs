//! A log with a block cache after its process died and its files were changed.

use std::path::Path;
use std::sync::Arc;

use crate::common::cached::Life;
use crate::common::{DIR, Rig, batch};
use pyrklog_arena::PartitionName;
use pyrklog_log::{Identity, Log, LogConfig, LogDir, LogEnv, OpenRequest, SyncScope};

const LOG: &str = "00000000000000000000.log";

/// Ten batches in the cache and, if `is_written`, in the file.
fn cached(is_written: bool) -> Rig {
    let mut rig = Rig::with_cache(LogConfig::default());
    rig.put(&["on the heap: the file is made"]);
    rig.cache.as_ref().unwrap().tend();
    for i in 0..10 {
        let appended = rig.append(&mut batch(1_000, &[&format!("number {i}")]));
        assert!(appended.unwrap().durable_end_moved);
    }
    if is_written {
        rig.drain();
    } else {
        rig.log.advance_high_watermark(rig.log.durable_end_offset());
    }
    rig
}

/// The process dies twice more.
fn goes_on(mut rig: Rig) {
    for round in 0..3 {
        let mut expected = rig.contents();
        let end = rig.log.log_end_offset();
        let value = format!("round {round}");
        rig.cache.as_ref().unwrap().tend();
        let appended = rig.append(&mut batch(1_000, &[&value])).unwrap();
        assert!(appended.durable_end_moved, "round {round}");
        if round == 1 {
            rig.write();
        }
        expected.push((end, value));
        rig.log.advance_high_watermark(rig.log.durable_end_offset());
        rig.restart_killed();
        rig.drain();
        assert_eq!(rig.contents(), expected);
    }
}

/// Damages the end of a segment after a kill: only the last batch is lost, and the log goes on.
fn loses_the_last_batch(damage: impl FnOnce(&mut Vec<u8>)) {
    let mut rig = cached(true);
    let before = rig.contents();
    let mut content = rig.file(LOG);
    damage(&mut content);
    rig.memory.kill_process();
    rig.put_file(LOG, &content);
    let state = rig.state(false);
    let report = rig.reopen_in(state, Life::Again);
    assert!(report.truncated_bytes > 0, "{report:?}");
    assert_eq!(rig.contents(), before[..before.len() - 1]);
    goes_on(rig);
}

#[test]
fn file_truncated_after_a_kill_is_taken_as_it_is() {
    loses_the_last_batch(|content| content.truncate(content.len() - 10));
}

#[test]
fn a_batch_that_was_damaged_after_a_kill_is_found_and_cut_off() {
    loses_the_last_batch(|content| {
        let last = content.len() - 3;
        content[last] ^= 1;
    });
}

#[test]
fn log_with_removed_files_begins_without_its_old_blocks() {
    let mut rig = cached(true);
    rig.memory.kill_process();
    for name in rig.files() {
        rig.remove_file(&name);
    }
    let state = rig.state(false);
    rig.reopen_in(state, Life::Again);
    assert_eq!(rig.contents(), []);
    goes_on(rig);
}

#[test]
fn a_transaction_index_that_makes_no_sense_is_built_anew() {
    let index = "00000000000000000000.txnindex";
    let mut rig = cached(false);
    let before = rig.contents();
    rig.memory.kill_process();
    rig.put_file(index, b"abc");
    let state = rig.state(false);
    rig.reopen_in(state, Life::Again);
    assert_eq!(rig.contents(), before);
    assert!(!rig.files().contains(&index.to_owned()));
    rig.restart_clean();
    assert_eq!(rig.contents(), before);
}

/// Closes the log and opens it again in the same process.
fn opened_again(rig: &mut Rig) {
    rig.log.close_cleanly().unwrap();
    let request = OpenRequest {
        env: Arc::clone(rig.log.env()),
        log_dir: Path::new(DIR),
        topic: "t",
        partition: 0,
        topic_id: Some([7; 16]),
        config: Arc::new(rig.config.clone()),
        state: rig.state(true),
        now_ms: 1_000,
        producer_id_expiration_ms: 1_000,
    };
    rig.log = Log::open(request).unwrap().0;
}

#[test]
fn a_log_that_is_deleted_without_another_append_gives_its_slot_back() {
    let mut rig = cached(true);
    let name = PartitionName {
        topic: "t".to_owned(),
        partition: 0,
        topic_id: [7; 16],
    };
    opened_again(&mut rig);
    let arena = rig.cache.as_ref().unwrap().arena();
    assert!(arena.known_slot(&name).is_some());
    rig.log.release_blocks();
    assert!(arena.known_slot(&name).is_none());
}

/// A follower that stops and follows again is truncated before it appends.
#[test]
fn blocks_of_an_earlier_opening_do_not_return_after_a_truncation() {
    let mut rig = cached(true);
    rig.sync(SyncScope::Written);
    opened_again(&mut rig);
    let before = rig.contents();
    let job = rig.log.begin_truncation(5, 1_000, 1_000);
    let mut job = job.unwrap().unwrap();
    let result = job.execute();
    rig.log.complete_truncation(job, result);
    let kept = &before[..5];
    assert_eq!(rig.contents(), kept);
    let found = rig.cache.as_mut().unwrap().found();
    let env = LogEnv::new(Arc::new(rig.disk.clone()), 16);
    let identity = Identity {
        node_id: 1,
        cluster_id: "abc".to_owned(),
    };
    let files = LogDir::open(env, Path::new(DIR), &identity).unwrap();
    assert_eq!(files.lacks_written(&found), None);
    drop((files, found));
    rig.restart_killed();
    assert_eq!(rig.contents(), kept);
    goes_on(rig);
}
