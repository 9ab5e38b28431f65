"""Groups from the records of a partition of ``__consumer_offsets``.

A later record replaces earlier ones with the same key. A transaction's offsets are pending until
its marker. Unreadable records are skipped and counted: a damaged record must not cost a partition's
groups. Offsets go straight into the tables that will serve them: no second copy, no long work at
the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import astuple

from pyrklog.groups.messages import Offset, TopicPartition
from pyrklog.groups.offsets import GroupOffsets
from pyrklog.groups.transaction_offsets import CommittedOffset
from pyrklog.plane.internal_log import InternalBatch, InternalRecord
from pyrklog.protocol.group_records import (
    GroupKey,
    GroupValue,
    OffsetKey,
    UnknownKey,
    decode_group_value,
    decode_key,
    decode_offset_value,
)
from pyrklog.protocol.primitives import DecodeError

PROBLEMS_KEPT_MAX = 20
UNEXPECTED = "an error that nobody foresaw"
_CONTROL_COMMIT = 1
_Offsets = dict[tuple[str, TopicPartition], CommittedOffset]


class LoadedGroup(NamedTuple):
    """``value`` None: the group has only offsets."""

    group_id: str
    value: GroupValue | None
    offsets: GroupOffsets


class PartitionLoader:
    """Takes the batches of a partition in order."""

    def __init__(self) -> None:
        self.records = 0
        self.skipped = 0
        self.problems: list[str] = []
        self._groups: dict[str, GroupValue] = {}
        self._offsets: dict[str, GroupOffsets] = {}
        self._open: dict[int, _Offsets] = {}
        """Producer id -> offsets of its open transaction."""

    def feed(self, batch: InternalBatch) -> Iterator[None]:
        """Yields after each record, so that others can run in between."""
        if batch.damage is not None:
            self._skip(batch.base_offset, batch.damage)
            return
        if batch.is_control:
            self._end_transaction(batch)
            return
        for record in batch.records:
            self.records += 1
            try:
                self._take(batch, record)
            except DecodeError as error:
                self._skip(record.offset, str(error))
            except Exception as error:
                self._skip(record.offset, f"{UNEXPECTED}: {error!r}")
            yield

    def _skip(self, offset: int, problem: str) -> None:
        self.skipped += 1
        if len(self.problems) < PROBLEMS_KEPT_MAX:
            self.problems.append(f"offset {offset}: {problem}")

    def _take(self, batch: InternalBatch, record: InternalRecord) -> None:
        if record.key is None:
            raise DecodeError("a record without a key")
        match decode_key(record.key):
            case OffsetKey(group=group, topic=topic, partition=partition):
                self._take_offset(batch, record, (group, (topic, partition)))
            case GroupKey(group=group):
                if record.value is None:
                    self._groups.pop(group, None)
                else:
                    self._groups[group] = decode_group_value(record.value)
            case UnknownKey(version):
                raise DecodeError(f"key version {version} is unknown")

    def _take_offset(
        self, batch: InternalBatch, record: InternalRecord, key: tuple[str, TopicPartition]
    ) -> None:
        group, partition = key
        committed = None
        if record.value is not None:
            value = Offset(*astuple(decode_offset_value(record.value)))
            committed = CommittedOffset(record.offset, value)
        if batch.is_transactional:
            opened = self._open.setdefault(batch.producer_id, {})
            if committed is None:
                opened.pop(key, None)
            else:
                opened[key] = committed
            return
        if committed is not None:
            self._offsets_of(group).restore(partition, committed)
            return
        # The offset was deleted, also where it counts only with a marker behind the tombstone.
        for opened in self._open.values():
            opened.pop(key, None)
        if group in self._offsets:
            self._offsets[group].restore_tombstone(partition)
            if self._offsets[group].is_empty:
                del self._offsets[group]

    def _offsets_of(self, group: str) -> GroupOffsets:
        offsets = self._offsets.get(group)
        if offsets is None:
            offsets = self._offsets[group] = GroupOffsets()
        return offsets

    def _end_transaction(self, batch: InternalBatch) -> None:
        offsets = self._open.pop(batch.producer_id, {})
        if not batch.records or _control_type(batch.records[0]) != _CONTROL_COMMIT:
            return
        for (group, partition), committed in offsets.items():
            self._offsets_of(group).restore(partition, committed)

    def finish(self) -> Iterator[LoadedGroup]:
        """The groups, after the last batch."""
        for producer_id, offsets in self._open.items():
            for (group, partition), pending in offsets.items():
                self._offsets_of(group).restore_transaction(producer_id, partition, pending)
        for group in dict.fromkeys([*self._groups, *self._offsets]):
            yield LoadedGroup(group, self._groups.get(group), self._offsets_of(group))


def _control_type(record: InternalRecord) -> int:
    """KIP-98: a control record's key is its version and its type, two bytes each."""
    key = record.key or b""
    return int.from_bytes(key[2:4], "big") if len(key) >= 4 else -1
