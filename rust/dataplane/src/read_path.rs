//! The choice: how a connection's bytes reach its socket.
//!
//! Memory alone goes out with send(2). Where file ranges are among it, *copy* reads them into a
//! buffer together with the memory around them and sends that; a network thread reads only what
//! is resident (preadv2 with RWF_NOWAIT) and leaves the rest to a reader. *sendfile* hands each
//! range to sendfile(2), which can wait for the disk after any check of residency: readers only.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use crate::api::ReadPath;
use crate::out_queue::{Head, OutQueue};
use crate::reader_pool::QueueId;

/// File bytes of one queue from which sendfile is worth the hand-over to a reader. Below it a
/// copy costs less than waking another thread.
pub const SENDFILE_MIN_BYTES: usize = 64 * 1024;

/// What one call sends at most before other connections of the thread get their turn.
pub const SEND_PER_TURN_BYTES: usize = 1024 * 1024;

/// The most that one sendfile call is asked for.
const SENDFILE_MAX_BYTES: usize = 1024 * 1024;

/// Size of a copying thread's buffer.
pub const COPY_BUFFER_BYTES: usize = 256 * 1024;

/// How file bytes go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Through a buffer.
    Copy,
    /// sendfile(2).
    Sendfile,
}

/// The method for a queue with `file_len` file bytes: the whole rule of `fetch.read.path`.
/// sendfile costs half the CPU of a copy on kernels that send page-cache pages in place, also over
/// loopback (docs/benchmarks.md); a small reply is cheaper to copy than to hand to another thread.
pub fn choose(config: ReadPath, file_len: usize) -> Method {
    match config {
        ReadPath::Auto | ReadPath::Sendfile if file_len >= SENDFILE_MIN_BYTES => Method::Sendfile,
        ReadPath::Auto | ReadPath::Sendfile | ReadPath::Copy => Method::Copy,
    }
}

/// Why sending stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Everything is out.
    Done,
    /// The socket takes no more for now.
    SocketFull,
    /// The next file bytes would have to come from a disk that the sender may not wait for.
    WouldRead,
    /// The turn's share is used up.
    TurnOver,
    /// The peer is gone.
    PeerGone,
    /// A file could not be read; the reply cannot be finished.
    ReadFailed(String),
}

/// Who is sending, which decides whether it may wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// Reads only resident bytes.
    NetworkThread,
    /// Waits for the disk where it must: that of its queue's log directory, and no other.
    Reader(QueueId),
}

fn send_some(socket: BorrowedFd<'_>, bytes: &[u8], more: bool) -> Result<usize, Stop> {
    let flags = if more {
        SendFlags::NOSIGNAL | SendFlags::MORE
    } else {
        SendFlags::NOSIGNAL
    };
    loop {
        match send(socket, bytes, flags) {
            Ok(count) => return Ok(count),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Err(Stop::SocketFull),
            Err(_) => return Err(Stop::PeerGone),
        }
    }
}

/// Sends through `buffer` until something stops it.
pub fn copy_out(
    socket: BorrowedFd<'_>,
    out: &mut OutQueue,
    buffer: &mut [u8],
    sender: Sender,
) -> Stop {
    let mut sent_total = 0;
    loop {
        if sent_total >= SEND_PER_TURN_BYTES {
            return if out.is_empty() {
                Stop::Done
            } else {
                Stop::TurnOver
            };
        }
        let (sent, wanted) = match out.head() {
            Head::Empty => return Stop::Done,
            Head::Memory(bytes) if out.file_len() == 0 => match send_some(socket, bytes, false) {
                Ok(sent) => (sent, bytes.len()),
                Err(stop) => return stop,
            },
            Head::Memory(_) | Head::File(_) => {
                let filled = out.fill(buffer, |range, target, position| match sender {
                    Sender::NetworkThread => range.file.read_at_nowait(target, position),
                    Sender::Reader(queue) if !queue.shares_dir(range.queue) => {
                        Err(io::ErrorKind::WouldBlock.into())
                    }
                    Sender::Reader(_) => range.file.read_at(target, position),
                });
                let filled = match filled {
                    Ok(filled) => filled,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        return Stop::WouldRead;
                    }
                    Err(error) => return Stop::ReadFailed(error.to_string()),
                };
                match send_some(socket, &buffer[..filled], filled < out.len()) {
                    Ok(sent) => (sent, filled),
                    Err(stop) => return stop,
                }
            }
        };
        out.advance(sent);
        sent_total += sent;
        if sent < wanted {
            return Stop::SocketFull;
        }
    }
}

/// Sends memory with send(2) and files with sendfile(2) until something stops it. May wait for
/// the disk of its queue's log directory. The process must ignore SIGPIPE, as Rust's and Python's runtimes do: sendfile has no
/// flag against it. Files that are not the system's own go through `buffer`.
pub fn sendfile_out(
    socket: BorrowedFd<'_>,
    out: &mut OutQueue,
    buffer: &mut [u8],
    queue: QueueId,
) -> Stop {
    let sender = Sender::Reader(queue);
    let mut sent_total = 0;
    loop {
        if sent_total >= SEND_PER_TURN_BYTES && !out.is_empty() {
            return Stop::TurnOver;
        }
        let sent = match out.head() {
            Head::Empty => return Stop::Done,
            Head::Memory(bytes) => match send_some(socket, bytes, bytes.len() < out.len()) {
                Ok(sent) => sent,
                Err(stop) => return stop,
            },
            Head::File(range) if !queue.shares_dir(range.queue) => return Stop::WouldRead,
            Head::File(range) => {
                let Some(file) = range.file.descriptor() else {
                    return copy_out(socket, out, buffer, sender);
                };
                let mut position = range.position;
                let len = range.len.min(SENDFILE_MAX_BYTES);
                match rustix::fs::sendfile(socket, file.as_fd(), Some(&mut position), len) {
                    Ok(0) => return Stop::ReadFailed("the segment file is too short".into()),
                    Ok(sent) => sent,
                    Err(Errno::INTR) => continue,
                    Err(Errno::AGAIN) => return Stop::SocketFull,
                    // A file system without it.
                    Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::OVERFLOW) => {
                        return copy_out(socket, out, buffer, sender);
                    }
                    Err(error @ (Errno::IO | Errno::NOMEM)) => {
                        return Stop::ReadFailed(error.to_string());
                    }
                    Err(_) => return Stop::PeerGone,
                }
            }
        };
        out.advance(sent);
        sent_total += sent;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_follows_the_option_and_the_size() {
        let large = SENDFILE_MIN_BYTES;
        assert_eq!(choose(ReadPath::Auto, large), Method::Sendfile);
        assert_eq!(choose(ReadPath::Auto, large - 1), Method::Copy);
        assert_eq!(choose(ReadPath::Sendfile, large), Method::Sendfile);
        assert_eq!(choose(ReadPath::Sendfile, 100), Method::Copy);
        assert_eq!(choose(ReadPath::Copy, large), Method::Copy);
    }
}
