//! Why records are not written, or a transaction not ended.

use pyrklog_client::ClientError;
use pyrklog_wire::ErrorCode;
use thiserror::Error;

/// Short form for this crate's results.
pub type Result<T> = std::result::Result<T, ProduceError>;

/// What kind of failure; a class of exceptions in Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// A row or an option that cannot be.
    Argument,
    /// A topic or partition does not exist.
    UnknownTopic,
    /// Name, token or certificate refused, by either side; TLS on one side only.
    Authentication,
    /// The client may not write a topic, or use a transactional id.
    NotAuthorized,
    /// The transaction was ended by somebody else: a coordinator, or a producer of the same id.
    Fenced,
    /// A record is larger than its topic allows.
    TooLarge,
    /// A log does not end where a batch with its own offsets is to follow.
    Elsewhere,
    /// Nobody answered in time; a new producer may succeed.
    Unavailable,
    /// A broker is too old.
    Unsupported,
    /// A broker does not follow the protocol.
    Protocol,
    /// A broker refused for another reason.
    Refused,
    /// No descriptor, thread or memory is left.
    Resources,
}

/// A failure: the text is a sentence for the user.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text}")]
pub struct ProduceError {
    /// Its class.
    pub kind: ErrorKind,
    /// The sentence.
    pub text: String,
}

impl ProduceError {
    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { kind, text }
    }

    /// Of a code that is not passing.
    pub(crate) fn of_code(code: ErrorCode, what: &str) -> Self {
        Self::new(kind_of(code), format!("{what}: {code}"))
    }
}

impl From<ClientError> for ProduceError {
    fn from(error: ClientError) -> Self {
        let kind = match error {
            ClientError::Cancelled => ErrorKind::Resources,
            ClientError::Config(_) => ErrorKind::Argument,
            ClientError::Connection { .. } | ClientError::TimedOut { .. } => ErrorKind::Unavailable,
            ClientError::Tls { .. } | ClientError::Authentication { .. } => {
                ErrorKind::Authentication
            }
            ClientError::Protocol { .. } => ErrorKind::Protocol,
            ClientError::Unsupported { .. } => ErrorKind::Unsupported,
            ClientError::Refused { code, .. } => kind_of(code),
        };
        Self::new(kind, error.to_string())
    }
}

fn kind_of(code: ErrorCode) -> ErrorKind {
    match code {
        ErrorCode::TOPIC_AUTHORIZATION_FAILED
        | ErrorCode::CLUSTER_AUTHORIZATION_FAILED
        | ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED => ErrorKind::NotAuthorized,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => ErrorKind::UnknownTopic,
        ErrorCode::UNSUPPORTED_VERSION | ErrorCode::UNSUPPORTED_FOR_MESSAGE_FORMAT => {
            ErrorKind::Unsupported
        }
        ErrorCode::INVALID_TRANSACTION_TIMEOUT => ErrorKind::Argument,
        ErrorCode::OFFSET_OUT_OF_RANGE => ErrorKind::Elsewhere,
        // Before Kafka 2.4, when retention has taken all that the producer wrote: a new one may write.
        ErrorCode::UNKNOWN_PRODUCER_ID => ErrorKind::Unavailable,
        code if is_fenced(code) => ErrorKind::Fenced,
        _ => ErrorKind::Refused,
    }
}

/// The producer's transaction is over, however it ended.
pub(crate) fn is_fenced(code: ErrorCode) -> bool {
    [
        ErrorCode::INVALID_PRODUCER_EPOCH,
        ErrorCode::PRODUCER_FENCED,
        ErrorCode::INVALID_TXN_STATE,
        ErrorCode::INVALID_PRODUCER_ID_MAPPING,
        ErrorCode::TRANSACTION_ABORTABLE,
    ]
    .contains(&code)
}

/// The same request may succeed at this coordinator, later.
pub(crate) fn is_passing(code: ErrorCode) -> bool {
    [
        ErrorCode::CONCURRENT_TRANSACTIONS,
        ErrorCode::COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode::REQUEST_TIMED_OUT,
        ErrorCode::NETWORK_EXCEPTION,
        ErrorCode::NOT_ENOUGH_REPLICAS,
        ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode::LEADER_NOT_AVAILABLE,
        ErrorCode::KAFKA_STORAGE_ERROR,
    ]
    .contains(&code)
}

/// Another broker coordinates, or will.
pub(crate) fn has_moved(code: ErrorCode) -> bool {
    [
        ErrorCode::NOT_COORDINATOR,
        ErrorCode::COORDINATOR_NOT_AVAILABLE,
        ErrorCode::BROKER_NOT_AVAILABLE,
    ]
    .contains(&code)
}

/// A batch may be sent again, with the same sequence.
pub(crate) fn is_retried(code: ErrorCode) -> bool {
    let of_leader = [
        ErrorCode::NOT_LEADER_OR_FOLLOWER,
        ErrorCode::CORRUPT_MESSAGE,
        ErrorCode::FENCED_LEADER_EPOCH,
        ErrorCode::UNKNOWN_LEADER_EPOCH,
        ErrorCode::REPLICA_NOT_AVAILABLE,
        ErrorCode::THROTTLING_QUOTA_EXCEEDED,
    ];
    is_passing(code) || has_moved(code) || of_leader.contains(&code)
}
