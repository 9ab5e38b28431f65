"""The scan of the Rust extension, and its exceptions."""

from pyrklog._core import (
    BadValueError,
    BatchTooLargeError,
    BrokerNotAvailableError,
    BrokerProtocolError,
    CorruptBatchError,
    LeaderNotAvailableError,
    LogTruncatedError,
    NotAuthorizedError,
    OffsetOutOfRangeError,
    RegistryNotAvailableError,
    ScanClosedError,
    ScanError,
    TopicDeletedError,
    UnknownTopicError,
    UnsupportedBrokerError,
    decoded_schema,
    open_scan,
)
from pyrklog._core import Scan as CoreScan

__all__ = [
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
    "RegistryNotAvailableError",
    "ScanClosedError",
    "ScanError",
    "TopicDeletedError",
    "UnknownTopicError",
    "UnsupportedBrokerError",
    "decoded_schema",
    "open_scan",
]
