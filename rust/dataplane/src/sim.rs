//! A plane without threads, on a disk in memory, that a simulation drives by hand.
//!
//! The caller does the threads' work, one piece at a time and at the time that was set last:
//! clients' requests ([`FrameThread::run`]), a writer's turn ([`SimPlane::write`]), one slow
//! command ([`SimPlane::run_command`]), the syncer's timers ([`SimPlane::sync`]). Frames of clients
//! and of followers are passed in and out as bytes: no socket, no file descriptor.

mod frame_thread;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pyrklog_arena::room::Room;
use pyrklog_arena::{Arena, Janitor};
use pyrklog_log::disk::testing::MemDisk;
use pyrklog_log::{Isolation, Log, Wait};
use pyrklog_wire::api::key;
use pyrklog_wire::batch::Batches;
use pyrklog_wire::header::{RequestHeader, parse_response_header};

pub use frame_thread::FrameThread;
pub use pyrklog_base::injected_faults::plant;

use crate::follower::append_response::{LIST_OFFSETS_VERSION, ask_ends};
use crate::follower::back_fill::{BackFill, FillQuestion, FillTurn};
use crate::follower::fetch_state::{FETCH_VERSION, Key};
use crate::follower::fetcher_queue::{BACK_FILL, FetcherId, Fetchers};
use crate::follower::following::Following;
use crate::follower::link::LinkError;
use crate::follower::partial::Question;
use crate::net::network::Network;
use crate::plane::{DataPlane, OpenError};
use crate::replica_manager::ReplicaManager;
use crate::shutdown;
use crate::threads::Threads;
use pyrklog_base::ids::NEVER_MS;
use pyrklog_control::seam::{DigestedBatch, PlaneConfig};
use pyrklog_replica::partition::Role;
use pyrklog_storage::internal_read::read_whole;
use pyrklog_storage::syncer::Syncer;
use pyrklog_storage::writer::Writer;

/// More than any log of a simulation has.
const READ_BYTES: usize = 1 << 20;

/// State of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionView {
    /// What it does here.
    pub role: Role,
    /// Leader epoch, -1 before the first.
    pub leader_epoch: i32,
    /// Log start, high watermark, durable end offset and log end; `None` without a log.
    pub offsets: Option<(i64, i64, i64, i64)>,
    /// The replicas that the high watermark waits for, as the leader sees it.
    pub members: Vec<i32>,
}

/// What a fetcher does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchTurn {
    /// To be sent to the leader.
    Send(Vec<u8>),
    /// Nothing before this time (monotonic milliseconds).
    Later(i64),
    /// Nothing is followed any more.
    Idle,
}

/// See the module.
#[derive(Debug)]
pub struct SimPlane {
    plane: Arc<DataPlane>,
    network: Arc<Network>,
    replicas: Arc<ReplicaManager>,
    /// Its clients: [`FrameThread::run`] serves them until there is nothing to do at this time.
    pub clients: FrameThread,
    writers: Vec<Writer>,
    syncers: Vec<Syncer>,
    caches: Vec<(Arc<Arena>, Janitor)>,
    followings: BTreeMap<FetcherId, Following>,
    /// By source.
    back_fills: BTreeMap<i32, BackFill>,
    /// What their sources were asked, in requests under way.
    fill_questions: BTreeMap<i32, FillQuestion>,
    /// What was asked before anything is fetched, in requests under way.
    questions: BTreeMap<FetcherId, (Key, Question)>,
    correlation_id: i32,
}

/// Sets the clocks of the calling thread.
pub fn set_now_ms(now_ms: i64) {
    pyrklog_base::clock::set_now_ms(now_ms);
}

impl SimPlane {
    /// Opens a plane on `disk`, new or of a dead process.
    ///
    /// # Errors
    /// As [`DataPlane::open_on`]; [`OpenError::Config`] for more than one network thread.
    pub fn open(config: PlaneConfig, disk: &MemDisk) -> Result<SimPlane, OpenError> {
        if config.network_threads != 1 {
            let message = "a simulated plane has one network thread";
            return Err(OpenError::Config(message.into()));
        }
        let plane = Arc::new(DataPlane::open_on(config, Arc::new(disk.clone()))?);
        let network = Arc::clone(plane.network());
        let replicas = Arc::clone(plane.replicas());
        network.logs.is_simulated.store(true, Ordering::Relaxed);
        network.logs.loader.set_simulated();
        let writers = network.dirs.iter();
        let writers = writers.flat_map(|dir| Writer::team(&network.logs, dir).into_iter().take(1));
        let syncer = |dir| Syncer::new(Arc::clone(&network.logs), Arc::clone(dir));
        let arenas = network.dirs.iter().filter_map(|dir| dir.env().arena());
        let caches = arenas.map(|arena| (arena, Janitor::default())).collect();
        let mut sim = SimPlane {
            caches,
            writers: writers.collect(),
            syncers: network.dirs.iter().map(syncer).collect(),
            plane,
            clients: FrameThread::new(Arc::clone(&network)),
            followings: BTreeMap::new(),
            back_fills: BTreeMap::new(),
            fill_questions: BTreeMap::new(),
            questions: BTreeMap::new(),
            correlation_id: 0,
            network,
            replicas,
        };
        sim.tend_caches();
        Ok(sim)
    }

    /// The plane, for its commands.
    pub fn plane(&self) -> &Arc<DataPlane> {
        &self.plane
    }

    /// When a connection's timer or a later write is due; `None` if there is neither.
    pub fn due_ms(&self) -> Option<i64> {
        let network_ms = Some(self.clients.due_ms()).filter(|due_ms| *due_ms != NEVER_MS);
        let now_ms = pyrklog_base::clock::mono_ms();
        let dirs = self.network.dirs.iter();
        let writers_ms = dirs.filter_map(|dir| dir.writer.due_ms());
        let later_ms = writers_ms.filter(|due_ms| *due_ms > now_ms);
        network_ms.into_iter().chain(later_ms).min()
    }

    // --- disk -----------------------------------------------------------------------------------

    /// Whether a slow command waits.
    pub fn has_commands(&self) -> bool {
        self.network.loader.depth() > 0
    }

    /// Runs one slow command.
    pub fn run_command(&mut self) -> bool {
        self.network.loader.run_next()
    }

    /// Whether a read waits: of an internal topic, or of files that are not open yet.
    pub fn has_reads(&self) -> bool {
        self.network.readers.jobs_waiting() > 0
    }

    /// Does one.
    pub fn run_read(&mut self) -> bool {
        self.network.readers.run_job()
    }

    /// Whether a writer has something to write.
    pub fn has_writes(&self) -> bool {
        let now_ms = pyrklog_base::clock::mono_ms();
        let dirs = self.network.dirs.iter();
        let mut due = dirs.filter_map(|dir| dir.writer.due_ms());
        due.any(|due_ms| due_ms <= now_ms)
    }

    /// One turn of each directory's writer.
    pub fn write(&mut self) -> bool {
        let mut wrote = false;
        for writer in &mut self.writers {
            wrote |= writer.run_turn();
        }
        wrote
    }

    /// Begins to write what is due; [`SimPlane::writes_return`] finishes the writes.
    pub fn begin_writes(&mut self) {
        for writer in self.writers.iter_mut().filter(|w| !w.is_under_way()) {
            writer.begin_writes();
        }
    }

    /// Finishes the writes under way: they are in the files.
    pub fn writes_return(&mut self) {
        self.writers.iter_mut().for_each(Writer::finish_writes);
    }

    fn tend_caches(&mut self) {
        let now_ms = pyrklog_base::clock::mono_ms();
        for (arena, janitor) in &mut self.caches {
            janitor.tend(arena, now_ms, Room::UNLIMITED);
        }
    }

    /// Runs what syncers and janitors have to do at this time. Errors: a sentence.
    pub fn sync(&mut self) -> Result<(), String> {
        self.tend_caches();
        self.syncers.iter_mut().try_for_each(Syncer::run_turn)
    }

    // --- following -----------------------------------------------------------------------------

    /// The fetchers: leader and number.
    pub fn fetchers(&self) -> Vec<FetcherId> {
        self.replicas.fetchers.ids()
    }

    /// Whether a fetcher has new partitions in its queue: it no longer waits for the answer to
    /// its request.
    pub fn has_mail(&self, id: FetcherId) -> bool {
        let queue = self.replicas.fetchers.queue(id);
        queue.is_some_and(|queue| !queue.is_empty())
    }

    /// The next action of a fetcher without a request under way.
    pub fn begin_fetch(&mut self, id: FetcherId) -> FetchTurn {
        let Some(cluster) = &self.network.config.cluster else {
            return FetchTurn::Idle;
        };
        let Some(queue) = self.replicas.fetchers.queue(id) else {
            self.followings.remove(&id);
            if id.1 == BACK_FILL {
                self.back_fills.remove(&id.0);
            }
            return FetchTurn::Idle;
        };
        if id.1 == BACK_FILL {
            let replicas = &self.replicas;
            let fill = self.back_fills.entry(id.0).or_insert_with(|| {
                let fetchers = Arc::clone(&replicas.fetchers) as Arc<dyn Fetchers>;
                BackFill::new(Arc::clone(&replicas.services), fetchers, id.0)
            });
            fill.add(queue.take());
            return match fill.next() {
                FillTurn::Ask(question) => {
                    self.fill_questions.insert(id.0, question);
                    self.correlation_id += 1;
                    let (key, version) = question.api();
                    let encode = |out: &mut Vec<u8>| fill.encode(cluster, question, out);
                    FetchTurn::Send(framed(key, version, self.correlation_id, encode))
                }
                FillTurn::Later(at_ms) => FetchTurn::Later(at_ms),
                FillTurn::Idle => {
                    replicas.fetchers.retire(id, &queue);
                    self.back_fills.remove(&id.0);
                    FetchTurn::Idle
                }
            };
        }
        let replicas = &self.replicas;
        let following = self.followings.entry(id).or_insert_with(|| {
            let fetchers = Arc::clone(&replicas.fetchers) as Arc<dyn Fetchers>;
            Following::new(Arc::clone(&replicas.services), fetchers, id)
        });
        following.add(queue.take());
        let wanted = following.wanted();
        if following.is_empty() {
            replicas.fetchers.retire(id, &queue);
            self.followings.remove(&id);
            return FetchTurn::Idle;
        }
        if let Some(question) = wanted.questions.first() {
            // A real fetcher asks all of them before it fetches.
            self.questions.insert(id, *question);
            self.correlation_id += 1;
            let (key, version) = question.1.api();
            let ask = |out: &mut Vec<u8>| following.encode_question(*question, out);
            return FetchTurn::Send(framed(key, version, self.correlation_id, ask));
        }
        if wanted.asks.is_empty() {
            let soon_ms = pyrklog_base::clock::mono_ms() + 1;
            return FetchTurn::Later(wanted.due_ms.unwrap_or(soon_ms).max(soon_ms));
        }
        self.correlation_id += 1;
        let correlation_id = self.correlation_id;
        let ask = |out: &mut Vec<u8>| following.ask(cluster, &wanted, out);
        FetchTurn::Send(framed(key::FETCH, FETCH_VERSION, correlation_id, ask))
    }

    /// The answer to a fetcher's request, without its length. `exchange` sends the leader a whole
    /// frame and returns its answer, without its length; `None` if there is none.
    ///
    /// # Errors
    /// A sentence, if it is no answer: the connection is then useless.
    pub fn fetch_answered(
        &mut self,
        id: FetcherId,
        mut frame: Vec<u8>,
        mut exchange: impl FnMut(Vec<u8>) -> Option<Vec<u8>>,
    ) -> Result<(), String> {
        if id.1 == BACK_FILL {
            return self.fill_answered(id.0, &frame);
        }
        let (Some(cluster), Some(following)) =
            (&self.network.config.cluster, self.followings.get_mut(&id))
        else {
            return Ok(());
        };
        if let Some(question) = self.questions.remove(&id) {
            let (key, version) = question.1.api();
            let (_, body) =
                parse_response_header(&frame, key, version).map_err(|error| error.to_string())?;
            let taken = following.take_verdict(cluster, question, &frame[body..]);
            return taken.map_err(|error| error.to_string());
        }
        let (_, body) = parse_response_header(&frame, key::FETCH, FETCH_VERSION)
            .map_err(|error| error.to_string())?;
        let answers = following
            .read(&frame, body)
            .map_err(|error| error.to_string())?;
        let broker = self.network.config.node_id;
        for answer in answers {
            let records = &mut frame[answer.records.clone()];
            let taken =
                following.take_answer(cluster, &answer, records, |partition, leader_epoch| {
                    ask_ends(broker, partition, leader_epoch, |request| {
                        let (key, version) = (key::LIST_OFFSETS, LIST_OFFSETS_VERSION);
                        let asked = framed(key, version, 0, |out| request.encode(out, version));
                        let frame = exchange(asked).ok_or(LinkError::Interrupted)?;
                        let (_, body) = parse_response_header(&frame, key, version)?;
                        Ok((frame, body))
                    })
                });
            taken.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn fill_answered(&mut self, source: i32, frame: &[u8]) -> Result<(), String> {
        let question = self.fill_questions.remove(&source);
        let (Some(question), Some(fill)) = (question, self.back_fills.get_mut(&source)) else {
            return Ok(());
        };
        let (key, version) = question.api();
        let (_, body) =
            parse_response_header(frame, key, version).map_err(|error| error.to_string())?;
        let taken = fill.take_answer(question, &frame[body..]);
        taken.map_err(|error| error.to_string())
    }

    /// A fetcher's connection is gone, and with it the answer.
    pub fn fetch_failed(&mut self, id: FetcherId) {
        if id.1 == BACK_FILL {
            self.fill_questions.remove(&id.0);
            if let Some(fill) = self.back_fills.get_mut(&id.0) {
                fill.fail_all();
            }
            return;
        }
        self.questions.remove(&id);
        if let Some(following) = self.followings.get_mut(&id) {
            following.reset();
        }
    }

    // --- looking --------------------------------------------------------------------------------

    /// A partition, if it is hosted.
    pub fn partition(&self, topic: &str, index: i32) -> Option<PartitionView> {
        let partition = self.network.registry.partition(topic, index)?;
        let state = partition.lock();
        let offsets = |log: &Log| {
            let (start, mark) = (log.log_start_offset(), log.high_watermark());
            (start, mark, log.durable_end_offset(), log.log_end_offset())
        };
        Some(PartitionView {
            role: state.role,
            leader_epoch: state.leader_epoch,
            offsets: state.log.as_ref().map(offsets),
            members: state.members().to_vec(),
        })
    }

    /// The batches of a partition's log up to its durable end offset. Errors: a sentence.
    pub fn batches(&self, topic: &str, index: i32) -> Result<Vec<DigestedBatch>, String> {
        let Some(partition) = self.network.registry.partition(topic, index) else {
            return Ok(Vec::new());
        };
        let state = partition.lock();
        let Some(log) = &state.log else {
            return Ok(Vec::new());
        };
        let mut found = Vec::new();
        let mut offset = log.log_start_offset();
        while offset < log.durable_end_offset() {
            let location = log.locate(offset, Isolation::DurableEnd);
            let location = location.map_err(|error| error.to_string())?;
            let slice = location.resolve(READ_BYTES, true, Wait::Blocking);
            let slice = slice.map_err(|error| error.to_string())?;
            let bytes = read_whole(&slice, Wait::Blocking).map_err(|error| error.to_string())?;
            let before = offset;
            for batch in Batches::new(&bytes) {
                let header = batch.map_err(|error| error.to_string())?.header;
                offset = header.next_offset();
                found.push(DigestedBatch {
                    base_offset: header.base_offset,
                    last_offset: header.last_offset(),
                    leader_epoch: header.partition_leader_epoch,
                    crc: header.crc,
                });
            }
            if offset == before {
                return Err(format!("nothing is found at {offset}"));
            }
        }
        Ok(found)
    }

    // --- ends ------------------------------------------------------------------------------------

    /// Ends in order; true when every log directory is marked clean.
    pub fn shut_down(&mut self) -> bool {
        self.writes_return();
        while self.run_command() {}
        pyrklog_storage::writer::simulated::write_all(&self.network.logs);
        shutdown::end_in_order(
            &self.network,
            &self.replicas.fetchers,
            &Threads::default(),
            0,
        )
    }

    /// Ends as by a kill. `writes`: writes under way still reach the files.
    pub fn kill(&mut self, writes: bool) {
        if writes {
            self.writers.iter_mut().for_each(Writer::write_unreported);
        }
        shutdown::end_at_once(&self.network, &self.replicas.fetchers, &Threads::default());
    }
}

/// A fetcher's whole frame, with its length.
fn framed(
    api_key: i16,
    api_version: i16,
    correlation_id: i32,
    encode: impl FnOnce(&mut Vec<u8>),
) -> Vec<u8> {
    let header = RequestHeader {
        api_key,
        api_version,
        correlation_id,
        client_id: Some("fetcher"),
    };
    let mut frame = Vec::new();
    header
        .encode_frame(&mut frame, encode)
        .expect("a simulation has few partitions");
    frame
}
