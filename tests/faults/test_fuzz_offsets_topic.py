"""Any records in ``__consumer_offsets``: unreadable ones are skipped and harm nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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
from pyrklog.testing.fake_transactions import FakeLiveRecords
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
Latest = dict[str | Key, tuple[int, int | None]]
"""Group, or group and partition -> offset of the record; generation or offset, None after a
tombstone."""


class Model:
    """The state of the records; a transaction's count once its marker commits."""

    def __init__(self) -> None:
        self._latest: Latest = {}
        self._open: dict[int, Latest] = {}

    def note(self, producer: int, key: str | Key, at: int, value: int | None) -> None:
        state = self._latest if producer < 0 else self._open.setdefault(producer, {})
        state[key] = (at, value)

    def end(self, producer: int, *, is_commit: bool) -> None:
        for key, (at, value) in self._open.pop(producer, {}).items():
            if is_commit and self._latest.get(key, (-1, None))[0] < at:
                self._latest[key] = (at, value)

    def live(self) -> dict[str | Key, int]:
        return {key: value for key, (_, value) in self._latest.items() if value is not None}


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
            record = _any_record(draw, model, producer, offset)
            records.append(InternalRecord(offset, *record))
            offset += 1
        base, is_transactional = offset - len(records), producer >= 0
        batches.append(InternalBatch(base, offset - 1, producer, is_transactional, False, records))
        if draw(st.integers(0, 5)) == 0:
            lost = InternalBatch(offset, offset, -1, False, False, [], damage="checksum mismatch")
            batches.append(lost)
            offset += 1
    live = model.live()
    generations = {key: value for key, value in live.items() if isinstance(key, str)}
    offsets = {key: value for key, value in live.items() if not isinstance(key, str)}
    return Script(batches, generations, offsets)


def _any_record(draw: Any, model: Model, producer: int, at: int) -> Record:
    if draw(st.booleans()):
        return _bad_record(draw)
    group = draw(st.sampled_from(GOOD))
    is_tombstone = draw(st.integers(0, 3)) == 0
    if draw(st.booleans()):
        value = draw(messages(GroupValue, 3))
        key = encode_group_key(GroupKey(group))
        if is_tombstone:
            model.note(producer, group, at, None)
            return key, None
        model.note(producer, group, at, value.generation)
        return key, encode_group_value(value)
    place = (draw(st.sampled_from(("t", "u"))), draw(st.integers(0, 2)))
    key = encode_offset_key(OffsetKey(group, *place))
    if is_tombstone:
        model.note(producer, (group, *place), at, None)
        return key, None
    value = draw(messages(OffsetValue, 3))
    model.note(producer, (group, *place), at, value.offset)
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


def records(script: Script) -> FakeLiveRecords:
    end = script.batches[-1].last_offset + 1
    return FakeLiveRecords(script.batches, {}, end)


def check(script: Script, loader: PartitionLoader) -> None:
    """The good groups are as their own records say, whatever lies between."""
    while loader.take(2):
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


class EndsPiece(PartitionLoader):
    """The injected bug: what follows a bad record in its piece is lost."""

    def _each(self, records: Iterable[Any], take: Callable[..., None]) -> None:
        for record in records:
            try:
                take(*record)
            except DecodeError:
                return


class Trusting(PartitionLoader):
    """The injected bug: records are not checked."""

    def _skip(self, offset: int, problem: str) -> None:
        raise AssertionError(f"offset {offset}: {problem}")


class OpenCounts(PartitionLoader):
    """The injected bug: offsets of an open transaction count."""

    def _take_open(
        self, producer_id: int, record_offset: int, key: bytes, value: bytes | None
    ) -> None:
        if value is not None:
            self._take(record_offset, key, value)


class ForgetsGroups(PartitionLoader):
    """The injected bug: offsets alone make no group."""

    def finish(self) -> Iterator[LoadedGroup]:
        return (loaded for loaded in super().finish() if loaded.value is not None)


def test_groups_load_despite_foreign_records_between_theirs() -> None:
    run(scripts(), lambda script: check(script, PartitionLoader(records(script))))


@pytest.mark.parametrize("injected", [EndsPiece, Trusting, OpenCounts, ForgetsGroups])
def test_injected_bugs_are_found(injected: type[PartitionLoader]) -> None:
    finds(scripts(), lambda script: check(script, injected(records(script))))
