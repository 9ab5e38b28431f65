"""Transactional ids as records of ``__transaction_state``, and codes of failed appends."""

from __future__ import annotations

from collections.abc import Iterable

from pyrklog.errors import ErrorCode
from pyrklog.plane.internal_log import NewRecord
from pyrklog.protocol.primitives import DecodeError
from pyrklog.protocol.transaction_records import (
    PartitionsValue,
    TransactionKey,
    TransactionValue,
    decode_transaction_value,
    encode_transaction_key,
    encode_transaction_value,
)
from pyrklog.transactions.messages import TopicPartition
from pyrklog.transactions.metadata import TransactionMetadata
from pyrklog.transactions.states import TransactionState

_IN_LOG = frozenset(TransactionState) - {
    TransactionState.DEAD,
    TransactionState.PREPARE_EPOCH_FENCE,
}


def record(transactional_id: str, metadata: TransactionMetadata | None) -> NewRecord:
    """None: the tombstone."""
    key = encode_transaction_key(TransactionKey(transactional_id))
    if metadata is None:
        return NewRecord(key, None)
    is_empty = metadata.state is TransactionState.EMPTY
    partitions = by_topic(metadata.partitions)
    value = TransactionValue(
        producer_id=metadata.producer_id,
        previous_producer_id=metadata.previous_producer_id,
        next_producer_id=metadata.next_producer_id,
        producer_epoch=metadata.epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state,
        transaction_partitions=None
        if is_empty
        else [PartitionsValue(topic, indexes) for topic, indexes in partitions.items()],
        last_update_timestamp_ms=metadata.updated_ms,
        start_timestamp_ms=metadata.start_ms,
        client_transaction_version=metadata.client_version,
    )
    return NewRecord(key, encode_transaction_value(value))


def metadata_from(data: bytes) -> TransactionMetadata:
    """From a record's value. Raises :class:`DecodeError`."""
    value = decode_transaction_value(data)
    if value.transaction_status not in _IN_LOG:
        raise DecodeError(f"transaction status {value.transaction_status} is unknown")
    partitions = frozenset(
        (one.topic, index)
        for one in value.transaction_partitions or ()
        for index in one.partition_ids
    )
    return TransactionMetadata(
        producer_id=value.producer_id,
        epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=TransactionState(value.transaction_status),
        partitions=partitions,
        start_ms=value.start_timestamp_ms,
        updated_ms=value.last_update_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_version=value.client_transaction_version,
    )


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """In order."""
    found: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        found.setdefault(topic, []).append(index)
    return found


_ERRORS = {
    **dict.fromkeys(
        (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.NOT_ENOUGH_REPLICAS,
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            ErrorCode.REQUEST_TIMED_OUT,
        ),
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ),
    **dict.fromkeys(
        (
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.FENCED_LEADER_EPOCH,
            ErrorCode.KAFKA_STORAGE_ERROR,
        ),
        ErrorCode.NOT_COORDINATOR,
    ),
    **dict.fromkeys(
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE),
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ),
}
_NOT_APPENDED = frozenset(
    {
        # The partition moves to another log directory just now.
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
    }
)


def append_error(error: ErrorCode) -> ErrorCode:
    """The client's code (Kafka's TransactionStateManager)."""
    return _ERRORS.get(error, error)


def is_surely_not_appended(error: ErrorCode) -> bool:
    """Whether the record is in no log. After other errors another replica may have it."""
    return error in _NOT_APPENDED
