"""A round: clients, faults, and the check of the clients' history."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.checker import history as histories
from tests.checker.analysis import Anomaly, Evidence, Log, check, summary
from tests.checker.clients import (
    BATCH_BYTES_MAX,
    Administrator,
    CarelessWriter,
    Client,
    Reader,
    Watcher,
    Writer,
)
from tests.checker.group import Group
from tests.checker.history import History, Op
from tests.checker.injection import Injector
from tests.checker.plan import Plan
from tests.checker.reading import PARTITIONS, read_all
from tests.checker.replicas import epochs_begun
from tests.support.cluster_clients import create
from tests.support.faults.wired_cluster import WiredCluster
from tests.support.waiting import wait_until

WRITERS = 2
READERS = 2
BACK_WITHIN_S = 60.0
"""After the last fault everything works again within this time, unaided."""
SEGMENT_BYTES = (3 * BATCH_BYTES_MAX, 1 << 30)
"""Many small segments, or one."""
LEAVES_WITHIN_S = 20.0

STRICT = {"min.insync.replicas": "2"}


@dataclass
class Round:
    seed: int
    number: int
    plan: Plan
    happened: Sequence[str] = ()
    ops: Sequence[Op] = ()
    anomalies: list[Anomaly] = field(default_factory=list)
    stuck: str = ""
    epochs: list[str] = field(default_factory=list)
    """Where producers began another epoch, if something is wrong."""

    @property
    def is_good(self) -> bool:
        return not self.anomalies and not self.stuck

    def report(self, kept: Path) -> str:
        """Describes the failure; writes the history to ``kept``."""
        histories.write(kept, self.ops)
        return "\n".join(
            [
                f"round {self.number} of CHECKER_SEED={self.seed}; its history is {kept}",
                str(self.plan),
                *(f"  {text}" for text in self.happened),
                self.stuck,
                summary(self.anomalies),
                *self.epochs,
            ]
        )


class Workload:
    def __init__(self, cluster: WiredCluster, topic: str, group: str) -> None:
        self.history = History()
        self.topic = topic
        self.group_id = group
        self._cluster = cluster
        where = (cluster.bootstrap, topic, PARTITIONS)
        self.writers = [Writer(*where, number, self.history) for number in range(1, WRITERS + 1)]
        self.careless = CarelessWriter(*where, WRITERS + 1, self.history)
        names = [f"reader-{number}" for number in range(1, READERS + 1)]
        self.readers = [Reader(*where, name, self.history) for name in names]
        self._watcher = Watcher(*where, "watcher", self.history)
        self.administrator = Administrator(
            cluster.bootstrap, f"passing-{topic}", len(cluster.brokers), self.history
        )
        self.group = Group(cluster.bootstrap, topic, group, self.history)

    def start(self) -> None:
        for client in self._clients():
            client.start()

    def _clients(self) -> list[Client]:
        others = [self.careless, self._watcher, self.administrator, self.group]
        return [*self.writers, *self.readers, *others]

    def go_on(self, count: int) -> None:
        """Returns when each writer has ``count`` more acknowledgements and the group has seen
        something new."""
        wanted = [writer.acknowledged + count for writer in self.writers]
        known = len(self.history)

        def is_served() -> bool:
            self._raise_broken()
            return all(
                writer.acknowledged >= number
                for writer, number in zip(self.writers, wanted, strict=True)
            )

        wait_until(is_served, "writers are not acknowledged", BACK_WITHIN_S)
        wait_until(
            lambda: any(op.action == "poll" for op in list(self.history)[known:]),
            "the group sees nothing",
            BACK_WITHIN_S,
        )

    def _raise_broken(self) -> None:
        broke: dict[str, object] = {client.name: client.broke for client in self._clients()}
        broke |= {member.name: member.broke for member in self.group.everybody()}
        for name, reason in broke.items():
            assert reason is None, f"{name}: {reason!r}"

    def end_writers(self) -> None:
        """Waits until everything sent is acknowledged. The careless writer ends first: the others'
        last acknowledgements then show that all before them is on every ISR member, so the final
        read is complete."""
        for writers in ([self.careless], self.writers):
            for writer in writers:
                writer.end()
            for writer in writers:
                assert writer.join(BACK_WITHIN_S), f"{writer.name} is not answered"
        for writer in self.writers:
            assert writer.acknowledged == writer.sent, f"{writer.name} has failed"

    def end_administrator(self) -> None:
        """Its topics are deleted, as far as the cluster has answered."""
        self.administrator.end()
        assert self.administrator.join(BACK_WITHIN_S), "topics cannot be deleted"

    def forget_passing_topics(self, admins: Sequence[AdminClient]) -> None:
        """Waits until no broker knows an administrator's topic. An abandoned creation may come
        late."""

        def are_gone() -> bool:
            found = {name for admin in admins for name in passing_topics(admin)}
            for name in found:
                self.administrator.delete(name)
            return not found

        wait_until(are_gone, "deleted topics are there", BACK_WITHIN_S)

    def end_readers(self, final: dict[int, Log]) -> None:
        """Waits until the readers and the group have seen everything, and the group has committed
        it."""
        ends = {partition: max(log, default=-1) + 1 for partition, log in final.items()}
        self.group.end()
        assert self.group.join(BACK_WITHIN_S), "no member can join"
        for reader in self.readers:
            self._wait(
                lambda reader=reader: all(  # type: ignore[misc]
                    reader.positions[partition] >= end for partition, end in ends.items()
                ),
                f"{reader.name} does not get to the end",
            )
        self._wait(lambda: self._all_polled(final), "the group does not get to the end")
        self.end_group()
        watchers: list[Client] = [*self.readers, self._watcher]
        for client in watchers:
            client.end()
        for client in watchers:
            assert client.join(BACK_WITHIN_S), f"{client.name} does not end"
        self._raise_broken()
        self._ask_committed()

    def end_group(self) -> None:
        for member in self.group.everybody():
            member.end()
        for member in self.group.everybody():
            member.join(LEAVES_WITHIN_S)

    def _wait(self, condition: Callable[[], bool], otherwise: str) -> None:
        def looks() -> bool:
            self._raise_broken()
            return condition()

        wait_until(looks, otherwise, BACK_WITHIN_S)

    def _all_polled(self, final: dict[int, Log]) -> bool:
        polled = {(op.partition, op.offset) for op in self.history if op.action == "poll"}
        return all(
            (partition, offset) in polled for partition, log in final.items() for offset in log
        )

    def _ask_committed(self) -> None:
        places = [TopicPartition(self.topic, index) for index in range(PARTITIONS)]
        consumer = Consumer(
            {"bootstrap.servers": self._cluster.bootstrap, "group.id": self.group_id}
        )
        found: list[TopicPartition] = []

        def is_told() -> bool:
            try:
                found.extend(consumer.committed(places, timeout=5))
            except KafkaException:
                return False
            return True

        wait_until(is_told, "nobody says what is committed", BACK_WITHIN_S)
        for place in found:
            offset = max(place.offset, 0)
            self.history.add("verifier", "committed", "ok", place.partition, offset=offset)
        consumer.close()

    def abandon(self) -> None:
        """Stops everything after a failure."""
        for client in self._clients():
            client.end()
        self.group.join(BACK_WITHIN_S)
        self.end_group()


def run_round(cluster: WiredCluster, plan: Plan, seed: int, number: int) -> Round:
    """Runs one round on a working cluster, which works afterwards unless the round says
    otherwise."""
    done = Round(seed, number, plan)
    topic = f"round-{number}"
    options = {**STRICT, "segment.bytes": str(random.choice(SEGMENT_BYTES))}
    create(cluster, topic, PARTITIONS, len(cluster.brokers), options=options)
    admins = [AdminClient({"bootstrap.servers": b.bootstrap}) for b in cluster.brokers.values()]
    load = Workload(cluster, topic, f"group-{number}")
    injector = Injector(cluster, topic, load.group_id)
    final: dict[int, Log] = {}
    load.start()
    try:
        load.go_on(20)
        injector.run(plan)
        load.go_on(20)
        load.end_writers()
        load.end_administrator()
        load.forget_passing_topics(admins)
        wait_until(lambda: is_whole(admins, topic), "not all replicas are in sync again")
        final = read_all(cluster, topic, load.history)
        load.end_readers(final)
    except Exception as error:
        done.stuck = f"{type(error).__name__}: {error}"
    finally:
        load.abandon()
    done.happened = injector.happened
    done.ops = load.history.in_order()
    if done.stuck:
        done.anomalies = _look_once_more(cluster, load)
    else:
        done.anomalies = check(Evidence(done.ops, final))
    if done.anomalies:
        done.epochs = epochs_begun(cluster.log_dir(min(cluster.brokers)), topic)
    return done


def _look_once_more(cluster: WiredCluster, load: Workload) -> list[Anomaly]:
    """Checks an unfinished round: everything acknowledged so far must be there. The group has not
    seen everything."""
    known = load.history.in_order()
    try:
        final = read_all(cluster, load.topic, load.history, "once-more")
    except AssertionError:
        return []
    return [found for found in check(Evidence(known, final)) if found.kind != "unconsumed"]


def is_whole(admins: Sequence[AdminClient], topic: str) -> bool:
    """Whether each broker, asked separately, knows all brokers and all replicas in sync: one
    without a session shows the past."""
    everybody = set(range(1, len(admins) + 1))
    for admin in admins:
        try:
            found = admin.list_topics(topic, timeout=5)
        except KafkaException:
            return False
        partitions = found.topics[topic].partitions.values()
        if set(found.brokers) != everybody or len(partitions) != PARTITIONS:
            return False
        if any(set(partition.isrs) != everybody for partition in partitions):
            return False
    return True


def passing_topics(admin: AdminClient) -> list[str]:
    """The administrator's topics that a broker knows; a silent one may know any."""
    try:
        return [name for name in admin.list_topics(timeout=5).topics if name.startswith("passing-")]
    except KafkaException:
        return ["passing-unknown"]
