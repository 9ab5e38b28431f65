"""The small parts: placement, timers, batches, subscriptions, loading, states."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrklog.coordinators.memory_pool import MemoryPool
from pyrklog.groups.batching import (
    SHARED_BATCH_BYTES_MAX,
    AppendBatch,
    QueuedAppend,
    make_batches,
    shared_bytes_max,
)
from pyrklog.groups.effects import Append
from pyrklog.groups.loading import LoadedGroup, PartitionLoader
from pyrklog.groups.machine import GroupMachine
from pyrklog.groups.offsets import GroupOffsets
from pyrklog.groups.options import GroupSettings
from pyrklog.groups.partitioner import java_hash, partition_for
from pyrklog.groups.states import TRANSITIONS, GroupState
from pyrklog.groups.subscription import subscribed_topics
from pyrklog.groups.timers import STALE_ENTRIES_MIN, TimerQueue
from pyrklog.plane.internal_log import (
    InternalBatch,
    InternalRecord,
    NewRecord,
    Producer,
)
from pyrklog.protocol.group_records import (
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
)
from pyrklog.testing.fake_transactions import FakeLiveRecords

# --- placement -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # Values of Java's String.hashCode.
        ("", 0),
        ("a", 97),
        ("my-group", -1_906_497_762),
        ("console-consumer-12345", 158_455_506),
        ("polygenelubricants", -(2**31)),
        ("gr\N{LATIN SMALL LETTER U WITH DIAERESIS}ppe", -1_233_264_812),
        ("\N{PILE OF POO}", 1_772_556),
    ],
)
def test_group_hashes_are_javas(text: str, value: int) -> None:
    assert java_hash(text) == value


def test_partitions_of_groups() -> None:
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("my-group", 50) == 1_906_497_762 % 50
    assert partition_for("console-consumer-12345", 50) == 158_455_506 % 50


# --- timers --------------------------------------------------------------------------------------

_OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 5), st.integers(0, 30)),
        st.tuples(st.just("cancel"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("advance"), st.just(0), st.integers(0, 5)),
    ),
    max_size=60,
)


@given(operations=_OPERATIONS)
def test_timers_end_when_they_should(operations: list[tuple[str, int, int]]) -> None:
    queue: TimerQueue[int] = TimerQueue()
    expected: dict[int, float] = {}
    now = 0.0
    for name, key, amount in operations:
        if name == "set":
            queue.set(key, now + amount)
            expected[key] = now + amount
        elif name == "cancel":
            queue.cancel(key)
            expected.pop(key, None)
        else:
            now += amount
            due = sorted((at, key) for key, at in expected.items() if at <= now)
            popped = []
            while (ended := queue.pop_due(now)) is not None:
                popped.append((expected.pop(ended), ended))
            assert sorted(popped) == due
        assert len(queue) == len(expected)
        assert all(key in queue for key in expected)
        next_look = queue.next_deadline()
        assert (next_look is None) == (not expected)
        assert next_look is None or next_look <= min(expected.values())


def test_cancelled_timers_do_not_pile_up() -> None:
    queue: TimerQueue[int] = TimerQueue()
    for key in range(10_000):
        queue.set(key, 1_000_000.0)
        queue.cancel(key)
    assert len(queue._heap) <= STALE_ENTRIES_MIN + 1


def test_timers_that_are_moved_up_do_not_pile_up() -> None:
    queue: TimerQueue[str] = TimerQueue()
    for step in range(10_000):
        queue.set("session", 1_000_000.0 - step)
    assert len(queue._heap) <= STALE_ENTRIES_MIN + 3
    assert queue.pop_due(1_000_000) == "session"
    assert queue.pop_due(1_000_000) is None


def test_put_off_timers_cost_nothing() -> None:
    queue: TimerQueue[str] = TimerQueue()
    for now in range(1_000):
        queue.set("session", now + 10.0)
    assert len(queue._heap) == 1
    assert queue.pop_due(500) is None
    assert queue.pop_due(1_009) == "session"


# --- batches -------------------------------------------------------------------------------------


def _queued(size_bytes: int, producer: Producer | None = None) -> QueuedAppend:
    machine = GroupMachine("g", GroupSettings(), 0, MemoryPool(2**30))
    return QueuedAppend(machine, Append(0, [NewRecord(b"k", bytes(size_bytes))], producer))


def _batches(queue: Sequence[QueuedAppend]) -> list[AppendBatch]:
    batches = make_batches(queue)
    assert all(isinstance(batch, AppendBatch) for batch in batches)
    return [batch for batch in batches if isinstance(batch, AppendBatch)]


def test_small_appends_share_a_batch_in_order() -> None:
    queue = [_queued(10), _queued(20), _queued(30)]
    [batch] = _batches(queue)
    assert batch.appends == queue
    assert [len(value or b"") for _, value, _ in batch.records()] == [10, 20, 30]
    assert batch.base_offsets(100) == [100, 101, 102]


def test_large_ones_and_transactions_stay_alone() -> None:
    producer = Producer(1, 0)
    large = SHARED_BATCH_BYTES_MAX + 1
    queue = [_queued(1), _queued(large), _queued(1), _queued(1, producer), _queued(1, producer)]
    batches = _batches([*queue, _queued(2)])
    assert [len(batch.appends) for batch in batches] == [1, 1, 1, 1, 1, 1]
    assert [batch.producer for batch in batches] == [None, None, None, producer, producer, None]


@pytest.mark.parametrize(("message_max", "shared"), [(1_048_588, 3), (150, 2), (100, 1), (0, 1)])
def test_append_that_fits_alone_is_not_batched_too_large(message_max: int, shared: int) -> None:
    queue = [_queued(20), _queued(20), _queued(20)]
    batches = make_batches(queue, shared_bytes_max(message_max))
    assert isinstance(batches[0], AppendBatch)
    assert len(batches[0].appends) == shared


@given(sizes=st.lists(st.integers(0, 40_000), max_size=30))
def test_batching_loses_no_append_and_keeps_the_batch_bound(sizes: list[int]) -> None:
    queue = [_queued(size) for size in sizes]
    batches = _batches(queue)
    assert [item for batch in batches for item in batch.appends] == queue
    for batch in batches:
        assert sum(len(v or b"") for _, v, _ in batch.records()) <= SHARED_BATCH_BYTES_MAX


# --- subscriptions -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "topics"),
    [
        ("0000 00000000", set()),
        ("0001 00000002 000161 000162 ffffffff 00000000", {"a", "b"}),
        ("0003 00000001 000161 00000002 abcd 00000000 ffffffff 0000", {"a"}),
        ("0000 0000", None),
        ("ffff 00000000", None),
        ("0000 ffffffff", None),
        ("0000 7fffffff", None),
        ("0000 00000001 000561", None),
        ("0000 00000001 0001ff", None),
    ],
)
def test_subscribed_topics_are_read(metadata: str, topics: set[str] | None) -> None:
    assert subscribed_topics(bytes.fromhex(metadata)) == topics


# --- loading -------------------------------------------------------------------------------------


def _offset(offset: int, group: str, value: int | None, *, partition: int = 0) -> InternalRecord:
    encoded = None if value is None else encode_offset_value(OffsetValue(value))
    return InternalRecord(offset, encode_offset_key(OffsetKey(group, "t", partition)), encoded)


def _group(offset: int, group: str, generation: int | None) -> InternalRecord:
    value = None if generation is None else encode_group_value(GroupValue("consumer", generation))
    return InternalRecord(offset, encode_group_key(GroupKey(group)), value)


def _batch(
    *records: InternalRecord, producer: int = -1, control: bool = False, damage: str | None = None
) -> InternalBatch:
    base = records[0].offset if records else 0
    last = records[-1].offset if records else 0
    return InternalBatch(base, last, producer, producer >= 0, control, records, damage)


def _marker(offset: int, producer: int, kind: int) -> InternalBatch:
    record = InternalRecord(offset, bytes([0, 0, 0, kind]), b"")
    return _batch(record, producer=producer, control=True)


def _load(*batches: InternalBatch) -> tuple[dict[str, LoadedGroup], PartitionLoader]:
    end = batches[-1].last_offset + 1
    loader = PartitionLoader(FakeLiveRecords(batches, {}, end))
    while loader.take(1):
        pass
    return {group.group_id: group for group in loader.finish()}, loader


def _committed(group: LoadedGroup) -> dict[int, int]:
    return {partition: value.offset for (_, partition), value in group.offsets.items()}


def test_later_group_records_win() -> None:
    groups, _ = _load(
        _batch(_offset(0, "g", 1), _offset(1, "g", 2), _offset(2, "h", 3), _group(3, "g", 4)),
        _batch(_offset(4, "h", None), _offset(5, "g", 7, partition=1), _group(6, "g", 5)),
        _batch(_group(7, "k", 1), _group(8, "k", None)),
    )
    assert groups.keys() == {"g"}
    assert _committed(groups["g"]) == {0: 2, 1: 7}
    value = groups["g"].value
    assert value is not None
    assert value.generation == 5


def test_a_transaction_counts_with_its_marker() -> None:
    groups, _ = _load(
        _batch(_offset(0, "g", 1), producer=7),
        _batch(_offset(1, "h", 1), producer=8),
        _batch(_offset(2, "k", 1), producer=9),
        _marker(3, 7, 1),
        _marker(4, 8, 0),
    )
    assert _committed(groups["g"]) == {0: 1}
    assert "h" not in groups
    assert _committed(groups["k"]) == {}
    offsets = groups["k"].offsets
    assert offsets.transactions.producers == {9}
    offsets.complete_transaction(9, marker_offset=5, commit=True)
    assert _committed(groups["k"]) == {0: 1}


def test_a_tombstone_deletes_offsets_of_open_transactions() -> None:
    groups, _ = _load(
        _batch(_offset(0, "g", 1), _offset(1, "g", 1, partition=1), producer=7),
        _batch(_offset(2, "g", None)),
        _marker(3, 7, 1),
    )
    assert _committed(groups["g"]) == {1: 1}
    groups, _ = _load(
        _batch(_offset(0, "g", 1), _offset(1, "g", 1, partition=1), producer=7),
        _batch(_offset(2, "g", None)),
    )
    offsets = groups["g"].offsets
    offsets.complete_transaction(7, marker_offset=3, commit=True)
    assert _committed(groups["g"]) == {1: 1}


def test_a_plain_commit_within_a_transaction_is_the_newer_one() -> None:
    groups, _ = _load(
        _batch(_offset(0, "g", 1), producer=7), _batch(_offset(1, "g", 2)), _marker(2, 7, 1)
    )
    assert _committed(groups["g"]) == {0: 2}


def test_of_two_offsets_the_later_one_counts_whichever_was_committed_last() -> None:
    groups, _ = _load(
        _batch(_offset(0, "g", 1), _offset(1, "h", 1), producer=7),
        _batch(_offset(2, "g", 2), _offset(3, "h", None)),
        _marker(4, 7, 1),
    )
    assert groups.keys() == {"g"}
    assert _committed(groups["g"]) == {0: 2}


def test_a_tombstone_in_an_open_transaction_takes_its_offset_back() -> None:
    groups, loader = _load(
        _batch(_offset(0, "g", 1), _offset(1, "g", 2, partition=1), producer=7),
        _batch(_offset(2, "g", None), _group(3, "g", 1), producer=7),
    )
    offsets = groups["g"].offsets
    offsets.complete_transaction(7, marker_offset=4, commit=True)
    assert _committed(groups["g"]) == {1: 2}
    assert loader.problems == ["offset 3: a group in a transaction"]


def test_unreadable_group_records_are_skipped_and_logged() -> None:
    good = _offset(9, "g", 5)
    groups, loader = _load(
        _batch(InternalRecord(0, None, b"x")),
        _batch(InternalRecord(1, b"\0", b"x"), InternalRecord(2, b"\0\1\0\5g", b"x")),
        _batch(InternalRecord(3, _offset(3, "g", 1, partition=1).key, b"\0\3short")),
        _batch(InternalRecord(4, _offset(4, "g", 1, partition=2).key, b"\0\x09" + bytes(40))),
        _batch(InternalRecord(5, encode_group_key(GroupKey("g")), b"\0\3")),
        _batch(InternalRecord(6, b"\0\x0bsomething newer", b"x")),
        _batch(damage="checksum mismatch"),
        _batch(good),
    )
    assert _committed(groups["g"]) == {0: 5}
    assert loader.skipped == 8
    assert "checksum mismatch" in loader.problems[1]
    assert "key version 11" in loader.problems[-1]


def test_what_a_later_record_replaced_need_not_be_readable() -> None:
    good = _offset(1, "g", 5)
    groups, loader = _load(_batch(InternalRecord(0, good.key, b"\0\3short"), good))
    assert _committed(groups["g"]) == {0: 5}
    assert (loader.records, loader.problems) == (2, [])


def test_a_damaged_group_that_names_a_member_twice_is_taken_in_once() -> None:
    members = [
        MemberValue("a", "i", session_timeout_ms=1, rebalance_timeout_ms=1),
        MemberValue("a", None, session_timeout_ms=2, rebalance_timeout_ms=1),
        MemberValue("b", "i", session_timeout_ms=3, rebalance_timeout_ms=1),
    ]
    machine = GroupMachine("g", GroupSettings(), 0, MemoryPool(2**30))
    machine.restore(GroupValue("consumer", 3, "range", "gone", 5, members), GroupOffsets())
    assert list(machine.group.members) == ["a"]
    assert machine.group.members.leader == "a"


def test_an_empty_group_that_another_broker_wrote_gets_its_tombstone() -> None:
    machine = GroupMachine("g", GroupSettings(), 0, MemoryPool(2**30))
    machine.restore(GroupValue("consumer", 1), GroupOffsets())
    [append] = [e for e in machine.expire(0) if isinstance(e, Append)]
    assert append.records == [NewRecord(encode_group_key(GroupKey("g")), None)]


# --- states --------------------------------------------------------------------------------------


def test_every_state_has_its_row_and_dead_is_the_end() -> None:
    assert TRANSITIONS.keys() == set(GroupState)
    assert all(GroupState.DEAD in after for state, after in TRANSITIONS.items() if after)
    assert not TRANSITIONS[GroupState.DEAD]
