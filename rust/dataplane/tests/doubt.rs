//! When a leader may give the latest offset: after a pause of its own, another broker may lead
//! unnoticed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::harness::*;
use pyrklog_dataplane::seam::LeaderSpec;
use pyrklog_dataplane::testing::Moment;
use pyrklog_log::RealDisk;
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;

const DOUBTFUL: (ErrorCode, i64) = (ErrorCode::OFFSET_NOT_AVAILABLE, -1);

fn lead(test: &mut TestPlane) {
    let spec = LeaderSpec {
        replicas: BOTH.to_vec(),
        isr: BOTH.to_vec(),
        ..TestPlane::leader_spec("t", 0, 0)
    };
    test.describe_topic("t", 1, &topic_config());
    assert_eq!(test.become_leaders(vec![spec]), [0]);
}

fn follower() -> Ask {
    let mut ask = Ask::one("t", 0, 0);
    ask.replica_id = 2;
    ask.partitions[0].1.current_leader_epoch = 0;
    ask
}

/// The order to lead, and fetches on two connections, may all be older than this broker's pause: a
/// follower gives a connection up when it learns of another leader.
#[test]
fn leadership_is_confirmed_only_by_two_fetches_of_one_connection() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    lead(&mut test);
    let mut client = test.client();
    assert_eq!(client.latest_offset(-1, -1), DOUBTFUL);
    for mut connection in [test.client(), test.client()] {
        connection.fetch(&follower());
    }
    assert_eq!(client.latest_offset(-1, -1), DOUBTFUL);
    let mut connection = test.client();
    let confirmed = eventually("a confirmation", || {
        // The second one was sent after the answer to the first.
        connection.fetch(&follower());
        connection.fetch(&follower());
        let found = client.latest_offset(-1, -1);
        (found != DOUBTFUL).then_some(found)
    });
    assert_eq!(confirmed, (ErrorCode::NONE, 0));
}

/// A network thread's turn goes on after the pause with what was sent meanwhile.
#[test]
fn confirmation_from_before_a_pause_does_not_count() {
    assert_eq!(latest_behind_a_pause(Duration::from_millis(700)), DOUBTFUL);
}

/// A long time without fetches shows that the followers hang, unless this broker did.
#[test]
fn silence_during_a_long_pause_does_not_confirm_leadership() {
    assert_eq!(
        latest_behind_a_pause(Duration::from_millis(10_500)),
        DOUBTFUL
    );
}

fn latest_behind_a_pause(pause: Duration) -> (ErrorCode, i64) {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(vec![dir.path().join("logs")]);
    config.network_threads = 1;
    let is_to_pause = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&is_to_pause);
    let hook = Box::new(move |_thread, moment| {
        if moment == Moment::Clock && asked.swap(false, Ordering::AcqRel) {
            std::thread::sleep(pause);
        }
    });
    let mut test = TestPlane::start_hooked(config, Arc::new(RealDisk), hook);
    lead(&mut test);
    let (mut client, mut replica) = (test.client(), test.client());
    replica.fetch(&follower());
    replica.fetch(&follower());
    let latest = Client::list_offsets_body("t", 0, -1);
    is_to_pause.store(true, Ordering::Release);
    client.send(key::LIST_OFFSETS, LIST_OFFSETS_VERSION, &latest);
    let (_, body) = client.receive(key::LIST_OFFSETS, LIST_OFFSETS_VERSION);
    let found = listed_offset(&body);
    assert!(!is_to_pause.load(Ordering::Acquire), "there was no pause");
    (found.error_code, found.offset)
}
