//! The bytes below the frames: TCP, or TLS over it.

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
use crate::tls::stream::TlsStream;
use crate::tls::{Tls, handshake_failure};
use crate::wake::{Cancel, Ready, wait, wait_failed};

/// A connected socket that does not block.
#[derive(Debug)]
pub(crate) enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream>),
}

impl AsFd for Transport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Transport::Plain(stream) => stream.as_fd(),
            Transport::Tls(stream) => stream.as_fd(),
        }
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

    /// TLS over a connection.
    pub fn secure(
        self,
        tls: &Tls,
        address: &Address,
        timeout: Duration,
        cancel: &Cancel,
    ) -> Result<Transport> {
        let socket = match self {
            Transport::Plain(socket) => socket,
            secured @ Transport::Tls(_) => return Ok(secured),
        };
        let mut stream = TlsStream::new(tls, &address.host, socket)?;
        let name = address.to_string();
        let until = Instant::now() + timeout;
        loop {
            cancel.check()?;
            let is_over = stream.handshake();
            if is_over.map_err(|error| handshake_failure(&name, error))? {
                return Ok(Transport::Tls(Box::new(stream)));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ClientError::TimedOut {
                    address: name,
                    doing: "the TLS handshake",
                    seconds: timeout.as_secs_f64(),
                });
            }
            let ready = match stream.wants_write() {
                true => Ready::ReadOrWrite,
                false => Ready::Read,
            };
            let files = [(stream.as_fd(), ready), (cancel.as_fd(), Ready::Read)];
            wait(&files, left).map_err(wait_failed)?;
        }
    }

    /// Sends what a write took and has not sent. True when that is all.
    pub fn flush(&mut self) -> io::Result<bool> {
        match self {
            Transport::Plain(_) => Ok(true),
            Transport::Tls(stream) => stream.flush(),
        }
    }

    /// What to wait for, with `has_more` to be written.
    pub fn interest(&self, has_more: bool) -> Ready {
        match self {
            Transport::Tls(stream) if stream.has_buffered() => Ready::Now,
            Transport::Tls(stream) if stream.wants_write() => Ready::ReadOrWrite,
            _ if has_more => Ready::ReadOrWrite,
            _ => Ready::Read,
        }
    }

    /// Receives into `space`; `None` if nothing is there now, 0 at the end.
    pub fn read(&mut self, space: &mut [u8]) -> io::Result<Option<usize>> {
        let stream = match self {
            Transport::Plain(stream) => stream,
            Transport::Tls(stream) => return stream.read(space),
        };
        match recv(stream, space, RecvFlags::DONTWAIT) {
            Ok((received, _)) => Ok(Some(received)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends a part of `bytes`; 0 if the socket takes nothing now.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let stream = match self {
            Transport::Plain(stream) => stream,
            Transport::Tls(stream) => return stream.write(bytes),
        };
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
