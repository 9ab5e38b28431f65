"""The offsets that a group has committed, and those on their way.

An offset counts once the high watermark has passed its record; until then it is *pending*, and a
client that asks for stable offsets is told to wait (KIP-447). Offsets of a transaction stay pending
until its marker has been written.

Commits may finish in another order than that of their records, and a transaction's offset may be
older than a later plain one: the record with the higher log offset wins, as it would when the log
is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from pyrklog.groups.values import NO_TIMESTAMP, Offset, TopicPartition

NOT_APPENDED = -1


class Committed(NamedTuple):
    """An offset and the log offset of its record; :data:`NOT_APPENDED` while that is unknown."""

    record_offset: int
    value: Offset


Transactions = dict[int, dict[TopicPartition, Committed]]
"""Producer id -> the offsets of its open transaction."""


class GroupOffsets:
    """All offsets of one group."""

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, Committed] = {}
        self._pending: dict[TopicPartition, int] = {}
        """The last append that carries an offset of the partition."""
        self._transactions: Transactions = {}

    def restore(
        self, committed: Mapping[TopicPartition, Committed], transactions: Transactions
    ) -> None:
        """What was read from the log."""
        self.committed.update(committed)
        self._transactions.update(transactions)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is committed and nothing is on its way."""
        return not (self.committed or self._pending or self._transactions)

    def is_pending(self, partition: TopicPartition) -> bool:
        """Whether a commit of this partition is not over."""
        return partition in self._pending or any(
            partition in offsets for offsets in self._transactions.values()
        )

    # --- plain commits ---------------------------------------------------------------------------

    def stage(self, ticket: int, partitions: Iterable[TopicPartition]) -> None:
        """An append with these offsets has begun."""
        for partition in partitions:
            self._pending[partition] = ticket

    def commit(
        self, ticket: int, offsets: Mapping[TopicPartition, Offset], first_record: int
    ) -> None:
        """The append is done; its records lie in the order of ``offsets``."""
        for record_offset, (partition, value) in enumerate(offsets.items(), first_record):
            if partition not in self._pending:
                continue  # forgotten while the append was under way
            self._keep_newer(partition, Committed(record_offset, value))
        self.unstage(ticket, offsets)

    def unstage(self, ticket: int, partitions: Iterable[TopicPartition]) -> None:
        """The append is over; a later one of the same partition may not be."""
        for partition in partitions:
            if self._pending.get(partition) == ticket:
                del self._pending[partition]

    def _keep_newer(self, partition: TopicPartition, offset: Committed) -> None:
        known = self.committed.get(partition)
        if known is None or known.record_offset < offset.record_offset:
            self.committed[partition] = offset

    # --- transactions ----------------------------------------------------------------------------

    def stage_transaction(self, producer_id: int, offsets: Mapping[TopicPartition, Offset]) -> None:
        """An append with offsets of a transaction has begun."""
        open_offsets = self._transactions.setdefault(producer_id, {})
        for partition, value in offsets.items():
            open_offsets[partition] = Committed(NOT_APPENDED, value)

    def append_transaction(
        self, producer_id: int, offsets: Mapping[TopicPartition, Offset], first_record: int
    ) -> None:
        """That append is done; the transaction is not."""
        open_offsets = self._transactions.get(producer_id, {})
        for record_offset, (partition, value) in enumerate(offsets.items(), first_record):
            known = open_offsets.get(partition)
            if known is not None and known.value == value:
                open_offsets[partition] = Committed(record_offset, value)

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
        for partition, offset in offsets.items():
            if offset.record_offset != NOT_APPENDED:
                self._keep_newer(partition, offset)

    @property
    def open_producers(self) -> frozenset[int]:
        """The producers whose transactions hold offsets of this group."""
        return frozenset(self._transactions)

    # --- forgetting ------------------------------------------------------------------------------

    def remove(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Forgets offsets, pending ones too; those that were committed need a tombstone."""
        removed = []
        for partition in partitions:
            self._pending.pop(partition, None)
            for offsets in self._transactions.values():
                offsets.pop(partition, None)
            if self.committed.pop(partition, None) is not None:
                removed.append(partition)
        self._transactions = {key: value for key, value in self._transactions.items() if value}
        return removed

    def remove_all(self) -> list[TopicPartition]:
        """Forgets everything."""
        removed = list(self.committed)
        self.committed.clear()
        self._pending.clear()
        self._transactions.clear()
        return removed

    def remove_expired(
        self,
        now_ms: int,
        retention_ms: int,
        base_ms: Callable[[Offset], int],
        kept_topics: frozenset[str] = frozenset(),
    ) -> list[TopicPartition]:
        """Forgets offsets whose time is over, but for these topics and those that are pending.

        ``base_ms`` says since when an offset's retention counts; one that a client gave its own
        time to live goes by that alone.
        """
        expired = []
        for partition, (_, value) in self.committed.items():
            if value.expire_ms != NO_TIMESTAMP:
                over = now_ms >= value.expire_ms
            else:
                over = now_ms - base_ms(value) >= retention_ms
            if over and partition[0] not in kept_topics and not self.is_pending(partition):
                expired.append(partition)
        return self.remove(expired)
