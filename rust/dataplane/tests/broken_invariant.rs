//! A partition that breaks an invariant is taken out of service. All others go on, and its records
//! are there after the next start.

mod harness;

use harness::*;
use pyrklog_dataplane::api::LeaderSpec;
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;

#[test]
fn broken_invariant_takes_one_partition_offline_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("t", 2);
    let mut client = test.client();
    for partition in [0, 1] {
        let first = client.produce("t", partition, &batch(&[b"before"]));
        assert_eq!(first, (ErrorCode::NONE, 0));
    }
    // The other replica does not fetch, so this record is not acknowledged.
    let spec = LeaderSpec {
        replicas: BOTH.to_vec(),
        isr: BOTH.to_vec(),
        ..TestPlane::leader_spec("t", 0, 1)
    };
    assert_eq!(test.become_leaders(vec![spec]), [0]);
    let mut waiting = test.client();
    let records = batch(&[b"waits"]);
    let partitions = [(0, Some(&records[..]))];
    let body = produce_body(PRODUCE_VERSION, -1, 10_000, "t", &partitions);
    waiting.send(key::PRODUCE, PRODUCE_VERSION, &body);
    eventually("its wait", || {
        (test.statistic("purgatory_produce") > 0).then_some(())
    });

    test.plane.break_invariant("t", 0);
    let (_, answer) = waiting.receive(key::PRODUCE, PRODUCE_VERSION);
    let told = produced(&answer, PRODUCE_VERSION).0;
    assert_eq!(told, ErrorCode::KAFKA_STORAGE_ERROR);
    let notice = test.wait_for_notice("partition_offline");
    let text = |name: &str| &notice.iter().find(|(key, _)| *key == name).unwrap().1;
    assert_eq!((&text("topic")[..], &text("partition")[..]), ("t", "0"));
    let reason = text("reason");
    assert!(
        reason.contains("the leader epoch fell from 1 to 0"),
        "{reason}"
    );
    assert!(reason.contains("high watermark 1"), "{reason}");

    let refused = client.produce("t", 0, &batch(&[b"after"])).0;
    assert_eq!(refused, ErrorCode::KAFKA_STORAGE_ERROR);
    let found = client.fetch_one("t", 0, 0);
    assert_eq!(found.error, ErrorCode::KAFKA_STORAGE_ERROR);
    let second = client.produce("t", 1, &batch(&[b"after"]));
    assert_eq!(second, (ErrorCode::NONE, 1), "the others go on");
    assert!(!test.shutdown(), "its log was not closed");

    let mut test = TestPlane::start(dir.path());
    test.create("t", 2);
    let mut client = test.client();
    for partition in [0, 1] {
        let found = client.fetch_one("t", partition, 1);
        assert_eq!((found.error, found.high_watermark), (ErrorCode::NONE, 2));
    }
}
