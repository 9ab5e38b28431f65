"""Where metrics are reported to without being asked for: ``pyrklog.metrics...``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from pyrklog.base.problems import Problem
from pyrklog.config.http_place import parse_address
from pyrklog.config.option import boolean, integer, string
from pyrklog.errors import ConfigError

if TYPE_CHECKING:
    from pyrklog.config.broker import BrokerConfig

CSV_DIR = "pyrklog.metrics.csv.dir"
OTLP = "pyrklog.metrics.otlp"
STATSD_ALLOWED = "HOST:PORT, [HOST]:PORT"
OTLP_ALLOWED = "http://HOST:PORT/PATH, https://HOST:PORT/PATH"
DAY_SECONDS = 86_400


def _wrong_with_statsd(value: object) -> str | None:
    if not isinstance(value, str) or not value.strip():
        return None
    found = parse_address(value)
    is_one = found is not None and bool(found[0]) and found[1] > 0
    return None if is_one else f"must be {STATSD_ALLOWED}"


def _wrong_with_otlp(value: object) -> str | None:
    """None also for what may have a password: it is refused without being shown."""
    if not isinstance(value, str) or not value.strip() or "@" in value:
        return None
    try:
        found = urlsplit(value.strip())
        is_one = found.scheme in ("http", "https") and bool(found.hostname)
        is_one = is_one and found.port != 0
    except ValueError:
        is_one = False
    return None if is_one else f"must be {OTLP_ALLOWED}"


REPORT_OPTIONS = (
    integer("pyrklog.metrics.interval.seconds", 60, minimum=1, maximum=DAY_SECONDS).described(
        "How often metrics are reported to the places below."
    ),
    boolean("pyrklog.metrics.log", False).described(
        "A line of the broker's log with the main metrics each interval."
    ),
    string(CSV_DIR, None).described(
        "Directory of CSV files, one for each metric in broker-ID, that get a row for each series "
        "each interval; not in a log directory. Two files of at most 8 MiB are kept of each."
    ),
    string(
        "pyrklog.metrics.statsd", None, check=_wrong_with_statsd, check_allows=STATSD_ALLOWED
    ).described("Address of a StatsD server, which gets the metrics by UDP each interval."),
    boolean("pyrklog.metrics.statsd.tags", False).described(
        "Labels are DogStatsD's tags rather than parts of the names."
    ),
    string(OTLP, None, check=_wrong_with_otlp, check_allows=OTLP_ALLOWED).described(
        "URL of an OpenTelemetry collector, for instance http://127.0.0.1:4318/v1/metrics, which "
        "gets the metrics by OTLP over HTTP each interval; without a name or password, which are "
        "for OTEL_EXPORTER_OTLP_METRICS_HEADERS. Needs pyrklog[otlp]."
    ),
)


class ReportSettings(NamedTuple):
    interval_seconds: int
    to_log: bool
    csv_dir: Path | None
    statsd: tuple[str, int] | None
    """Host and port."""
    statsd_tags: bool
    otlp: str | None
    """URL."""

    @property
    def is_on(self) -> bool:
        return self.to_log or any((self.csv_dir, self.statsd, self.otlp))


def report_settings(config: BrokerConfig) -> ReportSettings:
    """Raises :class:`ConfigError` for a directory that holds records, and for a URL with a name or
    password."""
    csv_dir = config.string(CSV_DIR)
    path = None
    if csv_dir is not None:
        path = Path(csv_dir).expanduser().absolute()
        for log_dir in config.log_dirs:
            if path == log_dir or log_dir in path.parents:
                what = f"{CSV_DIR} ({path}) lies in the log directory {log_dir}"
                raise ConfigError(Problem.DIRECTORIES_MISPLACED, f"{what}; choose a place outside.")
    otlp = (config.string(OTLP) or "").strip()
    if "@" in otlp:
        raise ConfigError(
            Problem.OPTION_VALUE,
            f"{OTLP} has a name or password, which the log would show; it can be {OTLP_ALLOWED}.",
            fix="give them by the variable OTEL_EXPORTER_OTLP_METRICS_HEADERS",
        )
    statsd = (config.string("pyrklog.metrics.statsd") or "").strip()
    return ReportSettings(
        config.integer("pyrklog.metrics.interval.seconds"),
        config.boolean("pyrklog.metrics.log"),
        path,
        parse_address(statsd),
        config.boolean("pyrklog.metrics.statsd.tags"),
        otlp or None,
    )
