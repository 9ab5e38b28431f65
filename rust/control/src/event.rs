//! Events from the plane.

use std::path::PathBuf;
use std::sync::Arc;

use crate::api::{CaughtUp, TicketOutcome};
use crate::control_request::{ControlRequest, Session};
use crate::heartbeat::Heartbeat;
use crate::offset_commit::OffsetCommit;
use pyrklog_base::ids::{RequestId, TicketId};

/// Events from the plane. Rust pushes them to a bounded queue and writes an eventfd.
#[derive(Debug)]
pub enum Event {
    /// A request of an API that Python owns. The connection reads nothing more until its reply.
    Request(ControlRequest),
    /// A decoded Heartbeat; answer it like any request.
    Heartbeat(Box<Heartbeat>),
    /// A decoded OffsetCommit whose partitions exist. Stage it and pass it to `append_commits`, or
    /// answer it like any request.
    OffsetCommit(Arc<OffsetCommit>),
    /// A Metadata request named missing topics that may be created. After `resume(id, errors)` the
    /// plane answers from the image of that time, with these error codes for these names.
    TopicsMissing {
        /// For `resume`.
        id: RequestId,
        /// Missing names: legal ones only, each once.
        topics: Vec<String>,
        /// The client.
        session: Session,
    },
    /// The client of an unanswered request has closed its sending side: waiting for an answer is in
    /// vain. Answer or close the request all the same.
    ClientGone {
        /// Of `Request`, `OffsetCommit` or `TopicsMissing`.
        id: RequestId,
    },
    /// A ticket is done.
    Ticket {
        /// As returned by the command.
        id: TicketId,
        /// As documented for the command.
        outcome: TicketOutcome,
    },
    /// A follower has caught up. Sent once, until the in-sync replicas are set again.
    FollowerCaughtUp(CaughtUp),
    /// A follower's log starts elsewhere (topic, partition). Sent once after each `log_starts`.
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
    /// A message for the operator: one structured log line.
    Notice {
        /// A short name of the event, snake_case.
        event: &'static str,
        /// Fields.
        fields: Vec<(&'static str, String)>,
        /// "info", "warning" or "error".
        level: &'static str,
    },
}
