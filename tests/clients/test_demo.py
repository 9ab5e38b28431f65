"""The demo on one month of flights, as a newcomer runs it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "demo", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=230)


@pytest.mark.jvm
@pytest.mark.spark
def test_a_month_of_flights_agrees_with_the_csv(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    against = request.config.getoption("--against")  # else the demo starts a broker of its own
    broker = ["-b", against] if against else []
    done = demo(*broker, "--months", "2", "--pieces", "2", "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "read 24,951 flights: 4,648 pairs of carrier and hour" in done.stdout
    assert "12,448 rows through the query" in done.stdout
    assert "All 4,648 pairs of carrier and hour agree" in done.stdout
    assert "ExpressJet Airlines" in done.stdout
    assert (tmp_path / "delays.png").stat().st_size > 10_000
    batches = sorted(path.name for path in (tmp_path / "delays.parquet").iterdir())
    assert batches[0] == "batch=0"
    assert len(batches) >= 3


def test_a_broker_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = demo("-b", "127.0.0.1:1", "--months", "2", "--out", str(tmp_path))
    assert done.returncode == 3
    assert "no broker answers at 127.0.0.1:1" in done.stdout
