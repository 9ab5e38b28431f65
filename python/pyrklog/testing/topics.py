"""Topics of a test, and what is in them, read by librdkafka past all faults."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pyrklog.testing.faults import TOOLS_CLIENT_ID

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition

POLL_S = 0.1
BEGINNING = -2
"""Where librdkafka begins to read."""


class Record(NamedTuple):
    """``timestamp_ms`` is in milliseconds since the epoch."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp_ms: int


class TopicOwner(Protocol):
    """A broker or cluster."""

    def records(self, topic: str, *, timeout_s: float = 30.0) -> list[Record]: ...

    def wait_for(self, topic: str, count: int, *, timeout_s: float = 10.0) -> list[Record]: ...


class Topic(str):
    """The name of a topic, which knows its broker."""

    __slots__ = ("owner",)

    owner: TopicOwner

    @classmethod
    def of(cls, owner: TopicOwner, name: str) -> Topic:
        topic = cls(name)
        topic.owner = owner
        return topic

    @property
    def name(self) -> str:
        return str(self)

    def records(self, *, timeout_s: float = 30.0) -> list[Record]:
        """As :meth:`TestBroker.records`."""
        return self.owner.records(self, timeout_s=timeout_s)

    def wait_for(self, count: int, *, timeout_s: float = 10.0) -> list[Record]:
        """As :meth:`TestBroker.wait_for`."""
        return self.owner.wait_for(self, count, timeout_s=timeout_s)


class TopicReader:
    """Reads topics of one broker or cluster. Keeps its client, which takes longer to make than to
    use; one caller at a time has it."""

    def __init__(self, bootstrap: Callable[[], str]) -> None:
        """``bootstrap``: where the brokers are when the client is made."""
        self._bootstrap = bootstrap
        self._consumer: Consumer | None = None
        self._turn = threading.Lock()

    def read_all(self, topic: str, *, timeout_s: float, last: int | None = None) -> list[Record]:
        """All committed records of a topic, or those of the ``last`` offsets of each partition; by
        partition and offset. Raises LookupError for an unknown topic, TimeoutError."""
        deadline = time.monotonic() + timeout_s
        found: list[Record] = []
        with self._use() as consumer:
            places = []
            for place in _places(consumer, topic, timeout_s):
                start, end = consumer.get_watermark_offsets(place, timeout=_left_s(deadline))
                place.offset = start if last is None else max(start, end - last)
                if place.offset < end:
                    places.append(place)
            waiting = {place.partition for place in places}
            consumer.assign(places)
            while waiting:
                message = consumer.poll(POLL_S)
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{topic} was not read to its end within {timeout_s:g} s")
                if message is None:
                    continue
                if _is_end(message):
                    waiting.discard(message.partition())
                else:
                    found.append(_record(message))
        return sorted(found, key=lambda record: (record.partition, record.offset))

    def read_until(self, topic: str, count: int, *, timeout_s: float) -> list[Record]:
        """Waits until a topic has ``count`` committed records or more; those read by then, by
        partition and offset. Raises TimeoutError, which tells how many there are, LookupError."""
        deadline = time.monotonic() + timeout_s
        found: list[Record] = []
        with self._use() as consumer:
            places = _places(consumer, topic, timeout_s)
            for place in places:
                place.offset = BEGINNING
            consumer.assign(places)
            while len(found) < count:
                message = consumer.poll(max(0.0, min(POLL_S, deadline - time.monotonic())))
                if message is not None and not _is_end(message):
                    found.append(_record(message))
                elif message is None and time.monotonic() > deadline:
                    had = f"{len(found)} of {count} records"
                    raise TimeoutError(f"{topic} has {had} after {timeout_s:g} s")
        return sorted(found, key=lambda record: (record.partition, record.offset))

    @contextmanager
    def _use(self) -> Iterator[Consumer]:
        with self._turn:
            if self._consumer is None:
                self._consumer = _new_consumer(self._bootstrap())
            try:
                yield self._consumer
                self._consumer.unassign()
            except BaseException:
                # What it has begun is of no use to the next caller.
                self._close()
                raise

    def close(self) -> None:
        with self._turn:
            self._close()

    def _close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


def _new_consumer(bootstrap: str) -> Consumer:
    from confluent_kafka import Consumer

    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": TOOLS_CLIENT_ID,
            "group.id": TOOLS_CLIENT_ID,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "allow.auto.create.topics": False,
            "fetch.wait.max.ms": 20,
            "reconnect.backoff.ms": 20,
            # A broker that a test has killed is no news.
            "log_level": 0,
            "error_cb": lambda error: None,
        }
    )


def _places(consumer: Consumer, topic: str, timeout_s: float) -> list[TopicPartition]:
    from confluent_kafka import KafkaException, TopicPartition

    try:
        known = consumer.list_topics(str(topic), timeout=timeout_s).topics[str(topic)]
    except KafkaException as error:
        raise TimeoutError(f"the broker does not answer within {timeout_s:g} s: {error}") from None
    if known.error is not None:
        raise LookupError(f"topic {topic}: {known.error.str()}")
    return [TopicPartition(str(topic), number) for number in sorted(known.partitions)]


def _is_end(message: Any) -> bool:
    """Whether it is the end of a partition. Raises KafkaException for an error."""
    from confluent_kafka import KafkaError, KafkaException

    error = message.error()
    if error is None:
        return False
    if error.code() == KafkaError._PARTITION_EOF:
        return True
    raise KafkaException(error)


def _record(message: Any) -> Record:
    return Record(
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
        message.timestamp()[1],
    )


def _left_s(deadline: float) -> float:
    return max(0.01, deadline - time.monotonic())
