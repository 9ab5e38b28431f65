"""Writers that survive repeated deaths of their broker and know what they wrote.

``LibraryWriter`` is librdkafka. ``RawWriter`` sends its own frames, so it knows every sequence that
it used: it repeats unanswered batches with the same sequences, and sometimes answered ones.
"""

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Producer

from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.producer_ids import INIT_PRODUCER_ID, InitProducerIdRequest
from tests.support import wire
from tests.support.ledger import Ledger, Place, value
from tests.support.raw_client import RawClient

PATIENCE_S = 60.0
RECONNECT_S = 0.01
"""A client's pause before it tries an absent broker again."""
IN_FLIGHT_MAX = 5

NOT_YET = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
"""A partition's answers until it is open."""

_SEEN_BEFORE = (
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
)
"""The answers to a repeated batch older than the last five."""


class Persistent:
    """A thread that calls ``step``, again after each death of the broker.

    ``step`` works for a while and returns, or raises OSError or ConnectionClosed when the
    connection breaks. Any other exception is an error and ends the thread.
    """

    def __init__(self, name: str, step: Callable[[], None], ledger: Ledger) -> None:
        self._name = name
        self._ledger = ledger
        self._step = step
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Starts no further step; waits for the one under way."""
        self._ended.set()
        self._thread.join()

    def abandon(self) -> None:
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self._step()
            except (OSError, wire.ConnectionClosed):
                self._ended.wait(RECONNECT_S)
            except BaseException as error:
                self._ledger.note(f"{self._name}: {error!r}")
                return


@dataclass(frozen=True)
class Style:
    """Load of a library's writer: value sizes in bytes, records that may be unanswered, how often
    it adds records, options of librdkafka."""

    size_min: int
    size_max: int
    waiting_max: int
    pause_s: float
    options: dict[str, Any]


class LibraryWriter:
    def __init__(
        self, bootstrap: str, number: int, places: Sequence[Place], style: Style, ledger: Ledger
    ) -> None:
        self._number = number
        self._places = places
        self._style = style
        self._ledger = ledger
        self._counts = dict.fromkeys(places, 0)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "message.timeout.ms": 300_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 60,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "log_level": 0,
                "error_cb": self._erred,
                **style.options,
            }
        )

    def step(self) -> None:
        """Keeps a number of records waiting."""
        while len(self._producer) < self._style.waiting_max:
            place = random.choice(self._places)
            size = random.randrange(self._style.size_min, self._style.size_max)
            count = self._counts[place]
            self._counts[place] += 1
            self._producer.produce(
                place[0],
                value(self._number, count, size),
                partition=place[1],
                on_delivery=lambda error, message, count=count: self._told(error, message, count),
            )
            self._producer.poll(0)
        deadline = time.monotonic() + self._style.pause_s
        while (left_s := deadline - time.monotonic()) > 0:
            self._producer.poll(left_s)

    def finish(self) -> None:
        left = self._producer.flush(PATIENCE_S)
        if left:
            self._ledger.note(f"writer {self._number}: {left} records are not acknowledged")

    def _told(self, error: Any, message: Any, count: int) -> None:
        if error is not None:
            self._ledger.note(f"writer {self._number}: {error}")
            return
        place = (message.topic(), message.partition())
        if message.offset() is None:  # the repeated record was there already
            self._ledger.tell_somewhere(place, self._number, count)
        else:
            self._ledger.tell(place, message.offset(), self._number, count)

    def _erred(self, error: Any) -> None:
        if error.fatal():
            self._ledger.note(f"writer {self._number}: {error}")


@dataclass(frozen=True)
class _Batch:
    first: int
    """Count of its first record; also its sequence."""
    values: tuple[bytes, ...]
    told: int | None = None
    """Offset, if it was answered and is sent once more."""


class RawWriter:
    """Produce requests by hand to one partition, up to five unanswered.

    With ``repeats`` it has a producer id and repeats unanswered batches. Without, an unanswered
    batch may be in the log or not.
    """

    def __init__(
        self,
        bootstrap: str,
        number: int,
        place: Place,
        ledger: Ledger,
        *,
        acks: int,
        repeats: bool,
        pause_s: float,
    ) -> None:
        self._bootstrap = bootstrap
        self._number = number
        self._place = place
        self._ledger = ledger
        self._acks = acks
        self._repeats = repeats
        self._pause_s = pause_s
        self._producer = wire.NO_PRODUCER[:2]
        self._next = 0
        self._waiting: deque[_Batch] = deque()
        self._unsent: deque[_Batch] = deque()
        self._last: _Batch | None = None
        self._is_ending = False

    def step(self) -> None:
        if self._repeats and self._producer[0] < 0:
            self._get_id()
        # The connection may have broken before everything was sent again.
        again = [batch for batch in (*self._waiting, *self._unsent) if batch.told is None]
        self._waiting.clear()
        self._unsent = deque(again if self._repeats else ())
        with wire.Connection(self._bootstrap, PATIENCE_S) as connection:
            # An answered batch must not be written a second time.
            if self._repeats and self._last is not None and random.random() < 0.3:
                self._send(connection, self._last)
            while self._unsent:
                self._send(connection, self._unsent.popleft())
            for _ in range(100):
                # A producer that the log does not know may begin with any sequence, so one batch
                # goes first.
                room = IN_FLIGHT_MAX if self._last is not None else 1
                while len(self._waiting) < room and not self._is_ending:
                    self._send(connection, self._new_batch())
                if not self._waiting:
                    break
                if not self._receive(connection):
                    # All were answered; the refused ones wait for the next connection.
                    return
                # Varies how requests of several writers meet.
                time.sleep(random.random() * self._pause_s)
            self._drain(connection)

    def finish(self) -> None:
        """Sends unanswered batches until they are answered; call after the thread's end."""
        self._is_ending = True
        deadline = time.monotonic() + PATIENCE_S
        while self._repeats and (self._waiting or self._unsent):
            if time.monotonic() > deadline:
                self._ledger.note(f"writer {self._number}: a batch is not acknowledged")
                return
            try:
                self.step()
            except (OSError, wire.ConnectionClosed):
                # Clients pause before a retry.
                time.sleep(RECONNECT_S)

    def _get_id(self) -> None:
        with RawClient(self._bootstrap, PATIENCE_S) as raw:
            given = raw.ask(INIT_PRODUCER_ID, 1, InitProducerIdRequest())
            if given.error_code == ErrorCode.NONE:
                self._producer = (given.producer_id, given.producer_epoch)
            else:
                raise ConnectionError("no producer id yet")

    def _new_batch(self) -> _Batch:
        first = self._next
        self._next += random.randrange(1, 4)
        size = random.choice((0, 50, 400))
        return _Batch(
            first, tuple(value(self._number, count, size) for count in range(first, self._next))
        )

    def _send(self, connection: wire.Connection, batch: _Batch) -> None:
        sequence = batch.first if self._repeats else -1
        records = wire.record_batch(batch.values, producer=(*self._producer, sequence))
        topic, partition = self._place
        body = wire.produce_body(topic, records, partition=partition, acks=self._acks)
        self._waiting.append(batch)
        connection.send_frame(wire.header(wire.PRODUCE, 7, batch.first) + body)

    def _receive(self, connection: wire.Connection) -> bool:
        """The oldest request's answer. False if it was refused, and so all later ones."""
        error, base_offset = self._answer(connection)
        batch = self._waiting.popleft()
        if error == ErrorCode.NONE:
            self._take(batch, base_offset)
            return True
        if batch.told is not None and error in (*NOT_YET, *_SEEN_BEFORE):
            return True
        if self._repeats and error == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            for count in range(len(batch.values)):
                self._ledger.tell_somewhere(self._place, self._number, batch.first + count)
            return True
        if error not in NOT_YET:
            self._ledger.note(f"writer {self._number}: {ErrorCode(error).name} for {batch.first}")
        refused = [batch]
        try:
            while self._waiting:
                refused += self._answer_behind_refused(connection)
        finally:
            if self._repeats:
                self._waiting.extendleft(reversed(refused))
        # Clients pause before a retry.
        time.sleep(RECONNECT_S)
        return False

    def _answer_behind_refused(self, connection: wire.Connection) -> list[_Batch]:
        """The next request's answer: its batch, unless it was accepted."""
        error, base_offset = self._answer(connection)
        batch = self._waiting.popleft()
        if error == ErrorCode.NONE:
            if self._repeats:
                self._ledger.note(f"writer {self._number}: {batch.first} was taken out of turn")
            self._take(batch, base_offset)
            return []
        if error not in (*NOT_YET, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
            self._ledger.note(f"writer {self._number}: {ErrorCode(error).name} for {batch.first}")
        return [batch]

    def _drain(self, connection: wire.Connection) -> None:
        """Waits for all answers before the connection closes."""
        before = -1
        while self._waiting and len(self._waiting) != before:
            before = len(self._waiting)
            if not self._receive(connection):
                return

    def _answer(self, connection: wire.Connection) -> tuple[int, int]:
        reply = wire.Reader(connection.read_frame())
        correlation, topics = reply.number("i"), reply.number("i")
        topic, partitions = reply.string(), reply.number("i")
        place = (topic, reply.number("i"))
        assert (topics, partitions, place) == (1, 1, self._place)
        assert correlation == self._waiting[0].first
        return reply.number("h"), reply.number("q")

    def _take(self, batch: _Batch, base_offset: int) -> None:
        if batch.told is not None:
            if batch.told != base_offset:
                self._ledger.note(
                    f"writer {self._number}: {batch.first} is at {batch.told} and at {base_offset}"
                )
            return
        for count in range(len(batch.values)):
            self._ledger.tell(self._place, base_offset + count, self._number, batch.first + count)
        self._last = _Batch(batch.first, batch.values, told=base_offset)
