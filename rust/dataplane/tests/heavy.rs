//! Requests that take long: one per turn, after all others.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::harness::*;
use pyrklog_dataplane::testing::{Moment, NetworkHook};
use pyrklog_log::disk::RealDisk;
use pyrklog_wire::api::key;
use pyrklog_wire::fetch::FetchPartition;
use rustix::net::sockopt::set_socket_linger;

/// Lets a network thread go on turn by turn.
#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    /// Turns that may end; `None`: all.
    turns: Option<u64>,
    /// The thread is at the end of a turn.
    is_reached: bool,
}

impl GateState {
    fn is_shut(&self) -> bool {
        self.turns == Some(0)
    }
}

impl Gate {
    fn set(&self, turns: Option<u64>) {
        self.state.lock().unwrap().turns = turns;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.is_reached = true;
        self.changed.notify_all();
        let mut state = self
            .changed
            .wait_while(state, |state| state.is_shut())
            .unwrap();
        state.is_reached = false;
        state.turns = state.turns.map(|left| left - 1);
    }

    /// Waits until the thread stands at the closed gate.
    fn wait(&self) {
        let state = self.state.lock().unwrap();
        let stands = |state: &mut GateState| state.is_shut() && state.is_reached;
        let waited = self.changed.wait_while(state, |state| !stands(state));
        drop(waited.unwrap());
    }
}

/// Opens a gate for good when dropped: declared after a plane, it lets a failed test end.
struct Opened(Arc<Gate>);

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.set(None);
    }
}

/// A plane of a cluster with one network thread, which ends no turn before its gate lets it.
fn start_gated(dir: &std::path::Path, gate: &Arc<Gate>) -> TestPlane {
    let mut config = config(vec![dir.join("logs")]);
    config.network_threads = 1;
    config.control_queue_max_requests = 1;
    config.cluster = Some(cluster());
    let hook: NetworkHook = Box::new({
        let gate = Arc::clone(gate);
        move |_, moment| {
            if moment == Moment::Turn {
                gate.pass();
            }
        }
    });
    TestPlane::start_hooked(config, Arc::new(RealDisk), hook)
}

fn has_bytes(client: &Client) -> bool {
    client.stream.set_nonblocking(true).unwrap();
    let has_bytes = client.stream.peek(&mut [0]).is_ok_and(|count| count > 0);
    client.stream.set_nonblocking(false).unwrap();
    has_bytes
}

#[test]
fn long_requests_of_brokers_go_first_and_hosts_take_turns() {
    let dir = tempfile::tempdir().unwrap();
    let gate = Arc::new(Gate::default());
    let mut test = start_gated(dir.path(), &gate);
    let gate = Opened(gate);
    let port = test.port;
    test.know(&[(1, port), (2, port)]);
    test.describe_topic("wide", 30_000, &topic_config());
    let mut clients: Vec<Client> = (0..6).map(|_| test.client_from(1)).collect();
    clients.push(test.client_from(2));
    clients.push(test.client_from(1));
    let (modest, broker) = (6, 7);
    let mut ask = Ask::one("wide", 0, 0).version(17);
    ask.replica_id = 2;
    clients[broker].call(key::FETCH, 17, &ask.encode());
    for client in &mut clients {
        client.call(key::API_VERSIONS, 0, &[]);
    }
    gate.0.set(Some(0));
    // Wakes the thread if it sleeps.
    let mut other = test.client();
    other.send(key::API_VERSIONS, 0, &[]);
    gate.0.wait();
    let wide = metadata_body("wide");
    for client in &mut clients {
        client.send(key::METADATA, 12, &wide);
    }
    let mut served: Vec<usize> = Vec::new();
    while served.len() < clients.len() {
        gate.0.set(Some(1));
        gate.0.wait();
        let fresh =
            (0..clients.len()).filter(|at| !served.contains(at) && has_bytes(&clients[*at]));
        let fresh: Vec<usize> = fresh.collect();
        assert!(fresh.len() <= 1, "{fresh:?} in one turn");
        served.extend(fresh);
    }
    assert_eq!(served[0], broker, "{served:?}");
    assert!(served[1..3].contains(&modest), "{served:?}");
}

#[test]
fn a_connection_that_ends_before_its_turn_at_the_control_plane_passes_it_on() {
    let dir = tempfile::tempdir().unwrap();
    let gate = Arc::new(Gate::default());
    let mut test = start_gated(dir.path(), &gate);
    let gate = Opened(gate);
    test.describe_topic("wide", 30_000, &topic_config());
    let mut first = test.client();
    first.send(key::DESCRIBE_CLUSTER, 0, &[0]);
    let ahead = test.wait_for_request();
    let waiting = |count| {
        eventually("those that wait", || {
            (test.statistic("control_queue_waiting") == count).then_some(())
        });
    };
    let mut leaving = test.client();
    leaving.send(key::JOIN_GROUP, 0, &vec![0; 100_000]);
    waiting(1);
    let mut last = test.client();
    last.send(key::DESCRIBE_CLUSTER, 0, &[7]);
    waiting(2);
    let mut busy: Vec<Client> = (0..4).map(|_| test.client()).collect();
    for client in &mut busy {
        client.call(key::API_VERSIONS, 0, &[]);
    }
    gate.0.set(Some(0));
    let mut other = test.client();
    other.send(key::API_VERSIONS, 0, &[]);
    gate.0.wait();
    let wide = metadata_body("wide");
    for client in &mut busy {
        client.send(key::METADATA, 12, &wide);
    }
    gate.0.set(Some(1));
    gate.0.wait();
    // It may go on now, after other long requests, and leaves.
    test.plane.reply(ahead.id, vec![9]);
    gate.0.set(Some(1));
    gate.0.wait();
    assert_eq!(test.statistic("control_queue_waiting"), 1);
    set_socket_linger(&leaving.stream, Some(Duration::ZERO)).unwrap();
    drop(leaving);
    gate.0.set(None);
    let request = test.wait_for_request();
    assert_eq!(
        (request.api_key, &request.body[..]),
        (key::DESCRIBE_CLUSTER, &[7][..])
    );
}

#[test]
fn requests_that_take_long_are_worked_on_one_in_a_turn_and_after_all_others() {
    let dir = tempfile::tempdir().unwrap();
    let gate = Arc::new(Gate::default());
    let mut config = config(vec![dir.path().join("logs")]);
    config.network_threads = 1;
    let hook: NetworkHook = Box::new({
        let gate = Arc::clone(&gate);
        move |_, moment| {
            if moment == Moment::Turn {
                gate.pass();
            }
        }
    });
    let mut test = TestPlane::start_hooked(config, Arc::new(RealDisk), hook);
    let gate = Opened(gate);
    test.describe_topic("wide", 30_000, &topic_config());
    let mut greedy: Vec<Client> = (0..6).map(|_| test.client()).collect();
    let mut modest = test.client();
    for client in greedy.iter_mut().chain([&mut modest]) {
        client.call(key::API_VERSIONS, 0, &[]);
    }
    gate.0.set(Some(0));
    // It is served before the thread is at the gate, or in the next turn with all the others.
    modest.send(key::API_VERSIONS, 0, &[]);
    gate.0.wait();
    let wide = metadata_body("wide");
    for client in &mut greedy {
        client.send(key::METADATA, 12, &wide);
    }
    modest.send(key::API_VERSIONS, 0, &[]);
    let before = test.statistic("heavy_requests");
    let sent_bytes = test.statistic("sent_bytes");
    gate.0.set(Some(1));
    modest.receive(key::API_VERSIONS, 0);
    modest.receive(key::API_VERSIONS, 0);
    assert!(test.statistic("heavy_requests") <= before + 1);
    let one_bytes = 30_000 * 64;
    assert!(test.statistic("sent_bytes") < sent_bytes + one_bytes);
    gate.0.set(None);
    for client in &mut greedy {
        assert!(client.receive(key::METADATA, 12).1.len() > 30_000 * 20);
    }
    assert_eq!(test.statistic("heavy_requests"), before + 6);
}

/// Each looks at, or leaves, all partitions of a session.
#[test]
fn a_fetch_as_another_reader_of_a_large_session_takes_long() {
    const LARGE: i32 = 5_100;
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(vec![dir.path().join("logs")]);
    let mut cluster = cluster();
    cluster.reads_by_rack = true;
    config.cluster = Some(cluster);
    let mut test = TestPlane::start_with(config, Arc::new(RealDisk));
    test.create("t", LARGE);
    let wanted: Vec<FetchPartition> = (0..LARGE).map(|index| partition(index, 0)).collect();
    let mut session = SessionClient::open(&test, &wanted, |_| {}).0;
    let takes_long = |session: &mut SessionClient| {
        let before = test.statistic("heavy_requests");
        assert!(session.fetch(&[]).is_empty());
        test.statistic("heavy_requests") - before
    };
    assert_eq!(takes_long(&mut session), 0, "nothing is due");
    let readers: [fn(&mut Ask); 4] = [
        |ask| ask.isolation_level = 1,
        |ask| ask.rack = "b",
        |ask| ask.rack = "",
        |ask| ask.version = 10,
    ];
    for change in readers {
        change(&mut session.ask);
        assert_eq!(takes_long(&mut session), 1);
        assert_eq!(takes_long(&mut session), 0, "the same reader");
    }
    // A full request ends the session that it names.
    let before = test.statistic("heavy_requests");
    session.ask.session.1 = -1;
    assert_eq!(session.fetch(&[partition(0, 0)]).len(), 1);
    assert_eq!(test.statistic("heavy_requests") - before, 1);
    assert_eq!(test.statistic("fetch_sessions"), 0);
}

#[test]
fn requests_sent_together_look_at_no_more_in_a_turn_than_a_long_one() {
    const LARGE: i32 = 1_000;
    const LOOKS_MAX: u64 = 5_000;
    let dir = tempfile::tempdir().unwrap();
    let gate = Arc::new(Gate::default());
    let mut test = start_gated(dir.path(), &gate);
    let gate = Opened(gate);
    test.create("t", LARGE);
    let wanted: Vec<FetchPartition> = (0..LARGE).map(|index| partition(index, 0)).collect();
    let mut session = SessionClient::open(&test, &wanted, |_| {}).0;
    gate.0.set(Some(0));
    let mut other = test.client();
    other.send(key::API_VERSIONS, 0, &[]);
    gate.0.wait();
    // Each is another reader's and looks at all.
    let fetches = 50;
    for number in 0..fetches {
        session.ask.isolation_level = 1 - number % 2;
        session.send(&[], 0);
        session.ask.session.1 += 1;
    }
    let began = test.statistic("fetch_looks");
    let mut before = began;
    for _ in 0..3 {
        gate.0.set(Some(1));
        gate.0.wait();
        let looks = test.statistic("fetch_looks") - before;
        assert!(looks <= LOOKS_MAX + LARGE as u64, "{looks} in one turn");
        before += looks;
    }
    gate.0.set(None);
    for _ in 0..fetches {
        assert!(session.receive().is_empty());
    }
    let looks = test.statistic("fetch_looks") - began;
    assert_eq!(looks, fetches as u64 * LARGE as u64);
}

/// One fetch of such a session may need more than there is for all replies.
#[test]
fn sessions_too_large_for_the_memory_of_replies_take_turns() {
    const LARGE: i32 = 9_500;
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(vec![dir.path().join("logs")]);
    config.receive_buffers_max_bytes = 4 << 20;
    let test = TestPlane::start_with(config, Arc::new(RealDisk));
    // Unknown, so that all are looked at and answered each time.
    let wanted: Vec<FetchPartition> = (0..LARGE).map(|index| partition(index, 0)).collect();
    let mut wanted = wanted.chunks(LARGE as usize / 2);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let wanted = wanted.next().unwrap();
            let mut session = SessionClient::open(&test, wanted, |_| {}).0;
            scope.spawn(move || {
                for _ in 0..20 {
                    assert_eq!(session.fetch(wanted).len(), wanted.len());
                }
            });
        }
    });
}
