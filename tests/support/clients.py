"""Three stock Python clients behind one small interface: each can read what others wrote."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import confluent_kafka
import kafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AsyncTopicPartition

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Record:
    """A record as any client sees it. None is null, which differs from empty."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)


class Client(Protocol):
    name: str

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        idempotent: bool = True,
        partition: int = 0,
    ) -> list[int]:
        """Writes ``records`` in order; returns their acknowledged offsets."""

    def consume(
        self, bootstrap: str, topic: str, count: int, *, partition: int = 0, start: int = 0
    ) -> list[Record]:
        """Reads ``count`` records from offset ``start``, without a group."""


class Confluent:
    name = "confluent"

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        idempotent: bool = True,
        partition: int = 0,
    ) -> list[int]:
        offsets: list[int] = []
        errors: list[Any] = []

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                errors.append(error)
            else:
                offsets.append(message.offset())

        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "enable.idempotence": idempotent,
                "linger.ms": 20,
                "message.max.bytes": 20_000_000,
            }
        )
        for record in records:
            producer.produce(
                topic,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                timestamp=record.timestamp_ms,
                partition=partition,
                on_delivery=delivered,
            )
        left = producer.flush(TIMEOUT_S)
        assert left == 0, f"{left} records not delivered"
        assert errors == []
        return offsets

    def consume(
        self, bootstrap: str, topic: str, count: int, *, partition: int = 0, start: int = 0
    ) -> list[Record]:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "check.crcs": True,
            }
        )
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, start)])
        found: list[Record] = []
        deadline = time.monotonic() + TIMEOUT_S
        try:
            while len(found) < count and time.monotonic() < deadline:
                for message in consumer.consume(count - len(found), 0.5):
                    if message.error() is not None:
                        raise confluent_kafka.KafkaException(message.error())
                    found.append(
                        Record(
                            message.key(),
                            message.value(),
                            tuple(message.headers() or ()),
                            message.timestamp()[1],
                        )
                    )
        finally:
            consumer.close()
        return found


class KafkaPython:
    name = "kafka-python"

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        idempotent: bool = True,
        partition: int = 0,
    ) -> list[int]:
        producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            linger_ms=20,
            max_request_size=20_000_000,
        )
        try:
            sent = [
                producer.send(
                    topic,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                    partition=partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            return [future.get(timeout=TIMEOUT_S).offset for future in sent]
        finally:
            producer.close(timeout=TIMEOUT_S)

    def consume(
        self, bootstrap: str, topic: str, count: int, *, partition: int = 0, start: int = 0
    ) -> list[Record]:
        consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
        place = kafka.TopicPartition(topic, partition)
        found: list[Record] = []
        deadline = time.monotonic() + TIMEOUT_S
        try:
            consumer.assign([place])
            consumer.seek(place, start)
            while len(found) < count and time.monotonic() < deadline:
                polled = consumer.poll(timeout_ms=500, max_records=count - len(found))
                for message in polled.get(place, []):
                    headers = tuple(message.headers)
                    found.append(Record(message.key, message.value, headers, message.timestamp))
        finally:
            consumer.close()
        return found


class AioKafka:
    """aiokafka, in an asyncio loop of its own."""

    name = "aiokafka"

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        idempotent: bool = True,
        partition: int = 0,
    ) -> list[int]:
        async def run() -> list[int]:
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                compression_type=None if codec == "none" else codec,
                enable_idempotence=idempotent,
                linger_ms=20,
                max_request_size=20_000_000,
            )
            await producer.start()
            try:
                sent = [
                    await producer.send(
                        topic,
                        key=record.key,
                        value=record.value,
                        headers=list(record.headers),
                        partition=partition,
                        timestamp_ms=record.timestamp_ms,
                    )
                    for record in records
                ]
                return [(await future).offset for future in sent]
            finally:
                await producer.stop()

        return asyncio.run(asyncio.wait_for(run(), TIMEOUT_S))

    def consume(
        self, bootstrap: str, topic: str, count: int, *, partition: int = 0, start: int = 0
    ) -> list[Record]:
        async def run() -> list[Record]:
            consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
            place = AsyncTopicPartition(topic, partition)
            consumer.assign([place])
            await consumer.start()
            found: list[Record] = []
            try:
                consumer.seek(place, start)
                while len(found) < count:
                    polled = await consumer.getmany(timeout_ms=500, max_records=count - len(found))
                    for message in polled.get(place, []):
                        headers = tuple(message.headers)
                        found.append(Record(message.key, message.value, headers, message.timestamp))
            finally:
                await consumer.stop()
            return found

        return asyncio.run(asyncio.wait_for(run(), TIMEOUT_S))


CLIENTS: tuple[Client, ...] = (Confluent(), KafkaPython(), AioKafka())
