"""Watches whether another broker is alive, by its port and its answers.

Two signs make a suspect (``cluster.md``, section 7). *Refusal*: the port refuses twice, so nothing
listens there. *Silence*: a connection or an answer takes longer than a limit (``silence.py``).
Silence may be the fault of the observer or the network, so another broker must confirm it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import trio

from pyrklog.peers.connection import Address, PeerError, PeerRefusedError, connect
from pyrklog.peers.probe import ProbeError, probe
from pyrklog.peers.silence import Silence

REFUSALS = 2
REFUSAL_SECONDS = 0.1
"""Between two refusals that count."""
LATER_SECONDS = 1.0
"""Before the next try at a broker that ends connections at once."""
TRUST_SECONDS = 10.0
"""A suspect that answers for this long is trusted again."""
PROBE_SECONDS = 0.15
"""Between an answer and the next question."""
LOOK_SECONDS = 0.05
"""Between two checks for an answer."""
DOUBT_SHARE = 0.5
"""Of the limit: when others are asked, since their answer takes time."""
CERTAIN_SHARE = 1.5
"""Of the limit: when it is silence without asking others."""

Told = Callable[[bool], None]
"""Called with False when the broker is suspected, with True when it is trusted again."""
Agreed = Callable[[float], Awaitable[bool]]
"""Whether others find the broker silent; they wait so many seconds for its answer."""


def _nobody() -> None:
    """The default: not told."""


def worked_seconds() -> float:
    """CPU time of Trio's thread so far."""
    return time.thread_time()


class PortMonitor:
    def __init__(
        self,
        address: Callable[[], Address | None],
        told: Told,
        counted: Callable[[], None] = _nobody,
        agreed: Agreed | None = None,
        *,
        client_id: str,
    ) -> None:
        """``address`` is None while the broker is unknown.

        ``counted`` is called when :attr:`refusals` or :attr:`is_silent` changes. Without ``agreed``
        silence does not make a suspect and shows only in :attr:`is_silent`.
        """
        self.refusals = 0
        """Consecutive refusals, at most :data:`REFUSALS`. Any other outcome of a connection, also a
        time-out, resets it to 0.
        """
        self.is_silent = False
        """Whether a question has waited so long that it is silence."""
        self._address = address
        self._told = told
        self._counted = counted
        self._agreed = agreed
        self._client_id = client_id
        self._is_suspected = False
        self._silence = Silence()
        self._begun = trio.Event()
        self._questions = 0
        self._answers_since: float | None = None

    @property
    def is_answering(self) -> bool:
        """Whether the broker has answered and the present question has not waited long."""
        if self._answers_since is None:
            return False
        now = trio.current_time()
        return self._silence.seconds(now) < DOUBT_SHARE * self._silence.limit(now)

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listen_for_silence)
            while True:
                await self._ask_until_it_fails()

    async def _ask_until_it_fails(self) -> None:
        try:
            stream = await self._connect()
        except PeerRefusedError:
            self._silence.ended()
            self._refused()
            await trio.sleep(LATER_SECONDS if self._is_suspected else REFUSAL_SECONDS)
        except PeerError:
            # The question stays open: a failed connection is not an answer.
            self._count(0)
            await trio.sleep(LATER_SECONDS)
        else:
            self._count(0)
            await self._ask(stream)

    async def _connect(self) -> trio.SocketStream:
        address = self._address()
        if address is None:
            self._silence.ended()
            raise PeerError("its address is not known")
        self._asks()
        return await connect(*address)

    def _asks(self) -> None:
        self._silence.asked(trio.current_time(), worked_seconds())
        self._begun.set()

    def _count(self, refusals: int) -> None:
        if refusals != self.refusals:
            self.refusals = refusals
            self._counted()

    def _refused(self) -> None:
        self._answers_since = None
        self._set_silent(False)
        self._count(min(self.refusals + 1, REFUSALS))
        if self.refusals >= REFUSALS:
            self._suspect()

    def _suspect(self) -> None:
        if not self._is_suspected:
            self._is_suspected = True
            self._told(False)

    def _set_silent(self, is_silent: bool) -> None:
        if is_silent != self.is_silent:
            self.is_silent = is_silent
            self._counted()

    async def _ask(self, stream: trio.SocketStream) -> None:
        """Asks until the connection ends; waits where it ended at once."""
        began = trio.current_time()
        async with stream:
            try:
                while True:
                    self._asks()
                    self._questions = (self._questions + 1) & 0x7FFF_FFFF
                    await probe(stream, self._questions, self._client_id)
                    self._answered()
                    await trio.sleep(PROBE_SECONDS)
            except ProbeError:
                # A closed connection is not silence.
                self._silence.ended()
                self._answers_since = None
        stood = trio.current_time() - began
        await trio.sleep(REFUSAL_SECONDS if stood >= LATER_SECONDS else LATER_SECONDS)

    def _answered(self) -> None:
        now = trio.current_time()
        # The delay of a broker that is back is not a normal one.
        is_back = self.is_silent or self._is_suspected
        self._silence.answered(now, worked_seconds(), is_back=is_back)
        self._set_silent(False)
        if self._answers_since is None:
            self._answers_since = now
        if self._is_suspected and now - self._answers_since >= TRUST_SECONDS:
            self._is_suspected = False
            self._told(True)

    async def _listen_for_silence(self) -> None:
        while True:
            self._begun = trio.Event()
            if not self._silence.is_waiting:
                await self._begun.wait()
            now = await self._look_later()
            if self._silence.is_waiting:
                await self._judge(now)

    async def _judge(self, now: float) -> None:
        limit = self._silence.limit(now)
        seconds = self._silence.seconds(now)
        if seconds >= CERTAIN_SHARE * limit:
            self._answers_since = None
            self._set_silent(True)
        if self._agreed is None or self._is_suspected or seconds < DOUBT_SHARE * limit:
            return
        if await self._agreed(limit) and await self._is_still_silent(limit):
            self._answers_since = None
            self._suspect()

    async def _is_still_silent(self, limit: float) -> bool:
        """Reads first what came while others were asked; a stop of this process resets the time."""
        now = await self._look_later()
        return self._silence.seconds(now) >= limit

    async def _look_later(self) -> float:
        """Sleeps for a moment; returns the time and notes its own lateness."""
        due, slept = trio.current_time() + LOOK_SECONDS, worked_seconds()
        await trio.sleep(LOOK_SECONDS)
        now = trio.current_time()
        self._silence.woke(due, now, slept=slept, worked=worked_seconds())
        return now
