"""confluent-kafka (librdkafka): produce, read by offset and time, administrate."""

from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from tests.support.clients import Confluent, Record
from tests.support.clock import START_MS

CLIENT = Confluent()
DEADLINE_S = 30


def producer_of(bootstrap: str, **options: object) -> Any:
    return Producer({"bootstrap.servers": bootstrap, **options})


def consumer_of(bootstrap: str, **options: object) -> Any:
    settings = {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False}
    return Consumer(settings | options)


@pytest.fixture
def admin(bootstrap: str) -> Any:
    return AdminClient({"bootstrap.servers": bootstrap})


def done(futures: dict[Any, Any]) -> Any:
    """The only result of an administrative call, or its error."""
    (future,) = futures.values()
    return future.result(DEADLINE_S)


def error_of(futures: dict[Any, Any]) -> int:
    with pytest.raises(KafkaException) as caught:
        done(futures)
    code: int = caught.value.args[0].code()
    return code


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_records_arrive_with_every_acks_setting(bootstrap: str, topic: str, acks: str) -> None:
    producer = producer_of(bootstrap, acks=acks, **{"linger.ms": 0})
    for number in range(200):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(DEADLINE_S) == 0
    values = [record.value for record in CLIENT.consume(bootstrap, topic, 200)]
    assert values == [b"%d" % number for number in range(200)]


def test_a_minimum_beyond_the_replicas_is_all_of_them(
    bootstrap: str, topic: str, admin: Any
) -> None:
    done(admin.create_topics([NewTopic(topic, 1, 1, config={"min.insync.replicas": "2"})]))
    producer = producer_of(bootstrap, acks="all", **{"message.timeout.ms": 10_000})
    errors: list[Any] = []
    producer.produce(topic, b"v", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(DEADLINE_S) == 0
    assert errors == [None]
    assert [record.value for record in CLIENT.consume(bootstrap, topic, 1)] == [b"v"]


def test_keyed_records_spread_over_partitions(bootstrap: str, topic: str, admin: Any) -> None:
    done(admin.create_topics([NewTopic(topic, 6, 1)]))
    placed: dict[bytes, set[int]] = {}

    def delivered(error: Any, message: Any) -> None:
        assert error is None
        placed.setdefault(message.key(), set()).add(message.partition())

    producer = producer_of(bootstrap)
    for number in range(600):
        producer.produce(topic, b"v", key=b"%d" % (number % 60), on_delivery=delivered)
    assert producer.flush(DEADLINE_S) == 0
    assert all(len(partitions) == 1 for partitions in placed.values())
    assert len(set[int]().union(*placed.values())) == 6


def test_offsets_for_times(bootstrap: str, topic: str) -> None:
    for first in (0, 10, 20):
        records = [
            Record(None, b"v", timestamp_ms=START_MS + 1000 * number)
            for number in range(first, first + 10)
        ]
        CLIENT.produce(bootstrap, topic, records)
    consumer = consumer_of(bootstrap)

    def lookup(timestamp_ms: int) -> int:
        (found,) = consumer.offsets_for_times(
            [TopicPartition(topic, 0, timestamp_ms)], timeout=DEADLINE_S
        )
        offset: int = found.offset
        return offset

    assert lookup(0) == 0
    assert lookup(START_MS) == 0
    assert lookup(START_MS + 1) == 1
    assert lookup(START_MS + 12_000) == 12
    assert lookup(START_MS + 19_001) == 20
    assert lookup(START_MS + 29_000) == 29
    assert lookup(START_MS + 29_001) == -1  # librdkafka's "end"
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=DEADLINE_S) == (0, 30)
    consumer.close()


def test_list_offsets(bootstrap: str, topic: str, admin: Any) -> None:
    stamps = [5_000, 9_000, 7_000]
    for stamp in stamps:
        CLIENT.produce(bootstrap, topic, [Record(None, b"v", timestamp_ms=START_MS + stamp)])
    partition = TopicPartition(topic, 0)

    def lookup(spec: Any) -> int:
        offset: int = done(admin.list_offsets({partition: spec})).offset
        return offset

    assert lookup(OffsetSpec.earliest()) == 0
    assert lookup(OffsetSpec.latest()) == 3
    assert lookup(OffsetSpec.max_timestamp()) == 1
    assert lookup(OffsetSpec.for_timestamp(START_MS + 6_000)) == 1


def test_big_messages(bootstrap: str, topic: str) -> None:
    value = bytes(range(256)) * 3_900  # just below the default max.message.bytes
    CLIENT.produce(bootstrap, topic, [Record(b"k", value), Record(None, b"small")])
    assert [record.value for record in CLIENT.consume(bootstrap, topic, 2)] == [value, b"small"]


def test_a_start_offset_out_of_range_is_reset(bootstrap: str, topic: str) -> None:
    CLIENT.produce(bootstrap, topic, [Record(None, b"%d" % number) for number in range(5)])
    consumer = consumer_of(bootstrap, **{"auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 1_000)])
    assert consumer.poll(DEADLINE_S).offset() == 0
    consumer.close()


def test_a_waiting_consumer_is_woken(bootstrap: str, topic: str) -> None:
    CLIENT.produce(bootstrap, topic, [Record(None, b"first")])
    # A fetch that is not woken waits for longer than the test.
    waits = {"fetch.wait.max.ms": 120_000, "socket.timeout.ms": 150_000}
    consumer = consumer_of(bootstrap, **waits)
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consumer.poll(DEADLINE_S).value() == b"first"
    assert consumer.poll(0.2) is None  # its next fetch waits at the broker now
    CLIENT.produce(bootstrap, topic, [Record(None, b"second")])
    message = consumer.poll(DEADLINE_S)
    assert message is not None, "the fetch waits for its full time instead"
    assert message.value() == b"second"
    consumer.close()


def test_consumer_of_many_partitions_gets_all_records(
    bootstrap: str, topic: str, admin: Any
) -> None:
    """A fetch session: most partitions are unchanged from one fetch to the next."""
    done(admin.create_topics([NewTopic(topic, 40, 1)]))
    consumer = consumer_of(bootstrap)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(40)])
    producer = producer_of(bootstrap)
    for turn in range(5):
        for partition in (turn, turn + 7, 39):
            producer.produce(topic, b"%d" % turn, partition=partition)
        assert producer.flush(DEADLINE_S) == 0
        got = [consumer.poll(DEADLINE_S) for _ in range(3)]
        assert {message.partition() for message in got} == {turn, turn + 7, 39}
        assert {message.value() for message in got} == {b"%d" % turn}
    consumer.close()


def test_topics_and_partitions(topic: str, admin: Any) -> None:
    create = admin.create_topics
    assert done(create([NewTopic(topic, 2, 1)], validate_only=True)) is None
    assert topic not in admin.list_topics(timeout=DEADLINE_S).topics
    done(create([NewTopic(topic, 2, 1, config={"retention.ms": "3600000"})]))
    found = admin.list_topics(topic, timeout=DEADLINE_S).topics[topic]
    assert sorted(found.partitions) == [0, 1]
    assert error_of(create([NewTopic(topic, 1, 1)])) == KafkaError.TOPIC_ALREADY_EXISTS
    assert error_of(create([NewTopic("no/slash", 1, 1)])) == KafkaError.TOPIC_EXCEPTION
    assert error_of(create([NewTopic(topic + "-r", 1, 3)])) == (
        KafkaError.INVALID_REPLICATION_FACTOR
    )
    assert error_of(create([NewTopic(topic + "-c", 1, 1, config={"segment.bytes": "x"})])) == (
        KafkaError.INVALID_CONFIG
    )
    assert error_of(create([NewTopic(topic + "-u", 1, 1, config={"no.such": "x"})])) == (
        KafkaError.INVALID_CONFIG
    )
    done(admin.create_partitions([NewPartitions(topic, 5)]))
    assert len(admin.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions) == 5
    assert error_of(admin.create_partitions([NewPartitions(topic, 3)])) == (
        KafkaError.INVALID_PARTITIONS
    )
    done(admin.delete_topics([topic]))
    assert topic not in admin.list_topics(timeout=DEADLINE_S).topics
    assert error_of(admin.delete_topics([topic])) == KafkaError.UNKNOWN_TOPIC_OR_PART


def described(admin: Any, topic: str) -> dict[str, tuple[str, bool]]:
    entries = done(admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]))
    return {name: (entry.value, entry.is_default) for name, entry in entries.items()}


def test_topic_options(topic: str, admin: Any) -> None:
    done(admin.create_topics([NewTopic(topic, 1, 1, config={"retention.ms": "3600000"})]))
    options = described(admin, topic)
    assert options["retention.ms"] == ("3600000", False)
    assert options["cleanup.policy"] == ("delete", True)
    assert options["segment.bytes"] == ("1073741824", True)

    def change(name: str, value: str | None, kind: Any) -> Any:
        entry = ConfigEntry(name, value, incremental_operation=kind)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        return admin.incremental_alter_configs([resource])

    done(change("max.message.bytes", "5000", AlterConfigOpType.SET))
    options = described(admin, topic)
    assert options["max.message.bytes"] == ("5000", False)
    assert options["retention.ms"] == ("3600000", False), "the incremental change kept the rest"
    assert error_of(change("segment.bytes", "-5", AlterConfigOpType.SET)) == (
        KafkaError.INVALID_CONFIG
    )
    done(change("retention.ms", None, AlterConfigOpType.DELETE))
    assert described(admin, topic)["retention.ms"][1]


def test_broker_options(admin: Any) -> None:
    cluster = admin.describe_cluster().result(DEADLINE_S)
    assert cluster.cluster_id
    assert [node.id for node in cluster.nodes] == [cluster.controller.id]
    resource = ConfigResource(ConfigResource.Type.BROKER, str(cluster.controller.id))
    entries = done(admin.describe_configs([resource]))
    assert entries["num.network.threads"].value.isdigit()
    assert entries["log.dirs"].value


def test_broker_options_without_effect(admin: Any) -> None:
    broker = str(admin.describe_cluster().result(DEADLINE_S).controller.id)

    def alter(name: str, value: str | None, operation: Any) -> Any:
        change = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource("broker", broker, incremental_configs=[change])
        return admin.incremental_alter_configs([resource])

    def set_option(name: str, value: str) -> Any:
        return alter(name, value, AlterConfigOpType.SET)

    for name in ("sasl.kerberos.min.time.before.relogin", "background.threads"):
        assert done(set_option(name, "7")) is None
        found = done(admin.describe_configs([ConfigResource("broker", broker)]))
        assert found[name].value == "7"
        assert done(alter(name, None, AlterConfigOpType.DELETE)) is None
    assert error_of(set_option("background.treads", "7")) == KafkaError.INVALID_CONFIG
    assert error_of(set_option("quota.window.num", "7")) == KafkaError.INVALID_REQUEST


def test_delete_records(bootstrap: str, topic: str, admin: Any) -> None:
    CLIENT.produce(bootstrap, topic, [Record(None, b"%d" % number) for number in range(10)])

    def delete(offset: int) -> Any:
        return admin.delete_records([TopicPartition(topic, 0, offset)])

    assert done(delete(4)).low_watermark == 4
    consumer = consumer_of(bootstrap)
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=DEADLINE_S) == (4, 10)
    assert [record.value for record in CLIENT.consume(bootstrap, topic, 6, start=4)] == [
        b"%d" % number for number in range(4, 10)
    ]
    assert done(delete(2)).low_watermark == 4
    assert error_of(delete(11)) == KafkaError.OFFSET_OUT_OF_RANGE
    assert done(delete(-1)).low_watermark == 10
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=DEADLINE_S) == (10, 10)
    CLIENT.produce(bootstrap, topic, [Record(None, b"after")])
    assert CLIENT.consume(bootstrap, topic, 1, start=10)[0].value == b"after"
    consumer.close()


def test_delete_records_without_waiting(bootstrap: str, topic: str, admin: Any) -> None:
    CLIENT.produce(bootstrap, topic, [Record(None, b"%d" % number) for number in range(10)])

    def delete(offset: int) -> Any:
        place = TopicPartition(topic, 0, offset)
        return admin.delete_records([place], operation_timeout=0)

    assert done(delete(4)).low_watermark == 4
    assert done(delete(-1)).low_watermark == 10
    assert error_of(delete(11)) == KafkaError.OFFSET_OUT_OF_RANGE
