"""DeleteRecords at the leader of replicas on other brokers, over a fake plane."""

from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from pyrklog.admin import record_deletion
from pyrklog.admin.record_deletion import RecordDeletion
from pyrklog.cluster.metadata import Metadata
from pyrklog.config.load import load_config
from pyrklog.errors import ErrorCode
from pyrklog.handlers.service import DeletedRecords, DeleteRecordsTarget
from pyrklog.membership.current_store import CurrentStore
from pyrklog.metastore.embedded import open_store
from pyrklog.plane.seam import LogStarts
from pyrklog.plane.values import BrokerImage, LeaderSpec, PartitionImage
from pyrklog.testing.fake_plane import FakePlane

ID = bytes(range(16))
REPLICAS = [1, 2, 3]
LATE = ErrorCode.REQUEST_TIMED_OUT


class Leader:
    """Broker 1 of three, which leads both partitions of ``t``."""

    def __init__(self, metadata: Metadata, plane: FakePlane) -> None:
        self.metadata = metadata
        self.plane = plane
        self.deletion = RecordDeletion(plane, metadata)
        metadata.on_published = self.deletion.image_changed
        self.answers: list[DeletedRecords] = []
        self.answered_at: list[float] = []
        for index in (0, 1):
            plane.led["t", index] = LeaderSpec("t", index, 0, REPLICAS, REPLICAS, False)
            self.lag(index, {2: 0, 3: 0})
        self.know(REPLICAS)

    def know(self, brokers: Sequence[int], leader: int = 1) -> None:
        shown = [BrokerImage(broker, None, []) for broker in brokers]
        self.metadata.image.set_brokers(1, shown)
        partitions = [PartitionImage(i, leader, 0, REPLICAS, REPLICAS, []) for i in (0, 1)]
        self.metadata.image.set_partitions("t", ID, partitions)
        self.metadata.publish()

    def lag(self, index: int, starts: dict[int, int]) -> None:
        self.plane.follower_starts["t", index] = starts

    def follow(self, index: int, starts: dict[int, int]) -> None:
        """The same, with the plane's event."""
        self.lag(index, starts)
        self.deletion.log_start_moved("t", index)

    async def delete(
        self, *places: tuple[int, int], timeout_ms: int = 10_000, host: str = "h"
    ) -> None:
        targets = [DeleteRecordsTarget("t", *place) for place in places]
        self.answers += await self.deletion.delete(targets, timeout_ms=timeout_ms, host=host)
        self.answered_at.append(trio.current_time())

    @property
    def shown(self) -> list[tuple[ErrorCode, int]]:
        return [(one.error, one.low_watermark) for one in self.answers]


@pytest.fixture
async def leader(tmp_path: Path) -> AsyncIterator[Leader]:
    store = await open_store(tmp_path)
    plane = FakePlane()
    yield Leader(Metadata(1, load_config(), CurrentStore(store.session()), plane), plane)
    await store.close()


async def test_delete_records_waits_for_all_live_replicas(leader: Leader) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(leader.delete, (0, 5), (1, 7))
        await trio.testing.wait_all_tasks_blocked()
        leader.follow(0, {2: 5, 3: 0})
        leader.follow(1, {2: 9, 3: 9})
        await trio.testing.wait_all_tasks_blocked()
        assert leader.answers == []
        leader.follow(0, {2: 5, 3: 6})
    assert leader.shown == [(ErrorCode.NONE, 5), (ErrorCode.NONE, 7)]


async def test_delete_records_does_not_wait_for_a_replica_that_dies(leader: Leader) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(leader.delete, (0, 5))
        await trio.testing.wait_all_tasks_blocked()
        leader.follow(0, {2: 5, 3: -1})
        await trio.testing.wait_all_tasks_blocked()
        assert leader.answers == []
        leader.know([1, 2])
    assert leader.shown == [(ErrorCode.NONE, 5)]


async def test_delete_records_fails_when_the_leader_changes_meanwhile(leader: Leader) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(leader.delete, (0, 5))
        await trio.testing.wait_all_tasks_blocked()
        leader.know(REPLICAS, leader=2)
    assert leader.shown == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]


async def test_delete_records_times_out_when_replicas_do_not_follow(
    leader: Leader, autojump_clock: MockClock
) -> None:
    began = trio.current_time()
    await leader.delete((0, 5), timeout_ms=3_000)
    assert leader.answered_at == [began + 3]
    await leader.delete((0, 6), timeout_ms=0)
    assert leader.answered_at == [began + 3] * 2
    assert leader.shown == [(LATE, 0)] * 2
    assert [offset for _, _, offset in leader.plane.deleted_records] == [5, 6]
    leader.follow(0, {2: 6, 3: 6})
    await leader.delete((0, 6), timeout_ms=0)
    assert leader.shown[-1] == (ErrorCode.NONE, 6)


async def test_waiting_record_deletions_are_bounded(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_deletion, "AWAITED_MAX", 2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(leader.delete, (0, 5))
        await trio.testing.wait_all_tasks_blocked()
        await leader.delete((1, 5))
        assert leader.shown == [(LATE, 0)]
        leader.follow(0, {2: 5, 3: 5})
        await trio.testing.wait_all_tasks_blocked()
        assert leader.shown[1:] == [(ErrorCode.NONE, 5)]
        nursery.start_soon(leader.delete, (1, 5))
        await trio.testing.wait_all_tasks_blocked()
        leader.follow(1, {2: 5, 3: 5})
    assert leader.shown[2:] == [(ErrorCode.NONE, 5)]


async def test_one_host_cannot_take_all_waiting_record_deletions(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_deletion, "AWAITED_MAX", 4)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(leader.delete, (0, 5), (1, 5))
        await trio.testing.wait_all_tasks_blocked()
        await leader.delete((0, 5))
        assert leader.shown == [(LATE, 0)]
        nursery.start_soon(partial(leader.delete, (0, 5), host="another"))
        await trio.testing.wait_all_tasks_blocked()
        assert len(leader.shown) == 1, "of another host it waits"
        await leader.delete((0, 5), host="another")
        await leader.delete((0, 5), host="a third")
        assert leader.shown == [(LATE, 0)] * 3
        leader.follow(0, {2: 5, 3: 5})
        leader.follow(1, {2: 5, 3: 5})
    assert leader.shown[3:] == [(ErrorCode.NONE, 5)] * 3
    assert not leader.deletion._waiting
    assert not leader.deletion._awaited


async def test_record_deletion_checks_only_changed_partitions(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(leader.delete, (0, 5), (1, 5))
        nursery.start_soon(leader.delete, (0, 5))
        await trio.testing.wait_all_tasks_blocked()
        looked_at: list[tuple[str, int]] = []
        log_starts = leader.plane.log_starts

        def counted(keys: Sequence[tuple[str, int]]) -> Sequence[LogStarts]:
            looked_at.extend(keys)
            return log_starts(keys)

        monkeypatch.setattr(leader.plane, "log_starts", counted)
        another = PartitionImage(0, 1, 0, REPLICAS, REPLICAS, [])
        leader.metadata.image.set_partitions("another", bytes(16), [another])
        leader.metadata.publish()
        await trio.testing.wait_all_tasks_blocked()
        assert looked_at == []
        leader.follow(0, {2: 5, 3: 5})
        await trio.testing.wait_all_tasks_blocked()
        assert looked_at == [("t", 0)], "once for both who wait"
        assert leader.shown == [(ErrorCode.NONE, 5)]
        leader.follow(1, {2: 5, 3: 5})


async def test_delete_records_does_not_wait_for_a_deleted_topic(leader: Leader) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(leader.delete, (0, 5), (1, 5))
        await trio.testing.wait_all_tasks_blocked()
        leader.metadata.image.remove_partitions("t", [0, 1])
        leader.metadata.publish()
    assert leader.shown == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)] * 2
