"""A broker's view of another one that does not answer the controller."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import trio

from pyrklog.peers.channels import find_address
from pyrklog.peers.connection import Address, PeerError, connect
from pyrklog.peers.probe import ProbeError, probe
from pyrklog.peers.silence import OWN_DELAY_MAX_SECONDS
from pyrklog.plane.values import BrokerImage
from pyrklog.protocol.observation import Outcome

WAIT_MAX_SECONDS = 5.0
LOOK_SECONDS = 0.05


class Witness:
    """Probes a broker once when the controller asks."""

    def __init__(
        self, node_id: int, brokers: Callable[[], Iterable[BrokerImage]], listener: str
    ) -> None:
        """``brokers`` are the registered ones; ``listener`` is the one between brokers."""
        self._client_id = f"broker-{node_id}"
        self._brokers = brokers
        self._listener = listener
        self._looks: dict[int, _Look] = {}

    async def look(self, broker: int, seconds: float) -> Outcome:
        """Whether the broker answers within ``seconds``, at most :data:`WAIT_MAX_SECONDS`.

        Concurrent requests for a broker share one look.
        """
        address = find_address(self._brokers(), broker, self._listener)
        if address is None:
            return Outcome.UNKNOWN
        look = self._looks.get(broker)
        if look is not None:
            await look.is_over.wait()
            return look.outcome
        look = self._looks[broker] = _Look(self._client_id)
        try:
            await look.run(address, min(max(seconds, 0.0), WAIT_MAX_SECONDS))
        finally:
            del self._looks[broker]
            look.is_over.set()
        return look.outcome


class _Look:
    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self.outcome = Outcome.UNKNOWN
        self.is_over = trio.Event()
        self._was_late = False

    async def run(self, address: Address, seconds: float) -> None:
        """Silence counts only where this broker has watched all the time."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_itself)
            with trio.move_on_after(seconds) as waiting:
                self.outcome = await self._ask(address)
            if waiting.cancelled_caught:
                # Reads first what has arrived; notices its own stop.
                await trio.sleep(LOOK_SECONDS)
                self.outcome = Outcome.UNKNOWN if self._was_late else Outcome.SILENT
            nursery.cancel_scope.cancel()

    async def _ask(self, address: Address) -> Outcome:
        try:
            stream = await connect(*address)
        except PeerError:
            # Refused or unreachable: not silence.
            return Outcome.UNKNOWN
        async with stream:
            try:
                await probe(stream, 1, self._client_id)
            except ProbeError:
                return Outcome.UNKNOWN
        return Outcome.ANSWERED

    async def _watch_itself(self) -> None:
        while True:
            due = trio.current_time() + LOOK_SECONDS
            await trio.sleep(LOOK_SECONDS)
            self._was_late |= trio.current_time() - due > OWN_DELAY_MAX_SECONDS
