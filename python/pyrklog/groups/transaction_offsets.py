"""Offsets of a group's open transactions. Pure.

An offset counts with its transaction's marker; until then it is *pending*. What an append has
begun with is pending too. Memory counts for each offset of each transaction: a producer may have
one in every partition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

from pyrklog.coordinators.memory_pool import text_bytes
from pyrklog.groups.messages import Offset, TopicPartition

PENDING_OFFSET_BYTES = 400
"""A pending offset without its metadata: entries of two tables."""


class CommittedOffset(NamedTuple):
    """An offset and its record's log offset."""

    record_offset: int
    value: Offset


def pending_bytes(offsets: Iterable[Offset]) -> int:
    """Memory of so many offsets of one transaction."""
    return sum(PENDING_OFFSET_BYTES + text_bytes(one.metadata) for one in offsets)


class TransactionOffsets:
    def __init__(self) -> None:
        self.used_bytes = 0
        self._appended: dict[int, dict[TopicPartition, CommittedOffset]] = {}
        """Producer id -> the offsets of its open transaction."""
        self._in_flight: dict[int, dict[int, set[TopicPartition]]] = {}
        """Producer id -> the appends that it has begun, by ticket, with what is not removed."""
        self._ended: dict[int, list[tuple[int, bool]]] = {}
        """Producer id -> markers (offset, commit) that came while it had such appends."""
        self._pending: Counter[TopicPartition] = Counter()
        """In how many of the entries above a partition is."""

    @property
    def is_empty(self) -> bool:
        return not self._appended and not self._in_flight

    @property
    def producers(self) -> Set[int]:
        """Those with open transactions in this group."""
        return self._appended.keys() | self._in_flight.keys()

    def has_producer(self, producer_id: int) -> bool:
        return producer_id in self._appended or producer_id in self._in_flight

    @property
    def partitions(self) -> Set[TopicPartition]:
        """With a pending offset."""
        return self._pending.keys()

    def put(self, producer_id: int, partition: TopicPartition, appended: CommittedOffset) -> None:
        """The offset is in the log; it replaces the transaction's earlier one."""
        offsets = self._appended.setdefault(producer_id, {})
        self._take(producer_id, partition)
        offsets[partition] = appended
        self._pending[partition] += 1
        self.used_bytes += pending_bytes([appended.value])

    def _take(self, producer_id: int, partition: TopicPartition) -> CommittedOffset | None:
        taken = self._appended[producer_id].pop(partition, None)
        if taken is not None:
            self._end_pending(partition)
            self.used_bytes -= pending_bytes([taken.value])
        return taken

    def _end_pending(self, partition: TopicPartition) -> None:
        self._pending[partition] -= 1
        if not self._pending[partition]:
            del self._pending[partition]

    def stage(self, producer_id: int, ticket: int, partitions: Iterable[TopicPartition]) -> None:
        """An append with these offsets has begun."""
        staged = set(partitions)
        self._in_flight.setdefault(producer_id, {})[ticket] = staged
        self._pending.update(staged)

    def append(
        self,
        producer_id: int,
        ticket: int,
        offsets: Mapping[TopicPartition, Offset],
        first_record: int,
    ) -> list[tuple[TopicPartition, CommittedOffset]]:
        """That append has succeeded; offsets that were removed meanwhile stay removed. A marker
        behind it in the log may have come before this: returns what is committed already."""
        markers = self._ended.get(producer_id, ())
        staged = self._unstage(producer_id, ticket)
        committed = []
        for record_offset, (partition, value) in enumerate(offsets.items(), first_record):
            if partition not in staged:
                continue
            appended = CommittedOffset(record_offset, value)
            commits = next((commit for at, commit in markers if at > record_offset), None)
            if commits is None:
                self.put(producer_id, partition, appended)
            elif commits:
                committed.append((partition, appended))
        return committed

    def fail(self, producer_id: int, ticket: int) -> None:
        """That append has failed; the client retries."""
        self._unstage(producer_id, ticket)

    def _unstage(self, producer_id: int, ticket: int) -> set[TopicPartition]:
        """Its offsets that were not removed meanwhile."""
        staged = self._in_flight.get(producer_id, {}).pop(ticket, set())
        for partition in staged:
            self._end_pending(partition)
        self._forget_ended(producer_id)
        return staged

    def _forget_ended(self, producer_id: int) -> None:
        if not self._in_flight.get(producer_id):
            self._in_flight.pop(producer_id, None)
            self._ended.pop(producer_id, None)

    def complete(
        self, producer_id: int, *, marker_offset: int, commit: bool
    ) -> list[tuple[TopicPartition, CommittedOffset]]:
        """The transaction's marker has been written: returns what it commits. What lies behind it
        in the log belongs to the producer's next transaction."""
        if producer_id in self._in_flight:
            self._ended.setdefault(producer_id, []).append((marker_offset, commit))
        offsets = self._appended.get(producer_id, {})
        ended = [(key, one) for key, one in offsets.items() if one.record_offset < marker_offset]
        for partition, _ in ended:
            self._take(producer_id, partition)
        if not offsets:
            self._appended.pop(producer_id, None)
        return ended if commit else []

    def remove(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Removes pending offsets. Returns the partitions that had some."""
        forgotten = self._pending.keys() & set(partitions)
        if not forgotten:
            return set()
        for producer_id, offsets in list(self._appended.items()):
            for partition in forgotten & offsets.keys():
                self._take(producer_id, partition)
            if not offsets:
                del self._appended[producer_id]
        for producer_id, appends in list(self._in_flight.items()):
            for ticket, staged in list(appends.items()):
                staged -= forgotten
                if not staged:
                    del appends[ticket]
            self._forget_ended(producer_id)
        for partition in forgotten:
            self._pending.pop(partition, None)
        return forgotten

    def clear(self) -> set[TopicPartition]:
        """Returns what :meth:`remove` would."""
        return self.remove(list(self._pending))
