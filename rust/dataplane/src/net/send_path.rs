//! How a connection's bytes reach its socket.
//!
//! Memory, the block cache's included, goes out as it is: one call for contiguous pieces. For file
//! ranges there are two ways. *Copy* reads them into a buffer together with the memory around them
//! and sends that; a network thread reads only what is resident (preadv2 with RWF_NOWAIT) and
//! leaves the rest to a reader. *Sendfile* hands each range to sendfile(2), which can wait for the
//! disk after any check of residency: readers only. What a reader finds outside the page cache it
//! reads into *windows*, and leaves the page cache alone (reads.md); with
//! `fetch.read.path=sendfile` the page cache is used for that, too.
//!
//! The kernel keeps back the last short segment of what is sent with a promise of more. The promise
//! is given only while more is queued, and taken back before the thread waits for a disk or turns
//! to something else ([`Line`]).

use std::io;

use pyrklog_log::{BytesPlace, SegmentBytes, Wait};

use crate::net::outlet::{Line, Outlet};
use pyrklog_base::ids::QueueId;
use pyrklog_control::seam::ReadPath;
use pyrklog_requests::out_queue::{FileRange, Head, OutQueue, SENDFILE_MIN_BYTES};

/// Most bytes of one call before other connections of the thread get their turn.
pub const SEND_PER_TURN_BYTES: usize = 1024 * 1024;

/// Most bytes of one kernel call for bulk: the call runs to its end before another thread gets that
/// core.
const BULK_CALL_BYTES: usize = 256 * 1024;

/// Pieces of memory that one call sends at most.
const SLICES_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Copy,
    /// sendfile(2) for what is in the page cache, windows for the rest.
    Bulk,
    Sendfile,
}

/// The method for a queue with `file_len` file bytes: the whole rule of `fetch.read.path`.
/// sendfile(2) costs half the CPU of a copy on kernels that send page-cache pages in place, also
/// over loopback (benchmarks.md). A small reply is cheaper to copy than to hand to another thread.
pub fn choose(config: ReadPath, file_len: usize) -> Method {
    match config {
        ReadPath::Auto if file_len >= SENDFILE_MIN_BYTES => Method::Bulk,
        ReadPath::Sendfile if file_len >= SENDFILE_MIN_BYTES => Method::Sendfile,
        ReadPath::Auto | ReadPath::Sendfile | ReadPath::Copy => Method::Copy,
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    Done,
    SocketFull,
    /// The next file bytes would have to come from a disk that the sender may not wait for.
    WouldRead,
    TurnOver,
    PeerGone,
    /// A file could not be read; the reply cannot be finished.
    ReadFailed(String),
}

/// The sending thread, which decides whether it may wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// Reads only resident bytes.
    NetworkThread,
    /// May wait for the disk of its queue's log directory, and no other.
    Reader(QueueId),
}

#[derive(Debug)]
pub struct Sent {
    pub stop: Stop,
    /// Bytes sent out of the block cache.
    pub cached_bytes: usize,
}

/// Sends memory at the front of the queue. `None`: a file range is to be read first, or is better
/// sent together with the memory before it.
fn send_memory<O: Outlet>(
    line: &Line<O>,
    out: &OutQueue,
    max_bytes: usize,
) -> Option<Result<(usize, usize, usize), Stop>> {
    if let (Head::Memory(bytes), 0) = (out.head(), out.file_len()) {
        return Some(line.send(bytes, false).map(|sent| (sent, bytes.len(), 0)));
    }
    let guard = out.next_arena().map(|arena| arena.enter());
    let mut slices = Vec::with_capacity(SLICES_MAX);
    let (bytes, cached_bytes) = out.gather(guard.as_ref(), &mut slices, max_bytes);
    if bytes == 0 || (cached_bytes == 0 && bytes < out.len()) {
        return None;
    }
    let more = bytes < out.len();
    let sent = match slices.as_slice() {
        [one] => line.send(one, more),
        many => line.send_slices(many, more),
    };
    Some(sent.map(|sent| (sent, bytes, cached_bytes)))
}

/// Sends memory, and file bytes through `buffer`, until something stops it. A network thread leaves
/// more than `file_max_bytes` of them to a reader.
pub fn copy_out<O: Outlet>(
    line: &Line<O>,
    out: &mut OutQueue,
    buffer: &mut [u8],
    sender: Sender,
    file_max_bytes: usize,
) -> Sent {
    let mut sent_total = 0;
    let mut cached_total = 0;
    let stop = loop {
        if out.is_empty() {
            break Stop::Done;
        }
        if sent_total >= SEND_PER_TURN_BYTES {
            break Stop::TurnOver;
        }
        let step = match send_memory(line, out, SEND_PER_TURN_BYTES) {
            Some(step) => step,
            None if sender == Sender::NetworkThread && out.file_len() >= file_max_bytes => {
                Err(Stop::WouldRead)
            }
            None => send_through(line, out, buffer, sender).map(|(sent, all)| (sent, all, 0)),
        };
        match step {
            Ok((sent, wanted, cached_bytes)) => {
                out.advance(sent);
                sent_total += sent;
                cached_total += cached_bytes.min(sent);
                if sent < wanted {
                    break Stop::SocketFull;
                }
            }
            Err(stop) => break stop,
        }
    };
    Sent {
        stop,
        cached_bytes: cached_total,
    }
}

/// Reads file bytes, with the memory around them, and sends both: (sent, wanted).
fn send_through<O: Outlet>(
    line: &Line<O>,
    out: &OutQueue,
    buffer: &mut [u8],
    sender: Sender,
) -> Result<(usize, usize), Stop> {
    let read = |range: &FileRange, target: &mut [u8], position: u64| {
        let wait = match sender {
            Sender::Reader(queue) if queue.shares_dir(range.queue) => Wait::PastCache,
            Sender::NetworkThread | Sender::Reader(_) => Wait::Nowait,
        };
        range.bytes.read(target, position, wait)
    };
    if sender != Sender::NetworkThread {
        line.push();
    }
    let filled = match out.fill(buffer, read) {
        Ok(filled) => filled,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(Stop::WouldRead),
        Err(error) => return Err(Stop::ReadFailed(error.to_string())),
    };
    let sent = line.send(&buffer[..filled], filled < out.len())?;
    Ok((sent, filled))
}

pub struct Bulk<'a> {
    pub queue: QueueId,
    /// Whether what the page cache lacks goes out of windows; otherwise all by sendfile(2).
    pub windows: bool,
    /// Called with what is worth reading while the window before it is sent.
    pub ahead: &'a dyn Fn(&SegmentBytes, u64),
}

/// Sends memory as it is, and files with sendfile(2) or out of windows, until something stops it;
/// adds to `window_bytes` what came out of windows. May wait for the disk of its queue's log
/// directory. The process must ignore SIGPIPE, as Rust's and Python's runtimes do: sendfile has no
/// flag against it. Files that are not the system's own go through `buffer`.
pub fn bulk_out<O: Outlet>(
    line: &Line<O>,
    out: &mut OutQueue,
    buffer: &mut [u8],
    bulk: &Bulk<'_>,
    window_bytes: &mut usize,
) -> Stop {
    let Bulk { queue, windows, .. } = *bulk;
    let mut sent_total = 0;
    // Bulk gives way to what became ready during a call, mostly a network thread.
    let mut is_due_to_yield = false;
    loop {
        if sent_total >= SEND_PER_TURN_BYTES && !out.is_empty() {
            return Stop::TurnOver;
        }
        if let Some(step) = send_memory(line, out, SEND_PER_TURN_BYTES) {
            match step {
                Ok((sent, wanted, _)) => {
                    out.advance(sent);
                    sent_total += sent;
                    if sent < wanted {
                        return Stop::SocketFull;
                    }
                }
                Err(stop) => return stop,
            }
            continue;
        }
        let sent = match out.head() {
            Head::Empty => return Stop::Done,
            Head::Memory(bytes) => line.send(bytes, bytes.len() < out.len()),
            Head::File(range) if !queue.shares_dir(range.queue) => return Stop::WouldRead,
            Head::File(_) if std::mem::take(&mut is_due_to_yield) => {
                std::thread::yield_now();
                continue;
            }
            Head::File(range) if windows => send_old(line, out, range, bulk.ahead, window_bytes),
            Head::File(range) => {
                line.push();
                send_file(line, range, BULK_CALL_BYTES)
            }
        };
        match sent {
            Ok(sent) => {
                out.advance(sent);
                sent_total += sent;
                is_due_to_yield = true;
            }
            // The reader goes on through its buffer.
            Err(Stop::WouldRead) => {
                return copy_out(line, out, buffer, Sender::Reader(queue), usize::MAX).stop;
            }
            Err(stop) => return stop,
        }
    }
}

/// Uses sendfile for what the page cache has or is to have, a window for the rest.
fn send_old<O: Outlet>(
    line: &Line<O>,
    out: &OutQueue,
    range: &FileRange,
    ahead: &dyn Fn(&SegmentBytes, u64),
    window_bytes: &mut usize,
) -> Result<usize, Stop> {
    let failed = |error: io::Error| Stop::ReadFailed(error.to_string());
    let window = match range.bytes.place(range.position).map_err(failed)? {
        BytesPlace::Window(window) => Some(window),
        BytesPlace::PageCache => None,
        BytesPlace::Kept { len } => {
            if line.is_kept_back() && !range.bytes.is_resident(range.position) {
                line.push();
            }
            return send_file(line, range, len);
        }
        BytesPlace::Disk => {
            line.push();
            range.bytes.load(range.position).map_err(failed)?
        }
    };
    let Some(window) = window else {
        return send_file(line, range, BULK_CALL_BYTES);
    };
    for next in range.bytes.plan_ahead(&window) {
        ahead(&range.bytes, next);
    }
    let found = window.from(range.position);
    let count = found.len().min(range.len).min(BULK_CALL_BYTES);
    let sent = line.send(&found[..count], count < out.len())?;
    if sent == found.len() {
        range.bytes.passed(&window);
    }
    *window_bytes += sent;
    Ok(sent)
}

/// Up to `max_bytes`. `WouldRead`: not possible with sendfile.
fn send_file<O: Outlet>(
    line: &Line<O>,
    range: &FileRange,
    max_bytes: usize,
) -> Result<usize, Stop> {
    let file = range.bytes.file(Wait::Blocking);
    let file = file.map_err(|error| Stop::ReadFailed(error.to_string()))?;
    let Some(descriptor) = file.descriptor() else {
        return Err(Stop::WouldRead);
    };
    let len = range.len.min(max_bytes).min(BULK_CALL_BYTES);
    line.send_file(descriptor, range.position, len)
}

/// File bytes beyond this are left by a network thread to a reader.
pub fn file_max_bytes(config: ReadPath) -> usize {
    match config {
        ReadPath::Auto | ReadPath::Sendfile => SENDFILE_MIN_BYTES,
        ReadPath::Copy => usize::MAX,
    }
}

#[cfg(test)]
mod tests;
