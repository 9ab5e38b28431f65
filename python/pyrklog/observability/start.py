"""Metrics and health: opens the port of HTTP at once, and loads what serves there, what reports
metrics, and what watches for health's sake, only once Kafka's clients are served.

Loading takes a fifth of a second, which a start is to spend on its clients. A broker whose start
takes longer than :data:`LOAD_AFTER_SECONDS` answers meanwhile that it is starting.
"""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib.util import find_spec
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple

import trio

from pyrklog.base.hosts import EVERYWHERE, PORT_MAX
from pyrklog.base.logs import get_logger
from pyrklog.base.problems import Problem
from pyrklog.config.broker import BrokerConfig
from pyrklog.config.http_place import HttpPlace
from pyrklog.config.report_options import OTLP, ReportSettings
from pyrklog.errors import ConfigError, TemporaryError
from pyrklog.observability.sources import Origin, Sources
from pyrklog.protocol.health import BrokerHealthRequest, BrokerHealthResponse

if TYPE_CHECKING:
    from pyrklog.observability.health_watch import HealthWatch
    from pyrklog.observability.observer import BrokerObserver

LOAD_AFTER_SECONDS = 1.0
BACKLOG = 128

log = get_logger("http")

Listeners = Sequence[trio.SocketListener]


class Http(NamedTuple):
    """What HTTP listens with; ``unavailable``: the warning's fields where the default port cannot
    be had."""

    listeners: Listeners = ()
    unavailable: Mapping[str, str] | None = None


@asynccontextmanager
async def prepared(config: BrokerConfig) -> AsyncIterator[Http]:
    """Listens for HTTP until it is left. Without listeners where that is off, or where the default
    port cannot be had.

    Raises :class:`TemporaryError` where a given address cannot be bound, :class:`ConfigError` where
    a reporter is not installed.
    """
    refuse_missing_reporter(config)
    opened = await _open_listeners(config.http_place)
    try:
        yield opened
    finally:
        for one in opened.listeners:
            one.socket.close()


def refuse_missing_reporter(config: BrokerConfig) -> None:
    """Raises :class:`ConfigError`."""
    if config.reports.otlp is not None and not _has_otlp():
        what = f"{OTLP} needs OpenTelemetry's exporter, which is not installed."
        raise ConfigError(Problem.REPORTER_MISSING, what, fix='pip install "pyrklog[otlp]"')


def _has_otlp() -> bool:
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        return False


async def _open_listeners(place: HttpPlace | None) -> Http:
    if place is None:
        return Http()
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
            raise TemporaryError(
                Problem.PORT_TAKEN, f"HTTP cannot listen on {place}: {reason}.", fix=fix
            ) from None
        return Http((), {"place": str(place), "reason": reason, "fix": fix})
    return Http(found)


def bound_address(listeners: Listeners) -> tuple[str, int] | None:
    """Host and port of the first; None without any."""
    if not listeners:
        return None
    host, port = listeners[0].socket.getsockname()[:2]
    return host, port


class Observability:
    """What looks at a broker, made when it is first needed."""

    def __init__(self, http: Http, reports: ReportSettings) -> None:
        self._http = http.listeners
        self._unavailable = http.unavailable
        self._reports = reports
        self._sources: Sources | None = None
        self._begun = trio.Event()
        self._loading = trio.Lock()
        self._watch: HealthWatch | None = None
        self._observer: BrokerObserver | None = None

    def begin(self, sources: Sources) -> None:
        """Health and metrics are read from there."""
        self._sources = sources
        self._begun.set()

    async def health(self, request: BrokerHealthRequest, address: str) -> BrokerHealthResponse:
        """Answers BrokerHealth. Raises THROTTLING_QUOTA_EXCEEDED while too many requests wait."""
        observer, sources = await self._observing()
        from pyrklog.observability.health_answer import answer

        return await answer(observer, sources, request, address)

    async def run(self, loaded: trio.Event) -> None:
        """Watches, serves and reports until cancelled, once the broker has ``loaded``. What fails
        here does not fail it."""
        # Where Kafka's port is taken, too, the start ends here: one message about it is enough.
        await trio.lowlevel.checkpoint()
        if self._unavailable is not None:
            log.warning("http_unavailable", **self._unavailable)
        told = bound_address(self._http)
        try:
            if told is not None:
                log.info("http_listening", host=told[0], port=told[1])
            with trio.move_on_after(LOAD_AFTER_SECONDS):
                await loaded.wait()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_run_watch, await self._watching())
                if told is None and not self._reports.is_on:
                    return
                observer, sources = await self._observing()
                if told is not None:
                    nursery.start_soon(_serve, self._http, observer)
                if self._reports.is_on:
                    nursery.start_soon(_report, self._reports, observer, sources)
        except Exception as error:
            if told is not None:
                _tell_http(error)
            if self._reports.is_on:
                _tell_reports(error)
        finally:
            for one in self._http:
                one.socket.close()

    async def _watching(self) -> HealthWatch:
        await self._begun.wait()
        assert self._sources is not None
        async with self._loading:
            if self._watch is None:
                self._watch = await trio.to_thread.run_sync(_make_watch, self._sources)
        return self._watch

    async def _observing(self) -> tuple[BrokerObserver, Sources]:
        watch = await self._watching()
        assert self._sources is not None
        async with self._loading:
            if self._observer is None:
                make = partial(_make_observer, self._sources, watch)
                self._observer = await trio.to_thread.run_sync(make)
        return self._observer, self._sources


def _tell_http(error: Exception) -> None:
    consequence = "the broker serves clients without HTTP"
    log.error("http_failed", exc_info=error, consequence=consequence)


def _tell_reports(error: Exception) -> None:
    consequence = "the broker serves clients without reporting metrics"
    log.error("metrics_reports_failed", exc_info=error, consequence=consequence)


def _make_watch(sources: Sources) -> HealthWatch:
    from pyrklog.observability.health_watch import HealthWatch

    return HealthWatch(sources)


def _make_observer(sources: Sources, watch: HealthWatch) -> BrokerObserver:
    from pyrklog.observability.observer import BrokerObserver

    return BrokerObserver(sources, watch)


async def _run_watch(watch: HealthWatch) -> None:
    try:
        await watch.run()
    except Exception as error:
        consequence = "health knows no trends of disks, and not for how long ZooKeeper is away"
        log.error("health_unwatched", exc_info=error, consequence=consequence)


async def _serve(listeners: Listeners, observer: BrokerObserver) -> None:
    try:
        await trio.to_thread.run_sync(_load)
        from pyrklog.observability.web import HttpServer

        is_loopback = all(map(_is_loopback, listeners))
        await HttpServer(observer, is_loopback=is_loopback).run(listeners)
    except Exception as error:
        _tell_http(error)


async def _report(reports: ReportSettings, observer: BrokerObserver, sources: Sources) -> None:
    try:
        from pyrklog.observability.reporting import reporters_of, run_reporters

        origin = Origin(sources.cluster_id, sources.metadata.node_id, sources.started_at)
        found = await trio.to_thread.run_sync(reporters_of, reports, origin)
        await run_reporters(found, reports.interval_seconds, observer.samples)
    except Exception as error:
        _tell_reports(error)


def _is_loopback(listener: trio.SocketListener) -> bool:
    host: str = listener.socket.getsockname()[0]
    return ip_address(host.partition("%")[0]).is_loopback


def _load() -> None:
    import pyrklog.observability.web  # noqa: F401
