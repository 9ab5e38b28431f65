//! From a producer to a consumer that waits, for the cases from end to end: whoever takes a batch in
//! sends it out, too, in the same turn. One consumer a program; its position is where it is.

use crate::answers;
use crate::store::Topic;
use parking_lot::Mutex;
use pyrklog_wire::batch::set_base_offset;
use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::Arc;

/// A batch that no consumer has yet.
#[derive(Debug)]
pub struct Fresh {
    /// Its topic.
    pub topic: Arc<Topic>,
    /// Its partition.
    pub partition: i32,
    /// As it was produced, with its offset.
    pub bytes: Vec<u8>,
}

/// A fetch that waits.
#[derive(Debug)]
pub struct Waiting {
    /// Where its answer goes.
    pub stream: Arc<TcpStream>,
    /// Version of the request.
    pub version: i16,
    /// Number of the request.
    pub correlation_id: i32,
}

/// Where more than this waits, nobody reads at the end: it is all left to the files.
const FRESH_MAX: usize = 4096;

#[derive(Debug, Default)]
struct State {
    is_closed: bool,
    fresh: Vec<Fresh>,
    waiting: Option<Waiting>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Relay {
    state: Mutex<State>,
}

impl Relay {
    /// A batch has come: it goes to the consumer that waits, if one does.
    ///
    /// # Errors
    /// The consumer is gone.
    pub fn offer(
        &self,
        topic: &Arc<Topic>,
        partition: i32,
        base_offset: i64,
        batch: &[u8],
    ) -> io::Result<()> {
        let mut bytes = batch.to_vec();
        set_base_offset(&mut bytes, base_offset);
        let mut state = self.state.lock();
        if state.fresh.len() >= FRESH_MAX {
            state.fresh = Vec::new();
            state.is_closed = true;
        }
        if state.is_closed {
            return Ok(());
        }
        state.fresh.push(Fresh {
            topic: Arc::clone(topic),
            partition,
            bytes,
        });
        match state.waiting.take() {
            Some(waiting) => send(waiting, &std::mem::take(&mut state.fresh)),
            None => Ok(()),
        }
    }

    /// A consumer asks: it gets what has come since, or waits if it stands at the end; false where it
    /// does not, and nothing has come.
    ///
    /// # Errors
    /// The consumer is gone.
    pub fn ask(&self, waiting: Waiting, is_at_end: impl Fn() -> bool) -> io::Result<bool> {
        let mut state = self.state.lock();
        if !state.fresh.is_empty() {
            return send(waiting, &std::mem::take(&mut state.fresh)).map(|()| true);
        }
        let waits = !state.is_closed && is_at_end();
        if waits {
            state.waiting = Some(waiting);
        }
        Ok(waits)
    }

    /// A consumer is gone: nothing goes to it any more.
    pub fn forget(&self, stream: &Arc<TcpStream>) {
        let mut state = self.state.lock();
        let waiting = &mut state.waiting;
        if waiting
            .as_ref()
            .is_some_and(|waiting| Arc::ptr_eq(&waiting.stream, stream))
        {
            *waiting = None;
        }
    }
}

fn send(waiting: Waiting, fresh: &[Fresh]) -> io::Result<()> {
    let mut out = Vec::with_capacity(1024);
    answers::fetched(&mut out, waiting.version, waiting.correlation_id, fresh);
    (&*waiting.stream).write_all(&out)
}
