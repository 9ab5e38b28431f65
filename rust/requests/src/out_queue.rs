//! A connection's output: memory with file ranges in between.
//!
//! All memory is one vector; a file range records its position in it. So a reply needs no
//! allocation per part, and a turn's replies are contiguous for a single send.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;

use pyrklog_arena::{Arena, Guard};
use pyrklog_log::{SegmentBytes, Wait};
use pyrklog_wire::frame::{self, FrameTooLong};

use crate::outcome::Close;
use pyrklog_base::ids::QueueId;

/// Bytes of a file, sent unchanged.
#[derive(Clone, Debug)]
pub struct FileRange {
    /// The file; a deleted segment stays readable while this exists.
    pub bytes: SegmentBytes,
    /// Position of the first byte.
    pub position: u64,
    /// Number of bytes.
    pub len: usize,
    /// The readers' queue for bytes that must wait for the disk.
    pub queue: QueueId,
}

/// From so many file bytes of one queue sendfile is worth the hand-over to a reader. Below it a
/// copy costs less than waking a thread.
pub const SENDFILE_MIN_BYTES: usize = 64 * 1024;

/// Sent memory beyond this is freed even if more waits behind it.
const COMPACT_BYTES: usize = 256 * 1024;

#[derive(Debug)]
struct FilePart {
    /// Sent after this many bytes of memory.
    at: usize,
    range: FileRange,
}

/// See the module.
#[derive(Debug, Default)]
pub struct OutQueue {
    memory: Vec<u8>,
    sent: usize,
    files: VecDeque<FilePart>,
    file_len: usize,
    /// File bytes ever queued; a frame's length is computed from the difference.
    file_len_queued: usize,
}

/// A frame under construction; see [`OutQueue::begin_frame`].
#[derive(Debug)]
#[must_use = "a frame without its length cannot be read"]
pub struct OpenFrame {
    start: usize,
    file_len_queued: usize,
}

/// What is sent next.
#[derive(Debug)]
pub enum Head<'a> {
    /// Nothing is left.
    Empty,
    /// Memory, up to the next file range.
    Memory(&'a [u8]),
    /// A file range.
    File(&'a FileRange),
}

impl OutQueue {
    /// Unsent bytes, of memory and files.
    pub fn len(&self) -> usize {
        self.memory.len() - self.sent + self.file_len
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.sent == self.memory.len() && self.files.is_empty()
    }

    /// Unsent file bytes.
    pub fn file_len(&self) -> usize {
        self.file_len
    }

    /// Size of its memory.
    pub fn memory_bytes(&self) -> usize {
        self.memory.capacity()
    }

    /// The memory to append to.
    pub fn memory(&mut self) -> &mut Vec<u8> {
        &mut self.memory
    }

    /// Starts a frame, with room for the length that [`OutQueue::end_frame`] fills in.
    pub fn begin_frame(&mut self) -> OpenFrame {
        OpenFrame {
            start: frame::begin(&mut self.memory),
            file_len_queued: self.file_len_queued,
        }
    }

    /// Ends a frame.
    ///
    /// # Errors
    /// [`Close::Protocol`] for a frame of 2 GiB or more, which the protocol cannot carry; the frame
    /// is removed.
    pub fn end_frame(&mut self, frame: OpenFrame) -> Result<(), Close> {
        let file_len = self.file_len_queued - frame.file_len_queued;
        frame::end(&mut self.memory, frame.start, file_len).map_err(|FrameTooLong(len)| {
            self.drop_frame(frame);
            Close::Protocol(format!("a reply would have {len} bytes"))
        })
    }

    /// Removes a frame.
    pub fn drop_frame(&mut self, frame: OpenFrame) {
        self.memory.truncate(frame.start);
        while self.files.back().is_some_and(|part| part.at > frame.start) {
            let dropped = self.files.pop_back();
            self.file_len -= dropped.map_or(0, |part| part.range.len);
        }
        self.file_len_queued = frame.file_len_queued;
    }

    /// Queues a file range, sent when the memory before position `at` is sent. Positions ascend and
    /// lie within the memory so far.
    pub fn push_file_at(&mut self, at: usize, range: FileRange) {
        debug_assert!(at <= self.memory.len());
        debug_assert!(self.files.back().is_none_or(|last| last.at <= at));
        if range.len > 0 {
            self.file_len += range.len;
            self.file_len_queued += range.len;
            self.files.push_back(FilePart { at, range });
        }
    }

    /// Announces the file bytes of a queue's log directory to the system.
    pub fn read_ahead(&self, queue: QueueId) {
        let ranges = self.files.iter().map(|part| &part.range);
        for range in ranges.filter(|range| range.queue.shares_dir(queue)) {
            range.bytes.read_ahead(range.position, range.len as u64);
        }
    }

    /// Brings the next file bytes into memory if they are in the queue's log directory, before the
    /// bytes in front of them are sent. Waits for the disk.
    pub fn read_first(&self, queue: QueueId) {
        let range = self.files.front().map(|part| &part.range);
        if let Some(range) = range.filter(|range| range.queue.shares_dir(queue)) {
            // The sender meets the error again and reports it.
            if let Ok(None) = range.bytes.window(range.position) {
                let _in_memory = range.bytes.read(&mut [0], range.position, Wait::Blocking);
            }
        }
    }

    /// The readers' queue of the next file bytes.
    pub fn next_queue(&self) -> Option<QueueId> {
        self.files.front().map(|part| part.range.queue)
    }

    /// What is sent next.
    pub fn head(&self) -> Head<'_> {
        match self.files.front() {
            Some(part) if part.at == self.sent => Head::File(&part.range),
            Some(part) => Head::Memory(&self.memory[self.sent..part.at]),
            None if self.sent == self.memory.len() => Head::Empty,
            None => Head::Memory(&self.memory[self.sent..]),
        }
    }

    /// The arena whose guard [`OutQueue::gather`] needs.
    pub fn next_arena(&self) -> Option<&Arc<Arena>> {
        let part = self.files.front()?;
        Some(part.range.bytes.cached()?.arena())
    }

    /// What is sent next and is in memory: the queue's own, and ranges in the block cache of
    /// `guard`. Limited by `slices`' capacity and about `max_bytes`. Returns (bytes, bytes from the
    /// cache).
    pub fn gather<'a>(
        &'a self,
        guard: Option<&'a Guard<'_>>,
        slices: &mut Vec<IoSlice<'a>>,
        max_bytes: usize,
    ) -> (usize, usize) {
        let (mut bytes, mut cached_bytes) = (0, 0);
        let mut memory_at = self.sent;
        let arena = self.next_arena();
        for part in &self.files {
            bytes += push_slice(slices, &self.memory[memory_at..part.at]);
            memory_at = part.at;
            let cached = part.range.bytes.cached();
            let of_guard = cached
                .filter(|cached| arena.is_some_and(|arena| Arc::ptr_eq(arena, cached.arena())));
            let (Some(cached), Some(guard)) = (of_guard, guard) else {
                return (bytes, cached_bytes);
            };
            let mut done = 0;
            while done < part.range.len {
                let position = u32::try_from(part.range.position + done as u64).unwrap_or(u32::MAX);
                let found = cached.slice(guard, position);
                let room = slices.len() < slices.capacity() && bytes < max_bytes;
                let (Some(found), true) = (found, room) else {
                    return (bytes, cached_bytes);
                };
                let count = push_slice(slices, &found[..found.len().min(part.range.len - done)]);
                done += count;
                bytes += count;
                cached_bytes += count;
            }
        }
        bytes += push_slice(slices, &self.memory[memory_at..]);
        (bytes, cached_bytes)
    }

    /// Copies the next bytes, memory and files alike, into `buffer`; `read` reads file bytes.
    /// Returns their number. An error of `read`, or `UnexpectedEof` for a file that ends early, is
    /// returned only if nothing was copied before it.
    pub fn fill(
        &self,
        buffer: &mut [u8],
        read: impl Fn(&FileRange, &mut [u8], u64) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut filled = 0;
        let mut memory_at = self.sent;
        for part in &self.files {
            filled += copy_some(&self.memory[memory_at..part.at], &mut buffer[filled..]);
            memory_at = part.at;
            let mut done = 0;
            while done < part.range.len && filled < buffer.len() {
                let want = (part.range.len - done).min(buffer.len() - filled);
                let target = &mut buffer[filled..filled + want];
                let result = match read(&part.range, target, part.range.position + done as u64) {
                    Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
                    other => other,
                };
                match result {
                    Ok(count) => {
                        done += count;
                        filled += count;
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) if filled == 0 => return Err(error),
                    Err(_) => return Ok(filled),
                }
            }
            if filled == buffer.len() {
                return Ok(filled);
            }
        }
        filled += copy_some(&self.memory[memory_at..], &mut buffer[filled..]);
        Ok(filled)
    }

    /// `count` bytes were sent.
    pub fn advance(&mut self, mut count: usize) {
        while count > 0 {
            match self.files.front_mut() {
                Some(part) if part.at == self.sent => {
                    let step = count.min(part.range.len);
                    part.range.position += step as u64;
                    part.range.len -= step;
                    self.file_len -= step;
                    count -= step;
                    if part.range.len == 0 {
                        self.files.pop_front();
                    }
                }
                Some(part) => {
                    let step = count.min(part.at - self.sent);
                    self.sent += step;
                    count -= step;
                }
                None => {
                    assert!(
                        count <= self.memory.len() - self.sent,
                        "sent more than there was"
                    );
                    self.sent += count;
                    count = 0;
                }
            }
        }
        if self.is_empty() {
            self.memory.clear();
            self.sent = 0;
        } else if self.sent >= COMPACT_BYTES {
            // Otherwise the vector would grow without end if the peer never takes everything.
            self.memory.drain(..self.sent);
            for part in &mut self.files {
                part.at -= self.sent;
            }
            self.sent = 0;
        }
    }

    /// Takes the memory; only of an empty queue.
    pub fn take_memory(&mut self) -> Vec<u8> {
        debug_assert!(self.is_empty());
        self.sent = 0;
        std::mem::take(&mut self.memory)
    }

    /// Gives a queue without memory some to build in.
    pub fn give_memory(&mut self, memory: Vec<u8>) {
        debug_assert!(memory.is_empty() && self.memory.capacity() == 0);
        self.memory = memory;
    }
}

fn push_slice<'a>(slices: &mut Vec<IoSlice<'a>>, bytes: &'a [u8]) -> usize {
    if bytes.is_empty() || slices.len() == slices.capacity() {
        return 0;
    }
    slices.push(IoSlice::new(bytes));
    bytes.len()
}

fn copy_some(from: &[u8], to: &mut [u8]) -> usize {
    let count = from.len().min(to.len());
    to[..count].copy_from_slice(&from[..count]);
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use pyrklog_log::disk::{Disk, OpenMode, RealDisk};

    fn file(content: &[u8]) -> SegmentBytes {
        let dir = tempfile::tempdir().unwrap();
        let file = RealDisk
            .open(&dir.path().join("data"), OpenMode::Create)
            .unwrap();
        file.write_all_at(content, 0).unwrap();
        SegmentBytes::of_file(file)
    }

    fn read(range: &FileRange, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        range.bytes.read(buffer, position, Wait::Blocking)
    }

    fn range(bytes: SegmentBytes, position: u64, len: usize) -> FileRange {
        FileRange {
            bytes,
            position,
            len,
            queue: QueueId::default(),
        }
    }

    fn push_file(queue: &mut OutQueue, range: FileRange) {
        let at = queue.memory().len();
        queue.push_file_at(at, range);
    }

    fn sample() -> (OutQueue, Vec<u8>) {
        let mut queue = OutQueue::default();
        let frame = queue.begin_frame();
        queue.memory().extend_from_slice(b"head");
        push_file(&mut queue, range(file(b"0123456789"), 2, 5));
        push_file(&mut queue, range(file(b"abc"), 0, 3));
        queue.memory().extend_from_slice(b"tail");
        queue.end_frame(frame).unwrap();
        (queue, b"\0\0\0\x10head23456abctail".to_vec())
    }

    #[test]
    fn a_frame_beyond_the_protocol_leaves_nothing_behind() {
        let (mut queue, expected) = sample();
        let frame = queue.begin_frame();
        for _ in 0..2 {
            queue.memory().extend_from_slice(b"again");
            push_file(&mut queue, range(file(b"0123456789"), 0, 1 << 30));
        }
        assert!(matches!(queue.end_frame(frame), Err(Close::Protocol(_))));
        let mut buffer = vec![0; 100];
        let count = queue.fill(&mut buffer, read).unwrap();
        assert_eq!(&buffer[..count], expected);
        queue.advance(count);
        assert!(queue.is_empty());
    }

    #[test]
    fn any_step_size_gives_the_same_bytes() {
        for step in 1..=20 {
            let (mut queue, expected) = sample();
            let mut out = Vec::new();
            let mut buffer = vec![0; step];
            while !queue.is_empty() {
                let count = queue.fill(&mut buffer, read).unwrap();
                out.extend_from_slice(&buffer[..count]);
                queue.advance(count);
                assert_eq!(queue.len(), expected.len() - out.len());
            }
            assert_eq!(out, expected, "step {step}");
            assert!(matches!(queue.head(), Head::Empty));
        }
    }

    #[test]
    fn sent_bytes_are_released_while_more_waits() {
        let mut queue = OutQueue::default();
        for round in 0..100u8 {
            queue.memory().extend_from_slice(&[round; 10_000]);
            push_file(&mut queue, range(file(&[round; 10]), 0, 10));
        }
        let mut buffer = vec![0; 10_010];
        for round in 0..99u8 {
            assert_eq!(queue.fill(&mut buffer, read).unwrap(), buffer.len());
            assert_eq!(buffer, vec![round; 10_010]);
            queue.advance(buffer.len());
            assert!(queue.sent < COMPACT_BYTES);
        }
        assert_eq!(queue.len(), 10_010);
    }

    #[test]
    fn a_file_that_ends_too_early_is_an_error_not_a_loop() {
        let mut queue = OutQueue::default();
        push_file(&mut queue, range(file(b"abc"), 2, 5));
        let mut buffer = [0; 10];
        assert_eq!(queue.fill(&mut buffer, read).unwrap(), 1);
        queue.advance(1);
        let error = queue.fill(&mut buffer, read).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
