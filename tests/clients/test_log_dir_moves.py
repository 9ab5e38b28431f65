"""Kafka's own tools move replicas between log directories."""

import json
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from pyrklog.testing import TestBroker
from tests.support import kafka_tools
from tests.support.waiting import wait_until

COUNT = 2_000


def folders(path: Path) -> set[str]:
    return {one.name for one in path.glob("t-*") if not one.name.endswith("-delete")}


def fill(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", 2, 1)])["t"].result(30)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(COUNT):
        producer.produce("t", b"%d" % number, partition=number % 2)
    assert producer.flush(60) == 0


def read(bootstrap: str) -> set[bytes | None]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    consumer.assign([TopicPartition("t", partition, 0) for partition in range(2)])
    found = {message.value() for message in consumer.consume(COUNT, 60)}
    consumer.close()
    return found


def test_reassign_partitions_with_log_dirs(
    new_broker: Callable[..., TestBroker], tmp_path: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    broker = new_broker(options={"log.dirs": f"{one},{two}"}).start()
    fill(broker.bootstrap)
    partitions = [
        {"topic": "t", "partition": index, "replicas": [1], "log_dirs": [str(two)]}
        for index in range(2)
    ]
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
    (executed,) = kafka_tools.run(
        broker.bootstrap,
        [
            f"reassign-partitions --execute --reassignment-json-file {plan} "
            "--replica-alter-log-dirs-throttle 50000000"
        ],
    )
    assert executed.status == 0, executed.text
    moved = {"t-0", "t-1"}
    wait_until(lambda: folders(two) == moved and not folders(one), "the replicas do not move")
    verified, described = kafka_tools.run(
        broker.bootstrap,
        [
            f"reassign-partitions --verify --reassignment-json-file {plan}",
            "log-dirs --describe --topic-list t",
        ],
    )
    assert verified.text.count("completed successfully") == 2, verified.text
    assert "Clearing broker-level throttles" in verified.text
    (answer,) = (line for line in described.lines if line.startswith("{"))
    (told,) = json.loads(answer)["brokers"]
    by_dir = {
        found["logDir"]: sorted((p["partition"], p["isFuture"]) for p in found["partitions"])
        for found in told["logDirs"]
    }
    assert by_dir == {str(one): [], str(two): [("t-0", False), ("t-1", False)]}
    assert len(read(broker.bootstrap)) == COUNT
    assert broker.stop() == 0
