import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiokafka
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from tests.support.clients import TIMEOUT_S, AioKafka, Record
from tests.support.clock import START_MS

CLIENT = AioKafka()


def with_client(client: Any, use: Callable[[Any], Awaitable[Any]]) -> Any:
    """Starts a client in a loop of its own, uses it and stops it."""

    async def run() -> Any:
        made = client()
        await made.start()
        try:
            return await use(made)
        finally:
            await (made.close() if hasattr(made, "close") else made.stop())

    return asyncio.run(asyncio.wait_for(run(), TIMEOUT_S))


def consumer_of(bootstrap: str) -> Callable[[], Any]:
    return lambda: aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None)


def admin_of(bootstrap: str) -> Callable[[], Any]:
    return lambda: AIOKafkaAdminClient(bootstrap_servers=bootstrap)


def test_offsets_and_times(bootstrap: str, topic: str) -> None:
    records = [Record(None, b"v", timestamp_ms=START_MS + 1000 * number) for number in range(20)]
    CLIENT.produce(bootstrap, topic, records[:10], codec="zstd")
    CLIENT.produce(bootstrap, topic, records[10:])
    place = aiokafka.TopicPartition(topic, 0)

    async def use(consumer: Any) -> None:
        assert await consumer.beginning_offsets([place]) == {place: 0}
        assert await consumer.end_offsets([place]) == {place: 20}
        found = await consumer.offsets_for_times({place: START_MS + 3_001})
        assert (found[place].offset, found[place].timestamp) == (4, START_MS + 4_000)
        found = await consumer.offsets_for_times({place: START_MS + 100_000_000})
        assert found[place] is None

    with_client(consumer_of(bootstrap), use)


def test_a_consumer_follows_a_producer(bootstrap: str, topic: str) -> None:
    CLIENT.produce(bootstrap, topic, [Record(None, b"0")])
    place = aiokafka.TopicPartition(topic, 0)

    async def use(consumer: Any) -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
        await producer.start()
        consumer.assign([place])
        consumer.seek(place, 0)
        for number in range(1, 20):
            assert (await consumer.getone()).value == b"%d" % (number - 1)
            await producer.send_and_wait(topic, b"%d" % number, partition=0)
        await producer.stop()

    with_client(consumer_of(bootstrap), use)


def test_administration(bootstrap: str, topic: str) -> None:
    async def use(admin: Any) -> None:
        await admin.create_topics([NewTopic(topic, 2, 1)])
        assert topic in await admin.list_topics()
        await admin.create_partitions({topic: NewPartitions(3)})
        (found,) = await admin.describe_topics([topic])
        assert len(found["partitions"]) == 3
        resource = ConfigResource(
            ConfigResourceType.TOPIC, topic, configs={"retention.ms": "100000"}
        )
        await admin.alter_configs([resource])
        (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        options = {entry[0]: entry[1] for entry in answer.resources[0][4]}
        assert options["retention.ms"] == "100000"
        await admin.delete_topics([topic])
        assert topic not in await admin.list_topics()

    with_client(admin_of(bootstrap), use)


def test_delete_records(bootstrap: str, topic: str) -> None:
    CLIENT.produce(bootstrap, topic, [Record(None, b"%d" % number) for number in range(6)])
    place = aiokafka.TopicPartition(topic, 0)

    async def delete(admin: Any) -> None:
        await admin.delete_records({place: aiokafka.admin.RecordsToDelete(before_offset=4)})

    async def check(consumer: Any) -> None:
        assert await consumer.beginning_offsets([place]) == {place: 4}

    with_client(admin_of(bootstrap), delete)
    with_client(consumer_of(bootstrap), check)
