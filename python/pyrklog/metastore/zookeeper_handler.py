"""kazoo's threads: only the connection's, which hands over to Trio."""

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
    """Whether the session's Trio loop runs; checked in kazoo's thread.

    A broker whose loop stands still does nothing as controller, but pings would make it look alive.
    """

    def __init__(self, ask: Callable[[Callable[[], None]], None], limit_seconds: float) -> None:
        """``ask`` makes the loop call its argument at the next turn."""
        self._ask = ask
        self._limit_seconds = limit_seconds
        self._asked_at: float | None = None
        """When the loop was asked for a sign that is still missing."""

    def _sign(self) -> None:
        self._asked_at = None

    def wait(self) -> None:
        """Returns at once, unless a sign is overdue: then when it comes."""
        if self._asked_at is None:
            self._asked_at = time.monotonic()
            self._ask(self._sign)
        while (asked_at := self._asked_at) is not None:
            if time.monotonic() - asked_at < self._limit_seconds:
                return
            time.sleep(_STANDSTILL_LOOK_SECONDS)


class Reasons(logging.Handler):
    """Keeps the last of kazoo's messages, which repeat at each try."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last: str | None = None

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()


def quiet_logger(reasons: Reasons) -> logging.Logger:
    """A logger for one client that writes only to ``reasons``."""
    logger = logging.Logger("kazoo.client", logging.WARNING)
    logger.addHandler(reasons)
    return logger


class _AtOnce:
    """A queue that calls its items at once: they only hand over to Trio."""

    def put(self, call: Callable[[], object]) -> None:
        call()


class Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """Calls back on the connection's thread. kazoo's default has separate threads for answers and
    watch events, without an order between them. Also speaks TLS.
    """

    def __init__(self, tls: TlsFiles | None = None) -> None:
        super().__init__()
        self.answer_wait_seconds = math.inf
        """Bounds the wait for a connection with its handshake, and for an answer on it, not idle
        time.
        """
        self.progress: Progress | None = None
        """Of the session's Trio loop, once there is one."""
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
        """kazoo's ignores what TLS has received but not handed out: answers in the same TLS record
        would wait for the next one.
        """
        if self.progress is not None and len(readers) > 1:
            self.progress.wait()
        # With two readers it also waits for requests; with one it waits for an answer.
        if timeout is not None and len(readers) == 1:
            timeout = min(timeout, self.answer_wait_seconds)
        held = [one for one in readers if isinstance(one, ssl.SSLSocket) and one.pending()]
        readable, writable, exceptional = super().select(
            readers, writers, others, 0 if held else timeout
        )
        return [*held, *(one for one in readable if one not in held)], writable, exceptional
