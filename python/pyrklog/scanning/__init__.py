"""Reads topics of any Kafka (0.11 or newer) into Arrow; see ``docs/understanding/scan.md``."""

from pyrklog.scanning.access import check_access
from pyrklog.scanning.core_scan import (
    AuthenticationError,
    BadRecordsError,
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
)
from pyrklog.scanning.places import ListedOffset, Place
from pyrklog.scanning.registry import latest_schema
from pyrklog.scanning.scan import Batch, LeftOut, PartitionProgress, Scan, scan

__all__ = [
    "AuthenticationError",
    "BadRecordsError",
    "BadValueError",
    "Batch",
    "BatchTooLargeError",
    "BrokerNotAvailableError",
    "BrokerProtocolError",
    "CorruptBatchError",
    "LeaderNotAvailableError",
    "LeftOut",
    "ListedOffset",
    "LogTruncatedError",
    "NotAuthorizedError",
    "OffsetOutOfRangeError",
    "PartitionProgress",
    "Place",
    "RegistryNotAvailableError",
    "Scan",
    "ScanClosedError",
    "ScanError",
    "TopicDeletedError",
    "UnknownTopicError",
    "UnsupportedBrokerError",
    "check_access",
    "latest_schema",
    "scan",
]

for _one in (globals()[name] for name in __all__):
    if isinstance(_one, type) and issubclass(_one, ScanError):
        # Tracebacks name the place to import it from.
        _one.__module__ = __name__
