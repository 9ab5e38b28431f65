"""The brokers whose answers are compared, each fresh, and as like one another as options allow."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyrklog.testing import TestBroker
from tests.support import zookeeper_kafka
from tests.support.kafka_broker import KafkaBroker

NODE_ID = 1
_ALIKE = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "5",
    "log.cleaner.backoff.ms": "100",
}


@contextmanager
def pyrklog(folder: Path) -> Iterator[str]:
    with TestBroker(
        folder / "data", options={**_ALIKE, "broker.id": NODE_ID}, faults=False
    ) as broker:
        yield broker.bootstrap


@contextmanager
def kraft(folder: Path) -> Iterator[str]:
    with KafkaBroker(folder / "kraft", options=_ALIKE) as broker:
        yield broker.bootstrap


@contextmanager
def zookeeper(folder: Path) -> Iterator[str]:
    alone = {
        f"transaction.state.log.{name}": "1"
        for name in ("replication.factor", "num.partitions", "min.isr")
    }
    more = [f"{key}={value}" for key, value in {**_ALIKE, **alone}.items()]
    with (
        zookeeper_kafka.zookeeper(folder) as address,
        zookeeper_kafka.kafka(folder, address, NODE_ID, more) as broker,
    ):
        yield broker.bootstrap


REFERENCES = {"kraft": kraft, "zookeeper": zookeeper}
"""Apache Kafka, without and with ZooKeeper; the first is the one to equal."""
