"""The controller's channels: one queue and one connection for each broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

import trio

from pyrklog.cluster import wire
from pyrklog.cluster.requests import (
    BrokerChannel,
    ControlRequest,
    LiveBroker,
    OnTrust,
    UpdateMetadataRequest,
)
from pyrklog.peers.connection import Address, PeerConnection
from pyrklog.peers.metadata_bodies import MetadataBodies
from pyrklog.peers.port_monitor import PortMonitor
from pyrklog.peers.send_queue import SendQueue
from pyrklog.peers.witnesses import View, Witnesses
from pyrklog.plane.values import BrokerImage

ANSWER_TIMEOUT_SECONDS = 30.0
"""Kafka's ``controller.socket.timeout.ms``."""


class _Queue:
    """A queue to one life of a broker, with its monitor."""

    def __init__(self, queue: SendQueue, epoch: int, monitor: PortMonitor | None) -> None:
        self.queue = queue
        self.epoch = epoch
        self.monitor = monitor
        self._scope = trio.CancelScope()

    async def run(self) -> None:
        with self._scope:
            async with trio.open_nursery() as nursery:
                if self.monitor is not None:
                    nursery.start_soon(self.monitor.run)
                await self.queue.run()

    def end(self) -> None:
        self._scope.cancel()


class PeerChannels:
    """Calls the controller's own broker without a connection."""

    def __init__(
        self, node_id: int, own: BrokerChannel, listener: str, *, observes: bool = True
    ) -> None:
        """``listener`` is the one between brokers.

        ``observes``: whether brokers that refuse connections or do not answer are suspected.
        """
        self._node_id = node_id
        self._own = own
        self._listener = listener
        self._queues: dict[int, _Queue] = {}
        self._images: dict[int, BrokerImage] = {}
        self._nursery: trio.Nursery | None = None
        self._observes = observes
        self._metadata_bodies = MetadataBodies()
        self._told: OnTrust | None = None
        self._witnesses = Witnesses(self._view, self._address_of, f"controller-{node_id}")

    async def run(
        self, told: OnTrust, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self._told = told
                task_status.started()
                await trio.sleep_forever()
        finally:
            self._nursery = None
            self._queues.clear()

    def live(self, brokers: Mapping[int, LiveBroker]) -> None:
        self._images = {broker: item.image for broker, item in brokers.items()}
        for broker, item in list(self._queues.items()):
            if broker not in brokers or brokers[broker].epoch != item.epoch:
                self._queues.pop(broker).end()
        for broker, live in brokers.items():
            if broker != self._node_id and broker not in self._queues:
                self._begin(broker, live.epoch)

    def _begin(self, broker: int, epoch: int) -> None:
        assert self._nursery is not None, "begun before it runs"
        connection = PeerConnection(
            self._address_of(broker),
            client_id=f"controller-{self._node_id}",
            timeout_seconds=ANSWER_TIMEOUT_SECONDS,
        )
        item = _Queue(SendQueue(broker, connection, self._encode), epoch, self._monitor_of(broker))
        self._queues[broker] = item
        self._nursery.start_soon(item.run)

    def _monitor_of(self, broker: int) -> PortMonitor | None:
        told = self._told
        if told is None or not self._observes:
            return None
        return PortMonitor(
            self._address_of(broker),
            lambda is_trusted: told(broker, is_trusted),
            agreed=partial(self._witnesses.agree, broker),
            client_id=f"controller-{self._node_id}",
        )

    def _view(self) -> View:
        answering = [
            broker
            for broker, item in self._queues.items()
            if item.monitor is not None and item.monitor.is_answering
        ]
        return View(len(self._images), answering)

    async def _encode(self, request: ControlRequest) -> bytes:
        if isinstance(request, UpdateMetadataRequest):
            return await self._metadata_bodies.body_of(request)
        return wire.encode_request(request, self._images, self._listener)

    def _address_of(self, broker: int) -> Callable[[], Address | None]:
        def find() -> Address | None:
            image = self._images.get(broker)
            return address_of(image, self._listener) if image is not None else None

        return find

    def to(self, broker: int) -> BrokerChannel:
        return self._own if broker == self._node_id else self._queues[broker].queue


def find_address(brokers: Iterable[BrokerImage], broker: int, listener: str) -> Address | None:
    """As :func:`address_of`, for one of ``brokers``; None where it is missing."""
    found = next((image for image in brokers if image.id == broker), None)
    return None if found is None else address_of(found, listener)


def address_of(broker: BrokerImage, listener: str) -> Address | None:
    """The broker's address for other brokers, or None."""
    for name, host, port in broker.endpoints:
        if name == listener:
            return host, port
    return None
