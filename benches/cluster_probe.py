"""Brokers' statements about a topic: leaders, in-sync replicas, and whether leaders serve.

Uses plain sockets: a client library would add its own intervals, and choose the broker itself.
"""

import socket
import struct
from typing import NamedTuple

_METADATA, _LIST_OFFSETS = 3, 2
_LATEST = -1
_ANY_REPLICA = -2
_TIMEOUT_S = 30.0
_PARTITION = struct.Struct(">hiii")
_COUNT = struct.Struct(">i")
_OFFSET = struct.Struct(">ihqq")


class Partition(NamedTuple):
    """One partition as a broker sees it; a leader of -1 is none."""

    leader: int
    isr: tuple[int, ...]


class Probe:
    """A connection to one broker. Raises OSError when it fails."""

    def __init__(self, port: int) -> None:
        self._connection = socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT_S)

    def close(self) -> None:
        self._connection.close()

    def partitions(self, topic: str) -> dict[int, Partition]:
        """The topic's partitions (Metadata v1)."""
        name = topic.encode()
        reply = _Reader(self._ask(_METADATA, struct.pack(">ih", 1, len(name)) + name))
        for _ in range(reply.number("i")):
            reply.number("i")
            reply.text()
            reply.number("i")
            reply.text()
        reply.number("i")
        found: dict[int, Partition] = {}
        for _ in range(reply.number("i")):
            reply.number("h")
            reply.text()
            reply.number("b")
            reply.partitions(found)
        return found

    def leads(self, topic: str, partitions: list[int]) -> bool:
        """Whether the broker serves all of these as their leader (ListOffsets v1)."""
        name = topic.encode()
        asked = b"".join(struct.pack(">iq", index, _LATEST) for index in partitions)
        body = struct.pack(">iih", -1, 1, len(name)) + name + struct.pack(">i", len(partitions))
        reply = _Reader(self._ask(_LIST_OFFSETS, body + asked))
        reply.number("i")
        reply.text()
        errors = reply.errors()
        return len(errors) == len(partitions) and not any(errors)

    def ends(self, topic: str, partitions: list[int]) -> dict[int, int]:
        """Ends of this broker's own replicas, followers' too, where it has some (ListOffsets v1 as
        the debugging consumer, replica -2)."""
        name = topic.encode()
        asked = b"".join(struct.pack(">iq", index, _LATEST) for index in partitions)
        body = struct.pack(">iih", _ANY_REPLICA, 1, len(name)) + name
        reply = _Reader(self._ask(_LIST_OFFSETS, body + _COUNT.pack(len(partitions)) + asked))
        reply.number("i")
        reply.text()
        return {index: offset for index, error, _, offset in reply.offsets() if not error}

    def _ask(self, api: int, body: bytes) -> bytes:
        header = struct.pack(">hhih", api, 1, 1, -1)
        self._connection.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        (length,) = struct.unpack(">i", self._receive(4))
        return self._receive(length)[4:]

    def _receive(self, length: int) -> bytes:
        received = bytearray()
        while len(received) < length:
            part = self._connection.recv(length - len(received))
            if not part:
                raise ConnectionResetError("closed in the middle of a reply")
            received += part
        return bytes(received)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0

    def number(self, code: str) -> int:
        (value,) = struct.unpack_from(">" + code, self._data, self._place)
        self._place += struct.calcsize(">" + code)
        return int(value)

    def partitions(self, found: dict[int, Partition]) -> None:
        """A topic's partitions: fast for ten thousand, because the brokers need the processor."""
        data, place = self._data, self._place + 4
        for _ in range(self.number("i")):
            _, index, leader, replicas = _PARTITION.unpack_from(data, place)
            place += _PARTITION.size + 4 * replicas
            (count,) = _COUNT.unpack_from(data, place)
            found[index] = Partition(leader, struct.unpack_from(f">{count}i", data, place + 4))
            place += 4 + 4 * count
        self._place = place

    def errors(self) -> list[int]:
        """Of each partition of a topic in ListOffsets."""
        return [error for _, error, _, _ in self.offsets()]

    def offsets(self) -> list[tuple[int, int, int, int]]:
        """Partition, error, timestamp and offset of each partition of a topic in ListOffsets."""
        count = self.number("i")
        rows = memoryview(self._data)[self._place : self._place + _OFFSET.size * count]
        return list(_OFFSET.iter_unpack(rows))

    def text(self) -> None:
        length = self.number("h")
        self._place += max(0, length)
