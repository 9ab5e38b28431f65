"""Whether another broker's process is there, as its port tells.

A connection that carries nothing stands as long as the process does. When it ends and the port
refuses twice, nobody listens there: the broker is suspected to be dead. A time-out is no refusal,
nor is anything else that a slow or distant broker could cause (``docs/cluster.md``, section 7).
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from pyrklog.peers.connection import Address, PeerError, PeerRefusedError, connect

REFUSALS = 2
REFUSAL_SECONDS = 0.1
"""Between two refusals that count."""
LATER_SECONDS = 1.0
"""Before the next look at a broker that does not answer, or that ends connections at once."""
TRUST_SECONDS = 10.0
"""A suspect is trusted again when a connection has stood for this long."""

Told = Callable[[bool], None]
"""Called with False when the broker is suspected, and with True when it is trusted again."""


def _nobody() -> None:
    """Nobody wants to know."""


class Observer:
    """Observes one broker."""

    def __init__(
        self,
        address: Callable[[], Address | None],
        told: Told,
        counted: Callable[[], None] = _nobody,
    ) -> None:
        """``address`` is None while the broker is not known.

        ``counted`` is called when :attr:`refusals` has changed.
        """
        self.refusals = 0
        """How often the port has refused, one time after another, up to now: anything else that
        becomes of a connection, a time-out too, makes it 0. At most :data:`REFUSALS`."""
        self._address = address
        self._told = told
        self._counted = counted
        self._is_suspected = False

    async def run(self) -> None:
        """Observes until cancelled."""
        while True:
            try:
                stream = await self._connect()
            except PeerRefusedError:
                self._refused()
                await trio.sleep(LATER_SECONDS if self._is_suspected else REFUSAL_SECONDS)
            except PeerError:
                self._count(0)
                await trio.sleep(LATER_SECONDS)
            else:
                self._count(0)
                await self._hold(stream)

    async def _connect(self) -> trio.SocketStream:
        address = self._address()
        if address is None:
            raise PeerError("its address is not known")
        return await connect(*address)

    def _count(self, refusals: int) -> None:
        if refusals != self.refusals:
            self.refusals = refusals
            self._counted()

    def _refused(self) -> None:
        self._count(min(self.refusals + 1, REFUSALS))
        if self.refusals >= REFUSALS and not self._is_suspected:
            self._is_suspected = True
            self._told(False)

    async def _hold(self, stream: trio.SocketStream) -> None:
        """Until the connection ends; a broker that ends it at once is not asked again at once."""
        async with stream:
            with trio.move_on_after(LATER_SECONDS) as early:
                await _until_closed(stream)
            if not early.cancelled_caught:
                await trio.sleep(REFUSAL_SECONDS)
                return
            if self._is_suspected:
                with trio.move_on_after(TRUST_SECONDS - LATER_SECONDS) as standing:
                    await _until_closed(stream)
                if not standing.cancelled_caught:
                    return
                self._is_suspected = False
                self._told(True)
            await _until_closed(stream)


async def _until_closed(stream: trio.SocketStream) -> None:
    try:
        while await stream.receive_some(1):
            pass
    except trio.BrokenResourceError:
        pass  # a reset is an end, too
