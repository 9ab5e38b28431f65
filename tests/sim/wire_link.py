"""A connection to a broker's data plane: whole frames to it, whole frames back, in order."""

from __future__ import annotations

from collections.abc import Callable

from tests.sim.cluster import BrokerLife, Cluster
from tests.sim.heap import Process

Received = Callable[[bytes | None], None]
"""Called with an answer, or with None when the connection is gone."""


class WireLink:
    """See the module. The client makes it; it ends with the server's process."""

    def __init__(
        self,
        cluster: Cluster,
        source: int,
        process: Process | None,
        server: BrokerLife,
        received: Received,
    ) -> None:
        """``source`` is the place of the one who connects, ``process`` whom answers come to."""
        self._cluster = cluster
        self._source = source
        self._process = process
        self._server = server
        self._received = received
        self._target = server.broker.id
        self._generation = cluster.network.generation(source, self._target)
        self._arrives_us = 0
        self._returns_us = 0
        self._number: int | None = None
        self.is_open = True
        cluster.on_breaks.append(self._look)

    def send(self, frame: bytes) -> None:
        """A frame with its length."""
        heap, network = self._cluster.heap, self._cluster.network
        self._arrives_us = max(self._arrives_us, heap.now_us + network.delay_us())
        delay_us = self._arrives_us - heap.now_us
        heap.after(delay_us, None, lambda: self._carry(frame))

    def _carry(self, frame: bytes) -> None:
        network = self._cluster.network
        if self._is_broken() and network.is_lost_in_break():
            return
        if not network.reaches(self._source, self._target):
            network.when_healed(lambda: self._carry(frame))
            return
        late_us = network.late_us() if self._is_broken() else 0
        self._cluster.heap.after(late_us, self._server.process, lambda: self._arrive(frame))

    def _arrive(self, frame: bytes) -> None:
        server = self._server
        if self._number is None:
            self._number = server.accept(self._answered)
        server.take_frame(self._number, frame)

    def _answered(self, frame: bytes | None) -> None:
        heap, network = self._cluster.heap, self._cluster.network
        self._returns_us = max(self._returns_us, heap.now_us + network.delay_us())
        heap.after(self._returns_us - heap.now_us, None, lambda: self._bring(frame))

    def _bring(self, frame: bytes | None) -> None:
        network = self._cluster.network
        if not self.is_open:
            return
        if not network.reaches(self._target, self._source):
            network.when_healed(lambda: self._bring(frame))
            return
        self._cluster.heap.after(0, self._process, lambda: self._tell(frame))

    def _tell(self, frame: bytes | None) -> None:
        if self.is_open:
            if frame is None:
                self.is_open = False
            self._received(frame)

    def _is_broken(self) -> bool:
        network = self._cluster.network
        return self._generation != network.generation(self._source, self._target)

    def _look(self) -> bool:
        """Whether it is still worth looking at when connections break or processes die."""
        is_gone = not self._server.process.is_alive
        if not self.is_open:
            return False
        if self._is_broken() or (
            is_gone and self._cluster.network.reaches(self._target, self._source)
        ):
            delay_us = self._cluster.network.delay_us()
            self._cluster.heap.after(delay_us, self._process, lambda: self._tell(None))
            self._hang_up()
            return False
        return True

    def close(self) -> None:
        """The one who connected lets go."""
        self.is_open = False
        self._hang_up()

    def _hang_up(self) -> None:
        if self._number is not None and self._server.process.is_alive:
            number, server = self._number, self._server
            delay_us = self._cluster.network.late_us() if self._is_broken() else 0
            self._cluster.heap.after(delay_us, server.process, lambda: server.hang_up(number))
