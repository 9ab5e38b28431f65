"""Valid requests that cost a broker more than their sender, drawn from a random source.

Each kind is a function from a ``random.Random`` to an :class:`Attack`. Frames repeat a few distinct
pieces, so that making them costs next to nothing.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from tests.support import wire

TOPIC = "target"
PARTITIONS = 8
MIB = 1024 * 1024

_LIST_OFFSETS, _OFFSET_COMMIT, _OFFSET_FETCH, _FIND_COORDINATOR = 2, 8, 9, 10
_JOIN_GROUP, _DESCRIBE_GROUPS, _DELETE_TOPICS, _OFFSET_FOR_LEADER_EPOCH = 11, 15, 20, 23
_DESCRIBE_CONFIGS, _DELETE_GROUPS = 32, 42
_LOG_APPEND_TIME = 8
RESOURCES_MAX = 120_000
"""Just below the most elements of a request with 512 MB (``ELEMENT_BYTES``)."""
_GZIP = 1


@dataclass(frozen=True)
class Attack:
    """What one connection sends. It reads ``replies`` answers before it closes, and stays for
    ``holds_s`` without reading."""

    name: str
    frames: Sequence[bytes]
    replies: int = 1
    holds_s: float = 0.0


def _frame(key: int, version: int, body: bytes, announced: int | None = None) -> bytes:
    content = wire.header(key, version, 1) + body
    return struct.pack(">i", len(content) if announced is None else announced) + content


def _count(random: Random, least: int, most: int) -> int:
    """Small and large ones equally often."""
    return int(least * (most / least) ** random.random())


def _repeated(count: int, element: bytes) -> bytes:
    return struct.pack(">i", count) + element * count


def _numbered(count: int, rest: bytes) -> bytes:
    """An array of distinct partitions, each followed by ``rest``."""
    parts = [struct.pack(">i", index) + rest for index in range(count)]
    return struct.pack(">i", count) + b"".join(parts)


def _refused_batch(records: int) -> bytes:
    """Each of its records is refused: it claims append time without one."""
    payload = b"".join(wire.record(delta, None, None) for delta in range(records))
    return wire.record_batch(
        [b""] * records,
        attributes=_LOG_APPEND_TIME | _GZIP,
        timestamp_ms=-1,
        payload=gzip.compress(payload),
    )


def _bomb(expanded_bytes: int) -> bytes:
    """One record of zeros."""
    payload = gzip.compress(wire.record(0, None, bytes(expanded_bytes)), 9)
    return wire.record_batch([b""], attributes=_GZIP, payload=payload)


def _produce(version: int, partitions: bytes, acks: int = 1, topic: str = TOPIC) -> bytes:
    head = wire.string(None) + struct.pack(">hi", acks, 1000)
    return _frame(wire.PRODUCE, version, head + _repeated(1, wire.string(topic) + partitions))


_REFUSED = _refused_batch(1000)
_BOMBS = [_bomb(size * MIB) for size in (2, 30, 95)]


def _same_partition(random: Random) -> Attack:
    entry = struct.pack(">i", 0) + wire.blob(_REFUSED)
    return Attack("same partition", [_produce(8, _repeated(_count(random, 10, 30_000), entry))])


def _record_errors(random: Random) -> Attack:
    frame = _produce(8, _numbered(PARTITIONS, wire.blob(_REFUSED)))
    return Attack("record errors", [frame] * _count(random, 1, 50), replies=random.randint(0, 5))


def _bombs(random: Random) -> Attack:
    bomb = random.choice(_BOMBS)
    frame = _produce(8, _numbered(random.randint(1, PARTITIONS), wire.blob(bomb)))
    return Attack("bombs", [frame] * random.randint(1, 3), replies=random.randint(0, 3))


def _empty_partitions(random: Random) -> Attack:
    count = _count(random, 100, 1_500_000)
    return Attack("empty partitions", [_produce(8, _repeated(count, b"\0\0\0\7\xff\xff\xff\xff"))])


def _pipelined(random: Random) -> Attack:
    frame = _produce(8, _numbered(_count(random, 10, 5_000), wire.blob(None)))
    return Attack("pipelined", [frame] * 100, replies=random.choice((0, 100)), holds_s=1)


def _fetch(random: Random) -> Attack:
    count = _count(random, 100, 800_000)
    entry = struct.pack(">qi", 0, MIB)
    body = struct.pack(">iiiib", -1, 100, 1, MIB, 0)
    body += _repeated(1, wire.string(TOPIC) + _numbered(count, entry))
    return Attack("fetch", [_frame(wire.FETCH, 4, body)], replies=random.randint(0, 1), holds_s=2)


def _fetch_sessions(random: Random) -> Attack:
    count = _count(random, 100, 100_000)
    name = random.choice((TOPIC, "n" * 30_000))
    entry = struct.pack(">qqi", 0, -1, MIB)
    body = struct.pack(">iiiibii", -1, 0, 1, MIB, 0, 0, 0)
    body += _repeated(1, wire.string(name) + _numbered(count, entry)) + _repeated(0, b"")
    return Attack("fetch sessions", [_frame(wire.FETCH, 7, body)] * random.randint(1, 4))


def _metadata(random: Random) -> Attack:
    names = _repeated(_count(random, 1, 500_000), wire.string(TOPIC))
    everything = struct.pack(">i", -1)
    frame = _frame(wire.METADATA, 1, random.choice((names, everything)))
    return Attack(
        "metadata", [frame] * _count(random, 1, 300), replies=0, holds_s=random.random() * 8
    )


def _list_offsets(random: Random) -> Attack:
    entry = struct.pack(">iq", random.randrange(PARTITIONS), random.choice((-1, -2, 0)))
    partitions = _repeated(_count(random, 10, 600_000), entry)
    body = struct.pack(">i", -1) + _repeated(1, wire.string(TOPIC) + partitions)
    return Attack("list offsets", [_frame(_LIST_OFFSETS, 1, body)])


def _leader_epochs(random: Random) -> Attack:
    entry = struct.pack(">iii", 0, -1, 0)
    partitions = _repeated(_count(random, 10, 600_000), entry)
    body = _repeated(1, wire.string(TOPIC) + partitions)
    return Attack("leader epochs", [_frame(_OFFSET_FOR_LEADER_EPOCH, 2, body)])


def _offset_commit(random: Random) -> Attack:
    note = wire.string("m" * _count(random, 1, 4_000))
    entry = struct.pack(">iq", 0, 5) + note
    count = min(_count(random, 1, 100_000), 12 * MIB // len(entry))
    body = wire.string("group") + struct.pack(">i", -1) + wire.string("") + struct.pack(">q", -1)
    body += _repeated(1, wire.string(TOPIC) + _repeated(count, entry))
    return Attack("offset commit", [_frame(_OFFSET_COMMIT, 2, body)])


def _control(random: Random) -> Attack:
    """A request of the control plane, with many elements or cut short."""
    name = wire.string(random.choice((TOPIC, "nothing", "x" * 300)))
    resource = b"\2" + name + struct.pack(">i", -1)
    bodies = {
        _DESCRIBE_GROUPS: (0, name, b""),
        _DELETE_GROUPS: (0, name, b""),
        _DELETE_TOPICS: (0, wire.string("nothing"), struct.pack(">i", 1000)),
        _DESCRIBE_CONFIGS: (0, resource, b""),
    }
    key = random.choice(list(bodies))
    version, element, tail = bodies[key]
    body = _repeated(_count(random, 1, 20_000), element) + tail
    if random.random() < 0.2:
        body = body[: random.randrange(len(body))]
    return Attack(f"control {key}", [_frame(key, version, body)] * random.randint(1, 5))


def many_resources(number: int) -> bytes:
    """A DescribeConfigs request that is small on the wire and large once decoded."""
    entry = b"\2" + wire.string(f"{number % 1000:03}") + struct.pack(">i", 0)
    return _frame(_DESCRIBE_CONFIGS, 1, _repeated(RESOURCES_MAX, entry) + b"\0")


def _group_members(random: Random) -> Attack:
    """Members that join and never sync."""
    group = wire.string(f"hostile-{random.randrange(20)}")
    protocol = wire.string("range") + wire.blob(bytes(_count(random, 1, MIB)))
    body = group + struct.pack(">i", 6000) + wire.string("") + wire.string("consumer")
    return Attack("join group", [_frame(_JOIN_GROUP, 0, body + _repeated(1, protocol))], holds_s=1)


def _groups_again(random: Random) -> Attack:
    """Repeated reads of a group's offsets, and unknown groups."""
    name = f"hostile-{random.randrange(20)}" if random.random() < 0.5 else "g"
    count = _count(random, 10, 1_000_000)
    asked = bytes([len(name) + 1]) + name.encode() + b"\0\0"
    array = bytearray()
    left = count + 1
    while left >= 0x80:
        array.append(left & 0x7F | 0x80)
        left >>= 7
    array.append(left)
    content = wire.header(_OFFSET_FETCH, 8, 1) + b"\0" + bytes(array) + asked * count + b"\0\0"
    return Attack("groups again", [struct.pack(">i", len(content)) + content])


def _partial(random: Random) -> Attack:
    frame = _frame(wire.PRODUCE, 8, bytes(_count(random, 1, 2 * MIB)), announced=90 * MIB)
    return Attack("partial frame", [frame], replies=0, holds_s=random.random() * 5)


KINDS: tuple[Callable[[Random], Attack], ...] = (
    _same_partition,
    _record_errors,
    _bombs,
    _empty_partitions,
    _pipelined,
    _fetch,
    _fetch_sessions,
    _metadata,
    _list_offsets,
    _leader_epochs,
    _offset_commit,
    _control,
    _group_members,
    _groups_again,
    _partial,
)
