"""A group's committed and pending offsets.

An offset is *pending* until the high watermark has passed its record, a transaction's until its
marker; clients that require stable offsets wait (KIP-447). Commits may finish out of order, and a
transaction's offset may be older than a later plain one: the higher log offset wins, as at a load.

Plain commits are in a table of the data plane, which adds its own commits
(:meth:`GroupOffsets.stage_commit`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from pyrklog.groups.core_types import OffsetCommit, OffsetTable
from pyrklog.groups.messages import Offset, TopicPartition
from pyrklog.groups.transaction_offsets import CommittedOffset, TransactionOffsets

Deleted = Mapping[str, Set[int]]


class GroupOffsets:
    def __init__(self) -> None:
        self._table = OffsetTable()
        self.transactions = TransactionOffsets()

    def restore(self, partition: TopicPartition, committed: CommittedOffset) -> None:
        """Takes a commit from the log, unless a newer one was read."""
        self._keep([(partition, committed)])

    def restore_transaction(
        self, producer_id: int, partition: TopicPartition, committed: CommittedOffset
    ) -> None:
        """Takes an offset of a transaction still open at the end of the log."""
        self.transactions.put(producer_id, partition, committed)

    @property
    def is_empty(self) -> bool:
        return self._table.is_unused and self.transactions.is_empty

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
        return self._table.is_pending(*partition) or partition in self.transactions.partitions

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

    def append_transaction(
        self,
        producer_id: int,
        ticket: int,
        offsets: Mapping[TopicPartition, Offset],
        first_record: int,
    ) -> None:
        """An append with a transaction's offsets, which were staged, has succeeded."""
        self._keep(self.transactions.append(producer_id, ticket, offsets, first_record))

    def complete_transaction(self, producer_id: int, *, marker_offset: int, commit: bool) -> None:
        """The transaction's marker has been written."""
        self._keep(
            self.transactions.complete(producer_id, marker_offset=marker_offset, commit=commit)
        )

    def remove(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Removes offsets, also pending ones. Returns the partitions that need a tombstone: their
        offsets are in the log, or about to be."""
        forgotten = list(dict.fromkeys(partitions))
        pending = self.transactions.remove(forgotten)
        pending.update(self._table.remove(forgotten))
        return [partition for partition in forgotten if partition in pending]

    def remove_all(self) -> list[TopicPartition]:
        """Returns what :meth:`remove` would."""
        return list(dict.fromkeys([*self._table.clear(), *sorted(self.transactions.clear())]))

    def remove_deleted(self, deleted: Deleted) -> list[TopicPartition]:
        """Like :meth:`remove`; the cost depends on the group's offsets, not on the number of
        deleted partitions."""
        topics = set(self._table.topics())
        gone = [
            (topic, index)
            for topic in sorted(topics & deleted.keys())
            for index in self._table.partitions(topic)
            if index in deleted[topic]
        ]
        pending = self.transactions.partitions
        gone += [key for key in pending if key[1] in deleted.get(key[0], ())]
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
        pending = set(self.transactions.partitions)
        return self._table.remove_expired(now_ms, retention_ms, since_ms, kept_topics, pending)
