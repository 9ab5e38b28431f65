//! What is sent, and that nothing is kept back when the sender stops or waits.

use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use pyrklog_log::disk::testing::{MemDisk, StallingDisk};
use pyrklog_log::disk::{Disk, OpenMode, RealDisk};
use pyrklog_log::{
    BatchInfo, Isolation, Log, LogConfig, LogEnv, OpenRequest, OpenState, Origin, SegmentBytes,
};
use pyrklog_wire::builder::BatchBuilder;

use super::*;
use crate::testing::eventually;
use pyrklog_base::ids::COPY_BUFFER_BYTES;

#[test]
fn the_path_follows_the_option_and_the_size() {
    let large = SENDFILE_MIN_BYTES;
    assert_eq!(choose(ReadPath::Auto, large), Method::Bulk);
    assert_eq!(choose(ReadPath::Auto, large - 1), Method::Copy);
    assert_eq!(choose(ReadPath::Sendfile, large), Method::Sendfile);
    assert_eq!(choose(ReadPath::Sendfile, 100), Method::Copy);
    assert_eq!(choose(ReadPath::Copy, large), Method::Copy);
}

/// A socket that notes its bytes, and whether the kernel would keep the last ones back.
#[derive(Debug)]
struct Sink {
    sent: Mutex<usize>,
    is_kept_back: Mutex<bool>,
    /// The most that one call takes.
    call_bytes: usize,
    /// The most that it takes in all.
    room: Mutex<usize>,
}

impl Sink {
    fn new(call_bytes: usize, room: usize) -> Sink {
        Sink {
            sent: Mutex::default(),
            is_kept_back: Mutex::default(),
            call_bytes,
            room: Mutex::new(room),
        }
    }

    fn take(&self, wanted: usize, more: bool) -> Result<usize, Stop> {
        let mut room = self.room.lock();
        let count = wanted.min(self.call_bytes).min(*room);
        if count == 0 {
            return Err(Stop::SocketFull);
        }
        *room -= count;
        *self.sent.lock() += count;
        // A full socket that cuts a call short pushes what it took.
        *self.is_kept_back.lock() = more && count == wanted;
        Ok(count)
    }
}

impl Outlet for &Sink {
    fn send(&self, bytes: &[u8], more: bool) -> Result<usize, Stop> {
        self.take(bytes.len(), more)
    }

    fn send_slices(&self, slices: &[IoSlice<'_>], more: bool) -> Result<usize, Stop> {
        self.take(slices.iter().map(|slice| slice.len()).sum(), more)
    }

    fn send_file(&self, _: BorrowedFd<'_>, _: u64, len: usize) -> Result<usize, Stop> {
        // The kernel takes unsent bytes for "more follows".
        let sent = self.take(len, false)?;
        *self.is_kept_back.lock() = sent < len;
        Ok(sent)
    }

    fn push(&self) {
        *self.is_kept_back.lock() = false;
    }
}

/// A log outside the page cache, with one batch of two megabytes.
fn cold_log(disk: &StallingDisk) -> SegmentBytes {
    let dir = Path::new("/logs");
    disk.create_dir_all(dir).unwrap();
    let (mut log, _) = Log::open(OpenRequest {
        env: LogEnv::new(Arc::new(disk.clone()), 8),
        log_dir: dir,
        topic: "t",
        partition: 0,
        topic_id: None,
        config: Arc::new(LogConfig::default()),
        state: OpenState::default(),
        now_ms: 0,
        producer_id_expiration_ms: i64::MAX,
    })
    .unwrap();
    let mut builder = BatchBuilder::new();
    builder.append(0, None, Some(&vec![7; 2_000_000]));
    let mut batch = builder.build();
    let info = BatchInfo::parse(&batch).unwrap();
    log.append(&mut batch, &info, Origin::Client, 0, 0).unwrap();
    while let Some(mut job) = log.take_writes() {
        let result = job.execute();
        log.complete_writes(job, result);
    }
    let location = log.locate(0, Isolation::DurableEnd).unwrap();
    let slice = location.resolve(1 << 20, true, Wait::Blocking).unwrap();
    disk.set_cold(Some(".log"));
    slice.bytes().unwrap()
}

fn real_file() -> SegmentBytes {
    let dir = tempfile::tempdir().unwrap();
    let file = RealDisk.open(&dir.path().join("f"), OpenMode::Create);
    let file = file.unwrap();
    file.write_all_at(&vec![5; 2_000_000], 0).unwrap();
    SegmentBytes::of_file(file)
}

fn other_file() -> SegmentBytes {
    let disk = MemDisk::default();
    disk.create_dir_all(Path::new("/logs")).unwrap();
    let file = disk.open(Path::new("/logs/f"), OpenMode::Create).unwrap();
    file.write_all_at(&vec![6; 2_000_000], 0).unwrap();
    SegmentBytes::of_file(file)
}

fn push_file(out: &mut OutQueue, bytes: &SegmentBytes, len: usize) {
    let at = out.memory().len();
    let (position, queue) = (1_000, QueueId::default());
    let bytes = bytes.clone();
    out.push_file_at(
        at,
        FileRange {
            bytes,
            position,
            len,
            queue,
        },
    );
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Network,
    Copy,
    Bulk,
    Sendfile,
}

fn send_by(way: Way, sink: &Sink, out: &mut OutQueue) -> Stop {
    let (queue, mut buffer) = (QueueId::default(), vec![0; COPY_BUFFER_BYTES]);
    let line = Line::new(sink);
    match way {
        Way::Network => {
            let max = file_max_bytes(ReadPath::Auto);
            copy_out(&line, out, &mut buffer, Sender::NetworkThread, max).stop
        }
        Way::Copy => copy_out(&line, out, &mut buffer, Sender::Reader(queue), usize::MAX).stop,
        Way::Bulk | Way::Sendfile => {
            let bulk = Bulk {
                queue,
                windows: way == Way::Bulk,
                ahead: &|_, _| {},
            };
            bulk_out(&line, out, &mut buffer, &bulk, &mut 0)
        }
    }
}

#[test]
fn stopping_sender_keeps_no_bytes_back() {
    let disk = StallingDisk::new(Arc::new(MemDisk::default()));
    let sources = [cold_log(&disk), real_file(), other_file()];
    // Two parts of a queue, with or without memory between, before and behind them.
    let parts: Vec<(usize, usize)> = (0..sources.len())
        .flat_map(|source| [100, 300_000, 1_500_000].map(|len| (source, len)))
        .collect();
    let mut stops = Vec::new();
    for way in [Way::Network, Way::Copy, Way::Bulk, Way::Sendfile] {
        for (first, second) in parts.iter().flat_map(|a| parts.iter().map(move |b| (a, b))) {
            for memory in 0..8 {
                for (call_bytes, room) in [(usize::MAX, usize::MAX), (70_000, 170_000)] {
                    let sink = Sink::new(call_bytes, room);
                    let mut out = OutQueue::default();
                    for (i, part) in [Some(first), Some(second), None].into_iter().enumerate() {
                        if memory & (1 << i) != 0 {
                            out.memory().extend_from_slice(&[1; 300]);
                        }
                        if let Some((source, len)) = part {
                            push_file(&mut out, &sources[*source], *len);
                        }
                    }
                    let len = out.len();
                    let what = format!("{way:?} {first:?} {second:?} {memory} {room}");
                    loop {
                        let before = *sink.sent.lock();
                        let stop = send_by(way, &sink, &mut out);
                        assert!(!*sink.is_kept_back.lock(), "{what}: {stop:?}");
                        assert_eq!(*sink.sent.lock() + out.len(), len, "{what}");
                        if !stops.contains(&stop) {
                            stops.push(stop.clone());
                        }
                        let is_stuck = *sink.sent.lock() == before && *sink.room.lock() > 0;
                        if stop == Stop::Done || is_stuck {
                            break;
                        }
                        *sink.room.lock() = room;
                    }
                }
            }
        }
    }
    for stop in [
        Stop::Done,
        Stop::SocketFull,
        Stop::WouldRead,
        Stop::TurnOver,
    ] {
        assert!(stops.contains(&stop), "{stop:?} was not met");
    }
}

#[test]
fn sender_waiting_for_the_disk_keeps_no_bytes_back() {
    for way in [Way::Copy, Way::Bulk] {
        let disk = StallingDisk::new(Arc::new(MemDisk::default()));
        let bytes = cold_log(&disk);
        let sink = Sink::new(usize::MAX, usize::MAX);
        let mut out = OutQueue::default();
        // A reply whose end is resident, and the next one.
        out.memory().extend_from_slice(&[1; 300]);
        push_file(&mut out, &real_file(), 100_000);
        out.memory().extend_from_slice(&[1; 300]);
        push_file(&mut out, &bytes, 100_000);
        disk.stall(".log");
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| send_by(way, &sink, &mut out));
            eventually("a stalled read", || (disk.waiting() > 0).then_some(()));
            assert!(!*sink.is_kept_back.lock(), "{way:?}");
            disk.resume();
            assert_eq!(sender.join().unwrap(), Stop::Done);
        });
        assert_eq!(*sink.sent.lock(), 200_600);
    }
}
