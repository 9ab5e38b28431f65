"""The scan of the Rust extension, and its exceptions."""

from pyrklog._core import (
    AuthenticationError,
    BadValueError,
    BatchTooLargeError,
    BrokerNotAvailableError,
    BrokerProtocolError,
    CorruptBatchError,
    LeaderNotAvailableError,
    LogTruncatedError,
    NotAuthorizedError,
    OffsetOutOfRangeError,
    ScanClosedError,
    ScanError,
    TopicDeletedError,
    UnknownTopicError,
    UnsupportedBrokerError,
    check_access,
    open_scan,
)
from pyrklog._core import Scan as CoreScan

__all__ = [
    "AuthenticationError",
    "BadValueError",
    "BatchTooLargeError",
    "BrokerNotAvailableError",
    "BrokerProtocolError",
    "CoreScan",
    "CorruptBatchError",
    "LeaderNotAvailableError",
    "LogTruncatedError",
    "NotAuthorizedError",
    "OffsetOutOfRangeError",
    "ScanClosedError",
    "ScanError",
    "TopicDeletedError",
    "UnknownTopicError",
    "UnsupportedBrokerError",
    "check_access",
    "open_scan",
]
