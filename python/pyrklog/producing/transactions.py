"""Ends transactions that other processes have left open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyrklog.producing.core_produce import CoreTransactions, open_transactions
from pyrklog.producing.settings import ProducerSettings

SHORT_TIMEOUT_MS = 60_000
"""Of transactions that are ended at once."""


class OpenTransaction(NamedTuple):
    """A transaction that a producer has left open."""

    transactional_id: str
    producer_id: int
    epoch: int
    partitions: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """What it has written to, by topic; not needed to end it."""


class Transactions:
    """Asks coordinators; each question is tried for ``delivery_timeout_ms``. All methods raise the
    exceptions of :mod:`pyrklog.producing`."""

    def __init__(self, settings: ProducerSettings) -> None:
        self._core: CoreTransactions = open_transactions(settings.core())

    def why_closed(self, transactions: Sequence[OpenTransaction]) -> list[str | None]:
        """Of each, the error code of one that is not open any more; None for one that is."""
        return self._core.check(_rows(transactions))

    def commit(self, transactions: Sequence[OpenTransaction]) -> list[str | None]:
        """Commits each, once or again. Of each, the error code if it was not committed but ended
        otherwise, or None."""
        return self._core.end(_rows(transactions), True)

    def abort(self, transactions: Sequence[OpenTransaction]) -> None:
        """Aborts those that are open."""
        self._core.end(_rows(transactions), False)

    def open_with_prefix(self, prefix: str) -> list[str]:
        """Transactional ids with this prefix that have an open transaction. Raises
        UnsupportedClusterError before Kafka 3.0."""
        return self._core.open_with_prefix(prefix)

    def fence(self, transactional_id: str) -> tuple[int, int]:
        """Aborts what is open, unless its end is decided, and ends all producers of the id.
        Producer id and epoch of the next one."""
        return self._core.init(transactional_id, SHORT_TIMEOUT_MS)


def _rows(
    transactions: Sequence[OpenTransaction],
) -> list[tuple[str, int, int, list[tuple[str, list[int]]]]]:
    return [
        (
            one.transactional_id,
            one.producer_id,
            one.epoch,
            [(topic, list(numbers)) for topic, numbers in one.partitions],
        )
        for one in transactions
    ]
