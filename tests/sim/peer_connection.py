"""Requests between processes: stands in for ``pyrklog.peers.connection.PeerConnection``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from pyrklog.peers.connection import Address, PeerError, PeerRefusedError
from pyrklog.protocol.api import Api
from pyrklog.protocol.transactions import ADD_PARTITIONS_TO_TXN, WRITE_TXN_MARKERS
from tests.sim.cluster import BrokerLife, Cluster, MarkerKey
from tests.sim.scheduler import Task

SLOW_MARKER_SHARE, SLOW_MARKER_US = 0.04, (200_000, 2_500_000)
SLOW_VERDICT_SHARE, SLOW_VERDICT_US = 0.4, (3_000, 40_000)
"""Some markers come when another broker coordinates; some answers about a transaction's first batch
when the transaction has ended."""


def host_of(broker: int) -> str:
    return f"broker-{broker}"


def broker_at(host: str) -> int:
    return int(host.rpartition("-")[2])


class SimConnection:
    """One request at a time. It may be lost, late, or served after its caller gave up."""

    def __init__(
        self,
        cluster: Cluster,
        life: BrokerLife,
        address: Callable[[], Address | None],
        timeout_seconds: float,
    ) -> None:
        self._cluster = cluster
        self._life = life
        self._address = address
        self._timeout_seconds = timeout_seconds

    async def call(self, api: Api[Any, Any], version: int, body: bytes) -> bytes:
        address = self._address()
        if address is None:
            raise PeerError("its address is not known")
        target = broker_at(address[0])
        scheduler = self._cluster.scheduler

        def begin(task: Task) -> None:
            _Call(self._cluster, self._life, target, (api, version, body), task)

        try:
            with scheduler.fail_after(self._timeout_seconds):
                outcome = await scheduler.suspend(begin)
        except trio.TooSlowError:
            raise PeerError("no answer in time") from None
        if isinstance(outcome, PeerError):
            raise outcome
        answer: bytes = outcome
        return answer

    async def close(self) -> None:
        """Nothing is kept open."""


Message = tuple[Api[Any, Any], int, bytes]


class _Call:
    def __init__(
        self, cluster: Cluster, life: BrokerLife, target: int, message: Message, task: Task
    ) -> None:
        self._cluster = cluster
        self._source = life
        self._target = target
        self._message = message
        self._wake = task.waker()
        self._server = cluster.brokers[target].life
        self._generation = self._now_generation()
        self._began_us = cluster.heap.now_us
        self._marker = _marker_of(life, target, message)
        cluster.on_breaks.append(self._look)
        is_filtered = cluster.network.filters(life.broker.id, target)
        if self._server is None or not self._server.is_listening or is_filtered:
            delay_us = cluster.network.delay_us()
            if cluster.network.reaches(life.broker.id, target):
                refused = PeerRefusedError("it refuses connections")
                cluster.heap.after(delay_us, life.process, lambda: self._wake(refused))
            return
        if cluster.network.strays():
            reset = PeerError("connection reset")
            cluster.heap.after(cluster.network.delay_us(), life.process, lambda: self._wake(reset))
            cluster.heap.after(cluster.network.late_us(), self._server.process, self._serve)
            return
        delay_us = 0
        if message[0] is WRITE_TXN_MARKERS:
            delay_us = self._marker_delay_us()
        cluster.network.carry(life.broker.id, target, self._arrive, delay_us)

    def _marker_delay_us(self) -> int:
        caught = self._cluster.on_marker
        if self._marker is not None and caught is not None:
            self._cluster.on_marker = None
            return caught(self._source.broker.id)
        return self._slow_us(SLOW_MARKER_SHARE, SLOW_MARKER_US)

    def _slow_us(self, share: float, delay_us: tuple[int, int]) -> int:
        dice = self._cluster.heap.dice("slow messages of coordinators")
        is_slow = self._cluster.network.is_stormy and dice.random() < share
        return dice.randint(*delay_us) if is_slow else 0

    def _now_generation(self) -> int:
        return self._cluster.network.generation(self._source.broker.id, self._target)

    def _is_broken(self) -> bool:
        return self._generation != self._now_generation()

    def _look(self) -> bool:
        """Whether to be called again when connections break or processes die."""
        server = self._server
        is_gone = server is not None and not server.process.is_alive
        if not (self._is_broken() or is_gone):
            return self._source.process.is_alive
        if self._cluster.network.reaches(self._target, self._source.broker.id) or self._is_broken():
            reset = PeerError("connection reset")
            delay_us = self._cluster.network.delay_us()
            self._cluster.heap.after(delay_us, self._source.process, lambda: self._wake(reset))
        return False

    def _arrive(self) -> None:
        server, cluster = self._server, self._cluster
        assert server is not None
        if self._is_broken():
            if not cluster.network.is_lost_in_break():
                cluster.heap.after(cluster.network.late_us(), server.process, self._serve)
            return
        cluster.heap.after(0, server.process, self._serve)

    def _serve(self) -> None:
        server = self._server
        assert server is not None
        if server.is_listening and not self._is_superseded():
            self._cluster.scheduler.run_in(server.process, self._answer, server)

    async def _answer(self, server: BrokerLife) -> None:
        api, version, body = self._message
        answer = await server.answer(api.key, version, body)
        delay_us = 0
        if api is ADD_PARTITIONS_TO_TXN:
            delay_us = self._slow_us(SLOW_VERDICT_SHARE, SLOW_VERDICT_US)
        self._cluster.network.carry(
            self._target, self._source.broker.id, lambda: self._return(answer), delay_us
        )

    def _is_superseded(self) -> bool:
        """Whether its sender has been answered to the same marker of version 1, sent later. Nothing
        distinguishes it from the next transaction's (KIP-890)."""
        if self._marker is None:
            return False
        return self._cluster.markers_answered.get(self._marker, -1) > self._began_us

    def _return(self, answer: bytes) -> None:
        if not self._is_broken():
            if self._marker is not None:
                self._cluster.markers_answered[self._marker] = self._began_us
            self._cluster.heap.after(0, self._source.process, lambda: self._wake(answer))


def _marker_of(life: BrokerLife, target: int, message: Message) -> MarkerKey | None:
    """Sender, leader and producer of a marker of version 1."""
    api, version, body = message
    if api is not WRITE_TXN_MARKERS or version > 1:
        return None
    (marker,) = api.decode_request(body, version).markers
    return life.process.name, target, marker.producer_id
