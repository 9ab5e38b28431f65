"""What a transactional id is: the content of its record, and the steps from one to the next. Pure.

Each function returns the next content; nothing counts until its record is replicated.
"""

from __future__ import annotations

from typing import NamedTuple

from pyrklog.transactions.messages import (
    EPOCH_GIVEN_MAX,
    EPOCH_MAX,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    VERSION_2,
    ProducerEpoch,
    TopicPartition,
)
from pyrklog.transactions.states import TransactionState


class TransactionMetadata(NamedTuple):
    """``last_epoch`` is not in the log, as in Kafka: what it allows (a retried InitProducerId that
    names the producer's epoch) is lost with a change of coordinator."""

    producer_id: int
    epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIMESTAMP
    """When the transaction began."""
    updated_ms: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    """The producer's id after this transaction, whose epochs are used up."""
    client_version: int = 0
    last_epoch: int = NO_PRODUCER_EPOCH
    """The epoch before, if its owner asked for the next one."""

    @property
    def has_version_2(self) -> bool:
        return self.client_version >= VERSION_2

    @property
    def is_exhausted(self) -> bool:
        return is_exhausted(self.epoch)

    @property
    def after_end(self) -> ProducerEpoch:
        """The producer of the transaction after this one, which is being ended."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return ProducerEpoch(self.next_producer_id, 0)
        return ProducerEpoch(self.producer_id, self.epoch)


def is_exhausted(epoch: int) -> bool:
    return epoch >= EPOCH_GIVEN_MAX


def initialized(
    before: TransactionMetadata, *, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int
) -> TransactionMetadata:
    """The producer begins (again)."""
    return before._replace(
        epoch=epoch,
        last_epoch=last_epoch,
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        partitions=frozenset(),
        start_ms=NO_TIMESTAMP,
        updated_ms=now_ms,
    )


def rotated(
    before: TransactionMetadata, producer_id: int, *, last_epoch: int, timeout_ms: int, now_ms: int
) -> TransactionMetadata:
    """The same with a new producer id, since the epochs of the old one are used up."""
    after = initialized(
        before, epoch=0, last_epoch=last_epoch, timeout_ms=timeout_ms, now_ms=now_ms
    )
    return after._replace(producer_id=producer_id, previous_producer_id=before.producer_id)


def with_partitions(
    before: TransactionMetadata,
    partitions: frozenset[TopicPartition],
    client_version: int,
    now_ms: int,
) -> TransactionMetadata:
    is_ongoing = before.state is TransactionState.ONGOING
    return before._replace(
        state=TransactionState.ONGOING,
        partitions=before.partitions | partitions if is_ongoing else partitions,
        start_ms=before.start_ms if is_ongoing else now_ms,
        updated_ms=now_ms,
        client_version=client_version,
    )


def prepared(
    before: TransactionMetadata,
    *,
    is_commit: bool,
    client_version: int,
    now_ms: int,
    next_producer_id: int = NO_PRODUCER_ID,
) -> TransactionMetadata:
    """The decision. With version 2 the epoch rises: the markers' is above the records'."""
    after = before._replace(
        state=TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT,
        partitions=before.partitions,
        # An abort without partitions has no start.
        start_ms=now_ms if before.start_ms == NO_TIMESTAMP else before.start_ms,
        updated_ms=now_ms,
        client_version=client_version,
        next_producer_id=next_producer_id,
    )
    if client_version >= VERSION_2:
        after = after._replace(epoch=before.epoch + 1, last_epoch=before.epoch)
    return after


def fenced(before: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """An abort that the producer has not asked for: a higher epoch fences it. With version 2 one
    more than by an end, so that the producer's own end does not look like a retry."""
    return before._replace(
        state=TransactionState.PREPARE_ABORT,
        epoch=min(before.epoch + (2 if before.has_version_2 else 1), EPOCH_MAX),
        last_epoch=NO_PRODUCER_EPOCH,
        updated_ms=now_ms,
        next_producer_id=NO_PRODUCER_ID,
    )


def completed(before: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """All markers are written."""
    is_commit = before.state is TransactionState.PREPARE_COMMIT
    after = before._replace(
        state=TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
        partitions=frozenset(),
        updated_ms=now_ms,
        next_producer_id=NO_PRODUCER_ID,
    )
    if before.next_producer_id != NO_PRODUCER_ID:
        after = after._replace(
            producer_id=before.next_producer_id,
            previous_producer_id=before.producer_id,
            epoch=0,
        )
    return after


def dead(before: TransactionMetadata) -> TransactionMetadata:
    return before._replace(state=TransactionState.DEAD)
