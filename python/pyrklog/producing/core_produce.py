"""The producer of the Rust extension, and its exceptions."""

from pyrklog._core import (
    ClusterUnavailableError,
    LogEndMovedError,
    ProduceError,
    ProducerAuthenticationError,
    RecordTooLargeError,
    TransactionFencedError,
    UnsupportedClusterError,
    open_producer,
    open_transactions,
)
from pyrklog._core import Producer as CoreProducer
from pyrklog._core import Transactions as CoreTransactions

__all__ = [
    "ClusterUnavailableError",
    "CoreProducer",
    "CoreTransactions",
    "LogEndMovedError",
    "ProduceError",
    "ProducerAuthenticationError",
    "RecordTooLargeError",
    "TransactionFencedError",
    "UnsupportedClusterError",
    "open_producer",
    "open_transactions",
]
