//! The connection to a leader: one request at a time.

use std::io::{self, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::time::Duration;

use pyrklog_wire::DecodeError;
use pyrklog_wire::frame::FrameTooLong;
use pyrklog_wire::header::{RequestHeader, parse_response_header};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::set_socket_linger;

use crate::follower::fetcher_queue::FetcherQueue;
use pyrklog_base::clock::{mono_ms, timespec};

/// Limit for connecting: the end of the plane waits for it.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(700);

const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// Mail that comes sooner after a request does not interrupt it: new partitions come one by one,
/// and each interruption costs a whole request.
const GATHER_MS: i64 = 20;

/// How often the end of the plane is checked within an answer.
const END_LOOK_MS: i64 = 100;

/// More than any answer asked for: the stream is no answer.
const ANSWER_BYTES_MAX: usize = 1 << 30;

/// Memory for an answer grows in such steps, not as the peer announces it.
const RECEIVE_STEP_BYTES: usize = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The plane ends, or the partitions to ask for have changed.
    #[error("it was not waited for")]
    Interrupted,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Malformed(String),
    #[error("{0}")]
    Undecodable(#[from] DecodeError),
    /// The request asks for too many partitions.
    #[error("{0}")]
    RequestTooLong(#[from] FrameTooLong),
}

impl LinkError {
    /// Whether it tells that no broker listens: refused, or ended without an answer. A time-out
    /// does not, nor does anything else that a slow or distant broker could cause.
    pub fn is_by_nobody(&self) -> bool {
        use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, UnexpectedEof};
        let LinkError::Io(error) = self else {
            return false;
        };
        matches!(
            error.kind(),
            ConnectionRefused | ConnectionReset | BrokenPipe | UnexpectedEof
        )
    }
}

#[derive(Debug)]
pub struct Link {
    stream: TcpStream,
    correlation_id: i32,
    frame: Vec<u8>,
}

impl Link {
    pub fn connect(host: &str, port: u16) -> io::Result<Link> {
        let mut failure = io::Error::other(format!("{host} has no address"));
        for address in (host, port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_write_timeout(Some(SEND_TIMEOUT))?;
                    // A link dropped while the leader waits for data is reset, so that the leader
                    // sees that its peer is gone: the peer of a closed one could still listen.
                    set_socket_linger(&stream, Some(Duration::ZERO))?;
                    return Ok(Link {
                        stream,
                        correlation_id: 0,
                        frame: Vec::new(),
                    });
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Sends a request and receives its answer: the frame, and where the body begins in it. Give
    /// the frame back with [`Link::recycle`].
    ///
    /// Mail ends the waiting until the answer has begun to arrive, but not within [`GATHER_MS`];
    /// the end of the plane always does.
    ///
    /// # Errors
    /// [`LinkError`]; the link is then useless.
    pub fn exchange(
        &mut self,
        api_key: i16,
        api_version: i16,
        client_id: &str,
        timeout_ms: i64,
        queue: &FetcherQueue,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(Vec<u8>, usize), LinkError> {
        self.correlation_id = self.correlation_id.wrapping_add(1) & i32::MAX;
        let correlation_id = self.correlation_id;
        let mut frame = std::mem::take(&mut self.frame);
        let header = RequestHeader {
            api_key,
            api_version,
            correlation_id,
            client_id: Some(client_id),
        };
        frame.clear();
        header.encode_frame(&mut frame, encode)?;
        self.stream.write_all(&frame)?;
        self.receive(&mut frame, mono_ms() + timeout_ms, queue)?;
        let (received, body) = parse_response_header(&frame, api_key, api_version)?;
        if received != correlation_id {
            let message = format!("answer {received} to request {correlation_id}");
            return Err(LinkError::Malformed(message));
        }
        Ok((frame, body))
    }

    pub fn recycle(&mut self, frame: Vec<u8>) {
        self.frame = frame;
    }

    fn receive(
        &mut self,
        frame: &mut Vec<u8>,
        deadline_ms: i64,
        queue: &FetcherQueue,
    ) -> Result<(), LinkError> {
        frame.clear();
        if !self.arrives(queue, false, (mono_ms() + GATHER_MS).min(deadline_ms))? {
            self.wait(queue, true, deadline_ms)?;
        }
        self.fill(frame, 4, queue, deadline_ms)?;
        let len = u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]) as usize;
        if len > ANSWER_BYTES_MAX {
            return Err(LinkError::Malformed(format!("an answer of {len} bytes")));
        }
        frame.clear();
        self.fill(frame, len, queue, deadline_ms)
    }

    fn fill(
        &mut self,
        frame: &mut Vec<u8>,
        len: usize,
        queue: &FetcherQueue,
        deadline_ms: i64,
    ) -> Result<(), LinkError> {
        let mut filled = 0;
        while filled < len {
            if frame.len() == filled {
                frame.resize(len.min(filled + RECEIVE_STEP_BYTES), 0);
            }
            self.wait(queue, false, deadline_ms)?;
            let count = io::Read::read(&mut self.stream, &mut frame[filled..])?;
            if count == 0 {
                let error = io::Error::new(io::ErrorKind::UnexpectedEof, "it was closed");
                return Err(error.into());
            }
            filled += count;
        }
        Ok(())
    }

    /// Waits until there is something to read. Mail ends the waiting if it `is_interruptible`.
    fn wait(
        &self,
        queue: &FetcherQueue,
        is_interruptible: bool,
        deadline_ms: i64,
    ) -> Result<(), LinkError> {
        if self.arrives(queue, is_interruptible, deadline_ms)? {
            return Ok(());
        }
        let error = io::Error::new(io::ErrorKind::TimedOut, "no answer in time");
        Err(error.into())
    }

    /// The same; false at the deadline.
    fn arrives(
        &self,
        queue: &FetcherQueue,
        is_interruptible: bool,
        deadline_ms: i64,
    ) -> Result<bool, LinkError> {
        loop {
            let left_ms = deadline_ms - mono_ms();
            if left_ms <= 0 {
                return Ok(false);
            }
            if queue.is_stopped() {
                return Err(LinkError::Interrupted);
            }
            let mut fds = vec![PollFd::from_borrowed_fd(self.stream.as_fd(), PollFlags::IN)];
            let mut timeout_ms = left_ms.min(END_LOOK_MS);
            if is_interruptible {
                fds.push(PollFd::from_borrowed_fd(queue.fd(), PollFlags::IN));
                timeout_ms = left_ms;
            }
            match poll(&mut fds, Some(&timespec(timeout_ms))) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
            if !fds[0].revents().is_empty() {
                return Ok(true);
            }
            if fds.get(1).is_some_and(|fd| !fd.revents().is_empty()) {
                return Err(LinkError::Interrupted);
            }
        }
    }
}
