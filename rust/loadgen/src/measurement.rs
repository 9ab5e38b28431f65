//! What every run does: begins, starts a thread for each connection, adds up.

use crate::batch::Batch;
use crate::budget::Budget;
use crate::clock::{now_ns, process_cpu_ns};
use crate::error::{Failure, Result};
use crate::options::Options;
use crate::tally::{Outcome, Tally};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

/// Printed by `--announce`.
const STARTED: &str = "started";
const RETRY_INTERVAL: Duration = Duration::from_millis(10);
/// Between the lines of `--progress`.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// Times that all connections of a run share (monotonic).
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Requests are due from here on.
    pub start_ns: u64,
    /// Requests due earlier belong to the warm-up.
    pub measure_from_ns: u64,
    /// Longest time without a reply.
    pub timeout_ns: u64,
    /// Whether lines on standard error tell how far the run is.
    pub tells_progress: bool,
}

/// Begin, start of the measurement and budget of a run that is ready now.
pub fn begin(options: &Options) -> (Times, Budget) {
    let start_ns = now_ns();
    let measure_from_ns = start_ns + nanoseconds(options.warmup_seconds);
    let times = Times {
        start_ns,
        measure_from_ns,
        timeout_ns: nanoseconds(options.timeout_seconds),
        tells_progress: options.progress,
    };
    let deadline_ns = measure_from_ns + nanoseconds(options.seconds);
    let budget = Budget::new(deadline_ns, options.bytes_max);
    if options.until_eof {
        let ending = budget.ending();
        // Not joined: it may wait for the end of standard input long after the run.
        thread::spawn(move || {
            let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
            ending.end_at(now_ns());
        });
    }
    if options.announce {
        eprintln!("{STARTED}");
    }
    (times, budget)
}

/// Repeats `attempt` after passing errors, for at most `timeout_ns`.
///
/// # Errors
/// The last passing error, or any other at once.
pub fn retry<T>(timeout_ns: u64, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let deadline_ns = now_ns() + timeout_ns;
    loop {
        match attempt() {
            Err(Failure::NotYet(_)) if now_ns() < deadline_ns => thread::sleep(RETRY_INTERVAL),
            done => return done,
        }
    }
}

/// Runs each job on its own thread, and adds up their counts.
///
/// # Errors
/// The first failure of a job; the others are then stopped.
pub fn measure<J>(
    times: &Times,
    budget: &Budget,
    jobs: Vec<J>,
    batch: Option<&Batch>,
) -> Result<Outcome>
where
    J: FnOnce() -> Result<Tally> + Send,
{
    let connections = jobs.len();
    let mut tally = Tally::default();
    let mut failure = None;
    let is_over = AtomicBool::new(false);
    let cpu_before_ns = thread::scope(|scope| {
        let threads: Vec<_> = jobs
            .into_iter()
            .map(|job| {
                scope.spawn(move || {
                    let result = job();
                    if result.is_err() {
                        budget.stop();
                    }
                    result
                })
            })
            .collect();
        thread::sleep(Duration::from_nanos(
            times.measure_from_ns.saturating_sub(now_ns()),
        ));
        let cpu_before_ns = process_cpu_ns();
        let reporter = times
            .tells_progress
            .then(|| scope.spawn(|| report(times, budget, &is_over)));
        for thread in threads {
            match thread.join() {
                Ok(Ok(counted)) => tally.merge(&counted),
                Ok(Err(error)) => failure = failure.take().or(Some(error)),
                Err(panic) => {
                    end(reporter.as_ref(), &is_over);
                    std::panic::resume_unwind(panic)
                }
            }
        }
        end(reporter.as_ref(), &is_over);
        cpu_before_ns
    });
    if let Some(error) = failure {
        return Err(error);
    }
    Ok(Outcome {
        tally,
        connections,
        started_ns: times.measure_from_ns,
        client_cpu_ns: process_cpu_ns() - cpu_before_ns,
        batch_bytes: batch.map_or(0, |batch| batch.bytes.len()),
        batch_records: batch.map_or(0, |batch| batch.records),
    })
}

/// Prints how far the run is, until it is over.
fn report(times: &Times, budget: &Budget, is_over: &AtomicBool) {
    loop {
        thread::park_timeout(PROGRESS_INTERVAL);
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let seconds = now_ns().saturating_sub(times.measure_from_ns) as f64 / 1e9;
        let (records, bytes) = budget.done();
        eprintln!("{{\"seconds\": {seconds:.3}, \"records\": {records}, \"bytes\": {bytes}}}");
    }
}

fn end(reporter: Option<&ScopedJoinHandle<'_, ()>>, is_over: &AtomicBool) {
    is_over.store(true, Ordering::Relaxed);
    if let Some(reporter) = reporter {
        reporter.thread().unpark();
    }
}

/// `seconds` in nanoseconds.
pub fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}
