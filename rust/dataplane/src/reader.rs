//! A reader thread and its jobs: it finishes fetches whose batch headers are not resident, looks up
//! times, reads internal topics, digests replicas, closes files, and sends file bytes: while it
//! sends, it owns the socket's sending side; it gives it back when everything is out or the socket
//! stays full.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use pyrklog_log::disk::LeftOpen;
use pyrklog_log::{SegmentBytes, Wait};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::base::ids::{Place, QueueId};
use crate::cold_reads::FetchJob;
use crate::control::api::ReadPath;
use crate::control::internal_read_work::InternalReadWork;
use crate::internal_read;
use crate::kept_room;
use crate::list_offsets::LookUpJob;
use crate::message::Message;
use crate::out_queue::OutQueue;
use crate::read_path::{Bulk, COPY_BUFFER_BYTES, Method, Sender, Stop, bulk_out, copy_out};
use crate::reader_queue::{Desk, Step};
use crate::replica_digest::DigestWork;
use crate::shared::Shared;

/// How long a reader waits for a full socket before it turns to other work.
const SOCKET_PATIENCE_MS: i64 = 5;

/// What is sent at most of one connection's output while other work waits in the queue.
const SEND_PER_JOB_BYTES: usize = 4 * 1024 * 1024;

/// What a reader is asked to do.
#[derive(Debug)]
pub enum Job {
    /// Read a fetch's batch headers.
    Fetch(Box<FetchJob>),
    /// Look up times.
    LookUp(Box<LookUpJob>),
    /// Read an internal topic.
    InternalRead(InternalReadWork),
    /// Digest a replica's batches.
    Digest(DigestWork),
    /// Read what a consumer of old data will ask for next: bytes from this position on.
    Ahead(SegmentBytes, u64),
    /// Send.
    Send(Box<SendWork>),
    /// Close files.
    Close(LeftOpen),
}

impl Job {
    /// Whether a full queue refuses it. Sending is bounded by the connections, each of which has
    /// at most one such job, and closing by the files that are open.
    pub fn is_bounded(&self) -> bool {
        !matches!(self, Job::Send(_) | Job::Close(_))
    }

    /// Whether nobody waits for it any more.
    pub fn is_abandoned(&self) -> bool {
        match self {
            Job::Fetch(job) => job.ticket.is_abandoned(),
            Job::LookUp(job) => job.ticket.is_abandoned(),
            Job::InternalRead(_)
            | Job::Digest(_)
            | Job::Ahead(..)
            | Job::Send(_)
            | Job::Close(_) => false,
        }
    }
}

/// A connection's output with its socket.
#[derive(Debug)]
pub struct SendWork {
    /// The socket.
    pub socket: Arc<OwnedFd>,
    /// What to send; on the way back, what is left.
    pub out: OutQueue,
    /// How.
    pub method: Method,
    /// Whose it is.
    pub place: Place,
    /// On the way back: why sending stopped.
    pub stop: Stop,
    /// On the way back: bytes sent.
    pub sent: usize,
    /// On the way back: those of them that came out of windows.
    pub window_bytes: usize,
    /// What a reader does with it, for whoever waits.
    pub step: Arc<Step>,
}

/// Runs one thread of a queue until it is needed no more.
pub fn run(shared: &Shared, id: QueueId) {
    let Some(desk) = shared.readers.queue(id).enter() else {
        return;
    };
    let mut buffer = Vec::new();
    while let Some(job) = desk.take() {
        if job.is_abandoned() {
            continue;
        }
        kept_room::look();
        let (thread, message) = match job {
            Job::InternalRead(work) => {
                internal_read::run(work, shared);
                shared.statistics.reader_job();
                continue;
            }
            Job::Digest(work) => {
                work.run(shared, &desk);
                shared.statistics.reader_job();
                continue;
            }
            Job::Close(files) => {
                drop(files);
                continue;
            }
            Job::Ahead(bytes, position) => {
                bytes.load_ahead(position);
                continue;
            }
            Job::Fetch(mut job) => {
                let wait = match shared.config.fetch_read_path {
                    ReadPath::Auto | ReadPath::Copy => Wait::PastCache,
                    ReadPath::Sendfile => Wait::Blocking,
                };
                job.read(&desk, &mut buffer, wait);
                let Place { thread, token } = job.ticket.place;
                (thread, Message::FetchRead { token, job })
            }
            Job::LookUp(mut job) => {
                job.look_up(&desk);
                let Place { thread, token } = job.ticket.place;
                (thread, Message::OffsetsListed { token, job })
            }
            Job::Send(mut work) => {
                buffer.resize(COPY_BUFFER_BYTES, 0);
                work.step.begin();
                let next = send(shared, id, &desk, &mut work, &mut buffer);
                work.step.end();
                if let Some(next) = next {
                    // Another directory's bytes are next, or others' turn: never refused.
                    let _taken = shared.readers.submit(next, Job::Send(work));
                    continue;
                }
                let Place { thread, token } = work.place;
                (thread, Message::Sent { token, work })
            }
        };
        shared.statistics.reader_job();
        shared.inboxes[thread].send(message);
    }
}

/// Sends; the answer is the queue to go on at, if this one cannot or should not.
fn send(
    shared: &Shared,
    id: QueueId,
    desk: &Desk<'_>,
    work: &mut SendWork,
    buffer: &mut [u8],
) -> Option<QueueId> {
    let ahead = |bytes: &SegmentBytes, position: u64| {
        let job = Job::Ahead(bytes.clone(), position);
        let queue = shared.readers.for_ahead(id);
        if let Err(Job::Ahead(bytes, position)) = shared.readers.submit(queue, job) {
            bytes.forget_ahead(position);
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
        let socket = work.socket.as_fd();
        work.stop = match work.method {
            Method::Copy => {
                copy_out(
                    socket,
                    &mut work.out,
                    buffer,
                    Sender::Reader(id),
                    usize::MAX,
                )
                .stop
            }
            Method::Bulk | Method::Sendfile => {
                let bulk = Bulk {
                    queue: id,
                    windows: work.method == Method::Bulk,
                    ahead: &ahead,
                };
                bulk_out(socket, &mut work.out, buffer, &bulk, &mut work.window_bytes)
            }
        };
        desk.step();
        work.step.begin();
        let sent = before - work.out.len();
        sent_here += sent;
        work.sent += sent;
        match work.stop {
            Stop::WouldRead => return work.out.next_queue(),
            Stop::TurnOver if sent_here < SEND_PER_JOB_BYTES || desk.queue.waiting() == 0 => {}
            Stop::TurnOver => return Some(id),
            // Patience is for readers that have nothing else to do: slow peers must not hold all.
            Stop::SocketFull if desk.queue.waiting() == 0 && wait_writable(&work.socket) => {}
            _ => return None,
        }
    }
}

/// A fast peer empties its socket in no time: waiting a little here saves the way back and forth.
fn wait_writable(socket: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(socket, PollFlags::OUT)];
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: SOCKET_PATIENCE_MS * 1_000_000,
    };
    matches!(poll(&mut fds, Some(&timeout)), Ok(1..))
}
