"""Kafka's consumer-groups tool prints the same for our groups as for Apache Kafka's."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Producer

from pyrklog.testing import TestBroker
from tests.support import jvm
from tests.support.clients import TIMEOUT_S
from tests.support.clock import START_MS
from tests.support.groups import ConfluentMember, Crew, create_topic
from tests.support.kafka_broker import KafkaBroker

pytestmark = pytest.mark.jvm

PARTITIONS = 2
EACH = 10
STEP_MS = 60_000
_BETWEEN = datetime.fromtimestamp(START_MS / 1000 + 3.5 * STEP_MS / 1000, UTC).strftime(
    "%Y-%m-%dT%H:%M:%S.000"
)
_RESET = "--reset-offsets --group idle --topic t"

COMMANDS = [
    "--list",
    "--list --state",
    "--list --state Empty",
    "--list --state stable,dead",
    "--list --type",
    "--list --type consumer",
    "--describe --group idle",
    "--describe --group idle --state",
    "--describe --group idle --members",
    "--describe --group idle --offsets --verbose",
    "--describe --group busy",
    "--describe --group busy --state",
    "--describe --group busy --members",
    "--describe --group busy --members --verbose",
    "--describe --group nobody",
    "--describe --all-groups --state",
    f"{_RESET} --to-earliest --dry-run",
    f"{_RESET} --to-latest --dry-run",
    f"{_RESET} --to-current --dry-run",
    f"{_RESET} --to-offset 4 --dry-run",
    f"{_RESET} --to-offset 400 --dry-run",
    f"{_RESET} --shift-by -2 --dry-run",
    f"{_RESET} --shift-by 100 --dry-run",
    f"{_RESET} --to-datetime {_BETWEEN} --dry-run",
    f"{_RESET} --to-datetime 2093-01-01T00:00:00.000 --dry-run",
    f"{_RESET} --by-duration PT1S --dry-run",
    f"{_RESET} --by-duration P200D --dry-run",
    f"{_RESET} --from-file FILE --dry-run",
    f"{_RESET} --to-current --export",
    "--reset-offsets --group idle --topic t:1 --to-earliest --execute",
    "--reset-offsets --group idle --all-topics --shift-by 1 --execute",
    "--describe --group idle",
    "--reset-offsets --group busy --topic t --to-earliest --execute",
    "--reset-offsets --group nobody --topic t --to-latest --execute",
    "--describe --group nobody",
    "--delete-offsets --group idle --topic t:0",
    "--delete-offsets --group idle --topic t:0",
    "--delete-offsets --group idle --topic nothing",
    "--delete-offsets --group busy --topic t",
    "--describe --group idle",
    "--delete --group busy",
    "--delete --group idle",
    "--delete --group idle",
    "--delete --group nobody --group none",
    "--list",
]


def test_consumer_groups_tool(new_broker: Callable[..., TestBroker], tmp_path: Path) -> None:
    plan = tmp_path / "plan.csv"
    plan.write_text("t,0,2\nt,1,3\n")
    script = "\n".join(COMMANDS).replace("FILE", str(plan))
    ours = new_broker().start()
    with KafkaBroker(tmp_path / "kafka") as kafka:
        theirs = _outputs(kafka.bootstrap, script)
    told = _outputs(ours.bootstrap, script)
    assert [line for line, _ in theirs] == script.split("\n")
    assert "at " not in {text[:3] for _, texts in theirs for text in texts}, "a stack trace"
    for mine, reference in zip(told, theirs, strict=True):
        assert mine == reference


def _outputs(bootstrap: str, script: str) -> list[tuple[str, list[str]]]:
    """Each command with its output lines, without what must differ."""
    _prepare(bootstrap)
    program = Path(__file__).with_name("GroupTool.java")
    with _busy(bootstrap):
        output = jvm.run(str(program), bootstrap, stdin=script, timeout_s=180)
    sections = (section.partition("\n") for section in output.split("\f")[1:])
    return [(command, _comparable(text, bootstrap)) for command, _, text in sections]


def _comparable(text: str, bootstrap: str) -> list[str]:
    text = text.replace(bootstrap, "BROKER")
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID", text)
    lines = (" ".join(line.split()) for line in text.splitlines())
    # The order of groups depends on a hash seed.
    return sorted(line for line in lines if line)


def _prepare(bootstrap: str) -> None:
    """A topic with a record a minute, and a group that has read half of it."""
    create_topic(bootstrap, "t", PARTITIONS)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(EACH):
        for partition in range(PARTITIONS):
            producer.produce("t", b"v", partition=partition, timestamp=START_MS + number * STEP_MS)
    assert producer.flush(TIMEOUT_S) == 0
    with Crew(ConfluentMember(bootstrap, "idle", "t")) as crew:
        crew.poll_until(lambda: crew.owns_all(PARTITIONS), "the group that will be idle")
        crew.members[0].commit({0: 5, 1: 6}, "half way")


@contextmanager
def _busy(bootstrap: str) -> Iterator[None]:
    """A group with a member, polled in the background."""
    done = threading.Event()
    with Crew(ConfluentMember(bootstrap, "busy", "t", client_id="worker")) as crew:
        crew.poll_until(lambda: crew.owns_all(PARTITIONS), "the busy group")
        crew.members[0].commit({0: 1}, "")
        thread = threading.Thread(
            target=lambda: [crew.members[0].poll() for _ in iter(done.is_set, True)]
        )
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
