//! Why a scan ends early.

use std::fmt;

use pyrklog_client::ClientError;
use thiserror::Error;

/// Short form for this crate's results.
pub type Result<T, E = ScanError> = std::result::Result<T, E>;

/// What kind of failure; Python has an exception for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The reader was closed.
    Cancelled,
    /// The caller's thread was interrupted.
    Interrupted,
    /// An argument that cannot be used.
    Argument,
    /// No such topic or partition.
    UnknownTopic,
    /// Name, token or certificate refused, by either side; TLS on one side only.
    Authentication,
    /// The client may not read the topic.
    NotAuthorized,
    /// The offset was deleted, or was never there.
    OffsetOutOfRange,
    /// Records that were read are no longer in the log (KIP-320).
    LogTruncated,
    /// The topic was deleted or created anew during the scan.
    TopicDeleted,
    /// No leader in time.
    LeaderNotAvailable,
    /// No broker could be reached in time.
    BrokerNotAvailable,
    /// A broker older than Kafka 0.11.
    UnsupportedBroker,
    /// Another protocol, or a broker that breaks this one.
    Protocol,
    /// Records that do not hold together.
    CorruptBatch,
    /// A batch or record beyond the limit, perhaps a decompression bomb.
    BatchTooLarge,
    /// A value that is not what the schema says.
    BadValue,
    /// Records with such values cannot be written to their topic.
    BadRecords,
    /// No answer of the registry of schemas in time.
    Registry,
    /// Threads or memory ran out.
    Resources,
}

/// A failure with a sentence for the user.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct ScanError {
    /// Kind.
    pub kind: ErrorKind,
    /// Sentence.
    pub text: String,
}

impl fmt::Display for ScanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl ScanError {
    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> ScanError {
        let text = text.into();
        ScanError { kind, text }
    }

    pub(crate) fn cancelled() -> ScanError {
        ScanError::new(ErrorKind::Cancelled, "the scan was closed")
    }
}

impl From<ClientError> for ScanError {
    fn from(error: ClientError) -> ScanError {
        let kind = match &error {
            ClientError::Cancelled => return ScanError::cancelled(),
            ClientError::Config(_) => ErrorKind::Argument,
            ClientError::Connection { .. } | ClientError::TimedOut { .. } => {
                ErrorKind::BrokerNotAvailable
            }
            ClientError::Tls { .. } | ClientError::Authentication { .. } => {
                ErrorKind::Authentication
            }
            ClientError::Unsupported { .. } => ErrorKind::UnsupportedBroker,
            ClientError::Protocol { .. } | ClientError::Refused { .. } => ErrorKind::Protocol,
        };
        ScanError::new(kind, error.to_string())
    }
}
