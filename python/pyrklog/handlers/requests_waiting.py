"""Requests whose answers have to wait.

A request is worked on by a task, or waits for a result that becomes its answer, which takes none.
It gives up its place in the data plane's queue once it waits (``parks``), or after
:data:`PLACE_SECONDS`, so that waiting requests block no others. It ends with its answer, when its
client disconnects, or without memory for more waiting requests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import trio

from pyrklog.base.logs import get_logger
from pyrklog.base.pending import Pending
from pyrklog.plane.core_plane import Plane

PLACE_SECONDS = 0.1
"""How long a request may keep its place, and run on after its client has disconnected."""

log = get_logger("broker")


class _Waiting:
    """One request; ``is_elsewhere``: the data plane answers it."""

    __slots__ = (
        "began",
        "client_is_gone",
        "has_place",
        "is_elsewhere",
        "no_room",
        "request_id",
        "stop",
    )

    def __init__(
        self, request_id: int, stop: Callable[[], None], *, is_elsewhere: bool = False
    ) -> None:
        """``stop`` ends the work, and with it the waiting."""
        self.request_id = request_id
        self.stop = stop
        self.is_elsewhere = is_elsewhere
        self.began = trio.current_time()
        self.has_place = True
        self.client_is_gone = False
        self.no_room = False


class WaitingRequests:
    """See the module."""

    def __init__(self, plane: Plane, nursery: trio.Nursery) -> None:
        self._plane = plane
        self._nursery = nursery
        self._waiting: dict[int, _Waiting] = {}
        self._with_place: deque[_Waiting] = deque()
        """In the order of their starts; some have ended."""
        self._is_looking = False
        self._limited: dict[float, dict[int, tuple[float, Callable[[], None]]]] = {}
        """By limit in seconds and by request, in the order of their ends: when, and what ends it. A
        task looks after each limit."""

    def __len__(self) -> int:
        return len(self._waiting)

    def start(
        self,
        request_id: int,
        work: Callable[[], Awaitable[None]],
        no_room: Callable[[], None],
        *,
        parks: bool = False,
    ) -> None:
        """``work`` sends the answer; ``no_room`` sends another one if too many wait. ``parks``: it
        is known to wait."""
        scope = trio.CancelScope()
        waiting = self._waiting[request_id] = _Waiting(request_id, scope.cancel)
        self._nursery.start_soon(self._run, waiting, scope, work, no_room)
        if parks:
            self._park(waiting)
            return
        self._look_at(waiting)

    def start_pending(
        self,
        request_id: int,
        pending: Pending[Any],
        answer: Callable[[], None],
        no_room: Callable[[], None],
        limit: tuple[float, Callable[[], None]] | None = None,
    ) -> None:
        """``answer`` sends the answer once the result is there. ``limit``: seconds, and what sends
        another one after them."""

        seconds = None if limit is None else limit[0]

        def end(then: Callable[[], None]) -> None:
            del self._waiting[request_id]
            if seconds is not None:
                self._limited[seconds].pop(request_id, None)
            pending.abandon()
            try:
                then()
            except Exception as error:
                # It would go to the one that answers, or end the task of the limits.
                log.error("event_failed", exc_info=error)

        def stop() -> None:
            end(no_room if waiting.no_room else partial(self._plane.close_request, request_id))

        waiting = self._waiting[request_id] = _Waiting(request_id, stop)
        if limit is not None:
            self._end_after(request_id, limit[0], partial(end, limit[1]))
        self._park(waiting)
        if request_id in self._waiting:
            pending.when_done(partial(end, answer))

    def client_gone(self, request_id: int) -> None:
        waiting = self._waiting.get(request_id)
        if waiting is None:
            waiting = _Waiting(request_id, lambda: None, is_elsewhere=True)
            self._look_at(waiting)
        waiting.client_is_gone = True
        if not waiting.has_place:
            waiting.stop()

    def park(self, request_id: int) -> None:
        """The request waits from now on."""
        waiting = self._waiting.get(request_id)
        if waiting is not None and waiting.has_place:
            self._park(waiting)

    def _look_at(self, waiting: _Waiting) -> None:
        self._with_place.append(waiting)
        if not self._is_looking:
            self._is_looking = True
            self._nursery.start_soon(self._look)

    def _park(self, waiting: _Waiting) -> None:
        waiting.has_place = False
        if waiting.is_elsewhere:
            self._plane.close_request(waiting.request_id)
        elif waiting.client_is_gone:
            waiting.stop()
        elif not self._plane.park(waiting.request_id):
            waiting.no_room = True
            waiting.stop()

    async def _run(
        self,
        waiting: _Waiting,
        scope: trio.CancelScope,
        work: Callable[[], Awaitable[None]],
        no_room: Callable[[], None],
    ) -> None:
        try:
            with scope:
                await work()
        except Exception as error:
            log.error("event_failed", exc_info=error)
            self._plane.close_request(waiting.request_id)
        finally:
            waiting.has_place = False
            del self._waiting[waiting.request_id]
        if scope.cancelled_caught:
            if waiting.no_room:
                no_room()
            else:
                self._plane.close_request(waiting.request_id)

    async def _look(self) -> None:
        while self._with_place:
            await trio.sleep_until(self._with_place[0].began + PLACE_SECONDS)
            now = trio.current_time()
            while self._with_place and self._with_place[0].began + PLACE_SECONDS <= now:
                waiting = self._with_place.popleft()
                if waiting.has_place:
                    self._park(waiting)
        self._is_looking = False

    # --- limits ----------------------------------------------------------------------------------

    def _end_after(self, request_id: int, seconds: float, end: Callable[[], None]) -> None:
        queue = self._limited.get(seconds)
        if queue is None:
            queue = self._limited[seconds] = {}
            self._nursery.start_soon(self._run_limit, seconds)
        queue[request_id] = (trio.current_time() + seconds, end)

    async def _run_limit(self, seconds: float) -> None:
        queue = self._limited[seconds]
        while queue:
            first_end, end = next(iter(queue.values()))
            if first_end <= trio.current_time():
                end()
            else:
                await trio.sleep_until(first_end)
        del self._limited[seconds]
