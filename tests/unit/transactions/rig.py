"""The transaction coordinator over a plane in memory, for tests of driver and handlers."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from pyrklog.coordinators.calls import BrokerCalls
from pyrklog.errors import ErrorCode
from pyrklog.plane.values import LeaderSpec
from pyrklog.testing.fake_offsets import FakeTopic
from pyrklog.testing.fake_plane import FakePlane
from pyrklog.transactions.manager import TRANSACTION_TOPIC
from pyrklog.transactions.marking.sender import MarkerSender, MarkerWriter
from pyrklog.transactions.messages import (
    AddRequest,
    EndRequest,
    InitRequest,
    ProducerEpoch,
    ProducerResult,
    TopicPartition,
)
from pyrklog.transactions.options import TransactionOptions
from pyrklog.transactions.parts import TransactionParts
from pyrklog.transactions.requests import TransactionCoordinator
from pyrklog.transactions.verification import TransactionVerifier

NODE_ID = 1
EPOCH_MS = 1_700_000_000_000
FIRST_PRODUCER_ID = 1000
LISTENER = "PLAINTEXT"
T0, T1 = ("t", 0), ("t", 1)


class FakeLeaders:
    """What is led here, and by others (``others``); ``gone`` partitions do not exist."""

    def __init__(self, plane: FakePlane) -> None:
        self.others: dict[TopicPartition, int] = {}
        self.gone: set[TopicPartition] = set()
        self._plane = plane

    def leader_of(self, partition: TopicPartition) -> int | None:
        if partition in self.gone:
            return None
        if partition in self._plane.led:
            return NODE_ID
        return self.others.get(partition, -1)


def wall_ms() -> int:
    return EPOCH_MS + round(trio.current_time() * 1000)


def make_parts(
    plane: FakePlane,
    topic: FakeTopic,
    options: TransactionOptions = TransactionOptions(),  # noqa: B008
    calls: BrokerCalls | None = None,
    clock: Callable[[], int] = wall_ms,
) -> TransactionParts:
    ids = itertools.count(FIRST_PRODUCER_ID)

    async def next_producer_id() -> int:
        await trio.lowlevel.checkpoint()
        return next(ids)

    writer = MarkerWriter(plane, clock)
    coordinator = TransactionCoordinator(
        options,
        plane,
        topic,
        MarkerSender(NODE_ID, writer, FakeLeaders(plane), calls),
        wall_ms=clock,
        next_producer_id=next_producer_id,
    )
    verifier = TransactionVerifier(NODE_ID, coordinator, calls, LISTENER)
    return TransactionParts(coordinator, writer, verifier, plane)


def lead(plane: FakePlane, topic: str, partitions: int, epoch: int = 0) -> None:
    """The plane leads all partitions of a topic."""
    for index in range(partitions):
        plane.led[topic, index] = LeaderSpec(topic, index, epoch, [NODE_ID], [NODE_ID], False)


class Rig:
    def __init__(self, plane: FakePlane, topic: FakeTopic, parts: TransactionParts) -> None:
        self.plane = plane
        self.topic = topic
        self.parts = parts
        self.coordinator = parts.coordinator

    async def init(
        self,
        name: str = "x",
        known: ProducerEpoch | None = None,
        timeout_ms: int = 60_000,
        host: str = "10.0.0.1",
    ) -> ProducerResult:
        request = InitRequest(name, timeout_ms, known, host)
        return await self.coordinator.init_producer_id(request)

    async def begun(self, name: str = "x", host: str = "10.0.0.1") -> ProducerEpoch:
        """Initializes the producer, again where its former transaction is in the way."""
        while True:
            result = await self.init(name, host=host)
            if result.error is not ErrorCode.CONCURRENT_TRANSACTIONS:
                assert result.error is ErrorCode.NONE, result
                return ProducerEpoch(result.producer_id, result.epoch)
            await trio.sleep(0.01)

    async def add(
        self,
        producer: ProducerEpoch,
        *partitions: TopicPartition,
        version: int = 0,
        name: str = "x",
    ) -> ErrorCode:
        request = AddRequest(name, producer, frozenset(partitions), version)
        return await self.coordinator.add_partitions(request).wait()

    async def end(
        self, producer: ProducerEpoch, *, commit: bool = True, version: int = 0, name: str = "x"
    ) -> ProducerResult:
        return await self.coordinator.end(EndRequest(name, producer, commit, version))

    def state(self, name: str = "x") -> str:
        return self.coordinator.manager.describe(name).state

    async def reaches(self, state: str, name: str = "x") -> None:
        """Waits for a state that nobody tells of."""
        for _ in range(100_000):
            if self.state(name) == state:
                return
            await trio.sleep(0.01)
        raise AssertionError(f"{name} is {self.state(name)} for ever")

    async def loaded(self) -> None:
        """Returns once all led partitions are served."""
        manager = self.coordinator.manager
        await self.coordinator.changes.wait_until(
            lambda: not manager.is_loading and manager.partitions().keys() == self.topic.led.keys()
        )


@asynccontextmanager
async def running(
    plane: FakePlane | None = None,
    options: TransactionOptions = TransactionOptions(),  # noqa: B008
    calls: BrokerCalls | None = None,
    epoch: int = 0,
    count: int = 1,
) -> AsyncIterator[Rig]:
    """A coordinator of the first partition of ``__transaction_state``, of ``count``, and the leader
    of ``t``."""
    plane = plane or FakePlane()
    lead(plane, TRANSACTION_TOPIC, 1, epoch)
    lead(plane, "t", 2)
    topic = FakeTopic(count, {0: epoch})
    rig = Rig(plane, topic, make_parts(plane, topic, options, calls))
    async with trio.open_nursery() as nursery:
        await nursery.start(rig.coordinator.run)
        await rig.loaded()
        yield rig
        nursery.cancel_scope.cancel()
