"""The demo on one month of flights, as a newcomer runs it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def demo(*arguments: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """``path``: a folder before those of the PATH."""
    command = [sys.executable, "-m", "demo", *arguments]
    env = dict(os.environ)
    if path is not None:
        env["PATH"] = os.pathsep.join((str(path), env["PATH"]))
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=230)


@pytest.mark.jvm
@pytest.mark.spark
def test_a_month_of_flights_agrees_with_the_csv(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    against = request.config.getoption("--against")  # else the demo starts a broker of its own
    broker = ["-b", against] if against else []
    # An environment that is not activated: the first python3 lacks what Spark's workers need.
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.symlink_to("/bin/false")
    options = ("--months", "2", "--pieces", "2", "--out", str(tmp_path / "out"))
    done = demo(*broker, *options, path=other.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "read 24,951 flights: 4,648 pairs of carrier and hour" in done.stdout
    assert "12,448 rows through the query" in done.stdout
    assert "All 4,648 pairs of carrier and hour agree" in done.stdout
    assert "ExpressJet Airlines" in done.stdout
    assert (tmp_path / "out" / "delays.png").stat().st_size > 10_000
    batches = sorted(path.name for path in (tmp_path / "out" / "delays.parquet").iterdir())
    assert batches[0] == "batch=0"
    assert len(batches) >= 3
    # No lines on a pipe but those of steps.
    assert "\x1b" not in done.stdout


def test_a_broker_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = demo("-b", "127.0.0.1:1", "--months", "2", "--out", str(tmp_path))
    assert done.returncode == 3
    assert "no broker answers at 127.0.0.1:1" in done.stdout
