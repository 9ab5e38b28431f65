"""Read-process-write with transactions: copiers, faults, and the evidence for their check."""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from pyrklog.groups.partitioner import OFFSETS_TOPIC, partition_for
from pyrklog.transactions.manager import TRANSACTION_TOPIC
from tests.checker.analysis import Anomaly, Evidence, check
from tests.checker.clients import IMPATIENT, Client, Writer
from tests.checker.history import History
from tests.checker.reading import PARTITIONS, CopyReader, RawReader, read_all, read_copies
from tests.checker.reporting import ReportingProcess
from tests.checker.transactions import NEVER_NS, Copies, Copying
from tests.support import jvm
from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import create, leaders
from tests.support.faults.driver import FaultDriver
from tests.support.waiting import wait_until

LIBRARY, JAVA = "librdkafka", "java"
_PROGRAM = Path(__file__).with_name("Copier.java")
COPIERS = (LIBRARY, LIBRARY, JAVA)
READERS = 2
INTERNAL_PARTITIONS = 3
OPTIONS: Mapping[str, str | int | bool] = {
    "transaction.state.log.num.partitions": INTERNAL_PARTITIONS,
    "offsets.topic.num.partitions": INTERNAL_PARTITIONS,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1_000,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
}
"""Of the cluster."""
BACK_WITHIN_S = 180.0
PAUSE_MAX_S = 1.0
RECORDS_A_STEP, STEP_S, WAITING_MAX = 2, 0.03, 100
WAITS_SHARE = 0.5
"""Of the rounds: those whose next one begins only when there are commits again."""
AIMED_SHARE = 0.5
"""Of the faults: those that wait for a commit, and come while it is under way."""
AIMED_S_MAX = 0.002

KINDS = {
    "copier": 3,
    "broker": 3,
    "transaction coordinator": 2,
    "group coordinator": 2,
    "copier and coordinator": 2,
    "all brokers": 1,
    "all copiers": 1,
    "zombie": 2,
}
"""What is killed, and how often. A ``zombie`` is paused, and goes on beside its successor."""


class Terms(NamedTuple):
    bootstrap: str
    group: str
    source: str
    target: str


class Copiers:
    """A process of each; one that ends is started again as the next life of its name."""

    def __init__(self, terms: Terms, chance: random.Random, history: History) -> None:
        self.fenced = 0
        """Zombies that ended by themselves."""
        self.said: list[str] = []
        """Last words of those that ended by themselves."""
        self._terms = terms
        self._chance = chance
        self._history = history
        self._lives = [0] * len(COPIERS)
        self._running = [self._start(number) for number in range(len(COPIERS))]
        self._zombies: list[ReportingProcess] = []

    @staticmethod
    def name(number: int) -> str:
        """The transactional id."""
        return f"{COPIERS[number]}-{number}"

    def _start(self, number: int) -> ReportingProcess:
        self._lives[number] += 1
        name, life = self.name(number), str(self._lives[number])
        bootstrap, *rest = self._terms
        arguments = (bootstrap, name, life, *rest)
        if COPIERS[number] == JAVA:
            # A transactional id may change between the versions of the protocol.
            jars = self._chance.choice((jvm.KAFKA_JARS, jvm.KAFKA4_JARS))
            command = jvm.command(str(_PROGRAM), *arguments, jars=jars)
        else:
            command = [sys.executable, "-m", "tests.checker.copier", *arguments]
        return ReportingProcess(command, f"{name}/{life}", self._history)

    def client(self, number: int) -> str:
        """Its name in the history."""
        return self._running[number].name

    def kill(self, number: int) -> None:
        self._running[number].kill()

    def replace(self, number: int) -> None:
        """Pauses it and starts its successor."""
        self._bury_zombies()
        self._running[number].pause()
        self._zombies.append(self._running[number])
        self._running[number] = self._start(number)

    def resume_zombies(self) -> None:
        for zombie in self._zombies:
            zombie.resume()

    def _bury_zombies(self) -> None:
        for zombie in self._zombies:
            self._bury(zombie)
            self.fenced += zombie.broke is not None
        self._zombies.clear()

    def _bury(self, one: ReportingProcess) -> None:
        one.kill()
        if one.broke:
            self.said = [*self.said, f"{one.name}: {one.broke[-1_000:]}"][-10:]

    def revive(self) -> None:
        for number, one in enumerate(self._running):
            if not one.is_running:
                self._bury(one)
                self._running[number] = self._start(number)

    def close(self) -> None:
        self._bury_zombies()
        for one in self._running:
            self._bury(one)


class Feeder(Writer):
    """Writes a little all the time, so that faults find transactions under way."""

    def __init__(self, bootstrap: str, topic: str, history: History) -> None:
        super().__init__(bootstrap, topic, PARTITIONS, 1, history)

    def step(self) -> None:
        if len(self._producer) < WAITING_MAX:
            for _ in range(RECORDS_A_STEP):
                self._send(random.randrange(PARTITIONS))
        self.serve(STEP_S)


class GroupOffsets(Client):
    """Asks for the group's offsets again and again, and does not wait for open transactions."""

    def __init__(self, terms: Terms, name: str, history: History, **options: str) -> None:
        super().__init__(name, history)
        self._places = [TopicPartition(terms.source, index) for index in range(PARTITIONS)]
        self._consumer = Consumer(
            {
                **IMPATIENT,
                "bootstrap.servers": terms.bootstrap,
                "group.id": terms.group,
                "isolation.level": "read_uncommitted",
                **options,
            }
        )

    def step(self) -> None:
        if not self._end.wait(0.1):
            self.ask()

    def ask(self) -> dict[int, int]:
        """By partition, of those that have one; empty without an answer."""
        try:
            places = self._consumer.committed(self._places, timeout=5)
        except KafkaException:
            return {}
        found = {one.partition: one.offset for one in places if not one.error and one.offset >= 0}
        for partition, offset in found.items():
            self.history.add(self.name, "committed", "ok", partition, offset=offset)
        return found

    def finish(self) -> None:
        self._consumer.close()


class CopyLoad:
    """Copies a topic while things are killed."""

    def __init__(self, cluster: BrokerCluster, topic: str, seed: int) -> None:
        self.history = History()
        self.inputs = History()
        self.happened: Counter[str] = Counter()
        self._cluster = cluster
        self._chance = random.Random(seed)
        self._faults = FaultDriver(cluster)
        self._terms = Terms(cluster.bootstrap, f"{topic}-group", f"{topic}-in", f"{topic}-out")
        source, target = self._terms.source, self._terms.target
        create(cluster, source, PARTITIONS, 3)
        self._admin: AdminClient = create(cluster, target, PARTITIONS, 3)
        self._feeder = Feeder(cluster.bootstrap, source, self.inputs)
        where = (cluster.bootstrap, target, PARTITIONS)
        self._readers = [
            CopyReader(*where, f"reader-{number}", self.history) for number in range(READERS)
        ]
        self._watcher = GroupOffsets(self._terms, "watcher", self.history)
        self._copiers = Copiers(self._terms, self._chance, self.history)

    def __enter__(self) -> Self:
        for client in self._clients():
            client.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._copiers.close()
        for client in self._clients():
            client.end()
            client.join(BACK_WITHIN_S)

    def _clients(self) -> list[Client]:
        return [self._feeder, *self._readers, self._watcher]

    # --- a round ---------------------------------------------------------------------------------

    def disturb(self) -> None:
        """One more fault."""
        self._pause()
        (kind,) = self._chance.choices(list(KINDS), list(KINDS.values()))
        self.happened[kind] += 1
        known = len(self.history)
        self._disturb(kind)
        self._copiers.revive()
        self._raise_broken()
        if self._chance.random() < WAITS_SHARE:
            self._await(lambda: self._sees("ok", known), lambda: f"no commits after {kind}")

    def _sees(self, outcome: str, known: int, client: str | None = None) -> bool:
        """Whether there is such an operation of a commit behind the ``known`` ones."""
        return any(
            (op.action, op.outcome) == ("commit_transaction", outcome)
            and client in (None, op.client)
            for op in self.history.since(known)
        )

    def _aim(self, copier: int) -> None:
        """Returns in the middle of this one's commit, if that is wanted and there is one soon."""
        if self._chance.random() > AIMED_SHARE:
            return
        known, deadline = len(self.history), time.monotonic() + PAUSE_MAX_S
        while not self._sees("invoke", known, self._copiers.client(copier)):
            if time.monotonic() > deadline:
                return
            # The commit takes a few milliseconds.
            time.sleep(0.001)
        # At any moment of it.
        time.sleep(self._chance.uniform(0, AIMED_S_MAX))

    def _pause(self) -> None:
        # Faults begin and end at any moment of what goes on.
        time.sleep(self._chance.uniform(0, PAUSE_MAX_S))

    def _disturb(self, kind: str) -> None:
        copier = self._chance.randrange(len(COPIERS))
        victim = self._victim(kind, copier)
        self._aim(copier)
        match kind:
            case "copier":
                self._copiers.kill(copier)
                self._pause()
            case "all copiers":
                for number in range(len(COPIERS)):
                    self._copiers.kill(number)
            case "zombie":
                self._copiers.replace(copier)
                self._pause()
                self._copiers.resume_zombies()
            case "all brokers":
                with self._faults.fault("kill_all", *self._cluster.brokers):
                    self._pause()
            case _:
                if kind == "copier and coordinator":
                    self._copiers.kill(copier)
                with self._faults.fault("kill", victim):
                    self._pause()

    def _victim(self, kind: str, copier: int) -> int:
        numbers = list(self._cluster.brokers)
        anybody = self._chance.choice(numbers)
        match kind:
            case "broker":
                return anybody
            case "group coordinator":
                topic, name = OFFSETS_TOPIC, self._terms.group
            case _:
                topic, name = TRANSACTION_TOPIC, Copiers.name(copier)
        try:
            found = leaders(self._admin, topic)[partition_for(name, INTERNAL_PARTITIONS)]
        except (AssertionError, KafkaException):
            return anybody
        return found if found in numbers else anybody

    def _raise_broken(self) -> None:
        for client in self._clients():
            assert client.broke is None, f"{client.name}: {client.broke!r}"

    def _await(self, condition: Callable[[], bool], otherwise: Callable[[], str]) -> None:
        def looks() -> bool:
            self._raise_broken()
            self._copiers.revive()
            return condition()

        wait_until(looks, lambda: f"{otherwise()}\n{self._copiers.said}", BACK_WITHIN_S)

    # --- the end ---------------------------------------------------------------------------------

    def finish(self) -> tuple[Copying, list[Anomaly]]:
        """Waits until everything is copied. Returns the evidence, and anomalies of the input."""
        self._feeder.end()
        self._await(lambda: self._feeder.join(0.1), lambda: "the input is not acknowledged")
        assert self._feeder.acknowledged == self._feeder.sent
        source = read_all(self._cluster, self._terms.source, self.inputs)
        ends = {partition: max(log) + 1 for partition, log in source.items()}
        verifier = GroupOffsets(
            self._terms, "verifier", self.history, **{"isolation.level": "read_committed"}
        )
        offsets: dict[int, int] = {}

        def goes_on() -> bool:
            before = dict(offsets)
            offsets.update(verifier.ask())
            return offsets != before

        # A busy machine copies slowly.
        while offsets != ends:
            self._await(goes_on, lambda: f"offsets {offsets} of {ends}")
        verifier.finish()
        self._copiers.close()
        committed = self._read(CopyReader, "last", self.history)
        raw = self._read(RawReader, "raw", History())
        for reader in self._readers:
            self._await_reader(reader, committed)
        self._raise_broken()
        evidence = Copying(self.history.in_order(), source, committed, raw, offsets)
        return evidence, check(Evidence(self.inputs.in_order(), source))

    def _read(self, kind: type[CopyReader], name: str, history: History) -> Copies:
        target = self._terms.target
        reader = kind(self._cluster.bootstrap, target, PARTITIONS, name, history)
        return read_copies(self._cluster, target, reader)

    def _await_reader(self, reader: CopyReader, copies: Copies) -> None:
        ends = [max(copies[partition], default=-1) + 1 for partition in range(PARTITIONS)]
        self._await(
            lambda: all(at >= end for at, end in zip(reader.positions, ends, strict=True)),
            lambda: f"{reader.name} is at {reader.positions} of {ends}: {reader.told()}",
        )

    def summary(self, evidence: Copying) -> str:
        found = evidence.transactions.values()
        committed = sum(one.is_committed for one in found)
        unknown = sum(one.may_be_committed and not one.is_committed for one in found)
        aborted = sum(one.aborted_ns != NEVER_NS for one in found)
        lives = sum(op.action == "init" and op.outcome == "ok" for op in evidence.ops)
        return (
            f"{dict(self.happened)}; {lives} lives of copiers, {self._copiers.fenced} zombies "
            f"fenced; {self._feeder.sent} records, {len(found)} transactions: {committed} "
            f"committed, {aborted} aborted, {unknown} killed in their commit, "
            f"{len(found) - committed - aborted - unknown} before"
        )
