"""Clients of a round, each in a thread, that enter what they do and see into a history."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.checker.history import NONE, History, Outcome, decode, encode, value_of

_IMPATIENT = {
    "socket.timeout.ms": 3_000,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "topic.metadata.refresh.interval.ms": 1_000,
    "log_level": 0,
}
_PADDING_BYTES_MAX = 600
_POLL_S = 0.1
_COMMIT_SHARE = 0.05
_OUT_OF_LOG = (
    KafkaError.OFFSET_OUT_OF_RANGE,
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError._LOG_TRUNCATION,
)
_NOT_COMMITTED = (
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
)


class Client:
    """A thread that calls `step` until it is told to end; then `finish`. What it raises is kept in
    ``broke`` and ends it."""

    def __init__(self, name: str, history: History) -> None:
        self.name = name
        self.history = history
        self.broke: BaseException | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def end(self) -> None:
        """No step begins any more."""
        self._end.set()

    def join(self, seconds: float) -> bool:
        """Whether it ended within that time."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._end.is_set():
                self.step()
            self.finish()
        except BaseException as error:
            self.broke = error

    def step(self) -> None:
        """Gets on for a moment."""
        raise NotImplementedError

    def finish(self) -> None:
        """Comes to an end."""
        raise NotImplementedError


class Writer(Client):
    """An idempotent producer with acks=all."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, number: int, history: History
    ) -> None:
        super().__init__(f"writer-{number}", history)
        self.number = number
        self.sent = 0
        self.acknowledged = 0
        self._topic = topic
        self._counts = [0] * partitions
        self._waiting_max = random.choice((20, 100, 500))
        self._producer = Producer(
            {
                **_IMPATIENT,
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": random.choice((0, 1, 20)),
                "message.timeout.ms": 300_000,
                "error_cb": self._erred,
            }
        )

    def step(self) -> None:
        for _ in range(random.randrange(1, 15)):
            if len(self._producer) < self._waiting_max:
                self._send(random.randrange(len(self._counts)))
        deadline = time.monotonic() + 0.02
        while (left_s := deadline - time.monotonic()) > 0:
            self._producer.poll(left_s)

    def _send(self, partition: int) -> None:
        value = value_of(self.number, self._counts[partition])
        self._counts[partition] += 1
        self.sent += 1
        self.history.add(self.name, "send", "invoke", partition, value=value)
        self._producer.produce(
            self._topic,
            encode(value, random.randrange(_PADDING_BYTES_MAX)),
            partition=partition,
            on_delivery=lambda error, message: self._told(partition, value, error, message),
        )

    def _told(self, partition: int, value: int, error: Any, message: Any) -> None:
        if error is not None:
            # The library gives up; what it sent before may have arrived.
            note = str(error)
            self.history.add(self.name, "send", "unknown", partition, value=value, note=note)
            return
        self.acknowledged += 1
        # A repetition that was recognized is acknowledged without its offset.
        offset = max(message.offset(), NONE)
        self.history.add(self.name, "send", "ok", partition, value=value, offset=offset)

    def _erred(self, error: Any) -> None:
        if error.fatal():
            self.broke = KafkaException(error)

    def finish(self) -> None:
        """Everything that was sent is told about, one way or the other."""
        self._producer.flush()


class Reader(Client):
    """Reads all partitions from the start, in an assignment of its own."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, name: str, history: History
    ) -> None:
        super().__init__(name, history)
        self.positions = [0] * partitions
        self._marks = [NONE] * partitions
        self._consumer = Consumer(
            {
                **_IMPATIENT,
                "bootstrap.servers": bootstrap,
                "group.id": name,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 100,
                "fetch.error.backoff.ms": 50,
            }
        )
        self._places = [TopicPartition(topic, index, 0) for index in range(partitions)]
        self._consumer.assign(self._places)

    def step(self) -> None:
        for message in self._consumer.consume(200, _POLL_S):
            self._take(message)
        for place in self._places:
            self._look_at_mark(place)

    def _take(self, message: Any) -> None:
        error = message.error()
        partition = message.partition()
        if error is None:
            value = decode(message.value())
            offset = message.offset()
            self.history.add(self.name, "read", "ok", partition, value=value, offset=offset)
            self.positions[partition] = offset + 1
        elif error.code() in _OUT_OF_LOG:
            self.history.add(self.name, "read", "fail", partition, note=str(error))

    def _look_at_mark(self, place: TopicPartition) -> None:
        found = self._consumer.get_watermark_offsets(place, cached=True)
        if found is None or found[1] < 0 or found[1] == self._marks[place.partition]:
            return
        self._marks[place.partition] = found[1]
        self.history.add(self.name, "mark", "ok", place.partition, offset=found[1])

    def finish(self) -> None:
        self._consumer.close()


class Watcher(Client):
    """Asks for the end of each partition again and again."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, name: str, history: History
    ) -> None:
        super().__init__(name, history)
        settings = {"bootstrap.servers": bootstrap, "group.id": name}
        self._consumer = Consumer({**_IMPATIENT, **settings})
        self._places = [TopicPartition(topic, index) for index in range(partitions)]

    def step(self) -> None:
        for place in self._places:
            if self._end.wait(0.02):
                return
            self._ask(place)

    def _ask(self, place: TopicPartition) -> None:
        self.history.add(self.name, "latest", "invoke", place.partition)
        try:
            _, end = self._consumer.get_watermark_offsets(place, timeout=1)
        except KafkaException as error:
            note = str(error)
            self.history.add(self.name, "latest", "unknown", place.partition, note=note)
            return
        self.history.add(self.name, "latest", "ok", place.partition, offset=end)

    def finish(self) -> None:
        self._consumer.close()


class Member(Client):
    """A member of the group: polls, and commits what it has seen, and no more."""

    def __init__(self, bootstrap: str, topic: str, group: str, name: str, history: History) -> None:
        super().__init__(name, history)
        self._topic = topic
        self._seen: dict[int, int] = {}
        """The offset behind the last one polled, where it is not committed yet."""
        self._consumer = Consumer(
            {
                **_IMPATIENT,
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "client.id": name,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 200,
                "fetch.wait.max.ms": 100,
                "fetch.error.backoff.ms": 50,
            }
        )
        self._consumer.subscribe(
            [topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )

    def _assigned(self, _: object, places: Sequence[TopicPartition]) -> None:
        for place in places:
            self.history.add(self.name, "assign", "ok", place.partition)

    def _revoked(self, _: object, places: Sequence[TopicPartition]) -> None:
        for place in places:
            self._seen.pop(place.partition, None)
            self.history.add(self.name, "revoke", "ok", place.partition)

    def step(self) -> None:
        message = self._consumer.poll(_POLL_S)
        if message is not None and message.error() is None:
            partition, offset = message.partition(), message.offset()
            value = decode(message.value())
            self._seen[partition] = offset + 1
            self.history.add(self.name, "poll", "ok", partition, value=value, offset=offset)
        if self._seen and (message is None or random.random() < _COMMIT_SHARE):
            self._commit()

    def _commit(self) -> None:
        seen, self._seen = self._seen, {}
        for partition, offset in seen.items():
            self.history.add(self.name, "commit", "invoke", partition, offset=offset)
        places = [TopicPartition(self._topic, index, offset) for index, offset in seen.items()]
        try:
            answers = self._consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as failure:
            self._committed(seen, dict.fromkeys(seen, failure.args[0]))
        else:
            self._committed(seen, {place.partition: place.error for place in answers})

    def _committed(self, seen: dict[int, int], errors: dict[int, KafkaError | None]) -> None:
        for partition, offset in seen.items():
            error = errors[partition]
            if error is None:
                self.history.add(self.name, "commit", "ok", partition, offset=offset)
                continue
            outcome: Outcome = "fail" if error.code() in _NOT_COMMITTED else "unknown"
            note = str(error)
            self.history.add(self.name, "commit", outcome, partition, offset=offset, note=note)
            self._seen.setdefault(partition, offset)

    def finish(self) -> None:
        if self._seen:
            self._commit()
        self._consumer.close()


class Group(Client):
    """Members that come and go; two or three at a time."""

    def __init__(self, make: Callable[[str], Member], history: History) -> None:
        super().__init__("group", history)
        self.members: list[Member] = []
        self._make = make
        self._numbers = 0
        self._leaving: list[Member] = []

    def step(self) -> None:
        while len(self.members) < 2:
            self._join()
        if self._end.wait(random.uniform(0.4, 1.5)):
            return
        if random.random() < 0.5:
            self._join()
        else:
            leaving = self.members.pop(0)
            leaving.end()
            self._leaving.append(leaving)

    def _join(self) -> None:
        self._numbers += 1
        member = self._make(f"member-{self._numbers}")
        self.members.append(member)
        member.start()

    def finish(self) -> None:
        """Those that are there stay."""

    def everybody(self) -> list[Member]:
        """All members that ever were, after the end."""
        return [*self._leaving, *self.members]
