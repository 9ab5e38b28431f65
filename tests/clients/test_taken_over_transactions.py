"""Transactions that outlive their process: what Flink's exactly-once sink asks of a broker.

``TakeOver.java`` does what ``FlinkKafkaInternalProducer`` does. A sink's writer flushes at a
checkpoint. Its committer commits later, in another process after a failure, with the writer's
producer id and epoch. What a former job has left open is aborted: by initializing transactional ids
until one was unused, or those that ListTransactions names.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from pyrklog.testing import TestBroker
from tests.support import jvm
from tests.support.kafka_broker import KafkaBroker
from tests.support.transactions import read_committed_when
from tests.support.waiting import PATIENCE_S

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(180)]

PROGRAM = Path(__file__).with_name("TakeOver.java")
JARS: Mapping[str, Path] = {"java-3.9": jvm.KAFKA_JARS, "java-4.0": jvm.KAFKA4_JARS}
FENCED = {"threw ProducerFencedException", "threw InvalidProducerEpochException"}


class Process:
    """One of Flink's: a virtual machine with ``TakeOver.java``."""

    def __init__(self, command: list[str], log: Path) -> None:
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self._log = log

    def call(self, *words: object) -> str:
        """The answer to a command."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, self._log.read_text()
        return answer.strip()

    def result(self, *words: object) -> list[str]:
        """Of a command that succeeds."""
        status, *found = self.call(*words).split(" ")
        assert status == "ok", self._log.read_text()[-5_000:]
        return found

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """Apache Kafka 3.9, for comparison."""
    with KafkaBroker(tmp_path_factory.mktemp("kafka") / "kafka") as running:
        yield running


class Job:
    """A topic of two partitions, and processes that write to it."""

    def __init__(self, bootstrap: str, topic: str, start: Callable[[str, str], Process]) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.start = partial(start, bootstrap)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(PATIENCE_S)

    @cached_property
    def writer(self) -> Process:
        return self.start("writer")

    @cached_property
    def committer(self) -> Process:
        return self.start("committer")

    def id(self, name: object) -> str:
        """A transactional id."""
        return f"{self.topic}-{name}"

    def prepare(self, name: object, process: Process | None = None) -> tuple[str, str]:
        """Producer id and epoch of a transaction that is flushed and open."""
        found = (process or self.writer).result("prepare", self.id(name), self.topic)
        return found[0], found[1]

    def check(self, *names: object) -> None:
        """Waits until committed records are those of these transactions, and nothing is open."""
        wanted = [self.id(name).encode() for name in names]
        for partition in range(2):
            read_committed_when(self.bootstrap, self.topic, wanted, partition=partition)


@pytest.fixture(scope="module", params=list(JARS))
def start(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str, str], Process]]:
    """Starts processes with one of the clients. They are named, and start once."""
    jars = JARS[request.param]
    folder = tmp_path_factory.mktemp("processes")
    started: dict[tuple[str, str], Process] = {}

    def start_one(bootstrap: str, name: str) -> Process:
        if (bootstrap, name) not in started:
            command = jvm.command(str(PROGRAM), bootstrap, jars=jars)
            log = folder / f"process{len(started)}.log"
            started[(bootstrap, name)] = Process(command, log)
        return started[(bootstrap, name)]

    yield start_one
    for one in started.values():
        one.kill()


@pytest.fixture(params=["broker", "kafka"])
def job(request: pytest.FixtureRequest, start: Callable[[str, str], Process], topic: str) -> Job:
    running: TestBroker | KafkaBroker = request.getfixturevalue(request.param)
    return Job(running.bootstrap, topic, start)


def test_another_process_commits_what_a_killed_one_has_flushed(job: Job) -> None:
    killed, one = job.start("killed"), job.id("one")
    producer = job.prepare("one", killed)
    killed.kill()
    job.check()
    assert job.committer.call("commit", one, *producer) == "ok"
    job.check("one")
    # Flink repeats it after a failure between the commit and the next checkpoint.
    assert job.committer.call("commit", one, *producer) == "ok"
    again = job.prepare("one", job.committer)
    assert again[0] == producer[0]
    assert int(again[1]) > int(producer[1])
    assert job.committer.call("finish", one) == "ok"
    job.check("one", "one")


def test_the_writer_commits_once_more_what_a_committer_has_committed(job: Job) -> None:
    """They are tasks of a running job, and the writer goes on with its producer."""
    producer = job.prepare("one")
    assert job.committer.call("commit", job.id("one"), *producer) == "ok"
    assert job.writer.call("finish", job.id("one")) == "ok"
    assert job.writer.call("become", job.id("one"), job.id("two")) == "ok"
    job.prepare("two")
    assert job.writer.call("finish", job.id("two")) == "ok"
    job.check("one", "two")


def test_what_was_fenced_cannot_be_committed(job: Job) -> None:
    producer, one = job.prepare("one"), job.id("one")
    (epoch,) = job.committer.result("initialize", one)
    assert int(epoch) > int(producer[1])
    assert job.committer.call("commit", one, *producer) in FENCED
    assert job.committer.call("abort", one, *producer) in FENCED
    assert job.writer.call("finish", one) in FENCED
    job.check()


def test_another_process_aborts_what_was_flushed(job: Job) -> None:
    producer, one = job.prepare("one"), job.id("one")
    assert job.committer.call("abort", one, *producer) == "ok"
    job.check()
    assert job.committer.call("abort", one, *producer) == "ok"
    assert job.committer.call("commit", one, *producer) == "threw InvalidTxnStateException"
    job.check()


def test_unknown_ids_are_initialized_to_find_what_was_left_open(job: Job) -> None:
    for number in (1, 2, 3):
        job.prepare(number)
    assert job.committer.result("probe", job.topic, 1) == ["3"]
    job.check()
    # The fourth is not unused any more.
    assert job.committer.result("probe", job.topic, 1) == ["4"]


def test_what_was_left_open_is_listed(job: Job) -> None:
    producers = {name: job.prepare(name) for name in ("a", "b", "c")}
    assert job.writer.call("finish", job.id("b")) == "ok"
    assert job.committer.result("lingering", job.topic) == [f"{job.id('a')},{job.id('c')}"]
    job.committer.result("initialize", job.id("a"))
    assert job.committer.result("lingering", job.topic) == [job.id("c")]
    assert job.committer.call("commit", job.id("c"), *producers["c"]) == "ok"
    job.check("b", "c")
    assert job.committer.call("lingering", job.topic) == "ok"


def test_the_broker_is_killed_before_the_commit(
    new_broker: Callable[..., TestBroker], start: Callable[[str, str], Process], topic: str
) -> None:
    broker = new_broker().start()
    job = Job(broker.bootstrap, topic, start)
    producers = {name: job.prepare(name) for name in ("one", "two", "three")}
    job.writer.kill()
    broker.kill()
    broker.start()
    assert job.committer.call("commit", job.id("one"), *producers["one"]) == "ok"
    assert job.committer.call("abort", job.id("two"), *producers["two"]) == "ok"
    (epoch,) = job.committer.result("initialize", job.id("three"))
    assert int(epoch) > int(producers["three"][1])
    job.check("one")
