"""Members of three clients come and go, are killed, and so is the broker.

No partition is owned twice in one generation, no committed offset is lost, every record is seen.
``CHURN_SECONDS`` sets the duration (default 100).
"""

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from pyrklog.testing import TestBroker
from tests.support import jvm
from tests.support.generations import check_generations
from tests.support.groups import ask_committed, create_topic
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(900)]

SECONDS = float(os.environ.get("CHURN_SECONDS", "100"))
PATIENCE_S = 90.0
PARTITIONS = 6
TOPIC = "churn"
OFFSETS_PARTITIONS = 4
MEMBERS_MAX = 4
BROKER_LIFE_S = (6.0, 14.0)
KILLS_MIN = max(1, int(SECONDS / BROKER_LIFE_S[1]) - 1)
STEP_S = (0.5, 2.5)
# A group's share of the steps is many times that; several of them may end in one generation.
GENERATIONS = max(2, int(SECONDS / 20))
STORY_LENGTH = 200_000
MEMBER = Path(__file__).with_name("churn_member.py")
JAVA_STRATEGIES = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}


class Member:
    """A consuming process, and its reports."""

    def __init__(self, client: str, bootstrap: str, group: str, strategy: str, note: Any) -> None:
        self.client = client
        self._note = note
        self._process = subprocess.Popen(
            _command(client, bootstrap, group, strategy),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.name = f"{client} {self._process.pid}"
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # The last line of a killed process may be torn.
            if line.startswith("{") and line.endswith("}\n"):
                self._note(self.name, json.loads(line))

    def end(self, number: int) -> None:
        self._process.send_signal(number)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


def _command(client: str, bootstrap: str, group: str, strategy: str) -> list[str]:
    if client != "java":
        return [sys.executable, str(MEMBER), client, bootstrap, group, TOPIC, strategy]
    return jvm.command(
        "org.apache.kafka.tools.VerifiableConsumer",
        *["--bootstrap-server", bootstrap, "--group-id", group, "--topic", TOPIC],
        *["--session-timeout", "6000", "--reset-policy", "earliest", "--max-messages", "-1"],
        *["--assignment-strategy", JAVA_STRATEGIES[strategy]],
    )


class Group:
    """A group whose members change, with all that they have read and committed."""

    def __init__(self, name: str, bootstrap: str, strategy: str, clients: list[str]) -> None:
        self.name = name
        self.committed = [0] * PARTITIONS
        self.seen = [bytearray() for _ in range(PARTITIONS)]
        self.clients: set[str] = set()
        self._story: deque[tuple[float, str, str, int, int]] = deque(maxlen=STORY_LENGTH)
        self._bootstrap = bootstrap
        self._strategy = strategy
        self._choice = clients
        self._members: list[Member] = []
        self._lock = threading.Lock()

    def note(self, member: str, event: dict[str, Any]) -> None:
        with self._lock:
            if event["name"] == "records_consumed":
                for part in event["partitions"]:
                    at, last = part["partition"], part["maxOffset"]
                    self._see(at, part["minOffset"], last)
                    done = f"read {part['minOffset']} to"
                    self._story.append((time.time(), member, done, at, last))
            elif event["name"] == "offsets_committed":
                done = "committed" if event["success"] else "failed to commit"
                for part in event["offsets"]:
                    at, offset = part["partition"], part["offset"]
                    if event["success"]:
                        self.committed[at] = max(self.committed[at], offset)
                    self._story.append((time.time(), member, done, at, offset))

    def story(self, partition: int, first: int, last: int) -> str:
        """Who read and committed what of a partition between two offsets."""
        with self._lock:
            return "\n".join(
                f"{when:.3f} {member} {done} {offset}"
                for when, member, done, at, offset in self._story
                if at == partition and first <= offset <= last
            )

    def _see(self, partition: int, first: int, last: int) -> None:
        seen = self.seen[partition]
        seen.extend(bytes(max(0, last + 1 - len(seen))))
        seen[first : last + 1] = b"\1" * (last + 1 - first)

    def step(self, choice: random.Random) -> None:
        if len(self._members) < 2 or (len(self._members) < MEMBERS_MAX and choice.random() < 0.5):
            self.join(choice.choice(self._choice))
        else:
            member = self._members.pop(choice.randrange(len(self._members)))
            member.end(choice.choice([signal.SIGKILL, signal.SIGTERM]))

    def join(self, client: str) -> None:
        self.clients.add(client)
        self._members.append(Member(client, self._bootstrap, self.name, self._strategy, self.note))

    def unseen(self, ends: list[int]) -> list[int]:
        """How many records of each partition nobody has seen."""
        with self._lock:
            return [end - sum(seen[:end]) for seen, end in zip(self.seen, ends, strict=True)]

    def close(self) -> None:
        while self._members:
            self._members.pop().end(signal.SIGKILL)


class Load:
    """A producer in the background that survives the broker's deaths."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 300_000,
                "reconnect.backoff.max.ms": 300,
            }
        )
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.produced = [0] * PARTITIONS
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(0.02):
            for partition in range(PARTITIONS):
                self._producer.produce(TOPIC, b"%d" % self.produced[partition], partition=partition)
                self.produced[partition] += 1
            self._producer.poll(0)

    def end(self) -> list[int]:
        """Waits for all acknowledgements; returns the number of records by partition."""
        self._ended.set()
        self._thread.join()
        assert self._producer.flush(PATIENCE_S) == 0
        return self.produced


def test_groups_under_churn(new_broker: Callable[..., TestBroker]) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    choice = random.Random(seed)
    options = {
        "offsets.topic.num.partitions": OFFSETS_PARTITIONS,
        "group.initial.rebalance.delay.ms": 200,
    }
    broker = new_broker(options=options).start()
    create_topic(broker.bootstrap, TOPIC, PARTITIONS)
    everybody = ["confluent", "java", "kafka-python"]
    groups = [
        Group("eager", broker.bootstrap, "range", everybody),
        Group("cooperative", broker.bootstrap, "cooperative-sticky", ["confluent", "java"]),
    ]
    load = Load(broker.bootstrap)
    try:
        for group, clients in zip(groups, (everybody, ["confluent", "java"]), strict=True):
            for client in clients:
                group.join(client)
        _churn(broker, groups, choice)
        ends = load.end()
        for group in groups:
            _await_everything(group, ends)
    finally:
        load.end()
        for group in groups:
            group.close()
    for group in groups:
        _check_offsets(broker.bootstrap, group)
    stories = {group.name: group.story for group in groups}
    least = dict.fromkeys(stories, GENERATIONS)
    check_generations(broker.bootstrap, TOPIC, least, OFFSETS_PARTITIONS, stories=stories)


def _churn(broker: TestBroker, groups: list[Group], choice: random.Random) -> None:
    """Members and broker die and return for ``SECONDS``, and until the broker has been killed often
    enough: on a busy machine members take their time to begin and to end."""
    end = time.monotonic() + SECONDS
    kills = 0
    next_kill = time.monotonic() + choice.uniform(*BROKER_LIFE_S)
    turns = itertools.cycle(groups)
    while time.monotonic() < end or kills < KILLS_MIN:
        # The group may make progress before its next fault.
        time.sleep(choice.uniform(*STEP_S))
        next(turns).step(choice)
        if time.monotonic() > next_kill:
            broker.restart()
            kills += 1
            next_kill = time.monotonic() + choice.uniform(*BROKER_LIFE_S)


def _await_everything(group: Group, ends: list[int]) -> None:
    """Two members are left alone until they have read everything."""
    while len(group._members) < 2:
        group.join("confluent")
    wait_until(
        lambda: not any(group.unseen(ends)),
        lambda: f"{group.name}: unseen {group.unseen(ends)} of {ends}",
        PATIENCE_S,
    )


def _check_offsets(bootstrap: str, group: Group) -> None:
    """Every commit that a member was told of is kept."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group.name})
    places = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
    kept = [place.offset for place in ask_committed(consumer, places)]
    consumer.close()
    assert all(group.committed)
    for partition, (offset, told) in enumerate(zip(kept, group.committed, strict=True)):
        assert offset >= told, f"{group.name} [{partition}]: {told} was committed, {offset} is kept"
