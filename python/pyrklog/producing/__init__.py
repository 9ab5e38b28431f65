"""Writes Arrow to topics of any Kafka (0.11 or newer); see ``docs/understanding/spark-sink.md``."""

from pyrklog.producing.core_produce import (
    ClusterUnavailableError,
    LogEndMovedError,
    ProduceError,
    ProducerAuthenticationError,
    RecordTooLargeError,
    TransactionFencedError,
    UnsupportedClusterError,
)
from pyrklog.producing.producer import Producer, Written
from pyrklog.producing.settings import ProducerSettings
from pyrklog.producing.transactions import OpenTransaction, Transactions

__all__ = [
    "ClusterUnavailableError",
    "LogEndMovedError",
    "OpenTransaction",
    "ProduceError",
    "Producer",
    "ProducerAuthenticationError",
    "ProducerSettings",
    "RecordTooLargeError",
    "TransactionFencedError",
    "Transactions",
    "UnsupportedClusterError",
    "Written",
]
