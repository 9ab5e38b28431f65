"""Mirrors in tests: two clusters, a mirror as a process, what is at either side."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from typer.testing import CliRunner

import pyrklog
from pyrklog.cli.app import app
from pyrklog.scanning import ScanError, UnknownTopicError
from tests.support.waiting import PATIENCE_S, wait_until

_NOT_YET = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
COLUMNS = ("key", "value", "headers", "timestamp", "partition", "offset")


class Done(NamedTuple):
    """What a command printed."""

    stdout: str
    stderr: str


class Pair:
    """A source ``east`` and a target ``west``, with a mirror of this name; ``more`` are options of
    every command."""

    def __init__(self, source: str, target: str, name: str, *more: str) -> None:
        self.source, self.target = source, target
        places = ("--from", f"east={source}", "--to", f"west={target}")
        self.between = (*places, "--name", name, *more)

    def run(self, *words: str, code: int = 0) -> Done:
        """In this process."""
        done = CliRunner().invoke(app, ["mirror", words[0], *self.between, *words[1:]])
        assert done.exit_code == code, f"{words}: {done.stdout}{done.stderr}{done.exception}"
        return Done(done.stdout, done.stderr)

    def once(self, *words: str, code: int = 0) -> str:
        """``mirror run --once``; what it said."""
        return self.run("run", "--once", *words, code=code).stderr

    def start(self, *words: str) -> subprocess.Popen[str]:
        """``mirror run`` as a process, which says what it does on ``stderr``."""
        return subprocess.Popen(
            [sys.executable, "-m", "pyrklog", "mirror", "run", *self.between, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def items(self, *words: str, code: int = 0) -> list[dict[str, Any]]:
        """What ``status`` or ``verify`` list."""
        found = json.loads(self.run(*words, "-o", "json", code=code).stdout)
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


def at_offsets(bootstrap: str, topic: str) -> dict[int, dict[int, dict[str, Any]]]:
    """Committed records by partition and offset."""
    reading = pyrklog.scan(topic, columns=COLUMNS, bootstrap_servers=bootstrap)
    found: dict[int, dict[int, dict[str, Any]]] = {}
    for row in reading.reader().read_all().to_pylist():
        some = found.setdefault(row.pop("partition"), {})
        offset = row.pop("offset")
        assert offset not in some
        some[offset] = row
    return found


def starts_of(bootstrap: str, topic: str) -> list[int]:
    """Where the log of each partition begins."""
    with pyrklog.scan(topic, columns=[], bootstrap_servers=bootstrap) as planned:
        return [one.start for one in planned.progress()]


def delete_before(bootstrap: str, topic: str, offsets: dict[int, int]) -> None:
    """The records of each partition before an offset."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [TopicPartition(topic, *one) for one in offsets.items()]
    for future in admin.delete_records(wanted).values():
        future.result(PATIENCE_S)


def values(bootstrap: str, topic: str) -> Counter[bytes]:
    """How often each value is there; none without the topic."""
    try:
        found = rows(bootstrap, topic, ["value"])
    except UnknownTopicError:
        return Counter()
    return Counter(row["value"] for some in found.values() for row in some)


QUEUED_MAX = 90_000
"""Of a producer's 100,000."""


def fill(
    bootstrap: str, topic: str, records: int, *, first: int = 0, partitions: int = 3
) -> Counter[bytes]:
    """Writes values that differ, each to a partition in turn; how often each is there."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    wanted = [b"%d" % number for number in range(first, first + records)]
    for number, value in enumerate(wanted):
        # A cluster that has just started gives no producer id for a while.
        while len(producer) >= QUEUED_MAX:
            producer.poll(0.1)
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


def end_of(bootstrap: str, topic: str) -> int:
    """Committed offsets of all partitions; 0 without the topic, or while a broker is away."""
    try:
        with pyrklog.scan(topic, columns=[], bootstrap_servers=bootstrap, timeout_s=1) as planned:
            return sum(one.end for one in planned.progress())
    except ScanError:
        return 0


def copied_more(pair: Pair, topic: str, than: int) -> int:
    """Waits until the target's end is behind this one; where it is then."""

    def more() -> int | None:
        end = end_of(pair.target, f"east.{topic}")
        return end if end > than else None

    return wait_until(more, f"nothing is copied behind {than}", 2 * PATIENCE_S)


def commit(
    bootstrap: str,
    group: str,
    topic: str,
    offsets: dict[int, int],
    metadata: str | None = None,
) -> None:
    """For a group without members; a coordinator that is new may take a while."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    note = () if metadata is None else (metadata,)
    wanted = [TopicPartition(topic, *one, *note) for one in offsets.items()]

    def is_committed() -> bool:
        try:
            consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() not in _NOT_YET:
                raise
            return False
        return True

    wait_until(is_committed, f"group {group} has no coordinator")
    consumer.close()


def set_option(bootstrap: str, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
