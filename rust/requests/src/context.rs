//! A network thread's state for request handlers, apart from the connection.

use std::sync::Arc;

use pyrklog_wire::ErrorCode;
use pyrklog_wire::fetch::FetchRequest;
use pyrklog_wire::produce::ProduceRequest;

use crate::client_context::ClientContext;
use crate::heavy::{self, Heavy};
use crate::out_queue::OutQueue;
use crate::produce::delayed_produce::DelayedProduce;
use crate::produce::verdicts::Verdict;
use crate::services::Services;
use pyrklog_base::clock::{Now, mono_ns};
use pyrklog_base::ids::{Place, Token};
use pyrklog_base::timers::Timers;
use pyrklog_control::image::Image;
use pyrklog_control::latency::Group;
use pyrklog_control::outbox::Outbox;
use pyrklog_control::statistics::ThreadStatistics;
use pyrklog_storage::log_dir_state::{HostedPartitions, Partition};

/// Spare vectors kept for replies.
const SPARE_MEMORIES: usize = 64;

/// Larger vectors are not kept.
const SPARE_MEMORY_BYTES_MAX: usize = 64 * 1024;

/// Spare produce answers kept.
const SPARE_PRODUCES: usize = 256;

/// See the module.
#[derive(Debug)]
pub struct Context {
    /// Shared by all threads.
    pub services: Arc<Services>,
    /// Index of the network thread.
    pub thread: usize,
    /// The clocks, read once per turn.
    pub now: Now,
    /// When the frames that are worked on now arrived, monotonic nanoseconds.
    pub arrival_ns: u64,
    lap_ns: u64,
    /// The group of the current request.
    pub group: Option<Group>,
    /// The image as of this turn.
    pub image: Arc<Image>,
    /// Hosted partitions as of this turn.
    pub hosted: Arc<HostedPartitions>,
    hosted_version: u64,
    /// The thread's counters.
    pub statistics: Arc<ThreadStatistics>,
    /// The thread's timers.
    pub timers: Timers,
    /// Messages collected while partitions were locked.
    pub outbox: Outbox,
    /// Connections to visit again in the next turn.
    pub again: Vec<Token>,
    /// Long requests that wait for their turn.
    pub heavy: Heavy,
    /// Partitions that the current visit's requests named, or looked at in their sessions.
    pub looked: usize,
    /// Connections wait for memory: look again soon.
    pub is_hungry: bool,
    /// No new requests.
    pub is_draining: bool,
    /// Decoded request; its memory is reused.
    pub produce_request: ProduceRequest,
    /// Decoded request; its memory is reused.
    pub fetch_request: FetchRequest,
    /// The current request's partitions; memory reused.
    pub targets: Vec<Option<Arc<Partition>>>,
    /// Verdicts on the current request's batches; empty if not validated yet.
    pub verdicts: Vec<Verdict>,
    spare_memories: Vec<Vec<u8>>,
    spare_produces: Vec<DelayedProduce>,
    last_wait: u64,
}

impl Context {
    /// For network thread `thread`.
    pub fn new(services: Arc<Services>, thread: usize) -> Context {
        let image = services.image.load_full();
        let hosted_version = services.registry.version();
        let hosted = services.registry.load();
        let statistics = Arc::clone(&services.statistics.threads[thread]);
        let outbox = services.outbox().of_network_thread(thread);
        let now = Now::read();
        Context {
            services,
            thread,
            arrival_ns: now.mono_ns,
            lap_ns: now.mono_ns,
            now,
            group: None,
            image,
            hosted,
            hosted_version,
            statistics,
            timers: Timers::default(),
            outbox,
            again: Vec::new(),
            heavy: Heavy::default(),
            looked: 0,
            is_hungry: false,
            is_draining: false,
            produce_request: ProduceRequest::default(),
            fetch_request: FetchRequest::default(),
            targets: Vec::new(),
            verdicts: Vec::new(),
            spare_memories: Vec::new(),
            spare_produces: Vec::new(),
            last_wait: 0,
        }
    }

    /// Starts a turn: reads clocks, image and hosted partitions.
    pub fn refresh(&mut self) {
        self.now = Now::read();
        self.lap_ns = self.now.mono_ns;
        self.arrival_ns = self.now.mono_ns;
        // The version first: a change in between is seen next time.
        let version = self.services.registry.version();
        if version != self.hosted_version {
            self.hosted = self.services.registry.load();
            self.hosted_version = version;
        }
        let image = self.services.image.load();
        if !Arc::ptr_eq(&image, &self.image) {
            self.image = Arc::clone(&image);
        }
    }

    /// When the thread's last step ended, monotonic nanoseconds.
    pub fn lap_ns(&self) -> u64 {
        self.lap_ns
    }

    /// A step ends now.
    pub fn read_lap_ns(&mut self) -> u64 {
        self.lap_ns = mono_ns();
        self.lap_ns
    }

    /// Versions of the image and of the hosted partitions: with the same versions a look-up finds
    /// the same.
    pub fn versions(&self) -> (u64, u64) {
        (self.image.version(), self.hosted_version)
    }

    /// Whether the visit's requests looked at so much that other connections go first.
    pub fn has_looked_at_many(&self) -> bool {
        self.looked > heavy::PARTITIONS
    }

    /// Where a client's answers go.
    pub fn place_of(&self, client: &ClientContext) -> Place {
        Place {
            thread: self.thread,
            token: client.token,
        }
    }

    /// The error for a partition that is not hosted here.
    pub fn why_not_hosted(&self, topic: &str, index: i32) -> ErrorCode {
        match self.image.leader(topic, index) {
            Some(_) => ErrorCode::NOT_LEADER_OR_FOLLOWER,
            None => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        }
    }

    /// A number for a wait, unique on the thread.
    pub fn next_wait(&mut self) -> u64 {
        self.last_wait += 1;
        self.last_wait
    }

    /// An empty vector, reused if possible.
    pub fn take_memory(&mut self) -> Vec<u8> {
        self.spare_memories.pop().unwrap_or_default()
    }

    /// Returns a vector.
    pub fn spare_memory(&mut self, mut memory: Vec<u8>) {
        if self.spare_memories.len() < SPARE_MEMORIES
            && (1..=SPARE_MEMORY_BYTES_MAX).contains(&memory.capacity())
        {
            memory.clear();
            self.spare_memories.push(memory);
        }
    }

    /// A produce answer to fill, reused if possible.
    pub fn take_produce(&mut self) -> DelayedProduce {
        self.spare_produces.pop().unwrap_or_default()
    }

    /// Returns a produce answer.
    pub fn spare_produce(&mut self, mut produce: DelayedProduce) {
        if self.spare_produces.len() < SPARE_PRODUCES {
            produce.clear();
            self.spare_produces.push(produce);
        }
    }
}

/// Gives an empty output memory from the thread's spares.
pub fn borrow_memory(cx: &mut Context, out: &mut OutQueue) {
    if out.is_empty() && out.memory().capacity() == 0 {
        let memory = cx.take_memory();
        out.give_memory(memory);
    }
}
