from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyrklog.cli.connection import PartitionKey
from pyrklog.cli.output import Listing, columns
from pyrklog.cli.txns_admin import Coordinated, Described, Marker
from pyrklog.cli.txns_hanging import OpenTransaction, partitions
from pyrklog.protocol.transaction_admin import NO_TIMESTAMP, NO_TRANSACTION, ProducerState
from pyrklog.protocol.transaction_admin import TransactionState as State

LIST_COLUMNS = columns("transactional_id ID, coordinator>, producer_id> PRODUCER, state")
DESCRIBE_COLUMNS = columns(
    "transactional_id ID, coordinator>, producer_id> PRODUCER, producer_epoch> EPOCH, state, "
    "timeout_ms>, start_ms>*, age_s>, partitions"
)
PRODUCER_COLUMNS = columns(
    "topic, partition> PART, producer_id> PRODUCER, producer_epoch> EPOCH, coordinator_epoch>, "
    "last_sequence>, last_timestamp_ms>, start_offset> START"
)
HANGING_COLUMNS = columns(
    "topic, partition> PART, producer_id> PRODUCER, producer_epoch> EPOCH, start_offset> START, "
    "age_s>, coordinator_epoch>, last_timestamp_ms>*"
)
ABORT_COLUMNS = columns(
    "result, transactional_id ID, producer_id> PRODUCER, producer_epoch> EPOCH, partitions, "
    "start_offset> START"
)


def listed(found: Iterable[Coordinated], cluster_id: str | None) -> Listing:
    items = [
        {
            "transactional_id": one.listed.transactional_id,
            "coordinator": one.coordinator,
            "producer_id": one.listed.producer_id,
            "state": one.listed.transaction_state,
        }
        for one in found
    ]
    return Listing("pyrklog.transactions/1", LIST_COLUMNS, items, cluster_id)


def described(found: Iterable[Described], now_ms: int, cluster_id: str | None) -> Listing:
    items = []
    for one in found:
        state = one.state
        start_ms = _or_none(state.transaction_start_time_ms, NO_TIMESTAMP)
        items.append(
            {
                "transactional_id": state.transactional_id,
                "coordinator": one.coordinator,
                "producer_id": state.producer_id,
                "producer_epoch": state.producer_epoch,
                "state": state.transaction_state,
                "timeout_ms": state.transaction_timeout_ms,
                "start_ms": start_ms,
                "age_s": _age_s(start_ms, now_ms),
                "partitions": _names(state),
            }
        )
    return Listing("pyrklog.transaction-details/1", DESCRIBE_COLUMNS, items, cluster_id)


def producers(
    found: Iterable[tuple[PartitionKey, Sequence[ProducerState]]], cluster_id: str | None
) -> Listing:
    items = [
        _producer(key, one)
        for key, known in found
        for one in sorted(known, key=lambda one: one.producer_id)
    ]
    return Listing("pyrklog.producers/1", PRODUCER_COLUMNS, items, cluster_id)


def hanging(found: Iterable[OpenTransaction], now_ms: int, cluster_id: str | None) -> Listing:
    items = []
    for one in found:
        item = _producer(one.key, one.producer)
        items.append({**item, "age_s": _age_s(item["last_timestamp_ms"], now_ms)})
    return Listing("pyrklog.hanging-transactions/1", HANGING_COLUMNS, items, cluster_id)


def aborted(item: Mapping[str, Any], cluster_id: str | None) -> Listing:
    return Listing("pyrklog.transaction-aborts/1", ABORT_COLUMNS, [item], cluster_id)


def aborted_id(state: State, *, dry_run: bool) -> dict[str, Any]:
    return {
        "result": _result(dry_run),
        "transactional_id": state.transactional_id,
        "producer_id": state.producer_id,
        "producer_epoch": state.producer_epoch,
        "partitions": _names(state),
        "start_offset": None,
    }


def aborted_there(
    key: PartitionKey, marker: Marker, start_offset: int | None, *, dry_run: bool
) -> dict[str, Any]:
    return {
        "result": _result(dry_run),
        "transactional_id": None,
        "producer_id": marker.producer_id,
        "producer_epoch": marker.producer_epoch,
        "partitions": [f"{key[0]}-{key[1]}"],
        "start_offset": start_offset,
    }


def _producer(key: PartitionKey, one: ProducerState) -> dict[str, Any]:
    return {
        "topic": key[0],
        "partition": key[1],
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "coordinator_epoch": one.coordinator_epoch,
        "last_sequence": one.last_sequence,
        "last_timestamp_ms": _or_none(one.last_timestamp, NO_TIMESTAMP),
        "start_offset": _or_none(one.current_txn_start_offset, NO_TRANSACTION),
    }


def _result(dry_run: bool) -> str:
    return "would be aborted" if dry_run else "aborted"


def _names(state: State) -> list[str]:
    return [f"{topic}-{index}" for topic, index in partitions(state)]


def _or_none(value: int, unknown: int) -> int | None:
    return None if value == unknown else value


def _age_s(since_ms: int | None, now_ms: int) -> int | None:
    return None if since_ms is None else max(0, (now_ms - since_ms) // 1000)
