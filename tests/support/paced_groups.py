"""A producer of known rates, and groups whose lag follows from them."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

TICK_S = 0.01
STEP_S = 0.1
"""A reader commits so often."""
_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Pace:
    per_second: int
    """Records, over all partitions."""
    records: float = inf


class PacedProducer(threading.Thread):
    """Sends to all partitions in turn, at fixed times: first at one pace, then at the next until
    :meth:`end`.

    ``sent`` and ``acknowledged`` have the monotonic time of each partition's records by offset.
    """

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, first: Pace, then: Pace
    ) -> None:
        super().__init__(daemon=True)
        self.sent: list[list[float]] = [[] for _ in range(partitions)]
        self.acknowledged: list[list[float]] = [[] for _ in range(partitions)]
        self.first_done = threading.Event()
        """All of the first pace is acknowledged."""
        self._topic = topic
        self._first, self._then = first, then
        self._ended = threading.Event()
        self._failure: Exception | None = None
        # In order and each once, so that a partition's n-th record has the offset n.
        options = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0}
        self._producer = Producer({**options, "log_level": 0})

    def run(self) -> None:
        try:
            self._keep(self._first)
            self._flush()
            self.first_done.set()
            self._keep(self._then)
            self._flush()
        except Exception as error:
            self._failure = error
        finally:
            self.first_done.set()

    def check(self) -> None:
        """Raises what has ended it."""
        if self._failure is not None:
            raise self._failure

    def end(self) -> None:
        """Ends it; all that it sent is acknowledged."""
        self._ended.set()
        self.join()
        self.check()

    def _flush(self) -> None:
        left = self._producer.flush(_TIMEOUT_S)
        assert left == 0, f"{left} records are not acknowledged"

    def _keep(self, pace: Pace) -> None:
        began = time.monotonic()
        number = 0
        while number < pace.records and not self._ended.is_set():
            due = int((time.monotonic() - began) * pace.per_second)
            while number < min(pace.records, due):
                self._send(number % len(self.sent))
                number += 1
            # The rate is what the test knows.
            self._producer.poll(TICK_S)

    def _send(self, partition: int) -> None:
        self.sent[partition].append(time.monotonic())
        self._producer.produce(
            self._topic, b"x" * 100, partition=partition, on_delivery=self._delivered
        )

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            raise KafkaException(error)
        times = self.acknowledged[message.partition()]
        assert message.offset() == len(times), "a record has another offset than the test knows"
        times.append(time.monotonic())

    def age_s(
        self, partition: int, offset: int, asked: float, answered: float
    ) -> tuple[float, float]:
        """How long ago the log end left the offset, least and most, for a question and its answer
        at these monotonic times; zeros where nothing was unread."""
        sent, acknowledged = self.sent[partition], self.acknowledged[partition]
        least = max(0.0, asked - acknowledged[offset]) if offset < len(acknowledged) else 0.0
        most = max(0.0, answered - sent[offset]) if offset < len(sent) else 0.0
        return least, most


def commit(bootstrap: str, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """As a program that is no member."""
    consumer = _consumer(bootstrap, group)
    _commit(consumer, topic, offsets)
    consumer.close()


def _consumer(bootstrap: str, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )


def _commit(consumer: Consumer, topic: str, offsets: Mapping[int, int]) -> None:
    places = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
    done = consumer.commit(offsets=places, asynchronous=False)
    assert [place.error for place in done] == [None] * len(places)


class Reader(threading.Thread):
    """The only member of a group: reads so many records a second from the committed offsets on,
    and commits what it has read ten times a second. With 0 it is a member and stands still."""

    def __init__(self, bootstrap: str, group: str, topic: str, per_second: float) -> None:
        super().__init__(daemon=True)
        self.joined = threading.Event()
        self._topic = topic
        self._per_second = per_second
        self._ended = threading.Event()
        self._failure: Exception | None = None
        self._consumer = _consumer(bootstrap, group)

    def run(self) -> None:
        try:
            self._consumer.subscribe([self._topic], on_assign=self._assigned)
            while not self.joined.is_set() and not self._ended.is_set():
                assert self._consumer.poll(STEP_S) is None, "a record came while it is paused"
            self._read()
        except Exception as error:
            self._failure = error
        finally:
            self._consumer.close()

    def _assigned(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        consumer.assign(places)
        consumer.pause(places)
        self.joined.set()

    def _read(self) -> None:
        if self._per_second:
            self._consumer.resume(self._consumer.assignment())
        began, count = time.monotonic(), 0
        # The rate is what the test knows.
        while not self._ended.wait(STEP_S):
            due = int((time.monotonic() - began) * self._per_second) - count
            if due <= 0:
                continue
            offsets: dict[int, int] = {}
            for message in self._consumer.consume(due, STEP_S):
                assert message.error() is None, message.error()
                offsets[message.partition()] = message.offset() + 1
                count += 1
            if offsets:
                _commit(self._consumer, self._topic, offsets)

    def end(self) -> None:
        """Ends it; its group keeps its offsets. Raises what ended it before."""
        self._ended.set()
        self.join()
        if self._failure is not None:
            raise self._failure
