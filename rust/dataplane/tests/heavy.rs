//! Requests that take long: they are worked on one in a turn, and after all others.

mod harness;

use std::sync::{Arc, Condvar, Mutex};

use harness::*;
use pyrklog_dataplane::testing::{Moment, NetworkHook};
use pyrklog_log::disk::RealDisk;
use pyrklog_wire::api::key;

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

    /// Waits until the thread stands before the shut gate.
    fn wait(&self) {
        let state = self.state.lock().unwrap();
        let stands = |state: &mut GateState| state.is_shut() && state.is_reached;
        let waited = self.changed.wait_while(state, |state| !stands(state));
        drop(waited.unwrap());
    }
}

/// Opens a gate for good when it is dropped: declared behind a plane, it lets a failed test end.
struct Opened(Arc<Gate>);

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.set(None);
    }
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
    // It is served before the thread stands there, or in the turn after that with all the others.
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
