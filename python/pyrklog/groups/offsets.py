"""A group's committed and pending offsets.

An offset is *pending* until the high watermark has passed its record, a transaction's until its
marker; clients that require stable offsets wait (KIP-447). Commits may finish out of order, and a
transaction's offset may be older than a later plain one: the higher log offset wins, as at a load.

Plain commits are in a table of the data plane, which adds its own commits
(:meth:`GroupOffsets.stage_commit`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

from pyrklog.groups.core_types import OffsetCommit, OffsetTable
from pyrklog.groups.messages import Offset, TopicPartition


class CommittedOffset(NamedTuple):
    """An offset and its record's log offset."""

    record_offset: int
    value: Offset


Deleted = Mapping[str, Set[int]]
Transactions = dict[int, dict[TopicPartition, CommittedOffset]]
"""Producer id -> the offsets of its open transaction."""


class GroupOffsets:
    def __init__(self) -> None:
        self._table = OffsetTable()
        self._transactions: Transactions = {}
        self._in_flight: dict[int, dict[TopicPartition, int]] = {}
        """Producer id -> the number of its appends that have begun, by partition."""
        self._ended: dict[int, list[tuple[int, bool]]] = {}
        """Producer id -> markers (offset, commit) that came while it had such appends."""

    def restore(self, partition: TopicPartition, committed: CommittedOffset) -> None:
        """Takes a commit from the log, unless a newer one was read."""
        self._keep([(partition, committed)])

    def restore_tombstone(self, partition: TopicPartition) -> None:
        """Takes a tombstone from the log."""
        self._table.remove([partition])

    def restore_transaction(
        self, producer_id: int, partition: TopicPartition, committed: CommittedOffset
    ) -> None:
        """Takes an offset of a transaction still open at the end of the log."""
        self._transactions.setdefault(producer_id, {})[partition] = committed

    @property
    def is_empty(self) -> bool:
        return self._table.is_unused and not self._transactions and not self._in_flight

    def __len__(self) -> int:
        return len(self._table)

    def get(self, partition: TopicPartition) -> Offset | None:
        found = self._table.get(*partition)
        return None if found is None else Offset(*found[1:])

    def items(self) -> list[tuple[TopicPartition, Offset]]:
        """In order of topic and partition."""
        return [(key, Offset(*found[1:])) for key, found in self._table.items()]

    def page(self, after: TopicPartition | None, size: int) -> list[tuple[TopicPartition, Offset]]:
        """Up to ``size`` of them after a partition, or from the first."""
        return [(key, Offset(*found[1:])) for key, found in self._table.page(after, size)]

    def is_pending(self, partition: TopicPartition) -> bool:
        return self._table.is_pending(*partition) or self._is_in_transaction(partition)

    def _is_in_transaction(self, partition: TopicPartition) -> bool:
        return any(partition in offsets for offsets in self._transactions.values()) or any(
            partition in staged for staged in self._in_flight.values()
        )

    def stage(self, ticket: int, partitions: Iterable[TopicPartition]) -> None:
        """An append with these offsets has begun."""
        self._table.stage(ticket, list(partitions))

    def commit(
        self, ticket: int, offsets: Mapping[TopicPartition, Offset], first_record: int
    ) -> None:
        """The append has succeeded; its records are in the order of ``offsets``. Offsets removed
        meanwhile stay removed."""
        numbered = enumerate(offsets.items(), first_record)
        self._table.finish(ticket, [(key, (record, *value)) for record, (key, value) in numbered])

    def unstage(self, ticket: int, partitions: Iterable[TopicPartition]) -> None:
        self._table.finish(ticket, [(partition, None) for partition in partitions])

    def stage_commit(self, ticket: int, commit: OffsetCommit) -> bool:
        """The data plane will append the commit and put it into the table. False: one of its
        partitions no longer exists."""
        return self._table.stage_commit(ticket, commit)

    def _keep(self, offsets: Iterable[tuple[TopicPartition, CommittedOffset]]) -> None:
        self._table.keep([(key, (record, *value)) for key, (record, value) in offsets])

    def stage_transaction(self, producer_id: int, partitions: Iterable[TopicPartition]) -> None:
        """An append with a transaction's offsets has begun."""
        staged = self._in_flight.setdefault(producer_id, {})
        for partition in partitions:
            staged[partition] = staged.get(partition, 0) + 1

    def append_transaction(
        self, producer_id: int, offsets: Mapping[TopicPartition, Offset], first_record: int
    ) -> None:
        """That append has succeeded. A marker behind it in the log may have come before this."""
        markers = self._ended.get(producer_id, ())
        for record_offset, (partition, value) in enumerate(offsets.items(), first_record):
            if not self._unstage_transaction(producer_id, partition):
                continue
            appended = CommittedOffset(record_offset, value)
            commits = next((commit for at, commit in markers if at > record_offset), None)
            if commits is None:
                self._transactions.setdefault(producer_id, {})[partition] = appended
            elif commits:
                self._keep([(partition, appended)])
        self._forget_ended(producer_id)

    def fail_transaction(self, producer_id: int, partitions: Iterable[TopicPartition]) -> None:
        """That append has failed; the client retries."""
        for partition in partitions:
            self._unstage_transaction(producer_id, partition)
        self._forget_ended(producer_id)

    def _unstage_transaction(self, producer_id: int, partition: TopicPartition) -> bool:
        """False: the offset was removed meanwhile."""
        staged = self._in_flight.get(producer_id, {})
        count = staged.get(partition, 0)
        if count > 1:
            staged[partition] = count - 1
        elif count:
            del staged[partition]
        return count > 0

    def _forget_ended(self, producer_id: int) -> None:
        if not self._in_flight.get(producer_id):
            self._in_flight.pop(producer_id, None)
            self._ended.pop(producer_id, None)

    def complete_transaction(self, producer_id: int, *, marker_offset: int, commit: bool) -> None:
        """The transaction's marker has been written. What lies behind it in the log belongs to the
        producer's next transaction."""
        if producer_id in self._in_flight:
            self._ended.setdefault(producer_id, []).append((marker_offset, commit))
        offsets = self._transactions.get(producer_id, {})
        ended = {key: one for key, one in offsets.items() if one.record_offset < marker_offset}
        for partition in ended:
            del offsets[partition]
        if not offsets:
            self._transactions.pop(producer_id, None)
        if commit:
            self._keep(ended.items())

    @property
    def open_producers(self) -> Set[int]:
        """Producers with open transactions in this group."""
        return self._transactions.keys() | self._in_flight.keys()

    def remove(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Removes offsets, also pending ones. Returns the partitions that need a tombstone: their
        offsets are in the log, or about to be."""
        forgotten = list(partitions)
        for offsets in self._transactions.values():
            for partition in forgotten:
                offsets.pop(partition, None)
        self._transactions = {key: value for key, value in self._transactions.items() if value}
        for producer_id, staged in list(self._in_flight.items()):
            for partition in forgotten:
                staged.pop(partition, None)
            self._forget_ended(producer_id)
        return self._table.remove(forgotten)

    def remove_all(self) -> list[TopicPartition]:
        """Returns what :meth:`remove` would."""
        self._transactions.clear()
        self._in_flight.clear()
        self._ended.clear()
        return self._table.clear()

    def remove_deleted(self, deleted: Deleted) -> list[TopicPartition]:
        """Like :meth:`remove`; the cost depends on the group's offsets, not on the number of
        deleted partitions."""
        topics = set(self._table.topics())
        of_transactions = self._of_transactions()
        gone = [
            (topic, index)
            for topic in sorted(topics & deleted.keys())
            for index in self._table.partitions(topic)
            if index in deleted[topic]
        ]
        gone += [key for key in of_transactions if key[1] in deleted.get(key[0], ())]
        return self.remove(dict.fromkeys(gone)) if gone else []

    def remove_expired(
        self,
        now_ms: int,
        retention_ms: int,
        since_ms: int | None,
        kept_topics: frozenset[str] = frozenset(),
    ) -> list[TopicPartition]:
        """Removes expired offsets, except of ``kept_topics`` and pending ones.

        The retention counts from ``since_ms``; None: from each commit. An offset's own expiry time
        overrides it.
        """
        pending = self._of_transactions()
        return self._table.remove_expired(now_ms, retention_ms, since_ms, kept_topics, pending)

    def _of_transactions(self) -> set[TopicPartition]:
        of_open = {key for offsets in self._transactions.values() for key in offsets}
        return of_open | {key for staged in self._in_flight.values() for key in staged}
