"""Producers and consumers that go on through every fault."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Self

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaException,
    Producer,
    TopicPartition,
)

TOPIC = "orders"
GROUP = "billing"
PARTITIONS = 6
TOPIC_OPTIONS: Mapping[str, str] = {
    "min.insync.replicas": "2",
    "segment.bytes": "8000000",
    "retention.bytes": "40000000",
}
_PAUSE_S = 0.05
_RECORDS = 4
_VALUE = bytes(500)
"""With these each producer writes 20 kB a second: little, as the machine has other things to do."""
_CLIENT: Mapping[str, Any] = {
    "log_level": 0,
    "reconnect.backoff.max.ms": 500,
    # A broker that hangs holds up nobody for a minute.
    "socket.timeout.ms": 6_000,
}


class Repeated:
    """A thread that calls ``step`` until it is closed, and then ``close``. What a step raises ends
    it, and is raised by ``close``."""

    def __init__(
        self,
        step: Callable[[], None],
        pause_s: float = 0.0,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self._step, self._close, self._pause_s = step, close, pause_s
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._ended.wait(self._pause_s):
                self._step()
            self._close()
        except BaseException as error:
            self._error = error

    def check(self) -> None:
        if self._error is not None:
            raise AssertionError("a client has failed") from self._error

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self.check()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Writer:
    """Records of a size to a topic, or to one partition; what fails is tried anew."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        value: bytes = _VALUE,
        records: int = _RECORDS,
        partitions: tuple[int, ...] = (-1,),
        **options: Any,
    ) -> None:
        """``partitions``: in turn; -1 is any."""
        self.acknowledged = 0
        self.failed = 0
        self._topic, self._value = topic, value
        self._places = [one for one in partitions for _ in range(records)]
        self._producer = Producer(
            {**_CLIENT, "bootstrap.servers": bootstrap, "linger.ms": 5, **options}
        )

    def step(self) -> None:
        for partition in self._places:
            try:
                self._producer.produce(
                    self._topic, self._value, partition=partition, on_delivery=self._told
                )
            except BufferError:  # its queue is full while brokers are away
                self._producer.poll(0.1)
        self._producer.poll(0)

    def close(self) -> None:
        """Does not wait for what brokers do not take."""
        self._producer.purge()
        self._producer.flush(5)

    def _told(self, error: object, _message: object) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failed += 1


class Reader:
    """A member of a group that commits what it has read."""

    def __init__(self, bootstrap: str, group: str, topic: str, **options: Any) -> None:
        self.read = 0
        self._consumer = Consumer(
            {
                **_CLIENT,
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 1_000,
                "session.timeout.ms": 10_000,
                **options,
            }
        )
        self._consumer.subscribe([topic])

    def read_again(self, count: int) -> None:
        """Reads on, and from the beginning after so many records."""
        self.step()
        if self.read >= count:
            self.read = 0
            for one in self._consumer.assignment():
                with suppress(KafkaException):  # it is not fetched yet, and read from there anyway
                    self._consumer.seek(TopicPartition(one.topic, one.partition, OFFSET_BEGINNING))

    def step(self) -> None:
        # Errors are passing ones: brokers come back, and the client finds them.
        messages = self._consumer.consume(500, 0.2)
        self.read += sum(one.error() is None for one in messages)

    def close(self) -> None:
        self._consumer.close()


class Load:
    """Two producers and a group of two members."""

    def __init__(self, bootstrap: str) -> None:
        self._writers = [Writer(bootstrap, TOPIC, acks="all") for _ in range(2)]
        self._readers = [Reader(bootstrap, GROUP, TOPIC) for _ in range(2)]
        self._threads = [
            *(Repeated(one.step, 2 * _PAUSE_S, one.close) for one in self._writers),
            *(Repeated(one.step, _PAUSE_S, one.close) for one in self._readers),
        ]

    @property
    def acknowledged(self) -> int:
        return sum(one.acknowledged for one in self._writers)

    @property
    def read(self) -> int:
        return sum(one.read for one in self._readers)

    def check(self) -> None:
        """Raises what has ended a client."""
        for one in self._threads:
            one.check()

    def close(self) -> None:
        for one in self._threads:
            one.close()
