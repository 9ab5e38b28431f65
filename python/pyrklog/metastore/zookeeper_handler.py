"""kazoo's threads, as a session uses them: one for the connection, which hands over to Trio."""

from __future__ import annotations

import logging
import math
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

from pyrklog.metastore.zookeeper_tls import TlsFiles, connect_by_tls

_STANDSTILL_LOOK_SECONDS = 0.05


class Progress:
    """Whether the loop that a session is for goes on; looked at in kazoo's thread.

    A broker whose loop stands still is no controller and registers nothing new, but as long as
    somebody pings for it the others must take it for alive.
    """

    def __init__(self, ask: Callable[[Callable[[], None]], None], limit_seconds: float) -> None:
        """``ask`` has the loop call what it is given, at its next turn."""
        self._ask = ask
        self._limit_seconds = limit_seconds
        self._asked_at: float | None = None
        """When the loop was asked for a sign that it has not given yet."""

    def _sign(self) -> None:
        self._asked_at = None

    def wait(self) -> None:
        """Returns at once, but where the loop has given no sign for too long: then when it does."""
        if self._asked_at is None:
            self._asked_at = time.monotonic()
            self._ask(self._sign)
        while (asked_at := self._asked_at) is not None:
            if time.monotonic() - asked_at < self._limit_seconds:
                return
            time.sleep(_STANDSTILL_LOOK_SECONDS)


class Reasons(logging.Handler):
    """Takes what kazoo says, which says it again at each try, and keeps the last of it."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last: str | None = None

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()


def quiet_logger(reasons: Reasons) -> logging.Logger:
    """A logger for one client, of which nobody hears but ``reasons``."""
    logger = logging.Logger("kazoo.client", logging.WARNING)
    logger.addHandler(reasons)
    return logger


class _AtOnce:
    """A queue that calls what it is given: here that is a hand-over to Trio and no more."""

    def put(self, call: Callable[[], object]) -> None:
        call()


class Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """Calls back on the connection's thread. kazoo's own way has one thread for answers and one for
    watch events, and with it no order between the two. Speaks TLS where there are files for it."""

    def __init__(self, tls: TlsFiles | None = None) -> None:
        super().__init__()
        self.answer_wait_seconds = math.inf
        """Bounds the wait for a connection, with its handshake, and for a message on it; idle ones
        are not concerned."""
        self.progress: Progress | None = None
        """Of the loop that the session is for, once there is one."""
        self._tls = tls
        self.completion_queue = _AtOnce()
        self.callback_queue = _AtOnce()

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        self._running = False

    def create_connection(
        self, *, address: tuple[str, int], hostname: str, timeout: float, **settings: Any
    ) -> Any:
        timeout = min(timeout, self.answer_wait_seconds)
        if self._tls is not None:
            return connect_by_tls(address, hostname, timeout, self._tls)
        return super().create_connection(
            address=address, hostname=hostname, timeout=timeout, **settings
        )

    def select(
        self,
        readers: Sequence[Any],
        writers: Sequence[Any],
        others: Sequence[Any],
        timeout: float | None = None,
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """kazoo's, which knows nothing of what TLS has received and not handed out yet: answers
        that came in one record would wait for whatever comes next."""
        if self.progress is not None and len(readers) > 1:
            self.progress.wait()
        # Where it waits for something to do, it also waits for requests; one reader is an answer.
        if timeout is not None and len(readers) == 1:
            timeout = min(timeout, self.answer_wait_seconds)
        held = [one for one in readers if isinstance(one, ssl.SSLSocket) and one.pending()]
        readable, writable, exceptional = super().select(
            readers, writers, others, 0 if held else timeout
        )
        return [*held, *(one for one in readable if one not in held)], writable, exceptional
