//! One client connection, as its network thread holds it.
//!
//! Replies leave in the order of the requests. Produce requests overlap: each is appended at once
//! and its answer waits in `pending`. Every other request starts only when all earlier ones have
//! been answered, and while it is under way (`exclusive`) nothing more is read.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::acceptor::{NewConnection, Permit};
use crate::base::ids::{NEVER_MS, RequestId, Token};
use crate::base::receive::Received;
use crate::control::api::Session;
use crate::fetch_work::FetchWork;
use crate::list_offsets::ListOffsetsWork;
use crate::out_queue::OutQueue;
use crate::parking::Parked;
use crate::pending_produce::PendingProduce;
use crate::produce::Validating;
use crate::refused::RefusedBatches;
use crate::steering::Course;
use crate::storage::reader_queue::Step;

/// Output beyond which a connection's next request waits until it is sent.
pub const OUTPUT_MAX_BYTES: usize = 256 * 1024;

/// Why a connection is closed. The text is for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Close {
    /// The peer closed it, or the network did.
    Peer,
    /// The peer does not speak the protocol.
    Protocol(String),
    /// The protocol asks for it: an error of a request with acks=0, or an unanswerable one.
    Silently,
    /// Nothing happened for `connections.max.idle.ms`.
    Idle,
    /// A file that was to be sent could not be read.
    Storage(String),
    /// The broker ends.
    Shutdown,
}

/// Why the next frame is not worked on although it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Earlier requests are not answered yet.
    Order,
    /// A log directory has too many unwritten bytes.
    Parked,
    /// The control plane has too many requests.
    ControlFull,
    /// Too much output waits.
    Output,
    /// All connections together hold too many received bytes.
    Memory,
    /// Its next request takes long: one at a time, behind everybody else's.
    Heavy,
    /// They hold too many bytes of replies, and the request needs about so many more.
    Replies {
        /// Memory.
        bytes: usize,
    },
}

/// The one request that does not overlap with others, while it is under way.
#[derive(Debug)]
pub enum Exclusive {
    /// The control plane has it.
    Control {
        /// To recognise the answer.
        id: RequestId,
        /// For the response header.
        api_key: i16,
        /// For the response header.
        api_version: i16,
        /// For the response header.
        correlation_id: i32,
    },
    /// Metadata that waits for topics to be created.
    Metadata {
        /// To recognise the answer.
        id: RequestId,
        /// Version of the request.
        api_version: i16,
        /// For the response header.
        correlation_id: i32,
        /// The request's frame, to be answered from the image at that time.
        frame: Vec<u8>,
        /// Where its body starts.
        body_start: usize,
    },
    /// A fetch that waits for data, for readers or for its deadline.
    Fetch(Box<FetchWork>),
    /// Offsets that readers look up.
    ListOffsets(Box<ListOffsetsWork>),
    /// A produce request whose batches are validated elsewhere.
    Validating(Box<Validating>),
}

/// Who has the socket's sending side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// The network thread.
    Own,
    /// The network thread, which waits for the socket to take more.
    Full,
    /// A reader.
    Reader,
}

/// Whether a reader that sends gets on.
#[derive(Debug)]
pub struct SendingReader {
    /// What it does.
    pub step: Arc<Step>,
    /// When to look again; monotonic milliseconds, [`NEVER_MS`] while no reader sends.
    pub due_ms: i64,
}

impl Default for SendingReader {
    fn default() -> SendingReader {
        SendingReader {
            step: Arc::default(),
            due_ms: NEVER_MS,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Connection {
    /// Its name in messages.
    pub token: Token,
    /// Unique while the process lives.
    pub id: u64,
    /// The socket; a reader that sends holds it too.
    pub socket: Arc<OwnedFd>,
    /// Peer's address.
    pub host: IpAddr,
    /// Listener's name.
    pub listener: Arc<str>,
    /// Who it is.
    pub principal: Arc<str>,
    /// It is another broker's ([`crate::peers`]).
    pub is_broker: bool,
    _permit: Permit,

    /// Received and not worked on.
    pub received: Received,
    /// The socket may hold more.
    pub readable: bool,
    /// The peer's end is in the socket, behind what it sent; no event tells of it again.
    pub hung_up: bool,
    /// The peer's end was read: nothing more comes.
    pub ended: bool,

    /// To be sent.
    pub out: OutQueue,
    /// Who sends.
    pub sending: Sending,
    /// The socket may take more; set by its event while a reader sends.
    pub writable: bool,
    /// The reader that sends, while one does.
    pub sending_reader: SendingReader,

    /// Produce requests whose answers are due, in order.
    pub pending: VecDeque<PendingProduce>,
    /// Batches that were refused and come again.
    pub refused: RefusedBatches,
    /// Number of the first one that is pending.
    pub first_sequence: u64,
    /// Memory of all of them.
    pub pending_bytes: usize,
    /// What it counts for in the memory of replies.
    pub reply_bytes: usize,
    /// Since when there has been output that the peer has not taken; [`NEVER_MS`] without any.
    pub unread_since_ms: i64,
    /// The request that nothing overlaps with.
    pub exclusive: Option<Exclusive>,
    /// What holds back the next frame.
    pub hold: Option<Hold>,
    /// It was woken for a place at the control plane, and has not tried to take it yet.
    pub has_turn: bool,
    /// The produce request that waits for its log directory, and those behind it.
    pub parked: Option<Parked>,
    /// Nothing more is worked on; it closes once everything is answered.
    pub is_closing: bool,
    /// Number of the last fetch wait.
    pub last_wait: u64,

    /// Its earliest timer.
    pub timer_ms: i64,
    /// When bytes last moved.
    pub active_ms: i64,
    /// Since when a frame is incomplete.
    pub partial_since_ms: i64,
    /// Its visit in this turn is due.
    pub is_listed: bool,
    /// Its answers were held back for one turn, for those whom its requests have woken.
    pub gave_way: bool,
    /// Whether it should move to another thread.
    pub course: Course,
}

impl Connection {
    /// A connection that just arrived.
    pub fn new(token: Token, new: NewConnection, principal: Arc<str>, now_ms: i64) -> Connection {
        Connection {
            token,
            id: new.id,
            socket: Arc::new(new.socket),
            host: new.host,
            listener: new.listener,
            principal,
            is_broker: false,
            _permit: new.permit,
            received: Received::default(),
            readable: true,
            hung_up: false,
            ended: false,
            out: OutQueue::default(),
            sending: Sending::Own,
            writable: true,
            sending_reader: SendingReader::default(),
            pending: VecDeque::new(),
            refused: RefusedBatches::default(),
            first_sequence: 0,
            pending_bytes: 0,
            reply_bytes: 0,
            unread_since_ms: NEVER_MS,
            exclusive: None,
            hold: None,
            has_turn: false,
            parked: None,
            is_closing: false,
            last_wait: 0,
            timer_ms: NEVER_MS,
            active_ms: now_ms,
            partial_since_ms: NEVER_MS,
            is_listed: false,
            gave_way: false,
            course: Course::default(),
        }
    }

    /// Whether the next frame has to wait.
    pub fn is_busy(&self) -> bool {
        self.hold.is_some()
            || self.exclusive.is_some()
            || self.sending == Sending::Reader
            || self.is_closing
    }

    /// Whether nothing is under way.
    pub fn is_quiet(&self) -> bool {
        self.exclusive.is_none()
            && self.pending.is_empty()
            && self.out.is_empty()
            && self.sending != Sending::Reader
    }

    /// Whether nobody outside its thread knows it by its token: between two requests.
    pub fn is_movable(&self) -> bool {
        let is_held = self.hold.is_some() || self.parked.is_some();
        self.is_quiet() && !is_held && !self.is_closing && !self.ended
    }

    /// Another thread serves it from now on, under another token.
    pub fn arrive(&mut self, token: Token, now_ms: i64) {
        self.token = token;
        self.timer_ms = NEVER_MS;
        // Events of the thread that it left are lost: it has to look for itself.
        self.readable = true;
        self.writable = true;
        self.is_listed = false;
        self.course.arrived(now_ms);
    }

    /// The number that the next produce request gets.
    pub fn next_sequence(&self) -> u64 {
        self.first_sequence + self.pending.len() as u64
    }

    /// A pending produce request by number; `None` when it was answered already.
    pub fn pending_mut(&mut self, sequence: u64) -> Option<&mut PendingProduce> {
        let index = sequence.checked_sub(self.first_sequence)?;
        self.pending.get_mut(usize::try_from(index).ok()?)
    }

    /// Who stands behind it, for the control plane.
    pub fn session(&self, client_id: Option<&str>) -> Session {
        Session {
            connection: self.id,
            principal: Arc::clone(&self.principal),
            host: self.host,
            client_id: client_id.map(str::to_owned),
            listener: Arc::clone(&self.listener),
        }
    }
}
