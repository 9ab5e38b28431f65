//! The tests of requests and connections once more, while every connection moves to the next
//! network thread whenever it can (see the harness): no client may notice.

// `lagging.rs` brings the harness, as when it is a program of its own.
#![allow(clippy::duplicate_mod)]

#[path = "bad_input.rs"]
mod bad_input;
#[path = "control.rs"]
mod control;
#[path = "endings.rs"]
mod endings;
#[path = "isolation.rs"]
mod isolation;
#[path = "lagging.rs"]
mod lagging;
#[path = "long_poll.rs"]
mod long_poll;
#[path = "offset_commits.rs"]
mod offset_commits;
#[path = "round_trip.rs"]
mod round_trip;
#[path = "sessions.rs"]
mod sessions;

mod harness;

#[test]
fn connections_move_between_threads_under_load() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = harness::TestPlane::start(dir.path());
    test.create("t", 1);
    let mut client = test.client();
    for next in 0..10 {
        client.produce("t", 0, &harness::batch(&[b"news"]));
        assert_eq!(client.fetch_one("t", 0, next).batches(), [next]);
    }
    assert!(test.statistic("connections_moved") >= 10);
}
