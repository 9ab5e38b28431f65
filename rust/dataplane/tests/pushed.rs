//! Replies leave as soon as they are complete: nothing is kept back until the kernel's timer for
//! short segments, whichever path the bytes take.

mod harness;

use std::fs::File;
use std::io::Read;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use harness::*;
use pyrklog_dataplane::seam::*;
use pyrklog_dataplane::testing::fix_kept_pages_max_bytes;
use pyrklog_log::disk::RealDisk;
use pyrklog_wire::api::key;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Advice;

/// Looks at the same bytes in the broker's socket before they count as kept back; the kernel's
/// timer takes 200 ms at least.
const LOOKS: usize = 10;

/// Bytes that the broker has given to a client's connection and that the client has not
/// acknowledged (`tx_queue` of /proc/net/tcp).
fn not_acknowledged(client: &TcpStream) -> usize {
    let port = |address: &str| u16::from_str_radix(address.split(':').nth(1)?, 16).ok();
    let ends = (
        client.peer_addr().unwrap().port(),
        client.local_addr().unwrap().port(),
    );
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let queued = table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_it = port(fields[1]) == Some(ends.0) && port(fields[2]) == Some(ends.1);
        let queues = is_it.then(|| fields[4].split(':').next())?;
        usize::from_str_radix(queues?, 16).ok()
    });
    queued.expect("the broker's end of the connection")
}

/// Receives a reply and says whether its end was kept back: the broker has given all of it away,
/// and exactly what has not arrived waits in its socket.
fn is_kept_back(client: &mut TcpStream) -> bool {
    let (mut got, mut looks) = (Vec::new(), 0);
    let mut buffer = vec![0; 1 << 20];
    let mut is_kept_back = false;
    client.set_nonblocking(true).unwrap();
    while got.len() < 4 || got.len() < 4 + size(&got) {
        match client.read(&mut buffer) {
            Ok(count) => {
                assert!(count > 0, "closed");
                got.extend_from_slice(&buffer[..count]);
                looks = 0;
            }
            Err(_) => {
                let queued = not_acknowledged(client);
                let waits = match got.len() {
                    ..4 => queued > 0,
                    len => queued == 4 + size(&got) - len,
                };
                looks += usize::from(waits);
                is_kept_back |= looks >= LOOKS;
                wait_readable(client);
            }
        }
    }
    client.set_nonblocking(false).unwrap();
    is_kept_back
}

/// For a millisecond at most. A client that reads at once acknowledges at once, and the
/// acknowledgement of earlier bytes would take along what is kept back.
fn wait_readable(client: &TcpStream) {
    let mut fds = [PollFd::new(client, PollFlags::IN)];
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: 1_000_000,
    };
    poll(&mut fds, Some(&timeout)).unwrap();
}

fn size(frame: &[u8]) -> usize {
    i32::from_be_bytes(frame[..4].try_into().unwrap()) as usize
}

const BATCHES: i64 = 12;

fn drop_pages(folder: &Path) {
    for entry in folder.read_dir().unwrap() {
        let file = File::open(entry.unwrap().path()).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    BlockCache,
    PageCache,
    /// On the disk, and the page cache takes them.
    Disk,
    /// On the disk, and the page cache is to stay as it is: they come out of windows.
    DiskAlone,
}

/// Fetches some batches one by one, and two in one reply; returns how many replies were kept back.
fn kept_back(path: ReadPath, batch_bytes: usize, place: Place) -> usize {
    fix_kept_pages_max_bytes(match place {
        Place::DiskAlone => 0,
        _ => 1 << 30,
    });
    let is_cold = matches!(place, Place::Disk | Place::DiskAlone);
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut options = config(vec![dir.path().join("logs")]);
    options.cache = match place {
        Place::BlockCache => cache(&options.log_dirs),
        _ => CacheConfig::off(),
    };
    options.fetch_read_path = path;
    let mut test = TestPlane::start_with(options, Arc::new(RealDisk));
    test.create("t", 2);
    let mut client = test.client();
    for number in 0..BATCHES {
        client.produce("t", 0, &large_batch(batch_bytes + number as usize));
        client.produce("t", 1, &large_batch(batch_bytes / 2));
    }
    let mut count = 0;
    for round in 0..BATCHES {
        // The first batch begins where a window does.
        let offset = if round % 2 == 0 { 0 } else { round };
        if is_cold {
            for index in 0..2 {
                drop_pages(&dir.path().join(format!("logs/t-{index}")));
            }
        }
        // Before version 12 records are the last bytes of a reply.
        let version = [4, 11, 11, 12][round as usize % 4];
        let mut ask = Ask::one("t", 0, offset).version(version);
        ask.partitions[0].1.max_bytes = 1;
        if round % 3 == 0 {
            ask.partitions.push(("t".into(), partition(1, offset)));
        }
        client.send(key::FETCH, ask.version, &ask.encode());
        count += usize::from(is_kept_back(&mut client.stream));
    }
    count
}

#[test]
fn last_bytes_of_a_reply_are_sent_without_delay() {
    for path in [ReadPath::Auto, ReadPath::Copy, ReadPath::Sendfile] {
        // Of the last two, a short end is left when all bytes before it have arrived.
        for batch_bytes in [1_000, 70_000, (256 << 10) + 300, (1 << 20) + 300] {
            use Place::{BlockCache, Disk, DiskAlone, PageCache};
            for place in [BlockCache, PageCache, Disk, DiskAlone] {
                let kept = kept_back(path, batch_bytes, place);
                assert_eq!(kept, 0, "{path:?}, {batch_bytes} bytes, {place:?}");
            }
        }
    }
}
