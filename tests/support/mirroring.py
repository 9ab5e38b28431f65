"""Mirrors in tests: two clusters, a mirror as a process, what is at either side."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Producer

import pyrklog
from pyrklog.scanning import UnknownTopicError
from tests.support.waiting import PATIENCE_S, wait_until

RUN_S = 120.0
COLUMNS = ("key", "value", "headers", "timestamp", "partition", "offset")


class Pair:
    """A source ``east`` and a target ``west``, with a mirror of this name."""

    def __init__(self, source: str, target: str, name: str) -> None:
        self.source, self.target = source, target
        places = ("--from", f"east={source}", "--to", f"west={target}")
        self.between = (*places, "--name", name)

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "pyrklog", "mirror", words[0], *self.between, *words[1:]]

    def run(self, *words: str, fails: bool = False) -> subprocess.CompletedProcess[str]:
        """Ends before it returns."""
        done = subprocess.run(
            self.command(*words), capture_output=True, text=True, timeout=RUN_S, check=False
        )
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done

    def once(self, *words: str, fails: bool = False) -> str:
        """``mirror run --once``; what it said."""
        return self.run("run", "--once", *words, fails=fails).stderr

    def start(self, *words: str) -> subprocess.Popen[str]:
        """``mirror run``, which says what it does on ``stderr``."""
        return subprocess.Popen(
            self.command("run", *words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def items(self, *words: str, fails: bool = False) -> list[dict[str, Any]]:
        """What ``status`` or ``verify`` list."""
        found = json.loads(self.run(*words, "-o", "json", fails=fails).stdout)
        items: list[dict[str, Any]] = found["items"]
        return items

    def verified(self) -> list[dict[str, Any]]:
        """Every partition is the same."""
        found = self.items("verify")
        assert found, "nothing was mirrored"
        assert {one["result"] for one in found} == {"same"}
        return found


def rows(
    bootstrap: str, topic: str, columns: Sequence[str] = COLUMNS
) -> dict[int, list[dict[str, Any]]]:
    """Committed records by partition; offsets are left out."""
    wanted = list(dict.fromkeys([*columns, "partition", "offset"]))
    reading = pyrklog.scan(topic, columns=wanted, bootstrap_servers=bootstrap)
    found: dict[int, list[dict[str, Any]]] = {}
    table = reading.reader().read_all().to_pylist()
    for row in sorted(table, key=lambda row: (row["partition"], row["offset"])):
        del row["offset"]
        found.setdefault(row.pop("partition"), []).append(row)
    return found


def values(bootstrap: str, topic: str) -> Counter[bytes]:
    """How often each value is there; none without the topic."""
    try:
        found = rows(bootstrap, topic, ["value"])
    except UnknownTopicError:
        return Counter()
    return Counter(row["value"] for some in found.values() for row in some)


def fill(
    bootstrap: str, topic: str, records: int, *, first: int = 0, partitions: int = 3
) -> Counter[bytes]:
    """Writes values that differ, each to a partition in turn; how often each is there."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    wanted = [b"%d" % number for number in range(first, first + records)]
    for number, value in enumerate(wanted):
        producer.produce(topic, value, key=b"k%d" % (number % 100), partition=number % partitions)
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    return Counter(wanted)


def wait_for_values(bootstrap: str, topic: str, wanted: Counter[bytes]) -> None:
    """Until they are there, each as often."""
    wait_until(
        lambda: values(bootstrap, topic).total() >= wanted.total(),
        lambda: f"{values(bootstrap, topic).total()} of {wanted.total()} records",
        2 * PATIENCE_S,
    )
    assert values(bootstrap, topic) == wanted


def copied_more(pair: Pair, topic: str, than: int) -> int:
    """Waits until the target has more records of the topic; how many."""

    def more() -> int | None:
        found = values(pair.target, f"east.{topic}").total()
        return found if found > than else None

    return wait_until(more, "nothing is copied", 2 * PATIENCE_S)
