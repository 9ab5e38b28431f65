//! The sending side of a socket, and the promise that more follows.

use std::cell::Cell;
use std::io::IoSlice;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg, sockopt};

use crate::net::send_path::Stop;

/// Where bytes go. With `more`, the kernel may keep back a last short segment, for up to 200 ms,
/// until something else is sent or [`Outlet::push`] is called.
pub trait Outlet {
    /// Sends some of `bytes`; returns how many.
    fn send(&self, bytes: &[u8], more: bool) -> Result<usize, Stop>;

    /// Sends some of the slices; returns how many bytes.
    fn send_slices(&self, slices: &[IoSlice<'_>], more: bool) -> Result<usize, Stop>;

    /// Sends up to `len` bytes of a file by sendfile(2), which keeps nothing back when it has sent
    /// all of them. `WouldRead`: not possible with sendfile.
    fn send_file(&self, file: BorrowedFd<'_>, position: u64, len: usize) -> Result<usize, Stop>;

    fn push(&self);
}

fn flags(more: bool) -> SendFlags {
    if more {
        SendFlags::NOSIGNAL | SendFlags::MORE
    } else {
        SendFlags::NOSIGNAL
    }
}

fn until_told(mut call: impl FnMut() -> Result<usize, Errno>) -> Result<usize, Stop> {
    loop {
        match call() {
            Ok(count) => return Ok(count),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Err(Stop::SocketFull),
            Err(_) => return Err(Stop::PeerGone),
        }
    }
}

impl Outlet for BorrowedFd<'_> {
    fn send(&self, bytes: &[u8], more: bool) -> Result<usize, Stop> {
        until_told(|| send(self, bytes, flags(more)))
    }

    fn send_slices(&self, slices: &[IoSlice<'_>], more: bool) -> Result<usize, Stop> {
        until_told(|| {
            let mut nothing = SendAncillaryBuffer::default();
            sendmsg(self, slices, &mut nothing, flags(more))
        })
    }

    fn send_file(&self, file: BorrowedFd<'_>, position: u64, len: usize) -> Result<usize, Stop> {
        let mut position = position;
        loop {
            match rustix::fs::sendfile(self, file, Some(&mut position), len) {
                Ok(0) => return Err(Stop::ReadFailed("the segment file is too short".into())),
                Ok(sent) => return Ok(sent),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(Stop::SocketFull),
                // The file system lacks sendfile.
                Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::OVERFLOW) => {
                    return Err(Stop::WouldRead);
                }
                Err(error @ (Errno::IO | Errno::NOMEM)) => {
                    return Err(Stop::ReadFailed(error.to_string()));
                }
                Err(_) => return Err(Stop::PeerGone),
            }
        }
    }

    fn push(&self) {
        // Setting it again sends what waits (tcp(7)). Sockets that do not have it keep nothing
        // back.
        let _refused = sockopt::set_tcp_nodelay(self, true);
    }
}

/// An outlet that knows whether something may be kept back, and pushes it when dropped.
#[derive(Debug)]
pub struct Line<O: Outlet> {
    outlet: O,
    is_kept_back: Cell<bool>,
}

impl<O: Outlet> Line<O> {
    pub fn new(outlet: O) -> Line<O> {
        Line {
            outlet,
            is_kept_back: Cell::new(false),
        }
    }

    /// The kernel pushes what fills a socket, so a short count means pushed.
    fn note(&self, sent: &Result<usize, Stop>, wanted: usize, more: bool) {
        if let Ok(sent @ 1..) = sent {
            self.is_kept_back.set(more && *sent == wanted);
        }
    }

    pub fn send(&self, bytes: &[u8], more: bool) -> Result<usize, Stop> {
        let sent = self.outlet.send(bytes, more);
        self.note(&sent, bytes.len(), more);
        sent
    }

    pub fn send_slices(&self, slices: &[IoSlice<'_>], more: bool) -> Result<usize, Stop> {
        let sent = self.outlet.send_slices(slices, more);
        let wanted = slices.iter().map(|slice| slice.len()).sum();
        self.note(&sent, wanted, more);
        sent
    }

    pub fn send_file(
        &self,
        file: BorrowedFd<'_>,
        position: u64,
        len: usize,
    ) -> Result<usize, Stop> {
        let sent = self.outlet.send_file(file, position, len);
        if let Ok(sent) = &sent {
            // Less than asked for: the kernel expected to send more.
            self.is_kept_back.set(*sent < len);
        }
        sent
    }

    pub fn is_kept_back(&self) -> bool {
        self.is_kept_back.get()
    }

    /// Sends what is kept back: to be called before the thread waits for anything else.
    pub fn push(&self) {
        if self.is_kept_back.replace(false) {
            self.outlet.push();
        }
    }
}

impl<O: Outlet> Drop for Line<O> {
    fn drop(&mut self) {
        self.push();
    }
}
