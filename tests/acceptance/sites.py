"""Where a row runs: one broker, three, or Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Protocol

from confluent_kafka.admin import AdminClient, NewTopic

from pyrklog.protocol.metadata import MetadataResponse
from pyrklog.testing import TestBroker
from tests.support.kafka_broker import KafkaBroker
from tests.support.knowing import leaders_of, told_by, wait_until_each
from tests.support.waiting import PATIENCE_S, wait_until
from tests.support.wire import Connection, fetch

UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER = 3, 5, 6
ONE, THREE = "one-broker", "three-brokers"
KAFKA = "kafka"
"""The value of ``--against`` for an Apache Kafka that the tests start themselves."""

OPTIONS: Mapping[str, str | int | bool] = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 3,
    "log.retention.check.interval.ms": 500,
    "log.cleaner.backoff.ms": 50,
    "transaction.state.log.num.partitions": 3,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
}
"""Of the shared brokers: what else takes minutes comes soon."""
_LEADS_NOT = (UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER)
KAFKA_OPTIONS = {"log.initial.task.delay.ms": "500"}


class Running(Protocol):
    """A broker that a test may restart."""

    @property
    def bootstrap(self) -> str:
        """Its address."""

    def restart(self) -> object:
        """On the same data and port."""


class RestartableKafka:
    def __init__(self, folder: Path, options: Mapping[str, str | int | bool]) -> None:
        given = {name: str(value).lower() for name, value in options.items()}
        self._broker = KafkaBroker(folder, options={**KAFKA_OPTIONS, **given})
        self._broker.__enter__()

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap

    def restart(self) -> None:
        self.close()
        self._broker.__enter__()

    def close(self) -> None:
        self._broker.__exit__()


@lru_cache(maxsize=2)
def _admin(bootstrap: str) -> AdminClient:
    """Calls of a client that nobody holds any more fail."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


class Site(NamedTuple):
    """``replicas`` is the number of brokers, and of the replicas of each partition."""

    bootstrap: str
    replicas: int

    @property
    def admin(self) -> AdminClient:
        return _admin(self.bootstrap)

    def create(self, topic: str, partitions: int = 1, **options: str) -> str:
        """Creates a topic, with options whose names have "_" for "."; returns its name once every
        broker knows its leaders."""
        config = {name.replace("_", "."): value for name, value in options.items()}
        new = NewTopic(topic, partitions, self.replicas, config=config)
        self.admin.create_topics([new])[topic].result(PATIENCE_S)
        self.wait_until_led(topic, partitions)
        return topic

    def wait_until_led(self, topic: str, partitions: int = 1) -> None:
        def knows(told: MetadataResponse) -> bool:
            found = leaders_of(told, topic)
            return len(found) == partitions and -1 not in found.values()

        wait_until_each(self.bootstrap, knows, f"{topic} has no leaders")

    def leader(self, topic: str, partition: int = 0) -> str:
        """The address of a partition's leader, which leads already: metadata may be ahead of it."""

        def find() -> str | None:
            told = told_by(self.bootstrap.split(",")[0])
            leader = leaders_of(told, topic).get(partition, -1)
            places = {one.node_id: f"{one.host}:{one.port}" for one in told.brokers}
            address = places.get(leader)
            return address if address is not None and _leads(address, topic, partition) else None

        return wait_until(find, f"{topic}-{partition} has no leader")


def _leads(address: str, topic: str, partition: int) -> bool:
    with Connection(address) as connection:
        answer = fetch(connection, topic, 0, partition=partition)
    return answer.error not in _LEADS_NOT


class OwnSite(NamedTuple):
    """Of one test, which may restart its brokers."""

    brokers: Sequence[Running]

    @property
    def site(self) -> Site:
        return Site(",".join(one.bootstrap for one in self.brokers), len(self.brokers))

    def restart(self) -> None:
        """Kills pyrklog's brokers, ends Kafka, and starts them again."""
        killed = [one for one in self.brokers if isinstance(one, TestBroker)]
        for one in killed:
            one.kill()
        for one in killed:
            one.start()
        for other in self.brokers:
            if not isinstance(other, TestBroker):
                other.restart()


MakeSite = Callable[..., OwnSite]
"""With brokers' options as keyword arguments."""
