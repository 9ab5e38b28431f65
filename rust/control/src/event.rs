//! What comes back from the plane.

use std::path::PathBuf;
use std::sync::Arc;

use crate::api::{CaughtUp, TicketOutcome};
use crate::control_request::{ControlRequest, Session};
use crate::heartbeat::Heartbeat;
use crate::offset_commit::OffsetCommit;
use pyrklog_base::ids::{RequestId, TicketId};

/// What comes back from the plane. Rust pushes to a bounded queue and writes an eventfd.
#[derive(Debug)]
pub enum Event {
    /// A request of an API that Python owns. The connection reads nothing more until its reply.
    Request(ControlRequest),
    /// A Heartbeat that is decoded; to answer like any request.
    Heartbeat(Box<Heartbeat>),
    /// An OffsetCommit that is decoded and names partitions that exist. Stage it and hand it to
    /// `append_commits`, or answer its request like any other.
    OffsetCommit(Arc<OffsetCommit>),
    /// A Metadata request named topics that do not exist and may be created. Answer with
    /// `resume(id, errors)`: the plane then answers from the image as it is at that time, giving
    /// each name in `errors` that code.
    TopicsMissing {
        /// To `resume`.
        id: RequestId,
        /// Missing names: legal ones only, each once.
        topics: Vec<String>,
        /// Who asked.
        session: Session,
    },
    /// The client of a request that the control plane still works on sends nothing more, or has
    /// gone: an answer that has to wait is in vain. Answer or close the request all the same.
    ClientGone {
        /// Of `Request`, `OffsetCommit` or `TopicsMissing`.
        id: RequestId,
    },
    /// A ticket is done.
    Ticket {
        /// As returned by the command.
        id: TicketId,
        /// What the command's documentation says.
        outcome: TicketOutcome,
    },
    /// A follower has caught up. Told once, until the in-sync replicas are set again.
    FollowerCaughtUp(CaughtUp),
    /// A follower's log starts elsewhere (topic, partition). Told once for each look at `log_starts`.
    FollowerLogStart(String, i32),
    /// A log directory failed; its partitions are offline and answer KAFKA_STORAGE_ERROR.
    LogDirFailed {
        /// The directory.
        path: PathBuf,
        /// What happened, one sentence.
        reason: String,
        /// (topic, partition) now offline.
        partitions: Vec<(String, i32)>,
    },
    /// Something an operator should read: one structured log line.
    Notice {
        /// A short name of the event, snake_case.
        event: &'static str,
        /// Fields.
        fields: Vec<(&'static str, String)>,
        /// "info", "warning" or "error".
        level: &'static str,
    },
}
