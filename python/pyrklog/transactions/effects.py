"""Effects of a transactional id's events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pyrklog.transactions.messages import Result, TopicPartition
from pyrklog.transactions.metadata import TransactionMetadata


class Reply(NamedTuple):
    """Answers the request of this token, once."""

    token: int
    result: Result


class Append(NamedTuple):
    """The id's record for its partition of ``__transaction_state``; None: its tombstone.

    The driver calls ``append_finished`` once the high watermark has passed it, or the append has
    failed.
    """

    metadata: TransactionMetadata | None


class WriteMarkers(NamedTuple):
    """The driver calls ``markers_written`` once all partitions have the marker."""

    producer_id: int
    epoch: int
    is_commit: bool
    client_version: int
    partitions: frozenset[TopicPartition]


class Retry(NamedTuple):
    """The driver calls ``retry`` after a while."""


class Reload(NamedTuple):
    """Nobody knows whether the last append is in the log: the partition is to be read again."""


class Notice(NamedTuple):
    """A line for the log."""

    event: str
    fields: Mapping[str, object]
    level: str = "info"


Effect = Reply | Append | WriteMarkers | Retry | Reload | Notice
Effects = list[Effect]
