//! TLS over a socket that does not block. What is buffered is bounded: received bytes by one read,
//! decrypted ones by what is in them, and encrypted ones by one write.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustls::ClientConnection;

use super::Tls;
use crate::error::Result;

const RECEIVED_BYTES: usize = 64 * 1024;
/// Plain bytes of one write: what they become is sent before more is taken.
const WRITE_BYTES: usize = 64 * 1024;

/// See the module.
pub(crate) struct TlsStream {
    socket: TcpStream,
    tls: ClientConnection,
    /// As received: of `at..end` TLS knows nothing yet.
    received: Box<[u8]>,
    at: usize,
    end: usize,
    /// Decrypted bytes that wait.
    readable: usize,
    is_over: bool,
}

impl fmt::Debug for TlsStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TlsStream({:?})", self.socket)
    }
}

impl AsFd for TlsStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl TlsStream {
    pub fn new(tls: &Tls, host: &str, socket: TcpStream) -> Result<TlsStream> {
        Ok(TlsStream {
            socket,
            tls: tls.connection(host)?,
            received: vec![0; RECEIVED_BYTES].into(),
            at: 0,
            end: 0,
            readable: 0,
            is_over: false,
        })
    }

    /// Goes on with the handshake. True when it is over and all of it sent.
    pub fn handshake(&mut self) -> io::Result<bool> {
        loop {
            let is_sent = self.flush()?;
            if !self.tls.is_handshaking() {
                return Ok(is_sent);
            }
            if self.is_over {
                let closed = "the broker closed the connection";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, closed));
            }
            if !self.advance()? {
                return Ok(false);
            }
        }
    }

    /// As a socket's.
    pub fn read(&mut self, space: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match self.tls.reader().read(space) {
                Ok(read) => {
                    self.readable = self.readable.saturating_sub(read);
                    return Ok(Some(read));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Without TLS's own end: the frames above it notice what is missing.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Some(0)),
                Err(error) => return Err(error),
            }
            if !self.advance()? {
                return Ok(None);
            }
        }
    }

    /// As a socket's; takes more only when all that it took is sent.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.flush()? {
            return Ok(0);
        }
        let most = bytes.len().min(WRITE_BYTES);
        let taken = self.tls.writer().write(&bytes[..most])?;
        self.flush()?;
        Ok(taken)
    }

    /// Sends what TLS has to send. True when that is all.
    pub fn flush(&mut self) -> io::Result<bool> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut Sender(&self.socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Whether there is something to send.
    pub fn wants_write(&self) -> bool {
        self.tls.wants_write()
    }

    /// Whether a read may find something though the socket has nothing.
    pub fn has_buffered(&self) -> bool {
        self.readable > 0 || self.at < self.end
    }

    /// Gives TLS more of what was received. False if nothing is there now.
    fn advance(&mut self) -> io::Result<bool> {
        if self.at == self.end {
            match recv(&self.socket, &mut self.received[..], RecvFlags::DONTWAIT) {
                Ok((received, _)) => (self.at, self.end) = (0, received),
                Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        let mut rest = &self.received[self.at..self.end];
        self.is_over |= rest.is_empty();
        let before = rest.len();
        self.tls.read_tls(&mut rest)?;
        self.at += before - rest.len();
        match self.tls.process_new_packets() {
            Ok(state) => {
                self.readable = state.plaintext_bytes_to_read();
                // Answers to the other side's own messages.
                self.flush()?;
                Ok(true)
            }
            Err(error) => {
                // The other side is told why, if it still listens.
                self.flush().ok();
                Err(io::Error::new(io::ErrorKind::InvalidData, error))
            }
        }
    }
}

/// The socket as TLS writes to it.
struct Sender<'a>(&'a TcpStream);

impl Write for Sender<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match send(self.0, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(sent) => Ok(sent),
            Err(Errno::AGAIN | Errno::INTR) => Err(io::ErrorKind::WouldBlock.into()),
            Err(error) => Err(error.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
