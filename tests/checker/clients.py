"""A round's clients, each in a thread, which record what they do and see in a history."""

from __future__ import annotations

import ctypes
import json
import logging
import random
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.checker.history import NONE, History, decode, encode, value_of
from tests.support.waiting import PATIENCE_S, wait_until

IMPATIENT = {
    "socket.timeout.ms": 3_000,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "topic.metadata.refresh.interval.ms": 1_000,
    "log_level": 0,
}
BATCH_BYTES_MAX = 16_384
_PADDING_BYTES_MAX = 600
_ASKS_S = 3
_SILENT_S = 10.0
_TELLS_MS = 1_000
POLL_S = 0.1
_OUT_OF_LOG = (
    KafkaError.OFFSET_OUT_OF_RANGE,
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError._LOG_TRUNCATION,
)


class Client(ABC):
    """A thread that calls ``step`` until its end, then ``finish``. An exception ends it and is kept
    in ``broke``."""

    def __init__(self, name: str, history: History) -> None:
        self.name = name
        self.history = history
        self.broke: BaseException | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self.run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Starts no further step."""
        self._end.set()

    def join(self, seconds: float) -> bool:
        """Whether it ended within that time."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def run(self) -> None:
        try:
            while not self._end.is_set():
                self.step()
            self.finish()
        except BaseException as error:
            self.broke = error

    @abstractmethod
    def step(self) -> None:
        """Gets on for a moment."""

    @abstractmethod
    def finish(self) -> None:
        """Comes to an end."""


class Places:
    """Offsets of a producer's records, as far as its reports tell.

    The answer to a repetition may lack the offset (DUPLICATE_SEQUENCE_NUMBER, base offset -1).
    librdkafka counts on from -1 within the batch: the first record has no offset, the others get 0,
    1, 2 and so on, which are not offsets either. A record after one that is already in the log
    cannot have these offsets.
    """

    def __init__(self, partitions: int) -> None:
        self._counted: list[int | None] = [None] * partitions

    def reported(self, partition: int, offset: int | None) -> int:
        """The offset of the next acknowledged record, or ``NONE``."""
        if offset is None or offset < 0:
            self._counted[partition] = 0
            return NONE
        if offset != self._counted[partition]:
            self._counted[partition] = None
            return offset
        self._counted[partition] = offset + 1
        return NONE


class Writer(Client):
    options: Mapping[str, Any] = {
        "enable.idempotence": True,
        "acks": "all",
        "message.timeout.ms": 300_000,
    }

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, number: int, history: History
    ) -> None:
        super().__init__(f"writer-{number}", history)
        self.number = number
        self.sent = 0
        self.acknowledged = 0
        self._topic = topic
        self._counts = [0] * partitions
        self._places = Places(partitions)
        self._waiting_max = random.choice((20, 100, 500))
        self._producer = Producer(
            {
                **IMPATIENT,
                "bootstrap.servers": bootstrap,
                "linger.ms": random.choice((0, 1, 20)),
                "compression.type": random.choice(("none", "none", "lz4", "zstd")),
                "batch.size": BATCH_BYTES_MAX,
                **self.options,
                "error_cb": self._erred,
            }
        )

    def step(self) -> None:
        for _ in range(random.randrange(1, 15)):
            if len(self._producer) < self._waiting_max:
                self._send(random.randrange(len(self._counts)))
        self.serve(0.02)

    def serve(self, seconds: float) -> None:
        """Waits so long, and takes reports meanwhile."""
        deadline = time.monotonic() + seconds
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
        offset = self._places.reported(partition, message.offset())
        self.history.add(self.name, "send", "ok", partition, value=value, offset=offset)

    def _erred(self, error: Any) -> None:
        if error.fatal():
            self.broke = KafkaException(error)

    def finish(self) -> None:
        """Sends a last record to each partition and waits for all reports."""
        for partition in range(len(self._counts)):
            self._send(partition)
        self._producer.flush()


class CarelessWriter(Writer):
    """A writer with acks=1 and without retries: its acknowledgements promise nothing, but what a
    reader has seen stays. Its records make logs diverge. They keep no order: abandoned sends may
    still arrive."""

    options: Mapping[str, Any] = {"acks": 1, "retries": 0, "message.timeout.ms": 3_000}

    def _told(self, partition: int, value: int, error: Any, message: Any) -> None:
        note = "acknowledged" if error is None else str(error)
        self.history.add(self.name, "send", "unknown", partition, value=value, note=note)

    def finish(self) -> None:
        """Waits for all reports; a last record is not needed."""
        self._producer.flush()


class Reader(Client):
    """Reads all partitions from the start, with its own assignment.

    librdkafka 2.16 can deadlock: one of its threads handles an OffsetForLeaderEpoch answer and
    waits for the client's lock, another one loses its broker and waits for the partition's. Such a
    client hears nothing more and cannot be closed, so another one replaces it. So it does with one
    whose own timer stands still, which tells statistics. A client that merely gets no answers is
    not replaced.
    """

    options: Mapping[str, Any] = {}

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, name: str, history: History
    ) -> None:
        super().__init__(name, history)
        self.positions = [0] * partitions
        self._bootstrap = bootstrap
        self._topic = topic
        self._failed: deque[str] = deque(maxlen=20)
        self._statistics = "{}"
        self._heard_s = self._told_s = time.monotonic()
        self._consumer = self._connect()

    def _connect(self) -> Consumer:
        consumer = Consumer(
            {
                **IMPATIENT,
                "bootstrap.servers": self._bootstrap,
                "group.id": self.name,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 100,
                "fetch.error.backoff.ms": 50,
                "statistics.interval.ms": _TELLS_MS,
                "stats_cb": self._note_statistics,
                **self.options,
            }
        )
        places = enumerate(self.positions)
        consumer.assign([TopicPartition(self._topic, index, offset) for index, offset in places])
        return consumer

    def _note_statistics(self, text: str) -> None:
        self._statistics, self._told_s = text, time.monotonic()

    def told(self) -> str:
        """What explains a reader that does not go on."""
        now_s = time.monotonic()
        known = json.loads(self._statistics)
        partitions = known.get("topics", {}).get(self._topic, {}).get("partitions", {})
        names = ("broker", "fetch_state", "next_offset", "hi_offset", "ls_offset", "leader_epoch")
        brokers = {
            one["nodeid"]: f"{one['state']}, waits for {one['waitresp_cnt']}"
            for one in known.get("brokers", {}).values()
        }
        return (
            f"heard of {now_s - self._heard_s:.0f} s ago, statistics {now_s - self._told_s:.0f} s "
            f"old: {[[one.get(name) for name in names] for one in partitions.values()]}; "
            f"{brokers}; errors: {list(self._failed)}"
        )

    def step(self) -> None:
        messages = self._consumer.consume(200, POLL_S)
        for message in messages:
            self.take(message)
        now_s = time.monotonic()
        if messages:
            self._heard_s = now_s
        elif now_s - self._heard_s > _SILENT_S:
            self._heard_s = now_s
            if now_s - self._told_s > _SILENT_S or is_locked_up(self._consumer):
                leak(self._consumer)
                self._consumer = self._connect()
                self._told_s = time.monotonic()

    def take(self, message: Any) -> None:
        error = message.error()
        partition = message.partition()
        if error is None:
            value = decode(message.value())
            offset = message.offset()
            self.history.add(self.name, "read", "ok", partition, value=value, offset=offset)
            self.positions[partition] = offset + 1
        elif error.code() in _OUT_OF_LOG:
            self._failed.append(f"{partition}: {error}")
            self.history.add(self.name, "read", "fail", partition, note=str(error))

    def finish(self) -> None:
        if is_locked_up(self._consumer):
            leak(self._consumer)
        else:
            self._consumer.close()


def is_locked_up(consumer: Consumer, patience_s: float = 3 * _ASKS_S) -> bool:

    def ask() -> None:
        with suppress(KafkaException):
            consumer.list_topics(timeout=_ASKS_S)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(patience_s)
    return thread.is_alive()


def leak(consumer: Consumer) -> None:
    """Keeps a client that cannot be closed from being destroyed, even at exit."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(consumer))


class _Tail(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[str] = deque(maxlen=400)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{time.monotonic():.3f} {record.getMessage()}")


class Watcher(Client):
    """Polls the end of each partition. Where one goes back it notes what the client saw and did,
    because librdkafka's answer merges several requests."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, name: str, history: History
    ) -> None:
        super().__init__(name, history)
        settings = {"bootstrap.servers": bootstrap, "group.id": name}
        self._tail = _Tail()
        logger = logging.Logger(name)
        logger.addHandler(self._tail)
        told = {"debug": "protocol,topic", "log_level": 7}
        self._consumer = Consumer({**IMPATIENT, **settings, **told}, logger=logger)
        self._places = [TopicPartition(topic, index) for index in range(partitions)]
        self._highest = dict.fromkeys(range(partitions), NONE)

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
        finally:
            self._consumer.poll(0)  # delivers its log lines
        before = self._highest[place.partition]
        note = "\n".join(self._tail.lines) if end < before else ""
        self._highest[place.partition] = max(end, before)
        self.history.add(self.name, "latest", "ok", place.partition, offset=end, note=note)

    def finish(self) -> None:
        self._consumer.close()


class Administrator(Client):
    """Creates and deletes topics, to keep the controller busy."""

    def __init__(self, bootstrap: str, prefix: str, replicas: int, history: History) -> None:
        super().__init__("administrator", history)
        self._prefix = prefix
        self._replicas = replicas
        self._numbers = 0
        self._admin = AdminClient({**IMPATIENT, "bootstrap.servers": bootstrap})

    def step(self) -> None:
        self._numbers += 1
        new = NewTopic(f"{self._prefix}-{self._numbers}", 2, self._replicas)
        self._answer(self._admin.create_topics([new], request_timeout=_ASKS_S))
        if not self._end.wait(random.uniform(0, 0.5)):
            self.delete(new.topic)

    def _answer(self, futures: Mapping[str, Any]) -> KafkaError | None:
        (future,) = futures.values()
        try:
            # librdkafka ends it in time; on a busy machine its thread may be late.
            future.result(PATIENCE_S)
        except KafkaException as failure:
            error: KafkaError = failure.args[0]
            if error.code() == KafkaError.NOT_CONTROLLER:
                # librdkafka looks for the new controller only during another request.
                self._refresh()
            return error
        return None

    def _refresh(self) -> None:
        try:
            self._admin.list_topics(timeout=_ASKS_S)
        except KafkaException:
            pass  # nobody answers yet

    def delete(self, name: str) -> bool:
        """Whether the topic does not exist afterwards."""
        error = self._answer(self._admin.delete_topics([name], request_timeout=_ASKS_S))
        return error is None or error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART

    def finish(self) -> None:
        for number in range(1, self._numbers + 1):
            name = f"{self._prefix}-{number}"
            wait_until(partial(self.delete, name), f"{name} cannot be deleted")
