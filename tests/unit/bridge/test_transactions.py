"""Transactions and loads through the real data plane."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyrklog.errors import ErrorCode
from pyrklog.plane.core_plane import Plane, feature_table
from pyrklog.plane.internal_log import (
    ActiveProducer,
    AppendResult,
    InternalLoad,
    Marker,
    MarkerResult,
    NewRecord,
    Producer,
    Verification,
)
from tests.unit.bridge.test_internal_log import TOPIC, append, leading

ONE = Producer(7, 3)
TIME_MS = 1_700_000_000_000


def marker(producer: Producer = ONE, *, commit: bool = True, partition: int = 0) -> Marker:
    return Marker(TOPIC, partition, producer.id, producer.epoch, 4, commit, 1)


async def test_live_records_and_open_transactions_are_loaded(tmp_path: Path) -> None:
    async with leading(tmp_path) as plane:
        await append(plane, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
        await append(plane, (b"a", b"2"), (b"c", None))
        await append(plane, (b"d", b"open"), (b"b", None), producer=ONE)
        load = await plane.load_internal(TOPIC, 0, max_bytes=1)
        assert load.error is ErrorCode.NONE
        records = load.records
        assert records is not None
        assert (records.end_offset, records.read, len(records)) == (7, 7, 2)
        assert records.take(1) == [(1, b"b", b"1")]
        assert records.take(10) == [(3, b"a", b"2")]
        assert (records.take(10), len(records)) == ([], 0)
        assert records.open_transactions() == [(7, 3, 2)]
        assert records.take_open(7, 1) == [(5, b"d", b"open")]
        assert records.take_open(7, 10) == [(6, b"b", None)]
        assert (list(records.damaged), records.damaged_count) == ([], 0)
        nowhere = await plane.load_internal(TOPIC, 1, max_bytes=1)
        assert nowhere == InternalLoad(ErrorCode.NOT_LEADER_OR_FOLLOWER)


async def test_markers_end_transactions(tmp_path: Path) -> None:
    async with leading(tmp_path) as plane:
        await append(plane, (b"k", b"v"), producer=ONE)
        _, (active,) = plane.active_producers(TOPIC, 0, max_count=10)
        assert active == ActiveProducer(7, 3, 0, TIME_MS, -1, 0)
        results = await plane.write_markers(
            [marker(), marker(partition=9), marker(Producer(7, 2))], timestamp_ms=TIME_MS
        )
        assert results == [
            MarkerResult(ErrorCode.NONE, 1),
            MarkerResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            MarkerResult(ErrorCode.INVALID_PRODUCER_EPOCH),
        ]
        _, (active,) = plane.active_producers(TOPIC, 0, max_count=10)
        assert (active.coordinator_epoch, active.txn_start_offset) == (4, -1)
        none = plane.active_producers(TOPIC, 9, max_count=10)
        assert none == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])
        load = await plane.load_internal(TOPIC, 0, max_bytes=1)
        assert load.records is not None
        assert load.records.take(10) == [(0, b"k", b"v")]
    late = await plane.write_markers([marker()], timestamp_ms=0)
    assert late == [MarkerResult(ErrorCode.NOT_LEADER_OR_FOLLOWER)]


async def guarded(plane: Plane, guard: int) -> AppendResult:
    return await plane.append_internal(
        TOPIC,
        0,
        [NewRecord(b"k", b"v")],
        timestamp_ms=TIME_MS,
        codec=0,
        expected_epoch=5,
        producer=ONE,
        guard=guard,
    )


async def test_a_guard_admits_the_first_batch(tmp_path: Path) -> None:
    async with leading(tmp_path) as plane:
        assert (await guarded(plane, 0)).error is ErrorCode.INVALID_TXN_STATE
        begun = plane.begin_verification(TOPIC, 0, ONE)
        assert begun.error is ErrorCode.NONE
        assert await guarded(plane, begun.guard) == (ErrorCode.NONE, 0)
        assert plane.begin_verification(TOPIC, 0, ONE) == Verification(ErrorCode.NONE, 0)
        zombie = plane.begin_verification(TOPIC, 0, Producer(7, 2))
        assert zombie == Verification(ErrorCode.INVALID_PRODUCER_EPOCH)
        other = Producer(9, 0)
        refused = plane.begin_verification(TOPIC, 0, other)
        assert plane.begin_verification(TOPIC, 0, other) == refused
        for _ in range(3):
            plane.end_verification(TOPIC, 0, other, refused.guard)
        assert plane.begin_verification(TOPIC, 0, other).guard > refused.guard
        plane.transaction_verified(12345, [0])
        plane.set_transaction_verification(is_on=False)


async def test_markers_have_their_types(tmp_path: Path) -> None:
    async with leading(tmp_path) as plane:
        with pytest.raises(TypeError):
            plane.write_markers([marker()._replace(topic=b"t")], timestamp_ms=0)  # type: ignore[arg-type]
        with pytest.raises(OverflowError):
            plane.write_markers([marker(Producer(7, 1 << 15))], timestamp_ms=0)


def test_transaction_version_2_is_in_use() -> None:
    assert feature_table() == [("transaction.version", 0, 2, 2)]
