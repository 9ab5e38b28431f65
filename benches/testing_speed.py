"""How fast tests with real brokers are: ``python -m benches.testing_speed``.

A run of pytest with the plug-in of ``pyrklog.testing``: small tests with a topic each, on one
process and on two; the same with a new broker for each test; the start of a broker alone.
benchmark-method.md describes what is measured and how.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from benches import alone
from benches.against_kafka import count
from benches.alone import Benchmark
from benches.brokers import ROOT, BenchError
from benches.figures import Figure, goal
from pyrklog.testing import TestBroker

RECORDS = 10
PROCESSES = 2
_LEAST_PER_S = 20.0
_START_MAX_MS = 300.0
_RUN_TIMEOUT_S = 1_800.0
# What brokers of two processes have on disk at a time; topics are removed after each test.
_BROKER_BYTES = 200_000_000

_CLIENTS = f"""
from confluent_kafka import Consumer, Producer, TopicPartition


def round_trip(bootstrap, topic):
    settings = {{"bootstrap.servers": bootstrap, "log_level": 0}}
    values = [b"record %d" % number for number in range({RECORDS})]
    producer = Producer({{**settings, "linger.ms": 0}})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0
    consumer = Consumer({{**settings, "group.id": "unused", "enable.auto.commit": False}})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while len(found) < len(values):
        messages = consumer.consume(len(values) - len(found), 30)
        assert messages and all(message.error() is None for message in messages)
        found += [message.value() for message in messages]
    consumer.close()
    assert found == values
"""
_SHARED_BROKER = """
import pytest
from clients import round_trip


@pytest.mark.parametrize("number", range(COUNT))
def test_round_trip(pyrklog, pyrklog_topic, number):
    round_trip(pyrklog.bootstrap, pyrklog_topic)
"""
_NEW_BROKERS = """
import pytest
from clients import round_trip
from pyrklog.testing import TestBroker


@pytest.mark.parametrize("number", range(COUNT))
def test_round_trip(number):
    with TestBroker() as broker:
        round_trip(broker.bootstrap, broker.create_topic())
"""


@dataclass(frozen=True)
class Plan:
    tests: int
    new_brokers: int
    """Tests with a broker of their own."""
    runs: int
    starts: int


@dataclass(frozen=True)
class Kind:
    name: str
    source: str
    processes: int
    goal_per_s: float | None = None

    def tests(self, plan: Plan) -> int:
        return plan.tests if self.source is _SHARED_BROKER else plan.new_brokers


KINDS = (
    Kind("one broker a process, 2 processes", _SHARED_BROKER, PROCESSES, _LEAST_PER_S),
    Kind("one broker, 1 process", _SHARED_BROKER, 1),
    Kind("a new broker each test, 2 processes", _NEW_BROKERS, PROCESSES),
    Kind("a new broker each test, 1 process", _NEW_BROKERS, 1),
)


def passed(output: str) -> int:
    """How many tests passed by pytest's last line. Raises BenchError unless all of them did."""
    last = output.strip().rpartition("\n")[2]
    found = re.fullmatch(r"=* ?(\d+) passed in [\d.]+s.*", last)
    if found is None:
        raise BenchError(f"the tests did not pass:\n{output[-3_000:]}")
    return int(found[1])


def command(processes: int) -> list[str]:
    """pytest with the plug-in, and no other than xdist where there are several processes."""
    words = [sys.executable, "-m", "pytest", "-p", "pyrklog.testing.plugin"]
    words += ["-p", "no:cacheprovider", "-q", "test_it.py"]
    return words + (["-p", "xdist", "-n", str(processes)] if processes > 1 else [])


def surroundings(inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of these runs: no plug-in but those that are named, this package."""
    kept = {name: value for name, value in inherited.items() if not name.startswith("PYTEST_")}
    paths = [str(ROOT / "python"), *filter(None, [kept.get("PYTHONPATH")])]
    return {
        **kept,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": os.pathsep.join(paths),
    }


def per_second(kind: Kind, tests: int, folder: Path) -> float:
    """Tests by the time of the whole command, its start and its brokers' included."""
    place = Path(tempfile.mkdtemp(dir=folder))
    (place / "pytest.ini").write_text("[pytest]\n")
    (place / "clients.py").write_text(_CLIENTS)
    (place / "test_it.py").write_text(kind.source.replace("COUNT", str(tests)))
    began = time.monotonic()
    try:
        done = subprocess.run(
            [*command(kind.processes), f"--basetemp={place / 'data'}"],
            cwd=place,
            env={**surroundings(os.environ), "TMPDIR": str(place)},
            capture_output=True,
            text=True,
            timeout=_RUN_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BenchError(f"{kind.name}: no end within {_RUN_TIMEOUT_S:.0f} s") from None
    seconds = time.monotonic() - began
    if passed(done.stdout) != tests:
        raise BenchError(f"{kind.name}: not {tests} tests passed:\n{done.stdout[-3_000:]}")
    shutil.rmtree(place)
    return tests / seconds


def start_ms(*, faults: bool) -> float:
    broker = TestBroker(faults=faults)
    began = time.monotonic()
    try:
        broker.start()
        return 1e3 * (time.monotonic() - began)
    finally:
        broker.close()


def rounds(
    plan: Plan, run: Callable[[Kind, int], float], note: Callable[[str], None]
) -> dict[str, list[float]]:
    """Every kind once a round, in the opposite order each second time."""
    found: dict[str, list[float]] = {kind.name: [] for kind in KINDS}
    for number in range(plan.runs):
        for kind in KINDS if number % 2 == 0 else reversed(KINDS):
            value = run(kind, kind.tests(plan))
            found[kind.name].append(value)
            note(f"run {number + 1}: {kind.name}: {value:.1f} tests/s")
    return found


def measure(plan: Plan, folder: Path, console: Console) -> list[Figure]:
    def note(text: str) -> None:
        console.print(text, highlight=False)

    starts = {
        "start of a test broker, ms": [start_ms(faults=True) for _ in range(plan.starts)],
        "start without faults, ms": [start_ms(faults=False) for _ in range(plan.starts)],
    }
    found = rounds(plan, lambda kind, tests: per_second(kind, tests, folder), note)
    goals = {"start of a test broker, ms": goal("<=", _START_MAX_MS)}
    return [
        *(
            Figure(
                f"{kind.name}, tests/s",
                tuple(found[kind.name]),
                None if kind.goal_per_s is None else goal(">=", kind.goal_per_s),
            )
            for kind in KINDS
        ),
        *(Figure(name, tuple(values), goals.get(name)) for name, values in starts.items()),
    ]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benches.testing_speed", description="how fast tests with real brokers are"
    )
    add = parser.add_argument
    add("--tests", type=count, default=400, help="tests that share a broker")
    add("--new-brokers", type=count, default=30, help="tests with a broker of their own")
    add("--runs", type=count, default=3, help="how often each kind runs")
    add("--starts", type=count, default=10, help="starts of a broker alone")
    add("--strict", action="store_true", help="a missed goal is a failure")
    add("--out", default=str(ROOT / "bench-out" / "testing-speed"), help="folder for all output")
    return parser.parse_args(arguments)


def main() -> int:
    """Exit status: 0 measured, 1 a goal missed (with --strict), 2 usage, 3 could not measure."""
    options = parse(sys.argv[1:])
    plan = Plan(options.tests, options.new_brokers, options.runs, options.starts)
    benchmark = Benchmark(
        title="tests with real brokers",
        settings=asdict(plan),
        disk_bytes=PROCESSES * _BROKER_BYTES,
        less="",
        measure=lambda folder, console: measure(plan, folder, console),
    )
    return alone.run(benchmark, options.out, strict=options.strict)


if __name__ == "__main__":
    sys.exit(main())
