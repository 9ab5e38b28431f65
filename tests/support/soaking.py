"""A small model of a broker's day: clients of every kind, each in a thread of its own.

Each worker repeats a step with pauses, so all together load the machine little. An error ends its
worker and is kept in ``error``.
"""

import random
import secrets
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from pyrklog.protocol.producer_ids import INIT_PRODUCER_ID, InitProducerIdRequest
from tests.support import wire
from tests.support.raw_client import RawClient

PATIENCE_S = 60.0
PARTITIONS = 4
IDS_TOPIC = "soak-ids"

SHAPES = (
    ("none", 700_000, 1),
    ("none", 60_000, 4),
    ("lz4", 1_000, 200),
    ("zstd", 10_000, 30),
    ("snappy", 3_000, 60),
    ("gzip", 100, 300),
)
"""Codec, value size in bytes, records a step: about 1.6 MB together."""


def topic_of(codec: str) -> str:
    return f"soak-{codec}"


TOPICS = tuple(sorted({topic_of(codec) for codec, _, _ in SHAPES}))


class Worker:
    """A thread that calls ``step`` repeatedly, and ``close`` at the end."""

    def __init__(self, name: str, pause_s: float, step: Callable[[], None], close: Any = None):
        self.name = name
        self.steps = 0
        self.error: BaseException | None = None
        self._pause_s = pause_s
        self._step = step
        self._close = close
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ended.set()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._ended.wait(self._pause_s * random.uniform(0.5, 1.5)):
                self._step()
                self.steps += 1
            if self._close is not None:
                self._close()
        except BaseException as error:
            self.error = error


class Load:
    """All workers; the context manager starts and ends them."""

    def __init__(self, bootstrap: str) -> None:
        self.writers = Writers(bootstrap)
        ids, groups, topics = ProducerIds(bootstrap), Groups(bootstrap), Topics(bootstrap)
        tail, lag = Tail(bootstrap), Lag(bootstrap)
        self.workers: Sequence[Worker] = (
            Worker("writers", 0.25, self.writers.step, self.writers.close),
            Worker("producer ids", 0.1, ids.step, ids.close),
            Worker("tail 1", 0.1, tail.step, tail.close),
            Worker("lag", 0.5, lag.step, lag.close),
            Worker("groups", 3.0, groups.step),
            Worker("topics", 4.0, topics.step, topics.close),
            Worker("connections", 0.1, Connections(bootstrap).step),
        )

    def check(self) -> None:
        for worker in self.workers:
            if worker.error is not None:
                raise AssertionError(f"{worker.name} failed") from worker.error

    def __enter__(self) -> Self:
        for worker in self.workers:
            worker.start()
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.end()
        for worker in self.workers:
            worker.join()


def create_topics(bootstrap: str, options: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = [NewTopic(name, PARTITIONS, 1, config=options) for name in (*TOPICS, IDS_TOPIC)]
    for future in admin.create_topics(made).values():
        future.result(PATIENCE_S)


class Writers:
    """An idempotent producer per shape; text for the codecs, noise without one."""

    def __init__(self, bootstrap: str) -> None:
        self.bytes = 0
        self._failed: list[Any] = []
        self._noise = secrets.token_bytes(1 << 20)
        self._text = b"".join(
            b"%08d %s;" % (i, secrets.token_hex(4).encode()) for i in range(9_000)
        )
        self._producers = [Producer(_producing(bootstrap, codec)) for codec, _, _ in SHAPES]

    def step(self) -> None:
        for producer, (codec, size, count) in zip(self._producers, SHAPES, strict=True):
            source = self._noise if codec == "none" else self._text
            for _ in range(count):
                start = random.randrange(max(len(source) - size, 1))
                producer.produce(
                    topic_of(codec),
                    source[start : start + size],
                    partition=random.randrange(PARTITIONS),
                    on_delivery=self._delivered,
                )
            producer.poll(0)
        assert not self._failed, self._failed[:3]

    def close(self) -> None:
        for producer in self._producers:
            assert producer.flush(PATIENCE_S) == 0
        assert not self._failed, self._failed[:3]

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed.append(error)
        else:
            self.bytes += len(message.value())


def _producing(bootstrap: str, codec: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "compression.type": codec,
        "enable.idempotence": True,
        "linger.ms": 20,
        # A producer keeps asking for topics that it knew, and must not recreate them.
        "allow.auto.create.topics": False,
        "message.timeout.ms": int(PATIENCE_S * 1000),
    }


class ProducerIds:
    """A new producer id at every step: Kafka keeps the last batches of each."""

    def __init__(self, bootstrap: str) -> None:
        self._raw = RawClient(bootstrap)
        self._connection = wire.Connection(bootstrap, PATIENCE_S)

    def step(self) -> None:
        """Two batches of a producer that then disappears."""
        given = self._raw.ask(INIT_PRODUCER_ID, 1, InitProducerIdRequest())
        assert given.error_code == 0
        partition = random.randrange(PARTITIONS)
        for sequence in range(2):
            batch = wire.record_batch(
                [b"once"],
                timestamp_ms=time.time_ns() // 1_000_000,
                producer=(given.producer_id, given.producer_epoch, sequence),
            )
            done = wire.produce(self._connection, IDS_TOPIC, batch, partition=partition)
            assert done.error == 0

    def close(self) -> None:
        self._raw.close()
        self._connection.close()


class Tail:
    """A group member that reads and commits; offsets rise by one."""

    def __init__(self, bootstrap: str) -> None:
        self.records = 0
        self._next: dict[tuple[str, int], int] = {}
        self._consumer = Consumer(_consuming(bootstrap, "soak-tail"))
        self._consumer.subscribe([*TOPICS, IDS_TOPIC])

    def step(self) -> None:
        for message in _consumed(self._consumer, 5_000):
            place = (message.topic(), message.partition())
            offset = message.offset()
            assert offset == self._next.get(place, offset), f"{place}: {offset} out of turn"
            self._next[place] = offset + 1
            self.records += 1
        self._consumer.commit(asynchronous=True)

    def close(self) -> None:
        assert self.records > 0
        self._consumer.close()


class Lag:
    """Reads from the beginning, slower than the writers, and restarts where retention
    overtakes it."""

    def __init__(self, bootstrap: str) -> None:
        self._bytes = 0
        self._consumer = Consumer(
            _consuming(bootstrap, "soak-lag") | {"queued.max.messages.kbytes": 1024}
        )
        places = [TopicPartition(name, p, 0) for name in TOPICS for p in range(PARTITIONS)]
        self._consumer.assign(places)

    def step(self) -> None:
        self._bytes += sum(len(message.value()) for message in _consumed(self._consumer, 20))

    def close(self) -> None:
        assert self._bytes > 0
        self._consumer.close()


def _consuming(bootstrap: str, group: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": True,
        "auto.offset.reset": "earliest",
        "check.crcs": True,
        "fetch.wait.max.ms": 200,
    }


def _consumed(consumer: Any, count: int) -> list[Any]:
    messages = consumer.consume(count, 0.05)
    for message in messages:
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
    return [message for message in messages if message.error() is None]


class Groups:
    """A group joins, reads, commits, leaves and is deleted."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._number = 0

    def step(self) -> None:
        self._number += 1
        name = f"soak-group-{self._number}"
        consumer = Consumer(
            _consuming(self._bootstrap, name) | {"max.partition.fetch.bytes": 50_000}
        )
        consumer.subscribe([IDS_TOPIC])
        deadline = time.monotonic() + PATIENCE_S
        while not _consumed(consumer, 10):
            assert time.monotonic() < deadline, "a group of one gets nothing to read"
        consumer.commit(asynchronous=False)
        consumer.close()
        self._admin.delete_consumer_groups([name])[name].result(PATIENCE_S)


class Topics:
    """Topics are created, written to and deleted; a few exist at any time."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._producer = Producer(_producing(bootstrap, "none"))
        self._names: deque[str] = deque()
        self._number = 0

    def step(self) -> None:
        """Creates one; deletes one if there are enough."""
        self._number += 1
        name = f"soak-passing-{self._number}"
        self._admin.create_topics([NewTopic(name, 3, 1)])[name].result(PATIENCE_S)
        self._names.append(name)
        for partition in range(3):
            self._producer.produce(name, bytes(random.randrange(50_000)), partition=partition)
        assert self._producer.flush(PATIENCE_S) == 0
        if len(self._names) > 3:
            self._delete(self._names.popleft())

    def close(self) -> None:
        while self._names:
            self._delete(self._names.popleft())

    def _delete(self, name: str) -> None:
        self._admin.delete_topics([name])[name].result(PATIENCE_S)


class Connections:
    """Connections that end in order, within a frame, within a long poll, or with an
    unread answer."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def step(self) -> None:
        with wire.Connection(self._bootstrap, PATIENCE_S) as connection:
            ending = random.randrange(4)
            if ending == 0:
                connection.request(wire.API_VERSIONS, 0, b"")
            elif ending == 1:
                head = wire.header(wire.PRODUCE, 7, 1)
                connection.socket.sendall(struct.pack(">i", 500_000) + head + bytes(30_000))
            elif ending == 2:
                connection.send_frame(_fetch(_end(connection), max_wait_ms=2_000, min_bytes=1))
            else:
                connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                start = max(_end(connection) - 3, 0)
                connection.send_frame(_fetch(start, max_wait_ms=0, min_bytes=1))


def _end(connection: wire.Connection) -> int:
    """The high watermark of a partition with large records: ListOffsets version 1."""
    place = wire.array([struct.pack(">iq", 0, -1)])
    body = struct.pack(">i", -1) + wire.array([wire.string(topic_of("none")) + place])
    reply = connection.request(wire.LIST_OFFSETS, 1, body)
    error, _, offset = struct.unpack(">hqq", reply[-18:])
    assert error == 0
    return int(offset)


def _fetch(offset: int, max_wait_ms: int, min_bytes: int) -> bytes:
    place = struct.pack(">iqi", 0, offset, 1 << 20)
    limits = struct.pack(">iiiib", -1, max_wait_ms, min_bytes, 1 << 20, 0)
    topic = wire.string(topic_of("none")) + wire.array([place])
    return wire.header(wire.FETCH, 4, 1) + limits + wire.array([topic])
