//! A caller that does not read for longer than the time-out, or does not wait for as long.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{FakeBroker, Reply, batch, start};
use pyrklog_scan::{Next, Position};

const LOOK: Duration = Duration::from_millis(5);

fn wait_until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        thread::sleep(LOOK);
    }
}

/// Broker 2 leads partition 0 and fills the queue once it may; broker 1 leads partition 1, whose end
/// it does not show before.
#[test]
fn it_does_not_make_a_leader_late_that_waits_for_its_end() {
    let may_fill = Arc::new(AtomicBool::new(false));
    let is_open = Arc::clone(&may_fill);
    let filling = FakeBroker::start(move |_, _| {
        wait_until(|| is_open.load(Ordering::Acquire));
        Reply::Log
    });
    let waiting = FakeBroker::start(|_, _| Reply::Log);
    {
        let mut state = filling.state();
        let bases = (0..100).step_by(10);
        let large = bases.map(|base| (base, batch(base, 10, 100_000, 1)));
        (state.id, state.log) = (2, large.collect());
    }
    {
        let mut state = waiting.state();
        (state.others, state.leaders) = (vec![(2, filling.port)], vec![2, 1]);
        state.high_watermark = 60;
    }
    let mut options = waiting.options();
    options.threads = 1;
    options.timeout = Duration::from_secs(5);
    options.start = Position::Offset {
        offset: 0,
        leader_epoch: -1,
    };
    options.end = Position::Offset {
        offset: 100,
        leader_epoch: -1,
    };
    let timeout = options.timeout;
    let mut reader = start(options).unwrap();
    // The second one finds nothing.
    wait_until(|| waiting.state().fetches > 2);
    may_fill.store(true, Ordering::Release);
    thread::sleep(timeout + timeout / 2);
    waiting.state().high_watermark = 100;
    let mut rows = 0;
    while let Some(batch) = reader.next_batch().unwrap() {
        rows += batch.num_rows();
    }
    assert_eq!(rows, 200);
}

#[test]
fn it_waits_for_a_batch_as_long_as_it_wants() {
    let may_answer = Arc::new(AtomicBool::new(false));
    let is_open = Arc::clone(&may_answer);
    let broker = FakeBroker::start(move |_, _| {
        wait_until(|| is_open.load(Ordering::Acquire));
        Reply::Log
    });
    let mut reader = start(broker.options()).unwrap();
    let (began, most) = (Instant::now(), Duration::from_millis(250));
    assert_eq!(reader.next_within(most).unwrap(), Next::Nothing);
    assert!(began.elapsed() >= most);
    assert_eq!(reader.next_within(Duration::ZERO).unwrap(), Next::Nothing);
    assert_eq!(reader.status().progress()[0].position, 0);
    may_answer.store(true, Ordering::Release);
    let mut rows = 0;
    loop {
        match reader.next_within(Duration::from_secs(60)).unwrap() {
            Next::Batch(batch) => rows += batch.num_rows(),
            Next::End => break,
            Next::Nothing => panic!("no batch came"),
        }
    }
    assert_eq!(rows, 100);
    assert_eq!(reader.next_within(most).unwrap(), Next::End);
}
