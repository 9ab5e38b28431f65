"""The offsets that a group has committed, and those on their way.

An offset counts once the high watermark has passed its record; until then it is *pending*, and a
client that asks for stable offsets is told to wait (KIP-447). Offsets of a transaction stay pending
until its marker has been written.

Commits may finish in another order than that of their records, and a transaction's offset may be
older than a later plain one: the record with the higher log offset wins, as it would when the log
is read.

Plain commits lie in a table of the data plane, which fills it without a detour when it has written
the commits that were handed to it whole (:meth:`GroupOffsets.stage_commit`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

from pyrklog.groups.core_types import OffsetCommit, OffsetTable
from pyrklog.groups.messages import Offset, TopicPartition

NOT_APPENDED = -1


class CommittedOffset(NamedTuple):
    """An offset and the log offset of its record; :data:`NOT_APPENDED` while that is unknown."""

    record_offset: int
    value: Offset


Deleted = Mapping[str, Set[int]]
"""Partitions that are gone, by topic."""
Transactions = dict[int, dict[TopicPartition, CommittedOffset]]
"""Producer id -> the offsets of its open transaction."""


class GroupOffsets:
    """All offsets of one group."""

    def __init__(self) -> None:
        self._table = OffsetTable()
        self._transactions: Transactions = {}

    def restore(self, partition: TopicPartition, committed: CommittedOffset) -> None:
        """A commit that was read from the log, unless a newer one was."""
        self._keep([(partition, committed)])

    def restore_tombstone(self, partition: TopicPartition) -> None:
        """The log says that the partition has no offset."""
        self._table.remove([partition])

    def restore_transaction(
        self, producer_id: int, partition: TopicPartition, committed: CommittedOffset
    ) -> None:
        """An offset of a transaction that is open at the log's end."""
        self._transactions.setdefault(producer_id, {})[partition] = committed

    @property
    def is_empty(self) -> bool:
        """Whether nothing is committed and nothing is on its way."""
        return self._table.is_unused and not self._transactions

    def __len__(self) -> int:
        """Committed offsets."""
        return len(self._table)

    def get(self, partition: TopicPartition) -> Offset | None:
        """The committed offset of a partition."""
        found = self._table.get(*partition)
        return None if found is None else Offset(*found[1:])

    def items(self) -> list[tuple[TopicPartition, Offset]]:
        """All committed offsets, in order of topic and partition."""
        return [(key, Offset(*found[1:])) for key, found in self._table.items()]

    def page(self, after: TopicPartition | None, size: int) -> list[tuple[TopicPartition, Offset]]:
        """Up to ``size`` of them behind a partition, or from the first one on."""
        return [(key, Offset(*found[1:])) for key, found in self._table.page(after, size)]

    def is_pending(self, partition: TopicPartition) -> bool:
        """Whether a commit of this partition is not over."""
        return self._table.is_pending(*partition) or self._is_in_transaction(partition)

    def _is_in_transaction(self, partition: TopicPartition) -> bool:
        return any(partition in offsets for offsets in self._transactions.values())

    # --- plain commits ---------------------------------------------------------------------------

    def stage(self, ticket: int, partitions: Iterable[TopicPartition]) -> None:
        """An append with these offsets has begun."""
        self._table.stage(ticket, list(partitions))

    def commit(
        self, ticket: int, offsets: Mapping[TopicPartition, Offset], first_record: int
    ) -> None:
        """The append is done; its records lie in the order of ``offsets``. What was forgotten while
        it was under way stays so."""
        numbered = enumerate(offsets.items(), first_record)
        self._table.finish(ticket, [(key, (record, *value)) for record, (key, value) in numbered])

    def unstage(self, ticket: int, partitions: Iterable[TopicPartition]) -> None:
        """The append has failed; a later one of the same partition may not."""
        self._table.finish(ticket, [(partition, None) for partition in partitions])

    def stage_commit(self, ticket: int, commit: OffsetCommit) -> bool:
        """The data plane appends this commit, and puts it into the table when that is over. False:
        one of its partitions has ceased to exist."""
        return self._table.stage_commit(ticket, commit)

    def _keep(self, offsets: Iterable[tuple[TopicPartition, CommittedOffset]]) -> None:
        self._table.keep([(key, (record, *value)) for key, (record, value) in offsets])

    # --- transactions ----------------------------------------------------------------------------

    def stage_transaction(self, producer_id: int, offsets: Mapping[TopicPartition, Offset]) -> None:
        """An append with offsets of a transaction has begun."""
        open_offsets = self._transactions.setdefault(producer_id, {})
        for partition, value in offsets.items():
            open_offsets[partition] = CommittedOffset(NOT_APPENDED, value)

    def append_transaction(
        self, producer_id: int, offsets: Mapping[TopicPartition, Offset], first_record: int
    ) -> None:
        """That append is done; the transaction is not."""
        open_offsets = self._transactions.get(producer_id, {})
        for record_offset, (partition, value) in enumerate(offsets.items(), first_record):
            known = open_offsets.get(partition)
            if known is not None and known.value == value:
                open_offsets[partition] = CommittedOffset(record_offset, value)

    def fail_transaction(self, producer_id: int, offsets: Mapping[TopicPartition, Offset]) -> None:
        """That append has failed; the client will send it again."""
        open_offsets = self._transactions.get(producer_id, {})
        for partition, value in offsets.items():
            known = open_offsets.get(partition)
            if known is not None and known.value == value:
                del open_offsets[partition]
        if not open_offsets:
            self._transactions.pop(producer_id, None)

    def complete_transaction(self, producer_id: int, *, commit: bool) -> None:
        """The transaction's marker has been written."""
        offsets = self._transactions.pop(producer_id, {})
        if not commit:
            return
        self._keep(item for item in offsets.items() if item[1].record_offset != NOT_APPENDED)

    @property
    def open_producers(self) -> frozenset[int]:
        """The producers whose transactions hold offsets of this group."""
        return frozenset(self._transactions)

    # --- forgetting ------------------------------------------------------------------------------

    def remove(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Forgets offsets, pending ones too. Those whose log holds an offset, or is about to, are
        returned: they need a tombstone."""
        forgotten = list(partitions)
        for offsets in self._transactions.values():
            for partition in forgotten:
                offsets.pop(partition, None)
        self._transactions = {key: value for key, value in self._transactions.items() if value}
        return self._table.remove(forgotten)

    def remove_all(self) -> list[TopicPartition]:
        """Forgets everything; returns what :meth:`remove` would."""
        self._transactions.clear()
        return self._table.clear()

    def remove_deleted(self, deleted: Deleted) -> list[TopicPartition]:
        """What :meth:`remove` does, for topics that are gone; it costs what the group has, not
        what is gone."""
        topics = set(self._table.topics())
        for offsets in self._transactions.values():
            topics.update(topic for topic, _ in offsets)
        of_transactions = {key for offsets in self._transactions.values() for key in offsets}
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
        """Forgets offsets whose time is over, but for these topics and those that are pending.

        ``since_ms`` says since when the retention counts, None: since each commit; one that a
        client gave its own time to live goes by that alone.
        """
        pending = {key for offsets in self._transactions.values() for key in offsets}
        return self._table.remove_expired(now_ms, retention_ms, since_ms, kept_topics, pending)
