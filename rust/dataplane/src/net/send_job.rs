//! Sending by a reader: what a network thread cannot send without waiting for the disk. Meanwhile
//! the reader owns the socket's sending side. It gives that back when everything is sent or the
//! socket stays full.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use pyrklog_log::SegmentBytes;
use rustix::event::{PollFd, PollFlags, poll};

use crate::net::outlet::Line;
use crate::net::send_path::{Bulk, Method, Sender, Stop, bulk_out, copy_out};
use pyrklog_base::clock::timespec;
use pyrklog_base::ids::{COPY_BUFFER_BYTES, Place, QueueId};
use pyrklog_base::mailbox::Mailbox;
use pyrklog_requests::out_queue::OutQueue;
use pyrklog_storage::reader_pool::ReaderPool;
use pyrklog_storage::reader_queue::{Job, Kind, ReaderWorker, Step};

/// How long a reader waits for a full socket before it turns to other work.
const SOCKET_PATIENCE_MS: i64 = 5;

/// Most bytes sent of one connection's output while other work waits in the queue.
const SEND_PER_JOB_BYTES: usize = 4 * 1024 * 1024;

/// A connection's output with its socket.
#[derive(Debug)]
pub struct SendWork {
    pub socket: Arc<OwnedFd>,
    /// What to send; on the way back, what is left.
    pub out: OutQueue,
    pub method: Method,
    /// Its connection.
    pub place: Place,
    /// On the way back: why sending stopped.
    pub stop: Stop,
    /// On the way back: bytes sent.
    pub sent: usize,
    /// On the way back: those of them that came out of windows.
    pub window_bytes: usize,
    /// The reader's current step, for the connection that waits.
    pub step: Arc<Step>,
    /// For passing the work on to another queue.
    pub readers: Arc<ReaderPool>,
    /// Takes it back to its connection.
    pub mailbox: Arc<dyn Mailbox<Box<SendWork>>>,
}

impl Job for SendWork {
    fn run(mut self: Box<Self>, worker: &ReaderWorker<'_>, buffer: &mut Vec<u8>) {
        buffer.resize(COPY_BUFFER_BYTES, 0);
        self.step.begin();
        let next = send(worker, &mut self, buffer);
        self.step.end();
        match next {
            Some(next) => {
                let readers = Arc::clone(&self.readers);
                // Another directory's bytes are next, or it is others' turn: never refused.
                let _taken = readers.submit(next, self);
            }
            None => {
                self.readers.count_done();
                let mailbox = Arc::clone(&self.mailbox);
                mailbox.post(self.place, self);
            }
        }
    }

    fn is_bounded(&self) -> bool {
        false
    }

    fn is_counted(&self) -> bool {
        // Counted once, in its last queue.
        false
    }

    fn sends(&self) -> bool {
        true
    }
}

/// Reads what a consumer of old data will ask for next: bytes from a position on.
#[derive(Debug)]
struct ReadAhead(SegmentBytes, u64);

impl Job for ReadAhead {
    fn run(self: Box<Self>, _worker: &ReaderWorker<'_>, _buffer: &mut Vec<u8>) {
        self.0.load_ahead(self.1);
    }

    fn is_counted(&self) -> bool {
        false
    }
}

/// Sends; returns the queue to go on at, if this one cannot or should not.
fn send(worker: &ReaderWorker<'_>, work: &mut SendWork, buffer: &mut [u8]) -> Option<QueueId> {
    let id = worker.queue.id;
    let readers = Arc::clone(&work.readers);
    let ahead_queue = readers.for_kind(usize::from(id.dir), Kind::Ahead);
    let ahead = |bytes: &SegmentBytes, position: u64| {
        let job = Box::new(ReadAhead(bytes.clone(), position));
        if let Err(job) = readers.submit(ahead_queue, job) {
            job.0.forget_ahead(job.1);
        }
    };
    match work.method {
        Method::Sendfile => work.out.read_ahead(id),
        Method::Bulk => work.out.read_first(id),
        Method::Copy => {}
    }
    let mut sent_here = 0;
    loop {
        let before = work.out.len();
        let line = Line::new(work.socket.as_fd());
        work.stop = match work.method {
            Method::Copy => {
                let sender = Sender::Reader(id);
                copy_out(&line, &mut work.out, buffer, sender, usize::MAX).stop
            }
            Method::Bulk | Method::Sendfile => {
                let bulk = Bulk {
                    queue: id,
                    windows: work.method == Method::Bulk,
                    ahead: &ahead,
                };
                bulk_out(&line, &mut work.out, buffer, &bulk, &mut work.window_bytes)
            }
        };
        drop(line);
        worker.step();
        work.step.begin();
        let sent = before - work.out.len();
        sent_here += sent;
        work.sent += sent;
        match work.stop {
            Stop::WouldRead => return work.out.next_queue(),
            Stop::TurnOver if sent_here < SEND_PER_JOB_BYTES || worker.queue.waiting() == 0 => {}
            Stop::TurnOver => return Some(id),
            // Only readers without other work wait: slow peers must not hold all readers.
            Stop::SocketFull if worker.queue.waiting() == 0 && wait_writable(&work.socket) => {}
            _ => return None,
        }
    }
}

/// A fast peer soon empties its socket: waiting briefly saves handing the socket back and forth.
fn wait_writable(socket: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(socket, PollFlags::OUT)];
    matches!(poll(&mut fds, Some(&timespec(SOCKET_PATIENCE_MS))), Ok(1..))
}
