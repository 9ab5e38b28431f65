"""Opens the port of HTTP at once, and loads what serves there only once Kafka's clients are served.

Loading takes a fifth of a second, which a start is to spend on its clients. A broker whose start
takes longer than :data:`LOAD_AFTER_SECONDS` answers meanwhile that it is starting.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from ipaddress import ip_address

import trio

from pyrklog.base.logs import get_logger
from pyrklog.config.http_place import HttpPlace
from pyrklog.errors import TemporaryError
from pyrklog.observability.sources import Sources

LOAD_AFTER_SECONDS = 1.0
BACKLOG = 32
EVERYWHERE = "0.0.0.0"
PORT_MAX = 65535

log = get_logger("http")

Listeners = Sequence[trio.SocketListener]


async def open_listeners(place: HttpPlace | None) -> Listeners:
    """Listens there. Empty where HTTP is off, or where the default port cannot be had.

    Raises :class:`TemporaryError` where a given address cannot be bound.
    """
    if place is None:
        return ()
    try:
        if place.port > PORT_MAX:
            raise OSError(errno.EINVAL, "no such port")
        found = await trio.open_tcp_listeners(
            place.port, host=place.host or EVERYWHERE, backlog=BACKLOG
        )
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno == errno.EADDRINUSE:
            from pyrklog.base.diagnosis import port_holder

            reason = f"{place} is taken by {port_holder(place.port) or 'another program'}"
        fix = "give another one by --http HOST:PORT, or --http none"
        if place.is_given:
            raise TemporaryError(f"HTTP cannot listen on {place}: {reason}.", fix=fix) from None
        log.warning("http_unavailable", place=str(place), reason=reason, fix=fix)
        return ()
    return found


def told_address(listeners: Listeners) -> tuple[str, int] | None:
    """Host and port of the first; None without any."""
    if not listeners:
        return None
    host, port = listeners[0].socket.getsockname()[:2]
    return host, port


async def run_http(listeners: Listeners, sources: Sources, loaded: trio.Event) -> None:
    """Serves until cancelled, once the broker has ``loaded``. What fails here does not fail it."""
    told = told_address(listeners)
    if told is None:
        return
    try:
        log.info("http_listening", host=told[0], port=told[1])
        with trio.move_on_after(LOAD_AFTER_SECONDS):
            await loaded.wait()
        await trio.to_thread.run_sync(_load)
        from pyrklog.observability.observer import BrokerObserver
        from pyrklog.observability.web import HttpServer

        observer = BrokerObserver(sources)
        is_loopback = all(map(_is_loopback, listeners))
        await HttpServer(observer, is_loopback=is_loopback).run(listeners)
    except Exception as error:
        log.error("http_failed", exc_info=error, consequence="the broker serves without HTTP")
    finally:
        for one in listeners:
            one.socket.close()


def _is_loopback(listener: trio.SocketListener) -> bool:
    host: str = listener.socket.getsockname()[0]
    return ip_address(host.partition("%")[0]).is_loopback


def _load() -> None:
    import pyrklog.observability.web  # noqa: F401
