"""``pyrklog.metrics...``: where metrics are reported."""

from pathlib import Path

import pytest

from pyrklog.config.load import load_config
from pyrklog.config.report_options import ReportSettings
from pyrklog.errors import ConfigError


def reports(directory: Path, **given: str) -> ReportSettings:
    """Option names lack ``pyrklog.metrics.`` and have underscores for dots."""
    named = {f"pyrklog.metrics.{name.replace('_', '.')}": text for name, text in given.items()}
    return load_config(flags={"pyrklog.data.dir": str(directory), **named}).reports


def test_nothing_is_reported_by_default(tmp_path: Path) -> None:
    found = reports(tmp_path)
    assert found == ReportSettings(60, False, None, None, False, None)
    assert not found.is_on


def test_each_place_turns_its_reporter_on(tmp_path: Path) -> None:
    assert reports(tmp_path, log="true").is_on
    csv_dir = tmp_path / "csv"
    assert reports(tmp_path, csv_dir=str(csv_dir)).csv_dir == csv_dir
    assert reports(tmp_path, statsd="stats.example:8125").statsd == ("stats.example", 8125)
    assert reports(tmp_path, statsd=" [::1]:8125 ").statsd == ("::1", 8125)
    assert reports(tmp_path, otlp="http://c:4318/v1/metrics").otlp == "http://c:4318/v1/metrics"
    assert reports(tmp_path, interval_seconds="5").interval_seconds == 5


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("interval_seconds", "0"),
        ("interval_seconds", "86401"),
        ("log", "yes"),
        ("statsd", "8125"),
        ("statsd", ":8125"),
        ("statsd", "host:0"),
        ("statsd", "host:70000"),
        ("statsd", "udp://host:8125"),
        ("otlp", "c:4318"),
        ("otlp", "ftp://c/x"),
        ("otlp", "http://"),
        ("otlp", "http://c:99999/x"),
        ("otlp", "http://[::1/x"),
    ],
)
def test_wrong_places_are_refused_at_the_start(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=rf"pyrklog\.metrics\.{name.replace('_', '.')}"):
        reports(tmp_path, **{name: text})


@pytest.mark.parametrize("scheme", ["http", "ftp"])
def test_a_password_in_a_url_is_refused_and_not_shown(tmp_path: Path, scheme: str) -> None:
    with pytest.raises(ConfigError) as raised:
        reports(tmp_path, otlp=f"{scheme}://user:word@c:4318/v1/metrics")
    told = f"{raised.value} {raised.value.fix}"
    assert "pyrklog.metrics.otlp has a name or password" in told
    assert "OTEL_EXPORTER_OTLP_METRICS_HEADERS" in told
    assert "word@" not in told


@pytest.mark.parametrize("below", ["logs", "logs/csv"])
def test_files_in_a_log_directory_are_refused(tmp_path: Path, below: str) -> None:
    with pytest.raises(ConfigError, match="lies in the log directory"):
        reports(tmp_path, csv_dir=str(tmp_path / below))
