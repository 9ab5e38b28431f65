//! The bytes below the frames. Plain TCP so far; TLS will be a second variant with the same calls.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send, socket_with,
    sockopt,
};

use crate::config::Address;
use crate::error::{ClientError, Result};
use crate::wake::{Cancel, Ready, wait, wait_failed};

/// A connected socket that does not block.
#[derive(Debug)]
pub(crate) enum Transport {
    Plain(TcpStream),
}

impl AsFd for Transport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let Transport::Plain(stream) = self;
        stream.as_fd()
    }
}

impl Transport {
    /// Tries the addresses of a name in turn. Resolving the name may take as long as the system's
    /// resolver does.
    pub fn connect(address: &Address, timeout: Duration, cancel: &Cancel) -> Result<Transport> {
        let failed = |source| ClientError::Connection {
            address: address.to_string(),
            doing: "cannot connect",
            source,
        };
        let found = (address.host.as_str(), address.port)
            .to_socket_addrs()
            .map_err(failed)?;
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for socket_address in found {
            match connect_one(socket_address, timeout, cancel)? {
                Ok(stream) => {
                    stream.set_nodelay(true).map_err(failed)?;
                    return Ok(Transport::Plain(stream));
                }
                Err(error) => last = error,
            }
        }
        Err(failed(last))
    }

    /// Receives into `space`; `None` if nothing is there now, 0 at the end.
    pub fn read(&mut self, space: &mut [u8]) -> io::Result<Option<usize>> {
        let Transport::Plain(stream) = self;
        match recv(stream, space, RecvFlags::DONTWAIT) {
            Ok((received, _)) => Ok(Some(received)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends a part of `bytes`; 0 if the socket takes nothing now.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Transport::Plain(stream) = self;
        match send(stream, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(sent) => Ok(sent),
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }
}

/// The outer error is a cancellation.
fn connect_one(
    address: SocketAddr,
    timeout: Duration,
    cancel: &Cancel,
) -> Result<io::Result<TcpStream>> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = match socket_with(family, SocketType::STREAM, flags, None) {
        Ok(socket) => socket,
        Err(error) => return Ok(Err(error.into())),
    };
    match connect(&socket, &address) {
        Ok(()) => return Ok(Ok(TcpStream::from(socket))),
        Err(Errno::INPROGRESS) => {}
        Err(error) => return Ok(Err(error.into())),
    }
    let until = Instant::now() + timeout;
    loop {
        cancel.check()?;
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(Err(io::ErrorKind::TimedOut.into()));
        }
        let files = [
            (socket.as_fd(), Ready::ReadOrWrite),
            (cancel.as_fd(), Ready::Read),
        ];
        if wait(&files, left).map_err(wait_failed)?[0] {
            return Ok(match sockopt::socket_error(&socket) {
                Ok(Ok(())) => Ok(TcpStream::from(socket)),
                Ok(Err(error)) | Err(error) => Err(error.into()),
            });
        }
    }
}
