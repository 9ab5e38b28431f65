"""Topics that plans move, for tests of `pyrklog cluster reassign`, `drain` and `replace`."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from pyrklog.cli.app import app
from pyrklog.protocol.metadata import MetadataResponse
from tests.support import reassigning
from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import produce
from tests.support.knowing import leaders_of, wait_until_each
from tests.support.room import with_room
from tests.support.waiting import PATIENCE_S, wait_until

PATIENT = {"zookeeper.session.timeout.ms": 30_000}
"""A busy machine passes for no dead broker."""
RATE = "leader.replication.throttled.rate"
RECORDS = [b"x" * 1_000] * 20
SLOW = "10kB/s"


def run(
    cluster: BrokerCluster, *arguments: str, code: int = 0, bootstrap: str = ""
) -> tuple[str, str]:
    """Standard output and error of `pyrklog cluster ...`, which must end with ``code``."""
    command = ["-b", bootstrap or cluster.bootstrap, *with_room(["cluster", *arguments])]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == code, f"{arguments}: {done.stdout}{done.stderr}{done.exception}"
    return done.stdout, done.stderr


def place(cluster: BrokerCluster, topic: str, replicas: Sequence[Sequence[int]]) -> None:
    """Creates a topic with these replicas, as many of each, and 20 records in each partition."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    new = NewTopic(topic, len(replicas), replica_assignment=[list(one) for one in replicas])
    admin.create_topics([new])[topic].result(30)
    wait_until_told(cluster, topic, replicas)
    produce(cluster, topic, len(replicas), RECORDS)


def wait_until_told(
    cluster: BrokerCluster, topic: str, wanted: Sequence[Sequence[int]], bootstrap: str = ""
) -> None:
    """Until each broker tells of these replicas, all in sync, and leaders among them: a command
    asks any of them, and some hear of a change later than others."""

    def is_told(told: MetadataResponse) -> bool:
        found = {
            one.partition_index: one
            for item in told.topics
            if item.name == topic
            for one in item.partitions
        }
        return found.keys() == set(range(len(wanted))) and all(
            list(found[index].replica_nodes) == list(members)
            and set(found[index].isr_nodes) == set(members)
            and found[index].leader_id in members
            for index, members in enumerate(wanted)
        )

    what = f"not every broker tells that {topic} is {wanted}"
    wait_until_each(bootstrap or cluster.bootstrap, is_told, what)


def delete(cluster: BrokerCluster, topic: str) -> None:
    """Until the topic could be created anew."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.delete_topics([topic])[topic].result(30)
    wait_until_each(
        cluster.bootstrap, lambda told: not leaders_of(told, topic), f"{topic} is told still"
    )

    def is_free() -> bool:
        # Names of deleted topics are free once the controller has removed the znodes.
        asked = admin.create_topics([NewTopic(topic, 1, 1)], validate_only=True)[topic]
        with contextlib.suppress(KafkaException):
            asked.result(30)
            return True
        return False

    wait_until(is_free, f"{topic} stays")


def replicas(cluster: BrokerCluster, topic: str) -> list[list[int]]:
    found: dict[str, list[int]] = cluster.json(f"/brokers/topics/{topic}")["partitions"]
    return [found[str(index)] for index in range(len(found))]


def write(file: Path, topic: str, wanted: Sequence[Sequence[int]]) -> str:
    partitions = [
        {"topic": topic, "partition": index, "replicas": list(one)}
        for index, one in enumerate(wanted)
    ]
    file.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(file)


@contextlib.contextmanager
def killed_when_it_moves(
    cluster: BrokerCluster, topic: str, partitions: int, *arguments: str
) -> Iterator[None]:
    """Runs a command, and kills it (-9) once so many partitions of the topic move."""
    words = with_room(["cluster", *arguments])
    command = [sys.executable, "-m", "pyrklog", *words, "-b", cluster.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as started:
        try:
            wait_until(
                lambda: len(moving_of(cluster, topic)) == partitions,
                "it does not begin",
                2 * PATIENCE_S,
            )
            yield
        finally:
            started.kill()


def moving_of(cluster: BrokerCluster, topic: str) -> set[int]:
    controller = cluster.brokers[cluster.controller()]
    return {index for name, index in reassigning.moving(controller.bootstrap) if name == topic}


def large(cluster: BrokerCluster, topic: str, before: Sequence[Sequence[int]]) -> None:
    """A topic whose copies take minutes at SLOW."""
    place(cluster, topic, before)
    for index in range(len(before)):
        fill(cluster, topic, index)


def fill(cluster: BrokerCluster, topic: str, index: int) -> None:
    """Writes to a partition what a first fetch, which may bring a megabyte, does not bring."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for _ in range(300):
        producer.produce(topic, b"x" * 10_000, partition=index)
    assert producer.flush(60) == 0


def is_throttled(cluster: BrokerCluster, topic: str) -> bool:
    options = cluster.json(f"/config/topics/{topic}")["config"]
    return any("throttled.replicas" in option for option in options)


def has_rate(cluster: BrokerCluster) -> bool:
    return RATE in cluster.json("/config/brokers/1")["config"]
