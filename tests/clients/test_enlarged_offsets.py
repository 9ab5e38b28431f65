"""Kafka's directories whose ``__consumer_offsets`` was given more partitions."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from pyrklog.groups.partitioner import OFFSETS_TOPIC, partition_for
from pyrklog.testing import TestBroker
from tests.clients.test_kafka_internal_topics import Work
from tests.support import kafka_tools
from tests.support.kafka_broker import KafkaBroker
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(240)]

FORMER, ENLARGED = 3, 6
GROUPS = [f"group-{number}" for number in range(8)]
AGAIN = "consumer-groups --reset-offsets --all-groups --all-topics --to-current --execute"
NOTHING = -1001


def leave(kafka: KafkaBroker, work: Work) -> None:
    """Offsets, and then an enlarged topic."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(work.topic, 1, 1)])[work.topic].result(PATIENCE_S)
    for offset, group in enumerate(GROUPS, 1):
        work.commit(group, offset)
    more = NewPartitions(OFFSETS_TOPIC, ENLARGED)
    admin.create_partitions([more])[OFFSETS_TOPIC].result(PATIENCE_S)
    wait_until((kafka.data / f"{OFFSETS_TOPIC}-{ENLARGED - 1}").exists, "it has no folder")


def committed(work: Work) -> dict[str, int]:
    return {group: work.committed(group)[0] for group in GROUPS}


def found_by_us(
    new_broker: Callable[..., TestBroker], directory: Path, topic: str
) -> dict[str, int]:
    broker = new_broker(directory).start()
    found = committed(Work(broker.bootstrap, topic))
    assert broker.stop() == 0
    return found


def test_offsets_count_that_kafka_committed_again_after_the_enlargement(
    new_broker: Callable[..., TestBroker], topic: str, tmp_path: Path
) -> None:
    displaced = [
        one for one in GROUPS if partition_for(one, FORMER) != partition_for(one, ENLARGED)
    ]
    assert 0 < len(displaced) < len(GROUPS)
    offsets = {group: offset for offset, group in enumerate(GROUPS, 1)}
    kafka = KafkaBroker(tmp_path / "kafka", options={"offsets.topic.num.partitions": str(FORMER)})
    work = Work(kafka.bootstrap, topic)
    with kafka:
        leave(kafka, work)
    before, after = tmp_path / "before", tmp_path / "after"
    shutil.copytree(kafka.data, before)
    with kafka:
        wait_until(lambda: committed(work) == offsets, "Kafka has not loaded them")
        [told] = kafka_tools.run(kafka.bootstrap, [AGAIN])
        assert told.status == 0, told.text
    shutil.copytree(kafka.data, after)
    lost = {group: NOTHING if group in displaced else offsets[group] for group in GROUPS}
    assert found_by_us(new_broker, before, topic) == lost
    assert found_by_us(new_broker, after, topic) == offsets
