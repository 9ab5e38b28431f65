"""Reports metrics each interval: to the log, CSV files, StatsD, OpenTelemetry.

Each reporter has a thread of its own: one that hangs delays neither another nor a scrape, nor the
broker's end, and then lets intervals pass.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import trio

from pyrklog.base.logs import get_logger
from pyrklog.config.report_options import ReportSettings
from pyrklog.observability.samples import Sample
from pyrklog.observability.sources import Origin

log = get_logger("metrics")


class Reporter(Protocol):
    @property
    def name(self) -> str: ...

    def report(self, at: float, samples: Sequence[Sample]) -> None:
        """May wait. ``at``: seconds since the epoch. Raises :class:`OSError`."""

    def close(self) -> None:
        """Ends what is under way in another thread, and waits for nothing."""


def reporters_of(settings: ReportSettings, origin: Origin) -> list[Reporter]:
    """Loads only what is asked for. Raises :class:`ImportError` for an extra that is missing."""
    found: list[Reporter] = []
    if settings.to_log:
        from pyrklog.observability.report_log import LogReporter

        found.append(LogReporter(time.time() - origin.started_at))
    if settings.csv_dir is not None:
        from pyrklog.observability.report_csv import CsvReporter

        found.append(CsvReporter(settings.csv_dir / f"broker-{origin.broker}"))
    if settings.statsd is not None:
        from pyrklog.observability.report_statsd import StatsdReporter

        found.append(StatsdReporter(settings.statsd, origin.broker, tags=settings.statsd_tags))
    if settings.otlp is not None:
        from pyrklog.observability.report_otlp import OtlpReporter

        found.append(OtlpReporter(settings.otlp, origin))
    return found


async def run_reporters(
    reporters: Sequence[Reporter],
    interval_seconds: float,
    read: Callable[[], Awaitable[Sequence[Sample]]],
) -> None:
    """Until cancelled; then closes them. What fails is told once for each reason in turn, and again
    when it works."""
    async with trio.open_nursery() as nursery:
        for one in reporters:
            nursery.start_soon(_run, one, interval_seconds, read)


async def _run(
    reporter: Reporter,
    interval_seconds: float,
    read: Callable[[], Awaitable[Sequence[Sample]]],
) -> None:
    thread = trio.CapacityLimiter(1)
    told: str | None = None
    due = trio.current_time()
    try:
        while True:
            due = max(due + interval_seconds, trio.current_time())
            await trio.sleep_until(due)
            try:
                found = await read()
                await trio.to_thread.run_sync(
                    reporter.report, time.time(), found, limiter=thread, abandon_on_cancel=True
                )
            except Exception as error:
                reason = str(error)
                if reason != told:
                    shown = {} if isinstance(error, OSError) else {"exc_info": error}
                    log.warning("metrics_unreported", to=reporter.name, reason=reason, **shown)
                told = reason
            else:
                if told is not None:
                    log.info("metrics_reported_again", to=reporter.name)
                told = None
    finally:
        reporter.close()
