//! From a producer to a waiting consumer, for the cases from end to end: the thread that receives a
//! batch also sends it, in the same turn. One consumer a program; its position is the end.

use parking_lot::Mutex;
use pyrklog_wire::api::key;
use pyrklog_wire::batch::set_base_offset;
use pyrklog_wire::fetch::{
    FetchPartitionHead, FetchPartitionTail, FetchResponseHead, FetchResponseWriter,
};
use pyrklog_wire::header::encode_response_header;
use pyrklog_wire::{ErrorCode, frame};
use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::Arc;

/// A batch that no consumer has yet.
#[derive(Debug)]
pub struct Fresh {
    /// Its topic's name.
    pub topic_name: Arc<str>,
    /// Its topic's id.
    pub topic_id: [u8; 16],
    /// Its partition.
    pub partition: i32,
    /// The batch with its offset.
    pub bytes: Vec<u8>,
}

/// A fetch that waits.
#[derive(Debug)]
pub struct Waiting {
    /// The destination of the answer.
    pub stream: Arc<TcpStream>,
    /// Version of the request.
    pub version: i16,
    /// Correlation id of the request.
    pub correlation_id: i32,
}

/// Beyond this nobody reads at the end: the files serve the rest.
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
    /// A batch of this topic has come: it goes to the waiting consumer, if there is one.
    ///
    /// # Errors
    /// The consumer is gone.
    pub fn offer(
        &self,
        topic: (&Arc<str>, [u8; 16]),
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
            topic_name: Arc::clone(topic.0),
            topic_id: topic.1,
            partition,
            bytes,
        });
        match state.waiting.take() {
            Some(waiting) => send(waiting, &std::mem::take(&mut state.fresh)),
            None => Ok(()),
        }
    }

    /// Sends a consumer what has come, or makes it wait if it is at the end. Returns false if it is
    /// not, and nothing has come.
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

    /// The consumer is gone: sends it nothing more.
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
    encode(&mut out, waiting.version, waiting.correlation_id, fresh);
    (&*waiting.stream).write_all(&out)
}

/// The answer to a fetch with these batches, each with a header of its own.
fn encode(out: &mut Vec<u8>, version: i16, correlation_id: i32, fresh: &[Fresh]) {
    let start = frame::begin(out);
    encode_response_header(out, key::FETCH, version, correlation_id);
    let head = FetchResponseHead {
        throttle_ms: 0,
        error_code: ErrorCode::NONE,
        session_id: 0,
    };
    let mut writer = FetchResponseWriter::begin(out, version, head, fresh.len());
    for one in fresh {
        writer.topic(&one.topic_name, &one.topic_id, 1);
        let head = FetchPartitionHead::failed(one.partition, ErrorCode::NONE);
        writer.partition_head(&head, Some(one.bytes.len()));
        writer.out().extend_from_slice(&one.bytes);
        writer.partition_tail(&FetchPartitionTail::default());
    }
    writer.end(&[]);
    frame::end(out, start, 0).expect("a short reply");
}
