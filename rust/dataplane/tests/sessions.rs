//! Fetch sessions (KIP-227) and topic ids (KIP-516) on the wire.

use crate::harness::*;
use pyrklog_wire::ErrorCode;

#[test]
fn a_session_omits_what_did_not_change() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("t", 3);
    let mut client = test.client();
    client.produce("t", 0, &batch(&[b"first"]));
    let mut full = Ask::one("t", 0, 1).session(0, 0);
    full.partitions = (0..3)
        .map(|index| ("t".into(), partition(index, (index == 0).into())))
        .collect();
    let reply = client.fetch(&full);
    assert_eq!((reply.error, reply.partitions.len()), (ErrorCode::NONE, 3));
    assert!(reply.session_id > 0);

    let mut next = full.clone().session(reply.session_id, 1);
    next.partitions.clear();
    let quiet = client.fetch(&next);
    assert_eq!(
        (quiet.session_id, quiet.partitions.len()),
        (reply.session_id, 0)
    );

    client.produce("t", 2, &batch(&[b"news"]));
    // Another connection, as after a reconnect: a session is not bound to a connection.
    let mut other = test.client();
    let news = other.fetch(&next.clone().session(reply.session_id, 2).wait(10_000, 1));
    assert_eq!(news.partitions.len(), 1);
    assert_eq!(
        (news.partitions[0].index, news.partitions[0].batches()),
        (2, vec![0])
    );

    let stale = client.fetch(&next.clone().session(reply.session_id, 2));
    assert_eq!(stale.error, ErrorCode::INVALID_FETCH_SESSION_EPOCH);
    let unknown = client.fetch(&next.session(reply.session_id + 1, 1));
    assert_eq!(unknown.error, ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
    assert_eq!(test.statistic("fetch_sessions"), 1);
}

#[test]
fn a_session_survives_the_death_of_a_waiting_connection() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("t", 1);
    let mut client = test.client();
    let full = Ask::one("t", 0, 0).session(0, 0);
    let session = client.fetch(&full).session_id;
    let mut next = full.session(session, 1).wait(60_000, 1);
    next.partitions.clear();
    client.send(1, next.version, &next.encode());
    eventually("a waiting fetch", || {
        (test.statistic("purgatory_fetch") == 1).then_some(())
    });
    drop(client);
    eventually("its end", || {
        (test.statistic("purgatory_fetch") == 0).then_some(())
    });
    // The client starts over, naming the old session to be closed.
    let mut client = test.client();
    let fresh = client.fetch(&Ask::one("t", 0, 0).session(session, 0));
    assert_eq!((fresh.error, fresh.partitions.len()), (ErrorCode::NONE, 1));
    eventually("one session", || {
        (test.statistic("fetch_sessions") == 1).then_some(())
    });
}

#[test]
fn topic_ids_name_topics_from_version_13_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("t", 1);
    let mut client = test.client();
    client.produce("t", 0, &batch(&[b"v"]));
    let mut ask = Ask::one("t", 0, 0).version(17);
    let reply = client.fetch(&ask);
    assert_eq!(
        (
            reply.partitions[0].topic.as_str(),
            reply.partitions[0].batches()
        ),
        ("t", vec![0])
    );
    ask.topic_ids = Some(|_| [0x77; 16]);
    let reply = client.fetch(&ask);
    assert_eq!(reply.partitions[0].error, ErrorCode::UNKNOWN_TOPIC_ID);
}
