//! The threads that may wait for a disk on behalf of a client (`num.io.threads`).
//!
//! They finish fetches whose batch headers are not resident, look up times, and send file bytes:
//! while a reader sends, it owns the socket's sending side; it gives it back when everything is
//! out or the socket stays full.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use pyrklog_log::disk::LeftOpen;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::fetch::FetchWork;
use crate::inbox::Message;
use crate::internal_read::InternalReadWork;
use crate::list_offsets::ListOffsetsWork;
use crate::out_queue::OutQueue;
use crate::read_path::{COPY_BUFFER_BYTES, Method, Sender, Stop, copy_out, sendfile_out};
use crate::request_channel::Place;
use crate::shared::Shared;

/// How long a reader waits for a full socket before it turns to other work.
const SOCKET_PATIENCE_MS: i64 = 5;

/// What a reader is asked to do.
#[derive(Debug)]
pub enum Job {
    /// Read a fetch's batch headers.
    Fetch(Place, Box<FetchWork>),
    /// Look up times.
    ListOffsets(Place, Box<ListOffsetsWork>),
    /// Read an internal topic.
    InternalRead(InternalReadWork),
    /// Send.
    Send(Box<SendWork>),
    /// Close files.
    Close(LeftOpen),
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
}

#[derive(Debug, Default)]
struct Inner {
    jobs: VecDeque<Job>,
    idle: usize,
    is_stopped: bool,
}

/// The readers' queue. Bounded by the connections, each of which has at most one job in it, and by
/// what the control plane reads at a time.
#[derive(Debug, Default)]
pub struct ReaderPool {
    inner: Mutex<Inner>,
    wake: Condvar,
}

impl ReaderPool {
    /// Adds a job.
    pub fn submit(&self, job: Job) {
        let mut inner = self.inner.lock();
        inner.jobs.push_back(job);
        let wake = inner.idle > 0;
        drop(inner);
        if wake {
            self.wake.notify_one();
        }
    }

    /// Ends all readers after the job at hand.
    pub fn stop(&self) {
        self.inner.lock().is_stopped = true;
        self.wake.notify_all();
    }

    /// The jobs that no reader took, after the end.
    pub fn take_left(&self) -> VecDeque<Job> {
        std::mem::take(&mut self.inner.lock().jobs)
    }

    /// Jobs that wait.
    pub fn depth(&self) -> usize {
        self.inner.lock().jobs.len()
    }

    fn take(&self) -> Option<Job> {
        let mut inner = self.inner.lock();
        loop {
            if inner.is_stopped {
                return None;
            }
            if let Some(job) = inner.jobs.pop_front() {
                return Some(job);
            }
            inner.idle += 1;
            self.wake.wait(&mut inner);
            inner.idle -= 1;
        }
    }
}

/// Runs one reader until the pool stops.
pub fn run(shared: &Shared) {
    let mut buffer = Vec::new();
    while let Some(job) = shared.readers.take() {
        let (thread, message) = match job {
            Job::InternalRead(work) => {
                work.run(shared);
                shared.statistics.reader_job();
                continue;
            }
            Job::Close(files) => {
                drop(files);
                continue;
            }
            Job::Fetch(place, mut work) => {
                work.read_blocking();
                (
                    place.thread,
                    Message::FetchRead {
                        token: place.token,
                        work,
                    },
                )
            }
            Job::ListOffsets(place, mut work) => {
                work.look_up();
                (
                    place.thread,
                    Message::OffsetsListed {
                        token: place.token,
                        work,
                    },
                )
            }
            Job::Send(mut work) => {
                buffer.resize(COPY_BUFFER_BYTES, 0);
                send(shared, &mut work, &mut buffer);
                let Place { thread, token } = work.place;
                (thread, Message::Sent { token, work })
            }
        };
        shared.statistics.reader_job();
        shared.inboxes[thread].send(message);
    }
}

fn send(shared: &Shared, work: &mut SendWork, buffer: &mut [u8]) {
    let before = work.out.len();
    work.out.read_ahead();
    loop {
        let socket = work.socket.as_fd();
        work.stop = match work.method {
            Method::Copy => {
                copy_out(socket, &mut work.out, buffer, Sender::Reader, usize::MAX).stop
            }
            Method::Sendfile => sendfile_out(socket, &mut work.out, buffer),
        };
        // Patience is for readers that have nothing else to do: slow peers must not hold them all.
        let may_wait = work.stop == Stop::SocketFull && shared.readers.depth() == 0;
        if !may_wait || !wait_writable(&work.socket) {
            break;
        }
    }
    work.sent = before - work.out.len();
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
