//! What of a request has to be read from a disk, on its way to the readers and back.
//!
//! The request stays on its connection; the readers get [`FetchJob`]s (or look-ups), one a queue,
//! so that a directory that hangs holds back its own share only. A request that waits has a [`Reading`];
//! when it is dropped, what is still out is abandoned: jobs that no reader has taken are skipped,
//! and what comes back later finds nobody.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyrklog_log::{Slice, Wait};

use crate::fetch::read::{PartitionRead, View, read_partition};
use crate::fetch::sessions::Target;
use pyrklog_base::ids::{COPY_BUFFER_BYTES, Place, QueueId};
use pyrklog_base::mailbox::Mailbox;
use pyrklog_storage::log_dir::Partition;
use pyrklog_storage::reader_pool::ReaderPool;
use pyrklog_storage::reader_queue::{Job, ReaderWorker, STUCK_MS, Step};

/// Beyond a fetch's own wait, a read is not given up before this while the fetch has something
/// else to say: the next fetch would only ask for it again.
const GIVE_UP_MIN_MS: i64 = 500;

/// A read is given up after this, even if its queue moves and the fetch has nothing else to say.
const PATIENCE_MS: i64 = 10_000;

/// The system reads ahead, and forgets, by pieces of about this size.
const PROBE_STEP_BYTES: usize = 128 * 1024;

/// What is read of a slice before the reply is begun that it is sent in: it shows that the disk
/// moves.
pub const FIRST_BYTES: usize = 4 * 1024;

/// How often a fetch that waits beyond its time looks whether there is hope.
const LOOK_MS: i64 = 250;

/// Brings a result back to its request.
#[derive(Clone, Debug)]
pub struct ReadTicket {
    /// The connection.
    pub place: Place,
    /// Number of the wait on the connection.
    number: u64,
    /// The queue that the job was given to.
    queue: QueueId,
    step: Arc<Step>,
    is_abandoned: Arc<AtomicBool>,
}

impl ReadTicket {
    /// A reader begins a step of it.
    pub fn step(&self, worker: &ReaderWorker<'_>) {
        worker.step();
        self.step.begin();
    }

    /// Whether nobody waits any more.
    pub fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Ordering::Relaxed)
    }
}

/// Jobs that readers have, as the request that waits for them knows them.
#[derive(Debug)]
pub struct Reading {
    number: u64,
    out: Vec<(QueueId, Arc<Step>)>,
    is_abandoned: Arc<AtomicBool>,
    /// When it began, monotonic milliseconds.
    pub began_ms: i64,
    /// When to look at it again.
    pub look_ms: i64,
}

impl Reading {
    /// Nothing is out yet; `number` is new on the connection.
    pub fn new(number: u64, now_ms: i64) -> Reading {
        Reading {
            number,
            out: Vec::new(),
            is_abandoned: Arc::default(),
            began_ms: now_ms,
            look_ms: now_ms,
        }
    }

    /// For a job that goes to `queue`.
    pub fn ticket(&self, place: Place, queue: QueueId) -> ReadTicket {
        ReadTicket {
            place,
            number: self.number,
            queue,
            step: Arc::default(),
            is_abandoned: Arc::clone(&self.is_abandoned),
        }
    }

    /// The ticket's job was taken.
    pub fn add(&mut self, ticket: &ReadTicket) {
        self.out.push((ticket.queue, Arc::clone(&ticket.step)));
    }

    /// A job is back; false when it is of an earlier wait.
    pub fn take_back(&mut self, ticket: &ReadTicket) -> bool {
        let is_own = ticket.number == self.number;
        if is_own {
            self.out.retain(|(queue, _)| *queue != ticket.queue);
        }
        is_own
    }

    /// Whether it is this wait of the connection.
    pub fn is_number(&self, number: u64) -> bool {
        self.number == number
    }

    /// Whether everything is back.
    pub fn is_done(&self) -> bool {
        self.out.is_empty()
    }

    /// Whether to wait no longer: a fetch that has something else to say, or whose reads all stand
    /// still, waits until `deadline_ms` and a little; one of slow reads longer. Else notes when to
    /// look again.
    pub fn is_over(
        &mut self,
        readers: &ReaderPool,
        now_ms: i64,
        deadline_ms: i64,
        has_something: bool,
    ) -> bool {
        let due_ms = deadline_ms.max(self.began_ms + GIVE_UP_MIN_MS);
        let mut out = self.out.iter();
        if now_ms >= due_ms
            && (has_something
                || now_ms >= self.began_ms + PATIENCE_MS
                || out.all(|(queue, step)| {
                    let is_hanging = step.age_ms(now_ms).is_some_and(|ms| ms > STUCK_MS);
                    is_hanging || readers.queue(*queue).is_stuck(now_ms)
                }))
        {
            return true;
        }
        self.look_ms = due_ms.max(now_ms + LOOK_MS);
        false
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.is_abandoned.store(true, Ordering::Relaxed);
    }
}

/// A partition's share of a fetch that is not resident.
#[derive(Debug)]
pub struct ColdPart {
    /// Its place in the fetch.
    pub position: usize,
    /// The partition.
    pub partition: Arc<Partition>,
    /// What is wanted of it.
    pub target: Target,
    /// The most bytes.
    pub max_bytes: usize,
    /// Whether the first batch is wanted even if it is larger.
    pub min_one: bool,
    /// How many of the bytes found are to be brought into memory: a reply that was begun must not
    /// hang on them.
    pub load_bytes: usize,
    /// On the way back: what was found.
    pub read: PartitionRead,
}

/// Reads of one fetch at one queue.
#[derive(Debug)]
pub struct FetchJob {
    /// Whose they are.
    pub ticket: ReadTicket,
    /// How the fetch looks at the logs.
    pub view: View,
    /// The reads.
    pub parts: Vec<ColdPart>,
    /// How they wait for the disk.
    pub wait: Wait,
    /// Takes it back to its connection.
    pub mailbox: Arc<dyn Mailbox<Box<FetchJob>>>,
}

impl Job for FetchJob {
    fn run(mut self: Box<Self>, worker: &ReaderWorker<'_>, buffer: &mut Vec<u8>) {
        self.read(worker, buffer);
        let mailbox = Arc::clone(&self.mailbox);
        mailbox.post(self.ticket.place, self);
    }

    fn is_abandoned(&self) -> bool {
        self.ticket.is_abandoned()
    }
}

impl FetchJob {
    fn read(&mut self, worker: &ReaderWorker<'_>, buffer: &mut Vec<u8>) {
        let wait = self.wait;
        for part in &mut self.parts {
            if self.ticket.is_abandoned() {
                return;
            }
            self.ticket.step(worker);
            part.read = read_partition(
                &part.partition,
                &part.target,
                self.view,
                part.max_bytes,
                part.min_one,
                wait,
            );
            if let Some(slice) = &part.read.slice {
                if wait == Wait::Blocking {
                    slice.read_ahead();
                }
                load(slice, part.load_bytes, &self.ticket, worker, (buffer, wait));
            }
        }
    }
}

/// Brings a slice's first bytes into memory: windows, or the page cache.
fn load(
    slice: &Slice,
    load_bytes: usize,
    ticket: &ReadTicket,
    worker: &ReaderWorker<'_>,
    (buffer, wait): (&mut Vec<u8>, Wait),
) {
    buffer.resize(COPY_BUFFER_BYTES, 0);
    let mut done = 0;
    // The sender meets an error again, and can report it.
    while done < slice.len().min(load_bytes)
        && let Ok(count @ 1..) = slice.read(done, buffer, wait)
    {
        done += count;
        ticket.step(worker);
    }
}

/// Whether a slice's first bytes seem to be in memory: one of each piece is looked for, and
/// the last one if all of them matter.
pub fn is_resident(slice: &Slice, bytes: usize) -> bool {
    let end = slice.len().min(bytes);
    let last = slice.len().saturating_sub(1);
    let mut probes = (0..end)
        .step_by(PROBE_STEP_BYTES)
        .chain((last < end).then_some(last));
    probes.all(|at| slice.read(at, &mut [0], Wait::Nowait).is_ok())
}
