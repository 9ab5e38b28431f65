"""Groups from what counts of a partition of ``__consumer_offsets``.

The data plane reads the log and keeps the last value of each key, so that ten million commits cost
Python no more than the offsets that they left. Offsets of open transactions are pending until their
marker. Unreadable records are skipped and counted: a damaged record must not cost a partition's
groups. Offsets go straight into the tables that will serve them: no second copy, no long work at
the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import astuple

from pyrklog.groups.messages import Offset, TopicPartition
from pyrklog.groups.offsets import GroupOffsets
from pyrklog.groups.transaction_offsets import CommittedOffset
from pyrklog.plane.internal_log import LiveRecords
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
_Key = tuple[str, TopicPartition]


class LoadedGroup(NamedTuple):
    """``value`` None: the group has only offsets."""

    group_id: str
    value: GroupValue | None
    offsets: GroupOffsets


class PartitionLoader:
    """Takes what counts of a partition, piece by piece."""

    def __init__(self, records: LiveRecords) -> None:
        self.records = records.read
        """All that were read, of which few may count."""
        self.skipped = records.damaged_count
        self.problems = [f"offset {offset}: {what}" for offset, what in records.damaged]
        self._left = records
        self._open = [id for id, _, _ in records.open_transactions()]
        """Producers whose open transactions are not taken yet."""
        self._groups: dict[str, GroupValue] = {}
        self._offsets: dict[str, GroupOffsets] = {}
        self._pending: dict[int, dict[_Key, CommittedOffset]] = {}
        """Producer id -> offsets of its open transaction."""

    def take(self, count: int) -> bool:
        """Decodes up to so many records; False at the end."""
        live = self._left.take(count)
        if live:
            self._each(live, self._take)
            return True
        while self._open:
            producer_id = self._open[-1]
            opened = self._left.take_open(producer_id, count)
            if opened:
                self._each(opened, partial(self._take_open, producer_id))
                return True
            self._open.pop()
        return False

    def _each(
        self, records: Iterable[tuple[int, bytes, Any]], take: Callable[[int, bytes, Any], None]
    ) -> None:
        for record in records:
            try:
                take(*record)
            except DecodeError as error:
                self._skip(record[0], str(error))
            except Exception as error:
                self._skip(record[0], f"{UNEXPECTED}: {error!r}")

    def _skip(self, offset: int, problem: str) -> None:
        self.skipped += 1
        if len(self.problems) < PROBLEMS_KEPT_MAX:
            self.problems.append(f"offset {offset}: {problem}")

    def _take(self, record_offset: int, key: bytes, value: bytes) -> None:
        match decode_key(key):
            case OffsetKey(group=group, topic=topic, partition=partition):
                committed = _committed(record_offset, value)
                self._offsets_of(group).restore((topic, partition), committed)
            case GroupKey(group=group):
                self._groups[group] = decode_group_value(value)
            case UnknownKey(version):
                raise DecodeError(f"key version {version} is unknown")

    def _take_open(
        self, producer_id: int, record_offset: int, key: bytes, value: bytes | None
    ) -> None:
        match decode_key(key):
            case OffsetKey(group=group, topic=topic, partition=partition):
                pending = self._pending.setdefault(producer_id, {})
                if value is None:
                    pending.pop((group, (topic, partition)), None)
                else:
                    pending[group, (topic, partition)] = _committed(record_offset, value)
            case GroupKey():
                raise DecodeError("a group in a transaction")
            case UnknownKey(version):
                raise DecodeError(f"key version {version} is unknown")

    def _offsets_of(self, group: str) -> GroupOffsets:
        offsets = self._offsets.get(group)
        if offsets is None:
            offsets = self._offsets[group] = GroupOffsets()
        return offsets

    def finish(self) -> Iterator[LoadedGroup]:
        """The groups, after the last record."""
        for producer_id, offsets in self._pending.items():
            for (group, partition), pending in offsets.items():
                self._offsets_of(group).restore_transaction(producer_id, partition, pending)
        for group in dict.fromkeys([*self._groups, *self._offsets]):
            yield LoadedGroup(group, self._groups.get(group), self._offsets_of(group))


def _committed(record_offset: int, value: bytes) -> CommittedOffset:
    return CommittedOffset(record_offset, Offset(*astuple(decode_offset_value(value))))
