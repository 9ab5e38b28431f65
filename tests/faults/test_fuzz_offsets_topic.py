"""Any records in ``__consumer_offsets``: unreadable ones are skipped and harm nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import strategies as st

from pyrklog.groups.group_manager import GroupManager
from pyrklog.groups.loading import UNEXPECTED, LoadedGroup, PartitionLoader
from pyrklog.groups.offsets import GroupOffsets
from pyrklog.groups.options import GroupSettings
from pyrklog.plane.internal_log import InternalBatch, InternalRecord
from pyrklog.protocol.group_admin import (
    DESCRIBE_GROUPS,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from pyrklog.protocol.group_records import (
    GroupKey,
    GroupValue,
    OffsetKey,
    OffsetValue,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
)
from pyrklog.protocol.primitives import DecodeError
from tests.faults.fuzzing import damaged, finds, run
from tests.unit.protocol.messages import messages

GOOD, BAD = ("good-1", "good-2", "good-3"), "bad-group"
NOW_MS = 1_000_000


Key = tuple[str, str, int]


class Script(NamedTuple):
    """Batches, and the result: the groups' last generations and offsets."""

    batches: list[InternalBatch]
    generations: dict[str, int]
    offsets: dict[Key, int]


Record = tuple[bytes | None, bytes | None]


class Model:
    """The state of the records; a transaction's count once its marker commits."""

    def __init__(self) -> None:
        self.generations: dict[str, int] = {}
        self.offsets: dict[Key, tuple[int, int]] = {}
        """Offset of the record, and the offset committed."""
        self._open: dict[int, dict[Key, tuple[int, int]]] = {}

    def of(self, producer: int) -> dict[Key, tuple[int, int]]:
        return self.offsets if producer < 0 else self._open.setdefault(producer, {})

    def end(self, producer: int, *, is_commit: bool) -> None:
        for key, value in self._open.pop(producer, {}).items():
            if is_commit and self.offsets.get(key, (-1, 0)) < value:
                self.offsets[key] = value


@st.composite
def scripts(draw: Any) -> Script:
    batches: list[InternalBatch] = []
    model = Model()
    offset = 0
    for _ in range(draw(st.integers(1, 6))):
        producer = draw(st.sampled_from((-1, -1, 1, 2)))
        if producer >= 0 and draw(st.booleans()):
            is_commit = draw(st.booleans())
            model.end(producer, is_commit=is_commit)
            marker = InternalRecord(offset, b"\0\0\0" + bytes([is_commit]), bytes(6))
            batches.append(InternalBatch(offset, offset, producer, True, True, [marker]))
            offset += 1
            continue
        records: list[InternalRecord] = []
        for _ in range(draw(st.integers(1, 6))):
            record = _any_record(draw, model, model.of(producer), offset)
            records.append(InternalRecord(offset, *record))
            offset += 1
        base, is_transactional = offset - len(records), producer >= 0
        batches.append(InternalBatch(base, offset - 1, producer, is_transactional, False, records))
        if draw(st.integers(0, 5)) == 0:
            lost = InternalBatch(offset, offset, -1, False, False, [], damage="checksum mismatch")
            batches.append(lost)
            offset += 1
    offsets = {key: value for key, (_, value) in model.offsets.items()}
    return Script(batches, model.generations, offsets)


def _any_record(
    draw: Any, model: Model, offsets: dict[Key, tuple[int, int]], record_offset: int
) -> Record:
    if draw(st.booleans()):
        return _bad_record(draw)
    group = draw(st.sampled_from(GOOD))
    is_tombstone = draw(st.integers(0, 3)) == 0
    if draw(st.booleans()):
        value = draw(messages(GroupValue, 3))
        key = encode_group_key(GroupKey(group))
        if is_tombstone:
            model.generations.pop(group, None)
            return key, None
        model.generations[group] = value.generation
        return key, encode_group_value(value)
    place = (draw(st.sampled_from(("t", "u"))), draw(st.integers(0, 2)))
    key = encode_offset_key(OffsetKey(group, *place))
    if is_tombstone:
        offsets.pop((group, *place), None)
        return key, None
    value = draw(messages(OffsetValue, 3))
    offsets[(group, *place)] = (record_offset, value.offset)
    return key, encode_offset_value(value)


def _bad_record(draw: Any) -> Record:
    """A damaged record of a group of its own."""
    key, value = encode_group_key(GroupKey(BAD)), encode_group_value(draw(messages(GroupValue, 3)))
    if draw(st.booleans()):
        key = encode_offset_key(OffsetKey(BAD, "t", 0))
        value = encode_offset_value(draw(messages(OffsetValue, 3)))
    match draw(st.integers(0, 3)):
        case 0:
            return damaged(key, draw), value
        case 1:
            return None, value
        case 2:
            return draw(st.binary(max_size=20)), draw(st.none() | st.binary(max_size=20))
        case _:
            return key, damaged(value, draw)


def check(script: Script, loader: PartitionLoader) -> None:
    """The good groups are as their own records say, whatever lies between."""
    for batch in script.batches:
        for _ in loader.feed(batch):
            pass
    assert not any(UNEXPECTED in problem for problem in loader.problems)
    groups = {loaded.group_id: loaded for loaded in loader.finish()}
    for name in GOOD:
        loaded = groups.get(name) or LoadedGroup(name, None, GroupOffsets())
        generation = loaded.value.generation if loaded.value is not None else None
        assert generation == script.generations.get(name)
        found = {(name, *key): value.offset for key, value in loaded.offsets.items()}
        wanted = {key: value for key, value in script.offsets.items() if key[0] == name}
        assert found == wanted
    _serve(list(groups.values()))


def _serve(loaded: list[LoadedGroup]) -> None:
    """All of them, even damaged ones, can be asked for, expire and move away."""
    manager = GroupManager(GroupSettings(), 1)
    manager.begin_load(0, 0)
    assert manager.finish_load(0, loaded, NOW_MS).failed == []
    for name in list(manager.groups):
        found = manager.describe_group(name)
        members = [
            DescribedGroupMember(one.member_id, one.instance_id, one.client_id, one.client_host)
            for one in found.members
        ]
        group = DescribedGroup(0, name, found.state, found.protocol_type, "", members)
        DESCRIBE_GROUPS.encode_response(DescribeGroupsResponse(groups=[group]), 5)
        manager.fetch_offsets(name, None, require_stable=True)
        manager.expire(name, NOW_MS + 10**12)
    manager.list_groups()
    for machine in manager.unload(0):
        machine.unload(NOW_MS)


class EndsBatch(PartitionLoader):
    """The injected bug: what follows a bad record in its batch is lost."""

    def feed(self, batch: InternalBatch) -> Iterator[None]:
        if batch.damage is not None:
            return
        for record in batch.records:
            try:
                self._take(batch, record)
            except DecodeError:
                return
            yield


class KeepsTombstones(PartitionLoader):
    """The injected bug: a tombstone changes nothing."""

    def _take(self, batch: InternalBatch, record: InternalRecord) -> None:
        if record.value is not None:
            super()._take(batch, record)


class Trusting(PartitionLoader):
    """The injected bug: records are not checked."""

    def _skip(self, offset: int, problem: str) -> None:
        raise AssertionError(f"offset {offset}: {problem}")


class AbortsCount(PartitionLoader):
    """The injected bug: an aborted transaction counts."""

    def feed(self, batch: InternalBatch) -> Iterator[None]:
        if batch.is_control:
            [marker] = batch.records
            batch = batch._replace(records=[marker._replace(key=b"\0\0\0\1")])
        yield from super().feed(batch)


def test_groups_load_despite_foreign_records_between_theirs() -> None:
    run(scripts(), lambda script: check(script, PartitionLoader()))


@pytest.mark.parametrize("injected", [EndsBatch, KeepsTombstones, Trusting, AbortsCount])
def test_injected_bugs_are_found(injected: type[PartitionLoader]) -> None:
    finds(scripts(), lambda script: check(script, injected()))
