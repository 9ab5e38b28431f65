"""Connections of observers: stands in for ``pyrklog.peers.connection.connect``.

One to a process that is gone is refused, or not answered, as where the whole machine is gone; one
over a link that is cut is made when the link is healed, if somebody waits for that long. What is
connected hears of the other's end when that can reach it.
"""

from __future__ import annotations

from typing import Self

import trio

from pyrklog.peers.connection import PeerError, PeerRefusedError
from pyrklog.peers.probe import ProbeError
from tests.sim.cluster import BrokerLife, Cluster
from tests.sim.peer_connection import broker_at
from tests.sim.scheduler import Event, Task

CONNECT_TIMEOUT_SECONDS = 0.5
"""Shorter than a broker's, as other times here: most of what goes wrong lasts a second or two."""


class SimStream:
    """A connection that carries a question and its answer."""

    def __init__(self, cluster: Cluster, life: BrokerLife, target: int, server: BrokerLife) -> None:
        self._cluster = cluster
        self._source = life
        self._target = target
        self._server = server
        self._generation = cluster.network.generation(life.broker.id, target)
        self._changed = Event(cluster.scheduler)
        """An answer has come, or the end."""
        self._has_ended = False
        self._is_closed = False
        cluster.on_breaks.append(self._look)

    def _look(self) -> bool:
        """Whether it is still worth looking at when connections break or processes die."""
        network, source = self._cluster.network, self._source
        if self._is_closed or not source.process.is_alive:
            return False
        is_broken = self._is_broken()
        is_told = not self._server.process.is_alive and network.reaches(
            self._target, source.broker.id
        )
        if not (is_broken or is_told):
            return True
        self._cluster.heap.after(network.delay_us(), source.process, self._ends)
        return False

    def _is_broken(self) -> bool:
        generation = self._cluster.network.generation(self._source.broker.id, self._target)
        return self._generation != generation

    def _ends(self) -> None:
        self._has_ended = True
        self._changed.set()

    async def ask(self) -> None:
        """See ``pyrklog.peers.probe.probe``."""
        heap, network = self._cluster.heap, self._cluster.network
        source, server = self._source, self._server

        def arrive() -> None:
            if not self._is_broken():
                heap.after(0, server.process, answer)

        def answer() -> None:
            network.carry(self._target, source.broker.id, bring)

        def bring() -> None:
            if not self._is_broken():
                heap.after(0, source.process, self._changed.set)

        if not self._has_ended:
            self._changed = Event(self._cluster.scheduler)
            network.carry(source.broker.id, self._target, arrive)
            await self._changed.wait()
        if self._has_ended:
            raise ProbeError("the connection has ended")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._is_closed = True


class _Connecting:
    """A connection that is being made."""

    def __init__(self, cluster: Cluster, life: BrokerLife, target: int, task: Task) -> None:
        self._cluster = cluster
        self._life = life
        self._target = target
        self._wake = task.waker()
        self.is_given_up = False
        self._try()

    def _try(self) -> None:
        network, source, target = self._cluster.network, self._life.broker.id, self._target
        if self.is_given_up or not self._life.process.is_alive:
            return
        if not (network.reaches(source, target) and network.reaches(target, source)):
            network.when_healed(self._try)
            return
        delay_us = network.delay_us()
        server = self._cluster.brokers[target].life
        if network.filters(source, target):
            self._cluster.heap.after(delay_us, self._life.process, self._refuse)
        elif server is not None and server.is_listening:
            self._cluster.heap.after(delay_us, self._life.process, lambda: self._stand(server))
        elif network.answers_for_the_dead():
            self._cluster.heap.after(delay_us, self._life.process, self._refuse)

    def _refuse(self) -> None:
        if self.is_given_up:
            return
        self._cluster.network.refusals[self._life.broker.id, self._target] += 1
        self._wake(PeerRefusedError("it refuses connections"))

    def _stand(self, server: BrokerLife) -> None:
        if self.is_given_up:
            return
        if server.process.is_alive:
            self._wake(SimStream(self._cluster, self._life, self._target, server))
        else:
            self._refuse()


async def connect(cluster: Cluster, life: BrokerLife, host: str) -> SimStream:
    """See ``connect``."""
    scheduler, target = cluster.scheduler, broker_at(host)
    attempts: list[_Connecting] = []
    try:
        with scheduler.fail_after(CONNECT_TIMEOUT_SECONDS):
            outcome = await scheduler.suspend(
                lambda task: attempts.append(_Connecting(cluster, life, target, task))
            )
    except trio.TooSlowError:
        raise PeerError("it does not answer") from None
    finally:
        for attempt in attempts:
            attempt.is_given_up = True
    if isinstance(outcome, PeerError):
        raise outcome
    stream: SimStream = outcome
    return stream
