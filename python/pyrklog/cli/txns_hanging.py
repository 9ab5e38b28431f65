"""Transactions that are open in a partition, and that no coordinator will ever end.

As Kafka's ``kafka-transactions.sh find-hanging``: leaders tell open transactions whose last record
is old, coordinators tell the partitions of the transactions that they know.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pyrklog.cli.connection import PartitionKey
from pyrklog.cli.txns_admin import Described, TransactionAdmin
from pyrklog.protocol.transaction_admin import NO_TRANSACTION, ProducerState, TransactionState

PRODUCER_IDS_MAX = 1000
"""Producer ids of one request."""


class OpenTransaction(NamedTuple):
    """A producer with an open transaction in a partition."""

    key: PartitionKey
    producer: ProducerState

    @property
    def start_offset(self) -> int:
        return self.producer.current_txn_start_offset


def find_hanging(
    admin: TransactionAdmin,
    wanted: Mapping[str, Sequence[int]],
    broker: int | None,
    *,
    before_ms: int,
) -> list[OpenTransaction]:
    """Hanging transactions of partitions (as in :meth:`TransactionAdmin.producers`) with no record
    since ``before_ms``.

    A transaction may end between the two questions, so partitions are asked again at the end.
    """
    candidates = open_transactions(admin, wanted, broker, before_ms=before_ms)
    hanging = without_owner(candidates, owners(admin, candidates))
    if not hanging:
        return []
    still = set(_identities(open_transactions(admin, _by_topic(hanging), broker)))
    return [one for one, key in zip(hanging, _identities(hanging), strict=True) if key in still]


def open_transactions(
    admin: TransactionAdmin,
    wanted: Mapping[str, Sequence[int]],
    broker: int | None = None,
    *,
    before_ms: int | None = None,
) -> list[OpenTransaction]:
    """Open transactions of partitions, by partition and start offset."""
    found = [
        OpenTransaction(key, one)
        for key, producers in admin.producers(wanted, broker)
        for one in producers
        if one.current_txn_start_offset != NO_TRANSACTION
        and (before_ms is None or one.last_timestamp <= before_ms)
    ]
    return sorted(found, key=lambda one: (*one.key, one.start_offset))


def owners(
    admin: TransactionAdmin, candidates: Iterable[OpenTransaction]
) -> dict[int, list[Described]]:
    """The transactional ids of the candidates' producers, by producer id."""
    numbers = sorted({one.producer.producer_id for one in candidates})
    ids: list[str] = []
    for start in range(0, len(numbers), PRODUCER_IDS_MAX):
        listed = admin.listed(producer_ids=numbers[start : start + PRODUCER_IDS_MAX])
        ids += [one.listed.transactional_id for one in listed]
    described, _ = admin.described(ids)
    found: dict[int, list[Described]] = {}
    for one in described:
        found.setdefault(one.state.producer_id, []).append(one)
    return found


def without_owner(
    candidates: Iterable[OpenTransaction], owned: Mapping[int, Sequence[Described]]
) -> list[OpenTransaction]:
    """Those that no coordinator counts among the partitions of a transaction."""
    return [one for one in candidates if owner(one, owned) is None]


def owner(
    candidate: OpenTransaction, owned: Mapping[int, Sequence[Described]]
) -> TransactionState | None:
    """The transactional id whose coordinator will end the candidate."""
    for one in owned.get(candidate.producer.producer_id, ()):
        if candidate.key in partitions(one.state):
            return one.state
    return None


def partitions(state: TransactionState) -> list[PartitionKey]:
    return sorted((topic.topic, index) for topic in state.topics for index in topic.partitions)


def _by_topic(candidates: Iterable[OpenTransaction]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, index in sorted({one.key for one in candidates}):
        found.setdefault(topic, []).append(index)
    return found


def _identities(candidates: Iterable[OpenTransaction]) -> list[tuple[PartitionKey, int, int]]:
    return [(one.key, one.producer.producer_id, one.start_offset) for one in candidates]
