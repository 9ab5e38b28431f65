//! A request's reads from disk: to the readers and back.
//!
//! The request stays on its connection. Readers get one [`FetchJob`] (or look-up) per queue, so
//! that a hanging directory delays only its own partitions. The request keeps a [`Reading`];
//! dropping it abandons outstanding jobs: readers skip those not yet taken, and late results are
//! discarded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyrklog_log::{Slice, Wait};

use crate::fetch::convert::{Convert, Left, Turn};
use crate::fetch::read::{ABORTED_MAX, Amount, PartitionRead, View, read_partition};
use crate::fetch::sessions::Target;
use pyrklog_base::ids::{COPY_BUFFER_BYTES, Place, QueueId};
use pyrklog_base::mailbox::Mailbox;
use pyrklog_storage::log_dir_state::Partition;
use pyrklog_storage::reader_pool::ReaderPool;
use pyrklog_storage::reader_queue::{Job, ReaderWorker, STUCK_MS, Step};

/// A read is not given up earlier, even if the fetch's wait is over and it has something else to
/// report: the next fetch would ask for it again.
const GIVE_UP_MIN_MS: i64 = 500;

/// A read is given up after this time, even if its queue moves and the fetch has nothing else to
/// report.
const PATIENCE_MS: i64 = 10_000;

/// About the size in which the system reads ahead and evicts.
const PROBE_STEP_BYTES: usize = 128 * 1024;

/// Bytes of a slice that are read before its reply begins: shows that the disk moves.
pub const FIRST_BYTES: usize = 4 * 1024;

/// How often a fetch that waits beyond its time looks at its reads.
const LOOK_MS: i64 = 250;

/// Returns a result to its request.
#[derive(Clone, Debug)]
pub struct ReadTicket {
    /// The connection.
    pub place: Place,
    /// Number of the wait on its connection.
    number: u64,
    queue: QueueId,
    step: Arc<Step>,
    is_abandoned: Arc<AtomicBool>,
}

impl ReadTicket {
    /// A reader begins a step of the job.
    pub fn step(&self, worker: &ReaderWorker<'_>) {
        worker.step();
        self.step.begin();
    }

    /// Whether the request no longer waits.
    pub fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Ordering::Relaxed)
    }
}

/// Outstanding jobs, for the request that waits for them.
#[derive(Debug)]
pub struct Reading {
    number: u64,
    out: Vec<(QueueId, Arc<Step>)>,
    is_abandoned: Arc<AtomicBool>,
    /// It is at the queue for large batches, and waits for it even if it has something to report:
    /// the next fetch would find the same.
    pub waits_for_large: bool,
    /// When it began, monotonic milliseconds.
    pub began_ms: i64,
    /// When to look at it again.
    pub look_ms: i64,
}

impl Reading {
    /// No jobs yet; `number` is new on the connection.
    pub fn new(number: u64, now_ms: i64) -> Reading {
        Reading {
            number,
            out: Vec::new(),
            is_abandoned: Arc::default(),
            waits_for_large: false,
            began_ms: now_ms,
            look_ms: now_ms,
        }
    }

    /// A ticket for a job of `queue`.
    pub fn ticket(&self, place: Place, queue: QueueId) -> ReadTicket {
        ReadTicket {
            place,
            number: self.number,
            queue,
            step: Arc::default(),
            is_abandoned: Arc::clone(&self.is_abandoned),
        }
    }

    /// The ticket's job was accepted.
    pub fn add(&mut self, ticket: &ReadTicket) {
        self.out.push((ticket.queue, Arc::clone(&ticket.step)));
    }

    /// A job is back; false if it belongs to an earlier wait.
    pub fn take_back(&mut self, ticket: &ReadTicket) -> bool {
        let is_own = ticket.number == self.number;
        if is_own {
            self.out
                .retain(|(_, step)| !Arc::ptr_eq(step, &ticket.step));
        }
        is_own
    }

    /// Whether this is wait number `number`.
    pub fn is_number(&self, number: u64) -> bool {
        self.number == number
    }

    /// Whether everything is back.
    pub fn is_done(&self) -> bool {
        self.out.is_empty()
    }

    /// Whether to stop waiting. A fetch that has something else to report, or whose reads are all
    /// stuck, waits until `deadline_ms` and a little; one with slow reads waits longer. Otherwise
    /// sets the next look.
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
            && (has_something && !self.waits_for_large
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

/// A partition's non-resident part of a fetch.
#[derive(Debug)]
pub struct ColdPart {
    /// Its position in the fetch.
    pub position: usize,
    /// The partition.
    pub partition: Arc<Partition>,
    /// What is fetched.
    pub target: Target,
    /// Limit of bytes.
    pub max_bytes: usize,
    /// Bytes that the other parts of the fetch leave to it.
    pub reserved_bytes: usize,
    /// Whether to read the first batch even if larger.
    pub min_one: bool,
    /// How many of the bytes to bring into memory: a started reply must not hang on them.
    pub load_bytes: usize,
    /// The result.
    pub read: PartitionRead,
    /// What is missing of it.
    pub left: Left,
    /// Reply memory that is counted for its first batch; 0 for none.
    pub room_bytes: usize,
}

/// A fetch's reads at one queue.
#[derive(Debug)]
pub struct FetchJob {
    /// Whose they are.
    pub ticket: ReadTicket,
    /// What the fetch may see of the logs.
    pub view: View,
    /// Limit of a batch's expansion, for records that are converted to an old format.
    pub expanded_max_bytes: usize,
    /// Whether large batches may be expanded: it is at their queue.
    pub may_be_large: bool,
    /// Record bytes that the fetch has from other reads.
    pub had_bytes: usize,
    /// The reads.
    pub parts: Vec<ColdPart>,
    /// How they wait for the disk.
    pub wait: Wait,
    /// Returns the job to its connection.
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
    fn convert(&mut self, magic: i8, worker: &ReaderWorker<'_>) {
        let convert = Convert {
            view: self.view,
            magic,
            expanded_bytes_max: self.expanded_max_bytes,
            may_be_large: self.may_be_large,
            wait: self.wait,
        };
        let mut turn = Turn::after(self.had_bytes);
        let ticket = &self.ticket;
        for part in &mut self.parts {
            ticket.step(worker);
            convert.run(part, &mut turn, || {
                ticket.step(worker);
                !ticket.is_abandoned()
            });
            if ticket.is_abandoned() {
                return;
            }
        }
    }

    fn read(&mut self, worker: &ReaderWorker<'_>, buffer: &mut Vec<u8>) {
        if let Some(magic) = self.view.converts_to {
            return self.convert(magic, worker);
        }
        let wait = self.wait;
        let mut aborted = 0;
        for part in &mut self.parts {
            if self.ticket.is_abandoned() {
                return;
            }
            self.ticket.step(worker);
            part.read = read_partition(
                &part.partition,
                &part.target,
                self.view,
                Amount {
                    max_bytes: part.max_bytes,
                    min_one: part.min_one,
                    aborted_max: ABORTED_MAX.saturating_sub(aborted),
                },
                wait,
            );
            aborted += part.read.aborted_count();
            if let Some(slice) = &part.read.slice {
                if wait == Wait::Blocking {
                    slice.read_ahead();
                }
                load(slice, part.load_bytes, &self.ticket, worker, (buffer, wait));
            }
        }
    }
}

/// Brings a slice's first bytes into memory: windows or page cache.
fn load(
    slice: &Slice,
    load_bytes: usize,
    ticket: &ReadTicket,
    worker: &ReaderWorker<'_>,
    (buffer, wait): (&mut Vec<u8>, Wait),
) {
    buffer.resize(COPY_BUFFER_BYTES, 0);
    let mut done = 0;
    // The sender meets the error again and reports it.
    while done < slice.len().min(load_bytes)
        && let Ok(count @ 1..) = slice.read(done, buffer, wait)
    {
        done += count;
        ticket.step(worker);
    }
}

/// Whether a slice's first bytes seem resident: probes one byte per piece, and the last one if all
/// matter.
pub fn is_resident(slice: &Slice, bytes: usize) -> bool {
    let end = slice.len().min(bytes);
    let last = slice.len().saturating_sub(1);
    let mut probes = (0..end)
        .step_by(PROBE_STEP_BYTES)
        .chain((last < end).then_some(last));
    probes.all(|at| slice.read(at, &mut [0], Wait::Nowait).is_ok())
}
