"""A fetcher thread's loop on the heap: what it asks, when, and what comes back (``fetcher.rs``)."""

from __future__ import annotations

from tests.sim.cluster import BrokerLife
from tests.sim.wire_link import WireLink

FIRST_BACKOFF_US = 20_000
BACKOFF_MAX_US = 1_000_000


class FetchLoop:
    """One fetcher of one life of a broker."""

    def __init__(self, life: BrokerLife, fetcher: tuple[int, int]) -> None:
        self.is_over = False
        self._life = life
        self._fetcher = fetcher
        self._link: WireLink | None = None
        self._request = 0
        """Number of the request under way; 0 while there is none."""
        self._last_request = 0
        self._sleep = 0
        self._backoff_us = 0
        self._turn()

    def look(self) -> None:
        """It may have mail: then it neither sleeps on nor waits for its answer."""
        if self._life.sim.has_mail(self._fetcher):
            if self._request:
                self._lose_link()
            self._turn()

    def _turn(self) -> None:
        self._sleep += 1
        if self._request:
            return
        life = self._life
        turn = life.sim.begin_fetch(self._fetcher)
        if turn is None:
            self.is_over = True
            self._lose_link()
        elif isinstance(turn, int):
            self._sleep_until(turn * 1000)
        else:
            self._ask(turn)

    def _sleep_until(self, due_us: int) -> None:
        sleep, heap = self._sleep, self._life.cluster.heap

        def wake() -> None:
            if sleep == self._sleep and not self.is_over:
                self._life.touch(self._turn)

        heap.after(due_us - heap.now_us, self._life.process, wake)

    def _ask(self, frame: bytes) -> None:
        life = self._life
        if self._link is None or not self._link.is_open:
            server = life.cluster.server_at(life.broker.id, self._fetcher[0])
            if server is None:
                self._failed()
                return
            self._link = WireLink(
                life.cluster, life.broker.id, life.process, server, self._answered
            )
        self._last_request += 1
        self._request = request = self._last_request
        self._link.send(frame)

        def time_out() -> None:
            if self._request == request:
                life.touch(self._failed)

        life.cluster.heap.after(life.cluster.settings.fetch_timeout_us, life.process, time_out)

    def _answered(self, frame: bytes | None) -> None:
        if self.is_over or not self._request:
            return
        if frame is None:
            self._life.touch(self._failed)
        else:
            self._life.touch(lambda: self._take(frame))

    def _take(self, frame: bytes) -> None:
        self._request = 0
        self._backoff_us = 0
        try:
            self._life.sim.fetch_answered(self._fetcher, frame, self._exchange)
        except ValueError as error:
            self._life.cluster.heap.note(f"{self._life.process.name} reads no answer: {error}")
            self._failed()
            return
        self._turn()

    def _exchange(self, frame: bytes) -> bytes | None:
        """Where a log's ends are asked for, the answer comes at once: nothing happens meanwhile."""
        server = self._life.cluster.server_at(self._life.broker.id, self._fetcher[0])
        if server is None or server.process.is_paused:
            return None
        return server.exchange_now(frame)

    def _lose_link(self) -> None:
        self._request = 0
        if self._link is not None:
            self._link.close()
            self._link = None
        self._life.sim.fetch_failed(self._fetcher)

    def _failed(self) -> None:
        self._lose_link()
        doubled = max(self._backoff_us * 2, FIRST_BACKOFF_US)
        self._backoff_us = min(doubled, BACKOFF_MAX_US)
        self._sleep_until(self._life.cluster.heap.now_us + self._backoff_us)
