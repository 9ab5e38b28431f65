"""KRaft's metadata records, as far as a broker's directory needs them. Pure.

A record is a frame version (1), an API key and a version, each an unsigned varint, then a flexible
message (KIP-482). Topics, partitions, options of topics and brokers and producer ids are read;
everything else (registrations, ACLs, quotas, credentials) is counted and left out.

Source: the message definitions of Kafka 3.9's metadata module; KIP-868 for transactions.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pyrklog.protocol.primitives import (
    DecodeError,
    read_unsigned_varint,
    string_reader,
    string_writer,
    write_unsigned_varint,
)

TOPIC, PARTITION, CONFIG, PARTITION_CHANGE, REMOVE_TOPIC = 2, 3, 4, 5, 9
FEATURE_LEVEL, PRODUCER_IDS = 12, 15
BEGIN_TRANSACTION, END_TRANSACTION, ABORT_TRANSACTION = 23, 24, 25
_NOT_OURS = frozenset({0, 1, 7, 8, 17, 20, 21, 27, FEATURE_LEVEL})
"""Registrations of brokers and controllers, no-ops, states: one broker's directory does not need
them."""
KINDS = {10: "delegation token", 11: "user credentials", 14: "client quota", 18: "access rule"}
"""Names in warnings about records left out; others show their number."""

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
_OTHER_RESOURCES = {16: "client metrics option", 32: "group option"}
ALL_BROKERS = ""
"""Name of the broker resource whose options hold for all."""
LEADER_UNCHANGED = -2
LEADER_NONE = -1
METADATA_VERSION = 21
"""``metadata.version`` 3.9-IV0, for exports."""

_read_string = string_reader(flexible=True, nullable=False)
_read_nullable = string_reader(flexible=True, nullable=True)
_write_string = string_writer(flexible=True, nullable=False)


@dataclass
class KraftPartition:
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader_epoch: int


@dataclass
class KraftTopic:
    name: str
    topic_id: bytes
    partitions: dict[int, KraftPartition] = field(default_factory=dict)


@dataclass
class KraftMetadata:
    topics: dict[bytes, KraftTopic] = field(default_factory=dict)
    options: dict[str, dict[str, str]] = field(default_factory=dict)
    """By topic name."""
    next_producer_id: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    broker_options: dict[str, dict[str, str]] = field(default_factory=dict)
    """Set at run time, by broker number or :data:`ALL_BROKERS`."""
    knows_broker_options: bool = True
    """False where they could not be read."""
    is_own_export: bool = False
    """From :mod:`.export`; no Kafka has run since."""

    def by_name(self) -> dict[str, KraftTopic]:
        return {topic.name: topic for topic in self.topics.values()}

    def count_left_out(self, kind: str, count: int = 1) -> None:
        if count:
            self.left_out[kind] = self.left_out.get(kind, 0) + count


def replay(values: Iterable[bytes], into: KraftMetadata) -> None:
    """Applies records in order; drops those of an unfinished transaction.

    Raises :class:`DecodeError`.
    """
    waiting: list[tuple[int, int, bytes, int]] | None = None
    for data in values:
        try:
            key, version, place = _frame(data)
        except IndexError:
            raise DecodeError("a metadata record ends too early") from None
        if key == BEGIN_TRANSACTION:
            waiting = []
        elif key == ABORT_TRANSACTION:
            waiting = None
        elif key == END_TRANSACTION:
            for item in waiting or ():
                _apply(into, *item)
            waiting = None
        elif waiting is not None:
            waiting.append((key, version, data, place))
        else:
            _apply(into, key, version, data, place)


def _frame(data: bytes) -> tuple[int, int, int]:
    frame, place = read_unsigned_varint(data, 0)
    if frame != 1:
        raise DecodeError(f"a metadata record of frame version {frame}")
    key, place = read_unsigned_varint(data, place)
    version, place = read_unsigned_varint(data, place)
    return key, version, place


_Reader = Callable[["KraftMetadata", bytes, int], None]


def _apply(state: KraftMetadata, key: int, version: int, data: bytes, place: int) -> None:
    if key in _NOT_OURS:
        return
    known = _READERS.get(key)
    if known is None:
        state.count_left_out(KINDS.get(key, f"record {key}"))
        return
    version_max, read = known
    if version > version_max:
        raise DecodeError(f"metadata record {key} of version {version}, known up to {version_max}")
    try:
        read(state, data, place)
    except (IndexError, struct.error):
        raise DecodeError(f"metadata record {key} ends too early") from None


def _topic(state: KraftMetadata, data: bytes, place: int) -> None:
    name, place = _read_string(data, place)
    topic_id, _ = _uuid(data, place)
    state.topics[topic_id] = KraftTopic(name, topic_id)


def _remove_topic(state: KraftMetadata, data: bytes, place: int) -> None:
    topic_id, _ = _uuid(data, place)
    topic = state.topics.pop(topic_id, None)
    if topic is not None:
        state.options.pop(topic.name, None)


def _partition(state: KraftMetadata, data: bytes, place: int) -> None:
    index, place = _int32(data, place)
    topic_id, place = _uuid(data, place)
    replicas, place = _int32s(data, place)
    isr, place = _int32s(data, place)
    _, place = _int32s(data, place)  # removing
    _, place = _int32s(data, place)  # adding
    _, place = _int32(data, place)  # leader
    epoch, place = _int32(data, place)
    if index < 0:
        raise DecodeError(f"a partition of index {index}")
    _topic_of(state, topic_id).partitions[index] = KraftPartition(replicas, isr, epoch)


def _partition_change(state: KraftMetadata, data: bytes, place: int) -> None:
    index, place = _int32(data, place)
    topic_id, place = _uuid(data, place)
    partition = _topic_of(state, topic_id).partitions.get(index)
    if partition is None:
        raise DecodeError(f"a change of partition {index} that was never made")
    count, place = read_unsigned_varint(data, place)
    for _ in range(count):
        tag, place = read_unsigned_varint(data, place)
        size, place = read_unsigned_varint(data, place)
        if size > len(data) - place:
            raise DecodeError(f"a field of {size} bytes, {len(data) - place} remain")
        if tag == 0:
            partition.isr, _ = _int32s(data, place)
        elif tag == 1 and _int32(data, place)[0] != LEADER_UNCHANGED:
            partition.leader_epoch += 1
        elif tag == 2:
            partition.replicas, _ = _int32s(data, place)
        place += size


def _config(state: KraftMetadata, data: bytes, place: int) -> None:
    resource = data[place]
    entity, place = _read_string(data, place + 1)
    name, place = _read_string(data, place)
    value, place = _read_nullable(data, place)
    if resource not in (TOPIC_RESOURCE, BROKER_RESOURCE):
        state.count_left_out(_OTHER_RESOURCES.get(resource, f"option of resource {resource}"))
        return
    known = state.options if resource == TOPIC_RESOURCE else state.broker_options
    options = known.setdefault(entity, {})
    if value is None:
        options.pop(name, None)
    else:
        options[name] = value


def _producer_ids(state: KraftMetadata, data: bytes, place: int) -> None:
    *_, following = struct.unpack_from(">iqq", data, place)
    state.next_producer_id = max(state.next_producer_id, following)


_READERS: dict[int, tuple[int, _Reader]] = {
    TOPIC: (0, _topic),
    PARTITION: (2, _partition),
    CONFIG: (0, _config),
    PARTITION_CHANGE: (2, _partition_change),
    REMOVE_TOPIC: (0, _remove_topic),
    PRODUCER_IDS: (0, _producer_ids),
}
"""By API key: the newest version known, and its reader."""


def _topic_of(state: KraftMetadata, topic_id: bytes) -> KraftTopic:
    topic = state.topics.get(topic_id)
    if topic is None:
        raise DecodeError(f"a partition of a topic that was never made: {topic_id.hex()}")
    return topic


def _uuid(data: bytes, place: int) -> tuple[bytes, int]:
    if place + 16 > len(data):
        raise DecodeError("a metadata record ends within an id")
    return data[place : place + 16], place + 16


def _int32(data: bytes, place: int) -> tuple[int, int]:
    (value,) = struct.unpack_from(">i", data, place)
    return value, place + 4


def _int32s(data: bytes, place: int) -> tuple[tuple[int, ...], int]:
    announced, place = read_unsigned_varint(data, place)
    count = max(0, announced - 1)
    if count * 4 > len(data) - place:
        raise DecodeError(f"{count} numbers announced, {len(data) - place} bytes remain")
    return struct.unpack_from(f">{count}i", data, place), place + 4 * count


def encode_feature_level(name: str, level: int) -> bytes:
    """Kafka's first start requires the feature ``metadata.version`` first."""
    out = _begin(FEATURE_LEVEL, 0)
    _write_string(out, name)
    out += struct.pack(">h", level)
    return _end(out)


def encode_topic(name: str, topic_id: bytes) -> bytes:
    out = _begin(TOPIC, 0)
    _write_string(out, name)
    return _end(out + topic_id)


def encode_partition(
    index: int, topic_id: bytes, node_id: int, leader_epoch: int, directory_id: bytes
) -> bytes:
    """A partition with one replica and no leader: the controller elects it later."""
    out = _begin(PARTITION, 1)
    out += struct.pack(">i", index) + topic_id
    _write_int32s(out, (node_id,))
    _write_int32s(out, (node_id,))
    _write_int32s(out, ())
    _write_int32s(out, ())
    out += struct.pack(">iii", LEADER_NONE, leader_epoch, 0)
    write_unsigned_varint(out, 2)
    return _end(out + directory_id)


def encode_option(resource: int, entity: str, name: str, value: str) -> bytes:
    """Of a topic, or of a broker's number or :data:`ALL_BROKERS`."""
    out = _begin(CONFIG, 0)
    out.append(resource)
    for text in (entity, name, value):
        _write_string(out, text)
    return _end(out)


def encode_producer_ids(node_id: int, following: int) -> bytes:
    """Producer ids below ``following`` were given out."""
    return _end(_begin(PRODUCER_IDS, 0) + struct.pack(">iqq", node_id, -1, following))


def _begin(key: int, version: int) -> bytearray:
    out = bytearray()
    for number in (1, key, version):
        write_unsigned_varint(out, number)
    return out


def _end(out: bytearray) -> bytes:
    return bytes(out) + b"\0"  # no tagged fields


def _write_int32s(out: bytearray, values: tuple[int, ...]) -> None:
    write_unsigned_varint(out, len(values) + 1)
    out += struct.pack(f">{len(values)}i", *values)
