"""A broker's in-sync replicas during failures."""

import io
import json
from pathlib import Path

import pytest
import trio
import trio.testing

from pyrklog.base import logs
from pyrklog.cluster.metadata import Metadata
from pyrklog.cluster.requests import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ControlledShutdownResponse,
    ControllerService,
    IsrChangeResult,
)
from pyrklog.config.load import load_config
from pyrklog.errors import ErrorCode
from pyrklog.metastore.embedded import open_store
from pyrklog.peers.connection import PeerError
from pyrklog.peers.peers import TELL_SECONDS, Peers
from pyrklog.plane.seam import LaggingFollowers
from pyrklog.plane.values import BrokerImage, LeaderSpec
from pyrklog.protocol.inter_broker import PartitionInfo
from pyrklog.replication.driver import ReplicationDriver
from pyrklog.replication.machine import Hosted
from pyrklog.testing.fake_plane import FakePlane

GOOD, BAD = b"g" * 16, b"b" * 16


class Failing:
    def __init__(self) -> None:
        self.written: list[tuple[bytes, tuple[int, ...]]] = []

    async def alter_partitions(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        if any(change.topic_id == BAD for change in request.changes):
            raise RuntimeError("a bug")
        results = []
        for change in request.changes:
            isr = tuple(broker for broker, _ in change.isr)
            self.written.append((change.topic_id, isr))
            epoch = change.partition_epoch + 1
            results.append(
                IsrChangeResult(
                    change.topic_id, change.partition, ErrorCode.NONE, 1, 0, isr, 0, epoch
                )
            )
        return AlterPartitionResponse(ErrorCode.NONE, results)

    async def shut_down(self, broker: int, broker_epoch: int) -> None:
        raise RuntimeError("a bug")


class Bench:
    """A broker that leads a partition of each of two topics."""

    def __init__(self, metadata: Metadata, plane: FakePlane, controller: Failing) -> None:
        self.plane = plane
        self.controller = controller
        replication = self.replication = ReplicationDriver(1, metadata, plane)
        own: ControllerService = controller  # type: ignore[assignment]
        self.peers = Peers(metadata.config, metadata, replication, plane, own, lambda: 1)
        assert replication.isrs is not None
        for name, topic_id in (("bad", BAD), ("good", GOOD)):
            info = PartitionInfo(0, 1, 1, 0, (1, 2), 0, (1, 2), (), (), (), False, 0)
            plane.led[name, 0] = LeaderSpec(name, 0, 0, (1, 2), (1, 2), False)
            replication.isrs.leads(name, topic_id, info)
        plane.lagging = [LaggingFollowers(name, 0, 0, [2]) for name in ("bad", "good")]


@pytest.fixture
async def bench(tmp_path: Path) -> Bench:
    store = await open_store(tmp_path)
    config = load_config(overrides=["zookeeper.connect=nowhere:2181"])
    plane = FakePlane()
    metadata = Metadata(1, config, store.session(), plane)
    metadata.image.set_brokers(1, [BrokerImage(1, None, [("PLAINTEXT", "here", 9092)])])
    return Bench(metadata, plane, Failing())


async def test_isr_change_that_cannot_be_sent_holds_up_no_other(
    bench: Bench, autojump_clock: trio.testing.MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.peers.run)
        await trio.sleep(60)
        nursery.cancel_scope.cancel()
    assert bench.controller.written == [(GOOD, (1,))]
    assert bench.plane.isrs["good", 0] == ((1,), (1,))


async def test_the_same_failure_is_told_every_few_seconds(
    bench: Bench, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[float] = []
    output = io.StringIO()

    async def nobody(_request: AlterPartitionRequest) -> AlterPartitionResponse:
        tries.append(trio.current_time())
        raise PeerError("no controller is known" if len(tries) < 300 else "it hangs")

    monkeypatch.setattr(bench.peers._link, "alter_partitions", nobody)
    monkeypatch.setattr(logs, "_sink", logs._Sink())
    logs.configure(output)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.peers.run)
        await trio.sleep(60)
        nursery.cancel_scope.cancel()
    lines = [json.loads(line) for line in output.getvalue().splitlines()]
    reasons = [line["reason"] for line in lines if line["event"] == "isr_not_asked"]
    assert len(tries) > 300
    seconds = tries[-1] - tries[0]
    assert seconds / TELL_SECONDS - 2 <= len(reasons) <= seconds / TELL_SECONDS + 2
    assert set(reasons) == {"no controller is known", "it hangs"}


async def test_a_partition_with_which_the_plane_fails_holds_up_no_other(
    bench: Bench, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_isr = bench.plane.set_isr

    def fail(topic: str, *rest: object) -> bool:
        if topic == "bad":
            raise OverflowError("a bug")
        return set_isr(topic, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(bench.plane, "set_isr", fail)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.peers.run)
        await trio.sleep(60)
        nursery.cancel_scope.cancel()
    assert bench.controller.written == [(GOOD, (1,))]


async def test_a_plane_that_cannot_name_laggards_is_asked_again(
    bench: Bench, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [RuntimeError("a bug")]
    monkeypatch.setattr(bench.controller, "written", [])

    def lagging(max_lag_ms: int) -> list[LaggingFollowers]:
        if failures:
            raise failures.pop()
        return [LaggingFollowers("good", 0, 0, [2])]

    monkeypatch.setattr(bench.plane, "lagging_followers", lagging)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.peers.run)
        await trio.sleep(60)
        nursery.cancel_scope.cancel()
    assert bench.controller.written == [(GOOD, (1,))]


async def test_failed_controlled_shutdown_does_not_prevent_closing_logs(
    bench: Bench, autojump_clock: trio.testing.MockClock
) -> None:
    await bench.peers.leave(1)


async def test_controlled_shutdown_goes_on_while_partitions_are_handed_over(
    bench: Bench, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller hands over 20 partitions, one each second, and then stands still."""
    hosted = bench.replication.replicas.hosted
    hosted.update({("t", index): Hosted(GOOD, 0, leads=True) for index in range(40)})

    async def shut_down(_broker: int, _broker_epoch: int) -> ControlledShutdownResponse:
        for index in range(20):
            await trio.sleep(1)
            hosted["t", index] = Hosted(GOOD, 1, leads=False)
        await trio.sleep_forever()
        raise AssertionError

    monkeypatch.setattr(bench.controller, "shut_down", shut_down)
    began = trio.current_time()
    await bench.peers.leave(1)
    assert sum(item.leads for item in hosted.values()) == 20
    assert 20 < trio.current_time() - began < 31
