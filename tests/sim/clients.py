"""Producers and consumers: real requests, and what their answers promise."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from tests.sim.cluster import BrokerLife
from tests.sim.settings import TOPIC
from tests.sim.wire_link import WireLink
from tests.sim.world import World
from tests.support import wire

EVERYWHERE = -1
PRODUCE_VERSION = 8
FETCH_VERSION = 11
REQUEST_TIMEOUT_MS = 2_000
PATIENCE_US = 2_500_000
NONE, OFFSET_OUT_OF_RANGE = 0, 1


class Asked(NamedTuple):
    number: int
    answered: Callable[[bytes | None], None]


class Caller:
    """A client's connections: one request at a time to one broker."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._links: dict[int, WireLink] = {}
        self._servers: dict[int, BrokerLife] = {}
        self._waiting: dict[int, Asked] = {}
        self._count = 0

    def call(
        self,
        broker: int,
        key: int,
        version: int,
        body: bytes,
        done: Callable[[bytes | None], None],
        *,
        flexible: bool = False,
    ) -> None:
        """``done`` gets the answer's body, or None if the request's fate is unknown. ``flexible``:
        the version has tagged fields; the body then begins with those of the header."""
        server = self.world.server_at(EVERYWHERE, broker)
        if server is None:
            self.world.heap.after(1_000, None, lambda: done(None))
            return
        link = self._links.get(broker)
        if link is None or not link.is_open or self._servers.get(broker) is not server:
            self._drop(broker)
            self._servers[broker] = server
            self._links[broker] = WireLink(
                self.world, EVERYWHERE, None, server, lambda frame: self._received(broker, frame)
            )
        self._count += 1
        asked = self._waiting[broker] = Asked(self._count, done)
        frame = wire.header(key, version, self._count, flexible=flexible) + body
        self._links[broker].send(struct.pack(">i", len(frame)) + frame)

        def give_up() -> None:
            if self._waiting.get(broker) is asked:
                self._drop(broker)
                self._end(broker, None)

        self.world.heap.after(PATIENCE_US, None, give_up)

    def _drop(self, broker: int) -> None:
        link = self._links.pop(broker, None)
        if link is not None:
            link.close()

    def _received(self, broker: int, frame: bytes | None) -> None:
        asked = self._waiting.get(broker)
        if asked is None:
            return
        if frame is None:
            self._end(broker, None)
            return
        (number,) = struct.unpack_from(">i", frame)
        if number == asked.number:
            self._end(broker, frame[4:])

    def _end(self, broker: int, answer: bytes | None) -> None:
        asked = self._waiting.pop(broker)
        asked.answered(answer)

    def leader(self, index: int, topic: str = TOPIC) -> tuple[int, int] | None:
        """Leader and epoch as some reachable broker tells them."""
        lives = [life for life in self.world.live() if life.is_listening and life.metadata]
        if not lives:
            return None
        life = self.world.heap.dice("clients").choice(lives)
        if life.process.is_paused or life.metadata is None:
            return None
        known = life.metadata.image.partition(topic, index)
        if known is None or known.leader < 0:
            return None
        return known.leader, known.leader_epoch


class Producer(Caller):
    """Sends one batch of one record after another, most with acks=all."""

    def __init__(self, world: World, name: int, index: int, until_us: int) -> None:
        super().__init__(world)
        self._name = name
        self._index = index
        self._until_us = until_us
        self._dice = world.heap.dice(f"producer {name}")
        self._sent = 0
        self._again()

    def _again(self) -> None:
        pause_us = self._dice.choice((500, 50_000, 300_000, 800_000))
        delay_us = self._dice.randint(100, pause_us)
        if self.world.heap.now_us + delay_us < self._until_us:
            self.world.heap.after(delay_us, None, self._send)

    def _send(self) -> None:
        found = self.leader(self._index)
        if found is None:
            self._again()
            return
        self._sent += 1
        acks = 1 if self._dice.random() < 0.15 else -1
        value = struct.pack(">iiq", self._name, self._sent, self.world.heap.seed)
        batch = wire.record_batch([value], timestamp_ms=1_700_000_000_000 + self.world.heap.now_ms)
        (crc,) = struct.unpack_from(">I", batch, 17)
        body = (
            wire.string(None)
            + struct.pack(">hi", acks, REQUEST_TIMEOUT_MS)
            + wire.array(
                [
                    wire.string(TOPIC)
                    + wire.array([struct.pack(">i", self._index) + wire.blob(batch)])
                ]
            )
        )
        self.call(found[0], wire.PRODUCE, PRODUCE_VERSION, body, lambda a: self._done(acks, crc, a))

    def _done(self, acks: int, crc: int, answer: bytes | None) -> None:
        if answer is not None:
            reader = wire.Reader(answer)
            reader.take(4)
            reader.string()
            reader.take(8)
            error, base = reader.number("h"), reader.number("q")
            if error == NONE and acks == -1:
                self.world.heap.note(f"producer {self._name}.{self._sent} acked at {base}")
                self.world.checker.acked(self._index, base, crc)
        self._again()


class Consumer(Caller):
    """Reads on, knows its leader's epoch and never returns to an older one (KIP-320)."""

    max_bytes = 1 << 20
    """Of an answer; at least one batch comes."""

    def __init__(self, world: World, name: int, index: int, until_us: int) -> None:
        super().__init__(world)
        self._name = name
        self._index = index
        self._until_us = until_us
        self._dice = world.heap.dice(f"consumer {name}")
        self._offset = 0
        self._epoch = -1
        self._read: dict[int, tuple[int, int]] = {}
        self._again()

    def _again(self) -> None:
        delay_us = self._dice.randint(1_000, 500_000)
        if self.world.heap.now_us + delay_us < self._until_us:
            self.world.heap.after(delay_us, None, self._ask)

    def _ask(self) -> None:
        found = self.leader(self._index)
        if found is None or found[1] < self._epoch:
            self._again()
            return
        broker, self._epoch = found
        body = (
            struct.pack(">iiiibii", -1, 300, 1, 1 << 20, 0, 0, -1)
            + wire.array(
                [
                    wire.string(TOPIC)
                    + wire.array(
                        [
                            struct.pack(
                                ">iiqqi",
                                self._index,
                                self._epoch,
                                self._offset,
                                -1,
                                self.max_bytes,
                            )
                        ]
                    )
                ]
            )
            + wire.array([])
            + wire.string("")
        )
        self.call(broker, wire.FETCH, FETCH_VERSION, body, self._done)

    def _done(self, answer: bytes | None) -> None:
        if answer is not None:
            reader = wire.Reader(answer)
            reader.take(4 + 2 + 4 + 4)
            reader.string()
            reader.take(8)
            error = reader.number("h")
            reader.take(8 + 8 + 8)
            reader.take(4 + 4)
            records = reader.blob() or b""
            rewound = self.world.checker.rewound(self._index)
            deleted_below = self.world.checker.partitions[self._index].deleted_below
            if error == OFFSET_OUT_OF_RANGE and self._offset < deleted_below:
                self._offset = deleted_below
            elif error == OFFSET_OUT_OF_RANGE and rewound is not None:
                self._offset = min(self._offset, rewound)
            elif error == OFFSET_OUT_OF_RANGE:
                name = f"consumer {self._name}"
                self.world.violated(f"{name}: nothing is at {self._offset} any more")
            if error == NONE:
                self._take(records)
        self._again()

    def _take(self, records: bytes) -> None:
        at = 0
        while len(records) - at >= 61:
            base, length, epoch, _, crc, _, delta = struct.unpack_from(">qiibIhi", records, at)
            if base + delta >= self._offset:
                rewound = self.world.checker.rewound(self._index)
                if base > self._offset and rewound is None:
                    self.world.violated(
                        f"consumer {self._name} skips from {self._offset} to {base}"
                    )
                if not self.world.checker.was_read(self._index, base, epoch, crc):
                    self._offset = base
                    return
                self._offset = base + delta + 1
            at += 12 + length
