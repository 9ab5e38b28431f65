//! Finished batches on their way to the caller, bounded in bytes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use parking_lot::{Condvar, Mutex};

use crate::error::{Result, ScanError};
use crate::progress::{Delivered, Progress};

/// A batch, and what it holds.
#[derive(Debug)]
pub(crate) struct Output {
    pub batch: RecordBatch,
    pub bytes: usize,
    pub parts: Vec<Delivered>,
}

#[derive(Debug, Default)]
struct State {
    batches: VecDeque<Output>,
    bytes: usize,
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
        match state.batches.back_mut() {
            Some(last) => last.parts.extend(parts),
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

    /// The failure, if the queue ended with one.
    pub fn failure(&self) -> Option<ScanError> {
        let state = self.state.lock();
        state.end.clone().and_then(Result::err)
    }

    /// Takes the next batch, and counts it as delivered.
    pub fn pop(&self, most: Duration) -> Popped {
        let mut state = self.state.lock();
        if state.batches.is_empty() && state.end.is_none() {
            self.has_batch.wait_for(&mut state, most);
        }
        if let Some(output) = state.batches.pop_front() {
            state.bytes -= output.bytes;
            self.progress.deliver(&output.parts);
            self.has_room.notify_one();
            return Popped::Batch(output);
        }
        match &state.end {
            None => Popped::Nothing,
            Some(Ok(())) => Popped::End,
            Some(Err(error)) => Popped::Failed(error.clone()),
        }
    }
}
