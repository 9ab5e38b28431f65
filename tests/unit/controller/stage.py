"""Brokers that obey, and controllers' drivers over one embedded store."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import trio

from pyrklog.cluster.requests import (
    ControlRequest,
    ControlResponse,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
)
from pyrklog.controller.driver import ControllerDriver
from pyrklog.controller.local_channel import LocalChannel
from pyrklog.controller.settings import ControllerSettings
from pyrklog.controller.state_log import StateChangeLog
from pyrklog.controller.takeover.standby import Standby
from pyrklog.errors import ErrorCode
from pyrklog.metastore import znodes
from pyrklog.metastore.embedded import EmbeddedSession, EmbeddedStore
from pyrklog.metastore.interface import Create, Metastore, Set
from pyrklog.protocol.inter_broker import TopicPartitions
from tests.unit.controller.runner import assignment, request_line


class Brokers:
    def __init__(self) -> None:
        self.told: list[str] = []
        self.numbers: list[int] = []
        """The numbers of UpdateMetadata."""
        self.changed = trio.Event()

    def post(self, request: ControlRequest, answered: Callable[[ControlResponse], None]) -> None:
        self.told.append(request_line(request))
        self.changed.set()
        self.changed = trio.Event()
        if isinstance(request, LeaderAndIsrRequest):
            led = {
                (t.topic, p.partition): ErrorCode.NONE for t in request.topics for p in t.partitions
            }
            answered(LeaderAndIsrResponse(ErrorCode.NONE, led))
        elif isinstance(request, StopReplicaRequest):
            stopped = {(r.topic, r.partition): ErrorCode.NONE for r in request.replicas}
            answered(StopReplicaResponse(ErrorCode.NONE, stopped))
        else:
            self.numbers.append(request.number)
            answered(ErrorCode.NONE)

    async def wait_told(self, line: str) -> None:
        with trio.fail_after(10):
            while line not in self.told:
                await self.changed.wait()


def _minimum(_topic: str, overrides: Mapping[str, str] | None) -> int | None:
    """None stands for a topic whose overrides the broker has not read."""
    return None if overrides is None else int(overrides.get("min.insync.replicas", "1"))


class Cluster:
    def __init__(self, store: EmbeddedStore, directory: Path) -> None:
        self.store = store
        self.directory = directory
        self.brokers = Brokers()
        self.sessions: dict[int, EmbeddedSession] = {}
        self.unclean: set[str] = set()
        self.state_log = StateChangeLog(directory)
        self._topics_created = 0

    async def register(self, broker: int) -> EmbeddedSession:
        session = self.sessions[broker] = self.store.session()
        registration = znodes.BrokerRegistration(
            [("PLAINTEXT", f"host{broker}", 9092)], {"PLAINTEXT": "PLAINTEXT"}, None, 0
        )
        path = znodes.broker_path(broker)
        await session.multi(
            [Create(path, b"", True), Set(path, znodes.encode_broker(registration), 0)]
        )
        return session

    def driver(
        self,
        broker: int,
        rebalance_interval_seconds: int | None = None,
        store: Metastore | None = None,
        brokers: Brokers | None = None,
        told: Sequence[TopicPartitions] = (),
        standby: Standby | None = None,
    ) -> ControllerDriver:
        return ControllerDriver(
            broker,
            store or self.sessions[broker],
            LocalChannel(brokers or self.brokers),
            ControllerSettings(
                unclean_topics=lambda overrides: frozenset(self.unclean & overrides.keys()),
                min_insync_replicas=_minimum,
                delete_topic_enable=True,
                rebalance_interval_seconds=rebalance_interval_seconds,
                imbalance_percent=10,
            ),
            self.state_log,
            lambda: told,
            standby,
        )

    async def create_topic(self, name: str, *replicas: tuple[int, ...]) -> None:
        session = next(iter(self.sessions.values()))
        await session.create(znodes.topic_config_path(name), znodes.encode_config({}))
        topic_id = b"i" * 15 + bytes([ord("i") + self._topics_created])
        self._topics_created += 1
        data = znodes.encode_topic(assignment(*replicas, topic_id=topic_id))
        await session.create(znodes.topic_path(name), data)
