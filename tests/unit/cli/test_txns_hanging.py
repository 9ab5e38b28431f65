"""Which open transactions hang, by what leaders and coordinators tell."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyrklog.cli.txns_admin import Coordinated, Described
from pyrklog.cli.txns_hanging import find_hanging
from pyrklog.protocol.transaction_admin import (
    ListedTransaction,
    ProducerState,
    TransactionState,
    TransactionTopic,
)

NOW_MS = 1_000_000
BEFORE_MS = NOW_MS - 1000


class Cluster:
    """What leaders know, by round, and what coordinators know."""

    def __init__(
        self,
        *rounds: Mapping[tuple[str, int], list[ProducerState]],
        transactions: Sequence[TransactionState] = (),
    ) -> None:
        self._rounds = list(rounds)
        self._transactions = transactions
        self.asked: list[Mapping[str, Sequence[int]]] = []

    def producers(
        self, wanted: Mapping[str, Sequence[int]], _broker: int | None
    ) -> Iterator[tuple[tuple[str, int], list[ProducerState]]]:
        self.asked.append(wanted)
        yield from self._rounds[min(len(self.asked), len(self._rounds)) - 1].items()

    def listed(self, producer_ids: Sequence[int]) -> list[Coordinated]:
        return [
            Coordinated(1, ListedTransaction(one.transactional_id, one.producer_id, "Ongoing"))
            for one in self._transactions
            if one.producer_id in producer_ids
        ]

    def described(self, ids: Sequence[str]) -> tuple[list[Described], list[str]]:
        known = [one for one in self._transactions if one.transactional_id in ids]
        return [Described(1, one) for one in known], []


def producer(number: int, start: int, last_ms: int = 0) -> ProducerState:
    return ProducerState(number, 0, last_timestamp=last_ms, current_txn_start_offset=start)


def transaction(number: int, *places: tuple[str, int]) -> TransactionState:
    topics = [TransactionTopic(topic, [index]) for topic, index in places]
    return TransactionState(0, f"id-{number}", "Ongoing", 60_000, 5, number, 0, topics)


def found(cluster: Any) -> list[tuple[tuple[str, int], int]]:
    hanging = find_hanging(cluster, {}, None, before_ms=BEFORE_MS)
    return [(one.key, one.producer.producer_id) for one in hanging]


def test_a_transaction_that_no_coordinator_knows_hangs() -> None:
    cluster = Cluster({("t", 1): [producer(7, 5)], ("t", 0): [producer(8, -1)]})
    assert found(cluster) == [(("t", 1), 7)]
    assert cluster.asked == [{}, {"t": [1]}]


def test_a_transaction_of_a_coordinator_does_not() -> None:
    places = {("t", 0): [producer(7, 5)]}
    assert found(Cluster(places, transactions=[transaction(7, ("t", 0), ("u", 3))])) == []


def test_a_partition_that_its_coordinator_does_not_count_hangs() -> None:
    """The producer goes on elsewhere."""
    places = {("t", 0): [producer(7, 5)], ("u", 3): [producer(7, 9)]}
    assert found(Cluster(places, transactions=[transaction(7, ("u", 3))])) == [(("t", 0), 7)]


def test_a_young_transaction_may_still_be_enrolled() -> None:
    assert found(Cluster({("t", 0): [producer(7, 5, NOW_MS)]})) == []


def test_a_transaction_that_ends_meanwhile_does_not_hang() -> None:
    first = {("t", 0): [producer(7, 5)], ("t", 1): [producer(8, 6)], ("t", 2): [producer(9, 6)]}
    later = {("t", 0): [producer(7, -1)], ("t", 1): [producer(8, 10)], ("t", 2): [producer(9, 6)]}
    assert found(Cluster(first, later)) == [(("t", 2), 9)]


def test_nothing_open_asks_no_coordinator() -> None:
    cluster = Cluster({("t", 0): [producer(7, -1)]})
    assert found(cluster) == []
    assert len(cluster.asked) == 1
