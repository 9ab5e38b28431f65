import time
from typing import Any

import kafka
import pytest
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic
from kafka.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError

from tests.support.clients import KafkaPython, Record
from tests.support.clock import START_MS

CLIENT = KafkaPython()


@pytest.fixture
def admin(bootstrap: str) -> Any:
    client = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


@pytest.fixture
def consumer(bootstrap: str) -> Any:
    client = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
    yield client
    client.close()


def test_offsets_and_times(bootstrap: str, topic: str, consumer: Any) -> None:
    records = [Record(None, b"v", timestamp_ms=START_MS + 1000 * number) for number in range(20)]
    CLIENT.produce(bootstrap, topic, records[:10])
    CLIENT.produce(bootstrap, topic, records[10:], codec="lz4")
    place = kafka.TopicPartition(topic, 0)
    assert consumer.beginning_offsets([place]) == {place: 0}
    assert consumer.end_offsets([place]) == {place: 20}

    def lookup(timestamp_ms: int) -> Any:
        return consumer.offsets_for_times({place: timestamp_ms})[place]

    assert (lookup(START_MS).offset, lookup(START_MS).timestamp) == (0, START_MS)
    assert (lookup(START_MS + 11_500).offset, lookup(START_MS + 11_500).timestamp) == (
        12,
        START_MS + 12_000,
    )
    assert lookup(START_MS + 19_001) is None


def test_topics_and_partitions(topic: str, admin: Any) -> None:
    admin.create_topics([NewTopic(topic, 2, 1, topic_configs={"segment.ms": "60000"})])
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic(topic, 1, 1)])
    assert topic in admin.list_topics()
    (found,) = admin.describe_topics([topic])
    assert len(found["partitions"]) == 2
    admin.create_partitions({topic: NewPartitions(4)})
    (found,) = admin.describe_topics([topic])
    assert [one["leader_id"] for one in found["partitions"]] == [
        one["replica_nodes"][0] for one in found["partitions"]
    ]
    assert len(found["partitions"]) == 4
    admin.delete_topics([topic])
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([topic])


def test_topic_options(topic: str, admin: Any) -> None:
    admin.create_topics([NewTopic(topic, 1, 1)])
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)

    def modified() -> dict[str, str]:
        found = admin.describe_configs([resource])["topic"][topic]
        return {name: entry["value"] for name, entry in found.items()}

    assert modified() == {}
    changed = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.bytes": "1000000"})
    admin.alter_configs([changed])
    assert modified() == {"retention.bytes": "1000000"}
    wrong = ConfigResource(ConfigResourceType.TOPIC, topic, {"cleanup.policy": "burn"})
    assert str(admin.alter_configs([wrong])["topic"][topic]).startswith(
        "[Error 40] InvalidConfigurationError"
    )
    assert modified() == {"retention.bytes": "1000000"}


def test_delete_records_and_read_on(bootstrap: str, topic: str, admin: Any, consumer: Any) -> None:
    CLIENT.produce(bootstrap, topic, [Record(None, b"%d" % number) for number in range(8)])
    place = kafka.TopicPartition(topic, 0)
    admin.delete_records({place: 5})
    assert consumer.beginning_offsets([place]) == {place: 5}
    consumer.assign([place])
    consumer.seek_to_beginning(place)
    found: list[bytes] = []
    deadline = time.monotonic() + 20
    while len(found) < 3 and time.monotonic() < deadline:
        found += [one.value for one in consumer.poll(timeout_ms=500).get(place, [])]
    assert found == [b"5", b"6", b"7"]


def test_cluster_and_log_directories(bootstrap: str, topic: str, admin: Any) -> None:
    CLIENT.produce(bootstrap, topic, [Record(None, bytes(5_000))])
    cluster = admin.describe_cluster()
    assert cluster["cluster_id"]
    assert [node["broker_id"] for node in cluster["brokers"]] == [cluster["controller_id"]]
    (directory,) = [
        one for found in admin.describe_log_dirs() for one in found["log_dirs"] if one["topics"]
    ]
    sizes = {
        (one["name"], part["partition_index"]): part["partition_size"]
        for one in directory["topics"]
        for part in one["partitions"]
    }
    assert 5_000 < sizes[topic, 0] < 6_000
