//! Events from the plane.

use std::path::PathBuf;
use std::sync::Arc;

use crate::control_request::{ControlRequest, Session};
use crate::heartbeat::Heartbeat;
use crate::offset_commit::OffsetCommit;
use crate::seam::{CaughtUp, FailedPartition, TicketOutcome, VerifyTransaction};
use pyrklog_base::ids::{RequestId, TicketId};

/// Events from the plane, pushed to a queue with an eventfd.
#[derive(Debug)]
pub enum Event {
    /// A request of an API that Python owns. Its connection reads nothing until the reply.
    Request(ControlRequest),
    /// A decoded Heartbeat; answer it like any request.
    Heartbeat(Box<Heartbeat>),
    /// A decoded OffsetCommit of existing partitions. Stage it and pass it to `append_commits`, or
    /// answer it like any request.
    OffsetCommit(Arc<OffsetCommit>),
    /// A Metadata request named missing topics that may be created. After `resume(id, errors)` the
    /// plane answers from the current image, with these error codes for these names.
    TopicsMissing {
        /// For `resume`.
        id: RequestId,
        /// Missing names, legal and unique.
        topics: Vec<String>,
        /// The client.
        session: Session,
    },
    /// The client of an unanswered request has closed its sending side and awaits no answer. Answer
    /// or close the request nevertheless.
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
    /// A follower has caught up. Sent once until the ISR is set again.
    FollowerCaughtUp(CaughtUp),
    /// A follower's log start moved (topic, partition). Sent once after each `log_starts`.
    FollowerLogStart(String, i32),
    /// A log directory failed; its partitions are offline and answer KAFKA_STORAGE_ERROR.
    LogDirFailed {
        /// The directory.
        path: PathBuf,
        /// The failure, one sentence.
        reason: String,
        /// (topic, partition) that are now offline.
        partitions: Vec<(String, i32)>,
    },
    /// A partition is offline until the next start and answers KAFKA_STORAGE_ERROR.
    PartitionFailed(FailedPartition),
    /// A Produce request waits for its transaction's coordinator; answer with
    /// `transaction_verified`.
    VerifyTransaction(VerifyTransaction),
    /// A structured log line for the operator.
    Notice {
        /// Event name, snake_case.
        event: &'static str,
        /// Fields.
        fields: Vec<(&'static str, String)>,
        /// "info", "warning" or "error".
        level: &'static str,
    },
}
