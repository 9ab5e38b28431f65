//! One TCP connection, blocking or tried without waiting, and its receive buffer.

use crate::clock::now_ns;
use crate::error::{Failure, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};
use std::io::{self, IoSlice};
use std::net::{TcpStream, ToSocketAddrs};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

const RECEIVE_BUFFER_BYTES: usize = 256 << 10;
/// Longer frames count as another protocol.
const FRAME_BYTES_MAX: usize = 1 << 30;
/// Longest wait for the socket before the caller checks its limits again.
pub const TURN_NS: u64 = 100_000_000;

/// A connection to one broker.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    filled: Range<usize>,
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Connection {
    /// Connects to `address` ("host:port").
    ///
    /// # Errors
    /// The name does not resolve, or nobody accepts within 5 s.
    pub fn open(address: &str) -> Result<Self> {
        let failed = |error| Failure::Connection(format!("cannot connect to {address}"), error);
        let mut last_error = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for socket_address in address.to_socket_addrs().map_err(failed)? {
            match TcpStream::connect_timeout(&socket_address, Duration::from_secs(5)) {
                Ok(stream) => {
                    stream.set_nodelay(true).map_err(failed)?;
                    let turn = Duration::from_nanos(TURN_NS);
                    stream.set_read_timeout(Some(turn)).map_err(failed)?;
                    let buffer = vec![0; RECEIVE_BUFFER_BYTES];
                    return Ok(Self {
                        stream,
                        buffer,
                        filled: 0..0,
                    });
                }
                Err(error) => last_error = error,
            }
        }
        Err(failed(last_error))
    }

    /// Sends as much of several pieces as the socket takes at once; 0 when it takes nothing now.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn send_some(&self, pieces: &[IoSlice<'_>]) -> Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = match pieces {
            [one] => send(&self.stream, one, flags),
            _ => sendmsg(
                &self.stream,
                pieces,
                &mut SendAncillaryBuffer::default(),
                flags,
            ),
        };
        match sent {
            Ok(bytes) => Ok(bytes),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(0),
            Err(error) => Err(Failure::Connection("sending failed".into(), error.into())),
        }
    }

    /// Receives what is there; with `wait`, waits up to [`TURN_NS`] for it. False = nothing came.
    ///
    /// # Errors
    /// The connection is gone, or closed by the broker.
    pub fn receive(&mut self, wait: bool) -> Result<bool> {
        self.make_room()?;
        let flags = if wait {
            RecvFlags::empty()
        } else {
            RecvFlags::DONTWAIT
        };
        let room = self.filled.end..self.receive_until();
        match recv(&self.stream, &mut self.buffer[room], flags) {
            Ok((0, _)) => {
                let error = io::Error::new(io::ErrorKind::UnexpectedEof, "the broker closed it");
                Err(Failure::Connection("connection lost".into(), error))
            }
            Ok((received, _)) => {
                self.filled.end += received;
                Ok(true)
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(Failure::Connection("receiving failed".into(), error.into())),
        }
    }

    /// The next complete frame without its length, if it has arrived; valid until `receive`.
    ///
    /// # Errors
    /// A length that no broker would send.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>> {
        let Some(length) = self.frame_length()? else {
            return Ok(None);
        };
        if self.filled.len() < 4 + length {
            return Ok(None);
        }
        let start = self.filled.start + 4;
        self.filled.start = start + length;
        Ok(Some(&self.buffer[start..start + length]))
    }

    /// Waits until there is something to read, or room to send if `to_send`, or until `until_ns`,
    /// at most [`TURN_NS`].
    ///
    /// # Errors
    /// poll(2) failed.
    pub fn wait(&self, to_send: bool, until_ns: u64) -> Result<()> {
        let left_ns = until_ns.saturating_sub(now_ns()).min(TURN_NS);
        if left_ns == 0 {
            return Ok(());
        }
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: left_ns as _,
        };
        let events = if to_send {
            PollFlags::IN | PollFlags::OUT
        } else {
            PollFlags::IN
        };
        match poll(&mut [PollFd::new(&self.stream, events)], Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(Failure::Connection("waiting failed".into(), error.into())),
        }
    }

    /// Sends one frame and waits for its reply: for the few requests before the measurement.
    ///
    /// # Errors
    /// As the other methods; no reply within `timeout_ns`.
    pub fn round_trip(&mut self, frame: &[u8], timeout_ns: u64) -> Result<Vec<u8>> {
        let deadline_ns = now_ns() + timeout_ns;
        let mut rest = frame;
        while !rest.is_empty() {
            let sent = self.send_some(&[IoSlice::new(rest)])?;
            rest = &rest[sent..];
            if sent == 0 {
                self.wait(true, deadline_ns)?;
            }
            check_time(deadline_ns)?;
        }
        loop {
            if let Some(reply) = self.next_frame()? {
                return Ok(reply.to_vec());
            }
            self.receive(true)?;
            check_time(deadline_ns)?;
        }
    }

    fn frame_length(&self) -> Result<Option<usize>> {
        let Some(prefix) = self.buffer[self.filled.clone()].first_chunk::<4>() else {
            return Ok(None);
        };
        match usize::try_from(i32::from_be_bytes(*prefix)) {
            Ok(length) if (4..=FRAME_BYTES_MAX).contains(&length) => Ok(Some(length)),
            _ => Err(Failure::Protocol(format!(
                "a reply announces a length of {}: is this a Kafka-protocol port?",
                i32::from_be_bytes(*prefix)
            ))),
        }
    }

    /// A long frame is received exactly to its end, so that its bytes are never moved.
    fn receive_until(&self) -> usize {
        match self.frame_length() {
            Ok(Some(length)) if length >= RECEIVE_BUFFER_BYTES / 2 => {
                (self.filled.start + 4 + length).min(self.buffer.len())
            }
            _ => self.buffer.len(),
        }
    }

    fn make_room(&mut self) -> Result<()> {
        if self.filled.is_empty() {
            self.filled = 0..0;
        }
        let wanted = self
            .frame_length()?
            .map_or(RECEIVE_BUFFER_BYTES, |length| 4 + length);
        if self.filled.start + wanted > self.buffer.len() || self.filled.end == self.buffer.len() {
            self.buffer.copy_within(self.filled.clone(), 0);
            self.filled = 0..self.filled.len();
            if wanted > self.buffer.len() {
                self.buffer.resize(wanted.next_power_of_two(), 0);
            }
        }
        Ok(())
    }
}

fn check_time(deadline_ns: u64) -> Result<()> {
    if now_ns() < deadline_ns {
        return Ok(());
    }
    Err(Failure::TimedOut("no reply in time".into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;

    fn pair() -> (Connection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connection = Connection::open(&listener.local_addr().unwrap().to_string()).unwrap();
        (connection, listener.accept().unwrap().0)
    }

    fn frame(length: usize, fill: u8) -> Vec<u8> {
        let mut bytes = (length as i32).to_be_bytes().to_vec();
        bytes.resize(4 + length, fill);
        bytes
    }

    fn receive_frame(connection: &mut Connection) -> Vec<u8> {
        loop {
            if let Some(frame) = connection.next_frame().unwrap() {
                return frame.to_vec();
            }
            connection.receive(true).unwrap();
        }
    }

    #[test]
    fn frames_of_all_sizes_arrive_whole_however_they_are_cut() {
        let (mut connection, mut peer) = pair();
        let sizes = [
            4, 10, 300_000, 5, 131_072, 262_140, 262_144, 2_000_000, 4, 70_000,
        ];
        let sender = std::thread::spawn(move || {
            let all: Vec<u8> = sizes
                .iter()
                .enumerate()
                .flat_map(|(i, size)| frame(*size, i as u8))
                .collect();
            for piece in all.chunks(77_777) {
                peer.write_all(piece).unwrap();
            }
            peer
        });
        for (i, size) in sizes.iter().enumerate() {
            let got = receive_frame(&mut connection);
            assert_eq!(got.len(), *size);
            assert!(got.iter().all(|byte| *byte == i as u8));
        }
        drop(sender.join().unwrap());
        assert!(
            connection
                .receive(true)
                .unwrap_err()
                .to_string()
                .contains("closed")
        );
    }

    #[test]
    fn another_protocol_is_recognised() {
        let (mut connection, mut peer) = pair();
        peer.write_all(b"HTTP/1.1 400 Bad Request\r\n").unwrap();
        while !connection.receive(true).unwrap() {}
        let error = connection.next_frame().unwrap_err().to_string();
        assert!(error.contains("Kafka-protocol port"), "{error}");
    }

    #[test]
    fn refused_connection_names_the_address() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let error = Connection::open(&address).unwrap_err().to_string();
        assert!(error.contains(&address), "{error}");
    }
}
