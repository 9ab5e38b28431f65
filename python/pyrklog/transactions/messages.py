"""Requests to a transactional id, and their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pyrklog.coordinators.memory_pool import NO_HOST
from pyrklog.errors import ErrorCode

TopicPartition = tuple[str, int]

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_TIMESTAMP = -1
EPOCH_MAX = 2**15 - 1
EPOCH_GIVEN_MAX = EPOCH_MAX - 1
"""The highest epoch that a producer gets: one more is needed to fence it."""
VERSION_2 = 2
"""Transaction version 2 (KIP-890 part 2)."""


class ProducerEpoch(NamedTuple):
    id: int
    epoch: int


class InitRequest(NamedTuple):
    """``known`` is what the producer had before (KIP-360), None for a new one."""

    transactional_id: str
    timeout_ms: int
    known: ProducerEpoch | None = None
    host: str = NO_HOST
    """The client's, which pays for the id's memory."""


class AddRequest(NamedTuple):
    """``client_version`` is that of the client's transactions, 0 for the first protocol."""

    transactional_id: str
    producer: ProducerEpoch
    partitions: frozenset[TopicPartition]
    client_version: int = 0


class EndRequest(NamedTuple):
    transactional_id: str
    producer: ProducerEpoch
    is_commit: bool
    client_version: int = 0


class ProducerResult(NamedTuple):
    """For InitProducerId and EndTxn; id and epoch are -1 with an error."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH


Result = ProducerResult | ErrorCode
"""AddPartitionsToTxn gets a bare code."""


class TransactionDescription(NamedTuple):
    error: ErrorCode
    transactional_id: str
    state: str = ""
    timeout_ms: int = 0
    start_ms: int = 0
    producer_id: int = 0
    epoch: int = 0
    partitions: Mapping[str, Sequence[int]] = {}


class TransactionOverview(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str
