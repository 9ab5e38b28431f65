//! Finished batches on their way to the caller, bounded in bytes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use parking_lot::{Condvar, Mutex};

use crate::bad_rows::BadRecords;
use crate::error::{Result, ScanError};
use crate::progress::{Delivered, Progress};

/// A batch, and what it holds.
#[derive(Debug)]
pub(crate) struct Output {
    pub batch: RecordBatch,
    /// To be written before the batch counts as delivered.
    pub bad: Option<BadRecords>,
    pub bytes: usize,
    pub parts: Vec<Delivered>,
}

#[derive(Debug, Default)]
struct State {
    batches: VecDeque<Output>,
    bytes: usize,
    /// Of the batch that was taken and does not count as delivered yet.
    taken: Option<Vec<Delivered>>,
    /// Nothing more comes; with an error, the scan failed.
    end: Option<Result<()>>,
}

/// Workers push, the caller pops.
#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<State>,
    bytes_max: usize,
    progress: Arc<Progress>,
    has_room: Condvar,
    has_batch: Condvar,
}

/// What a wait for a batch ends with.
#[derive(Debug)]
pub(crate) enum Popped {
    Batch(Output),
    End,
    Failed(ScanError),
    /// Nothing came in time.
    Nothing,
}

impl Queue {
    pub fn new(bytes_max: usize, progress: Arc<Progress>) -> Queue {
        Queue {
            state: Mutex::new(State::default()),
            bytes_max,
            progress,
            has_room: Condvar::new(),
            has_batch: Condvar::new(),
        }
    }

    /// Waits for room. A batch above the bound goes into an empty queue.
    ///
    /// # Errors
    /// The queue has ended.
    pub fn push(&self, output: Output) -> Result<()> {
        let mut state = self.state.lock();
        loop {
            if state.end.is_some() {
                return Err(ScanError::cancelled());
            }
            if state.batches.is_empty() || state.bytes + output.bytes <= self.bytes_max {
                break;
            }
            self.has_room.wait(&mut state);
        }
        state.bytes += output.bytes;
        state.batches.push_back(output);
        self.has_batch.notify_one();
        Ok(())
    }

    /// What was read without a row counts as delivered with the batch before it.
    ///
    /// # Errors
    /// The queue has ended.
    pub fn pass(&self, parts: Vec<Delivered>) -> Result<()> {
        let mut state = self.state.lock();
        if state.end.is_some() {
            return Err(ScanError::cancelled());
        }
        let before = match state.batches.back_mut() {
            Some(last) => Some(&mut last.parts),
            None => state.taken.as_mut(),
        };
        match before {
            Some(before) => before.extend(parts),
            None => self.progress.deliver(&parts),
        }
        Ok(())
    }

    /// Ends the queue behind what is in it; a second end changes nothing.
    pub fn end(&self, how: Result<()>) {
        let mut state = self.state.lock();
        state.end.get_or_insert(how);
        self.has_room.notify_all();
        self.has_batch.notify_all();
    }

    /// Ends the queue and drops what is in it.
    pub fn close(&self) {
        self.end(Err(ScanError::cancelled()));
        let mut state = self.state.lock();
        state.bytes = 0;
        state.batches.clear();
    }

    /// Ends the queue with an error of the caller's side, also if all is in it.
    pub fn fail(&self, error: ScanError) {
        let mut state = self.state.lock();
        state.end = Some(Err(error));
        state.bytes = 0;
        state.batches.clear();
        self.has_room.notify_all();
        self.has_batch.notify_all();
    }

    /// The failure, if the queue ended with one.
    pub fn failure(&self) -> Option<ScanError> {
        let state = self.state.lock();
        state.end.clone().and_then(Result::err)
    }

    /// Takes the next batch, and counts it as delivered. One with bad records counts when
    /// [`Queue::delivered`] is called, before the next one is taken.
    pub fn pop(&self, most: Duration) -> Popped {
        let mut state = self.state.lock();
        if state.batches.is_empty() && state.end.is_none() {
            self.has_batch.wait_for(&mut state, most);
        }
        if let Some(mut output) = state.batches.pop_front() {
            state.bytes -= output.bytes;
            match output.bad {
                None => self.progress.deliver(&output.parts),
                Some(_) => state.taken = Some(std::mem::take(&mut output.parts)),
            }
            self.has_room.notify_one();
            return Popped::Batch(output);
        }
        match &state.end {
            None => Popped::Nothing,
            Some(Ok(())) => Popped::End,
            Some(Err(error)) => Popped::Failed(error.clone()),
        }
    }

    /// The bad records of the batch taken last are written.
    pub fn delivered(&self) {
        let mut state = self.state.lock();
        if let Some(parts) = state.taken.take() {
            self.progress.deliver(&parts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::Split;
    use arrow_schema::Schema;

    fn delivered(position: i64) -> Delivered {
        Delivered {
            split: 0,
            position,
            leader_epoch: 1,
            records: 1,
            bytes: 0,
            bad: 0,
        }
    }

    fn empty() -> RecordBatch {
        RecordBatch::new_empty(Arc::new(Schema::empty()))
    }

    #[test]
    fn what_is_passed_behind_a_batch_that_was_taken_waits_for_its_bad_records() {
        let split = Split {
            topic: Arc::from("topic"),
            topic_id: [1; 16],
            partition: 3,
            start: 0,
            end: 100,
            leader_epoch: -1,
            is_listed: false,
        };
        let progress = Arc::new(Progress::new(&[split]));
        let queue = Queue::new(1000, Arc::clone(&progress));
        let bad = BadRecords {
            records: empty(),
            largest: String::new(),
        };
        let output = Output {
            batch: empty(),
            bad: Some(bad),
            bytes: 10,
            parts: vec![delivered(5)],
        };
        queue.push(output).unwrap();
        assert!(matches!(queue.pop(Duration::ZERO), Popped::Batch(_)));
        queue.pass(vec![delivered(9)]).unwrap();
        assert_eq!(progress.read()[0].position, 0);
        queue.delivered();
        assert_eq!(
            (progress.read()[0].position, progress.read()[0].records),
            (9, 2)
        );
        queue.pass(vec![delivered(12)]).unwrap();
        assert_eq!(progress.read()[0].position, 12);
    }

    #[test]
    fn a_failure_of_the_caller_replaces_the_end() {
        let queue = Queue::new(1000, Arc::new(Progress::new(&[])));
        queue.end(Ok(()));
        let error = ScanError::cancelled();
        queue.fail(error.clone());
        assert_eq!(queue.failure(), Some(error));
        assert!(matches!(queue.pop(Duration::ZERO), Popped::Failed(_)));
    }
}
