"""The bytes of the history file; lag.md draws them. Pure."""

from __future__ import annotations

import struct
import sys
import zlib
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from pyrklog.lag.histories import PARTITIONS_MAX, PartitionKey
from pyrklog.lag.history import TIERS, History, restored

MAGIC = b"pyrklag\x01"
MAGIC_BYTES = len(MAGIC)
"""Of either file."""
FILE_BYTES_MAX = 2**30
CHUNK_BYTES_MAX = 2**20
"""Far above any that is written."""
NAMES_MAX = 2 * PARTITIONS_MAX
_HEAD = struct.Struct("<II")
_NAME = struct.Struct("<cI16siH")
POINTS = struct.Struct("<cIBI")
ROUND = struct.Struct("<cqqI")

Columns = tuple[Sequence[int], Sequence[int]]
"""Times and log ends."""


class Round(NamedTuple):
    """History time and wall time, and log ends by number."""

    at_ms: int
    wall_ms: int
    ends: Mapping[int, int]


Key = TypeVar("Key")
Told = TypeVar("Told")
Kept = TypeVar("Kept")


class Parsed(NamedTuple, Generic[Key, Kept]):
    """``until_ms``: the time of the last round, as shifted. ``whole_bytes``: up to what is torn or
    damaged. ``damage``: what is wrong there, None where nothing is."""

    histories: dict[Key, Kept]
    until_ms: int
    whole_bytes: int
    is_torn: bool
    damage: str | None


def name_chunk(number: int, key: PartitionKey) -> bytes:
    name = key.topic.encode()
    return chunk(_NAME.pack(b"N", number, key.topic_id, key.partition, len(name)) + name)


def points_chunk(number: int, tier: int, columns: Columns) -> bytes:
    times, ends = columns
    count = len(times)
    head = POINTS.pack(b"P", number, tier, count)
    return chunk(head + struct.pack(f"<{2 * count}q", *times, *ends))


def round_chunk(at_ms: int, wall_ms: int, ends: Mapping[int, int]) -> bytes:
    count = len(ends)
    head = ROUND.pack(b"R", at_ms, wall_ms, count)
    return chunk(head + struct.pack(f"<{count}I{count}q", *ends, *ends.values()))


def chunk(body: bytes) -> bytes:
    return _HEAD.pack(len(body), zlib.crc32(body)) + body


def history_chunks(number: int, key: PartitionKey, history: History) -> Iterator[bytes]:
    """A partition's name and all its points."""
    yield name_chunk(number, key)
    for tier, columns in enumerate(history.dump()):
        yield points_chunk(number, tier, columns)


def parse(content: bytes, wall_ms: int) -> Parsed[PartitionKey, History]:
    """Reads a file's content at a start, when the wall clock says ``wall_ms``."""
    return parse_with(MAGIC, _Loader, content, wall_ms)


class Loader(ABC, Generic[Key, Told, Kept]):
    """Makes histories of chunks. ``Told`` is what the file has of a tier."""

    def __init__(self, shift_ms: int) -> None:
        """``shift_ms``: of all times."""
        self._shift_ms = shift_ms
        self._keys: list[Key] = []
        self._tiers: dict[int, list[Told]] = {}
        """Of those that no round has named yet."""
        self._histories: dict[int, Kept] = {}
        self.until_ms = 0

    def take(self, body: memoryview) -> None:
        """Raises :class:`ValueError` or :class:`struct.error` for a body that makes no sense."""
        match bytes(body[:1]):
            case b"N":
                self._take_name(body)
            case b"P":
                self._take_points(body)
            case b"R":
                self._take_round(body)
            case kind:
                raise ValueError(f"a chunk of kind {kind!r}")

    def histories(self) -> dict[Key, Kept]:
        for number in list(self._tiers):
            try:
                self._history(number)
            except ValueError:
                continue  # the file ends within its points
        return {self._keys[number]: one for number, one in self._histories.items()}

    def _history(self, number: int) -> Kept | None:
        tiers = self._tiers.pop(number, None)
        if tiers is not None:
            self._histories[number] = self._restored(tiers)
        return self._histories.get(number)

    @abstractmethod
    def _take_name(self, body: memoryview) -> None: ...

    @abstractmethod
    def _take_points(self, body: memoryview) -> None: ...

    @abstractmethod
    def _take_round(self, body: memoryview) -> None: ...

    @abstractmethod
    def _restored(self, tiers: list[Told]) -> Kept:
        """Raises :class:`ValueError` where tiers are missing."""


def parse_with(
    magic: bytes, load: Callable[[int], Loader[Key, Any, Kept]], content: bytes, wall_ms: int
) -> Parsed[Key, Kept]:
    """A file of these chunks, of either kind."""
    if not content.startswith(magic):
        return Parsed({}, 0, 0, is_torn=False, damage="another kind of file")
    bodies = _Bodies(content)
    # Read twice: all bodies, or points of all histories as numbers, would take far more memory.
    loader = load(_shift_ms(bodies, wall_ms))
    at = len(magic)
    damage = None
    for body in bodies:
        try:
            loader.take(body)
        except (ValueError, struct.error) as error:
            damage = f"at byte {at}: {error}"
            break
        at += _HEAD.size + len(body)
    damage = damage or bodies.damage
    is_torn = damage is None and at < len(content)
    return Parsed(loader.histories(), loader.until_ms, at, is_torn, damage)


def column(kind: str, data: memoryview) -> array[Any]:
    """Numbers of a file, which has them in the order of little-endian machines."""
    found: array[Any] = array(kind)
    found.frombytes(data)
    if sys.byteorder == "big":
        found.byteswap()
    return found


class _Bodies:
    """The bodies of whole chunks. Afterwards ``damage`` says what is wrong behind them."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.damage: str | None = None

    def __iter__(self) -> Iterator[memoryview]:
        content, at = memoryview(self._content), MAGIC_BYTES
        self.damage = None
        while at + _HEAD.size <= len(content):
            length, checksum = _HEAD.unpack_from(content, at)
            start = at + _HEAD.size
            body = content[start : start + length]
            is_last = len(content) - start <= min(length, CHUNK_BYTES_MAX)
            if length == 0:
                # A power loss may leave zeros for what was not synced.
                if any(content[at:]):
                    self.damage = f"at byte {at}: an empty chunk"
                return
            if len(body) < length or zlib.crc32(body) != checksum:
                if not is_last:
                    self.damage = f"at byte {at}: a wrong checksum"
                return
            yield body
            at = start + length


def _shift_ms(bodies: Iterable[memoryview], wall_ms: int) -> int:
    last = None
    for body in bodies:
        if bytes(body[:1]) == b"R" and len(body) >= ROUND.size:
            last = body
    if last is None:
        return 0
    _, at_ms, was_ms, _ = ROUND.unpack_from(last)
    shift: int = min(was_ms, wall_ms) - at_ms
    return shift


class _Loader(Loader[PartitionKey, Columns, History]):
    def _take_name(self, body: memoryview) -> None:
        _, number, topic_id, partition, length = _NAME.unpack_from(body)
        name = body[_NAME.size :]
        if number != len(self._keys) or number >= NAMES_MAX or len(name) != length:
            raise ValueError(f"the name of partition {number}")
        self._history(number - 1)  # its points are whole
        topic = sys.intern(bytes(name).decode())
        self._keys.append(PartitionKey(topic, topic_id, partition))

    def _take_points(self, body: memoryview) -> None:
        _, number, tier, count = POINTS.unpack_from(body)
        columns = self._tiers.get(number, [])
        if number >= len(self._keys) or tier != len(columns) or tier >= len(TIERS):
            raise ValueError(f"points of partition {number}")
        if len(body) != POINTS.size + 16 * count:
            raise ValueError(f"{count} points in {len(body)} bytes")
        times = column("q", body[POINTS.size : POINTS.size + 8 * count])
        ends = column("q", body[POINTS.size + 8 * count :])
        self._tiers[number] = [*columns, (times, ends)]

    def _take_round(self, body: memoryview) -> None:
        _, at_ms, _, count = ROUND.unpack_from(body)
        if len(body) != ROUND.size + 12 * count:
            raise ValueError(f"a round of {count} in {len(body)} bytes")
        values = struct.unpack_from(f"<{count}I{count}q", body, ROUND.size)
        at_ms += self._shift_ms
        unmoved_ms = self.until_ms
        for number, end in zip(values[:count], values[count:], strict=True):
            history = self._history(number)
            if history is None:
                if number >= len(self._keys):
                    raise ValueError(f"partition {number} has no name")
                self._histories[number] = History(at_ms, end)
            elif history.end != end:
                history.add(at_ms, end, unmoved_ms=unmoved_ms)
        self.until_ms = at_ms

    def _restored(self, tiers: list[Columns]) -> History:
        return restored(tiers, self._shift_ms)
