"""The wheel of ``make wheel`` in an empty virtual environment without a Rust toolchain."""

import os
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from pyrklog.testing import TestBroker
from tests.support.clients import Confluent, Record
from tests.support.clock import START_MS

ROOT = Path(__file__).parents[2]
# Without pyarrow, which is an extra.
_SCAN = """
import sys, pyrklog
bootstrap, topic = sys.argv[1:]
scan = pyrklog.scan(topic, bootstrap_servers=bootstrap)
try:
    scan.reader()
except ImportError as error:
    print(error)
for batch in scan:
    schema, array = batch.__arrow_c_array__()
print(sum(one.records for one in scan.progress()))
"""


@pytest.mark.timeout(300)
def test_the_wheel_needs_nothing_but_python(
    new_broker: Callable[..., TestBroker], topic: str, tmp_path: Path
) -> None:
    (wheel,) = (ROOT / "dist").glob("*.whl")  # ``make test`` builds it
    assert "-abi3-" in wheel.name
    venv.create(tmp_path / "venv", with_pip=True)
    binaries = tmp_path / "venv" / "bin"
    # Only the interpreter's own folder is on the PATH: no cargo, no compiler, no checkout.
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "VIRTUAL_ENV") and not name.startswith("CARGO")
    } | {"PATH": str(binaries)}
    subprocess.run(
        [binaries / "python", "-m", "pip", "install", "--quiet", "--only-binary=:all:", wheel],
        check=True,
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
    )
    shown = subprocess.run(
        [binaries / "pyrklog", "--version"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=environment,
    )
    assert wheel.name.split("-")[1] in shown.stdout
    # Files that are not Python came with it.
    unit = subprocess.run(
        [binaries / "pyrklog", "deploy", "systemd"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=environment,
    )
    assert f"ExecStart={binaries / 'pyrklog'} serve " in unit.stdout

    assert str(binaries) not in sys.executable
    broker = new_broker(python=str(binaries / "python"), environment=environment).start()
    records = [Record(b"k", b"from the wheel", (), START_MS)]
    assert Confluent().produce(broker.bootstrap, topic, records) == [0]
    assert Confluent().consume(broker.bootstrap, topic, 1) == records
    scanned = subprocess.run(
        [binaries / "python", "-c", _SCAN, broker.bootstrap, topic],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=environment,
    )
    needed, rows = scanned.stdout.splitlines()
    assert needed == "Scan.reader() needs pyarrow, which is not installed: pip install pyarrow"
    assert rows == "1"
    assert broker.stop() == 0
