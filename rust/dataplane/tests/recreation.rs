//! Topics that are deleted and recreated while the old one's work is under way.

mod harness;

use std::path::Path;
use std::sync::Arc;

use harness::*;
use pyrklog_dataplane::seam::{StopSpec, TicketOutcome};
use pyrklog_log::disk::RealDisk;
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;

fn folders(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir.join("logs"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Deletes and recreates at once, as a client may ask; returns the codes of both.
fn recreate(test: &mut TestPlane, name: &str, id: u8) -> (Vec<i16>, Vec<i16>) {
    let stop = StopSpec {
        topic: name.into(),
        partition: 0,
        delete: true,
    };
    test.topic_id = Some([id; 16]);
    let stopped = test.plane.stop_partitions(vec![stop]).unwrap();
    test.describe_topic(name, 1, &topic_config());
    let led = test
        .plane
        .become_leaders(vec![TestPlane::leader_spec(name, 0, 0)])
        .unwrap();
    let mut codes = |ticket| match test.ticket(ticket) {
        TicketOutcome::Partitions(codes) => codes,
        other => panic!("{other:?}"),
    };
    (codes(stopped), codes(led))
}

#[test]
fn a_topic_recreated_in_one_breath_can_be_deleted_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.topic_id = Some([1; 16]);
    test.create("t", 1);
    for id in 2..5 {
        assert_eq!(test.client().produce("t", 0, &batch(&[b"v"])).1, 0);
        assert_eq!(recreate(&mut test, "t", id), (vec![0], vec![0]));
    }
    assert_eq!(test.delete("t", 1), [0]);
    eventually("an empty directory", || {
        folders(dir.path()).is_empty().then_some(())
    });
}

#[test]
fn writes_of_a_deleted_topic_never_reach_its_successor() {
    let dir = tempfile::tempdir().unwrap();
    let disk = SlowDisk::default();
    let mut test = TestPlane::start_with(
        config(vec![dir.path().join("logs")]),
        Arc::new(disk.clone()),
    );
    let mut options = topic_config();
    options.log.segment_bytes = 1000;
    test.topic_id = Some([1; 16]);
    assert_eq!(test.lead("t", 1, &options), [0]);
    let mut client = test.client();
    client.produce("t", 0, &batch(&[b"v"]));
    disk.freeze();
    let record = large_batch(400);
    let body = produce_body(PRODUCE_VERSION, 1, 10_000, "t", &[(0, Some(&record))]);
    let wait_for_write = |len: usize| {
        eventually("a write that waits", || {
            let path = dir.path().join("logs/t-0/00000000000000000000.log");
            let is_next = std::fs::metadata(path).unwrap().len() as usize == len;
            (disk.waiting_writes() == 1 && is_next).then_some(())
        });
    };
    let first = batch(&[b"v"]).len();
    client.send(key::PRODUCE, PRODUCE_VERSION, &body);
    wait_for_write(first);
    // While that one waits, the others gather into one job with several rolls, which then begins.
    for _ in 0..10 {
        client.send(key::PRODUCE, PRODUCE_VERSION, &body);
    }
    eventually("the appends", || {
        (test.statistic("requests.Produce") == 12).then_some(())
    });
    disk.let_one_pass();
    wait_for_write(first + record.len());
    client.receive(key::PRODUCE, PRODUCE_VERSION);
    assert_eq!(recreate(&mut test, "t", 2), (vec![0], vec![0]));
    for _ in 0..10 {
        let (_, answer) = client.receive(key::PRODUCE, PRODUCE_VERSION);
        let (error, _) = produced(&answer, PRODUCE_VERSION);
        assert_eq!(error, ErrorCode::NOT_LEADER_OR_FOLLOWER);
    }
    let path = dir.path().join("logs").join("t-0");
    let names = || -> Vec<String> {
        let entries = std::fs::read_dir(&path).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    disk.thaw();
    assert_eq!(
        client.produce("t", 0, &batch(&[b"new"])),
        (ErrorCode::NONE, 0)
    );
    let fresh: Vec<String> = ["index", "log", "timeindex"]
        .map(|kind| format!("00000000000000000000.{kind}"))
        .to_vec();
    let mut expected = fresh;
    expected.extend([
        "leader-epoch-checkpoint".into(),
        "partition.metadata".into(),
    ]);
    assert_eq!(names(), expected);
    assert!(test.shutdown());
    let length = std::fs::metadata(path.join("00000000000000000000.log")).unwrap();
    assert_eq!(length.len(), batch(&[b"new"]).len() as u64);
}

fn stop(test: &mut TestPlane, name: &str, delete: bool) {
    let stop = StopSpec {
        topic: name.into(),
        partition: 0,
        delete,
    };
    let ticket = test.plane.stop_partitions(vec![stop]).unwrap();
    assert!(matches!(test.ticket(ticket), TicketOutcome::Partitions(codes) if codes == [0]));
}

fn fill_segments(test: &TestPlane, topic: &str) {
    let mut client = test.client();
    for _ in 0..12 {
        assert_eq!(
            client.produce(topic, 0, &large_batch(5_000)).0,
            ErrorCode::NONE
        );
    }
}

fn is_deleted(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "deleted")
}

/// Reassigned away and back while segments of the first stay wait for their removal.
#[test]
fn removing_old_segments_spares_a_recreated_topic() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(vec![dir.path().join("logs")]);
    config.retention_check_interval_ms = 20;
    let start = || TestPlane::start_with(config.clone(), Arc::new(RealDisk));
    let mut test = start();
    let mut options = topic_config();
    options.log.segment_bytes = 20_000;
    options.log.retention_bytes = 0;
    options.log.file_delete_delay_ms = 1_500;
    assert_eq!(test.lead("t", 1, &options), [0]);
    fill_segments(&test, "t");
    test.wait_for_notice("segments_deleted");
    // Closed first: no log can be told where its folder goes.
    stop(&mut test, "t", false);
    stop(&mut test, "t", true);
    // Its own record is old, too, and is to stay.
    let mut kept = topic_config();
    kept.log.retention_ms = -1;
    assert_eq!(test.lead("t", 1, &kept), [0]);
    assert_eq!(test.client().produce("t", 0, &batch(&[b"v"])).1, 0);
    // Files queued later are gone: so are these.
    assert_eq!(test.lead("later", 1, &options), [0]);
    fill_segments(&test, "later");
    let folder = dir.path().join("logs/later-0");
    let waiting = || {
        let names = std::fs::read_dir(&folder).unwrap();
        names
            .filter(|name| is_deleted(&name.as_ref().unwrap().path()))
            .count()
    };
    eventually("segments that wait", || (waiting() > 0).then_some(()));
    eventually("their removal", || (waiting() == 0).then_some(()));
    assert!(test.shutdown());

    let mut test = start();
    assert_eq!(test.lead("t", 1, &kept), [0]);
    assert_eq!(test.client().fetch_one("t", 0, 0).batches(), [0]);
}

fn open_files(folder: &Path) -> usize {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = entries.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    targets.filter(|target| target.starts_with(folder)).count()
}

/// The deletion never came to this broker: it learns of the name only under its new id.
#[test]
fn partitions_of_a_replaced_topic_are_closed() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.topic_id = Some([1; 16]);
    test.create("t", 2);
    let mut client = test.client();
    for index in 0..2 {
        client.produce("t", index, &batch(&[b"old"]));
    }
    let ask = Ask::one("t", 0, 1).wait(3_600_000, 1);
    client.send(key::FETCH, ask.version, &ask.encode());
    eventually("a fetch that waits", || {
        (test.statistic("purgatory_fetch") == 1).then_some(())
    });
    test.topic_id = Some([2; 16]);
    test.describe_topic("t", 3, &topic_config());
    let fresh = TestPlane::leader_spec("t", 2, 0);
    assert_eq!(test.become_leaders(vec![fresh]), [0]);
    let (_, body) = client.receive(key::FETCH, ask.version);
    let found = fetched(&body, &ask);
    assert_ne!(found.partitions[0].error, ErrorCode::NONE);
    for index in 0..2 {
        let folder = dir.path().join(format!("logs/t-{index}"));
        eventually("closed files", || (open_files(&folder) == 0).then_some(()));
        // As after any orderly close.
        assert!(folder.join("00000000000000000001.snapshot").exists());
    }
    assert_eq!(test.statistic("unwritten_bytes"), 0);
    assert_eq!(client.produce("t", 2, &batch(&[b"new"])).0, ErrorCode::NONE);
    assert!(test.shutdown());
}
