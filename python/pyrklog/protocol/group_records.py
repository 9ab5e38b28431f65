"""The records of ``__consumer_offsets``, byte for byte Kafka's.

Keys and values begin with a version of two bytes; the key's version tells what the record is about:

======  ===================  ===================  ==================================
key     fields               value versions read  written
======  ===================  ===================  ==================================
0, 1    an offset            0 to 4 (4 flexible)  key 1, value 3; value 1 if the
                                                  client gave a time to live
2       a group's metadata   0 to 4 (4 flexible)  key 2, value 3
others  of other parts       skipped              never
======  ===================  ===================  ==================================

A null value is a tombstone: the offset or the group is deleted. Bytes after the last field are
ignored, as in Kafka. Source: Kafka 3.9's OffsetCommitKey, OffsetCommitValue, GroupMetadataKey,
GroupMetadataValue.
"""

import struct
from typing import Annotated, Any, NamedTuple

from pyrklog.protocol.compiler import message_reader, message_writer
from pyrklog.protocol.fields import Bytes, Int32, Int64, Message, Str, empty_list, since
from pyrklog.protocol.primitives import DecodeError, EncodeError

NO_TIMESTAMP = -1
NO_LEADER_EPOCH = -1
NO_TIMEOUT = -1

OFFSET_KEY_VERSIONS = (0, 1)
GROUP_KEY_VERSION = 2
OFFSET_KEY_WRITTEN = 1
OFFSET_VALUE_WRITTEN = 3
OFFSET_VALUE_WITH_EXPIRY = 1
"""The only value version with a time to live."""
GROUP_VALUE_WRITTEN = 3
VALUE_VERSION_MAX = 4
VALUE_FLEXIBLE_SINCE = 4


class OffsetKey(Message):
    group: Str
    topic: Str
    partition: Int32


class OffsetValue(Message):
    """``expire_timestamp`` -1: the broker's retention counts."""

    offset: Int64
    leader_epoch: Annotated[Int32, since(3)] = NO_LEADER_EPOCH
    metadata: Str = ""
    commit_timestamp: Int64 = NO_TIMESTAMP
    expire_timestamp: Annotated[Int64, since(1, until=1)] = NO_TIMESTAMP


class GroupKey(Message):
    """A group's metadata."""

    group: Str


class MemberValue(Message):
    """A member in its generation. Version 0 has no rebalance time-out (-1)."""

    member_id: Str
    group_instance_id: Annotated[Str | None, since(3)] = None
    client_id: Str = ""
    client_host: Str = ""
    rebalance_timeout_ms: Annotated[Int32, since(1)] = NO_TIMEOUT
    session_timeout_ms: Int32 = NO_TIMEOUT
    subscription: Bytes = b""
    assignment: Bytes = b""


class GroupValue(Message):
    """A generation of a group. ``current_state_timestamp`` -1: unknown."""

    protocol_type: Str
    generation: Int32
    protocol: Str | None = None
    leader: Str | None = None
    current_state_timestamp: Annotated[Int64, since(2)] = NO_TIMESTAMP
    members: list[MemberValue] = empty_list()


class UnknownKey(NamedTuple):
    """The record's kind is unknown to this broker."""

    version: int


Key = OffsetKey | GroupKey | UnknownKey


def encode_offset_key(key: OffsetKey) -> bytes:
    return _encode(OffsetKey, OFFSET_KEY_WRITTEN, key)


def encode_group_key(key: GroupKey) -> bytes:
    return _encode(GroupKey, GROUP_KEY_VERSION, key)


def encode_offset_value(value: OffsetValue) -> bytes:
    """A value with a time to live loses the leader epoch, as in Kafka."""
    expires = value.expire_timestamp != NO_TIMESTAMP
    version = OFFSET_VALUE_WITH_EXPIRY if expires else OFFSET_VALUE_WRITTEN
    return _encode(OffsetValue, version, value)


def encode_group_value(value: GroupValue) -> bytes:
    return _encode(GroupValue, GROUP_VALUE_WRITTEN, value)


def decode_key(data: bytes) -> Key:
    """Raises :class:`DecodeError`."""
    version = _version(data)
    if OFFSET_KEY_VERSIONS[0] <= version <= OFFSET_KEY_VERSIONS[1]:
        key: Key = _decode(OffsetKey, version, data)
    elif version == GROUP_KEY_VERSION:
        key = _decode(GroupKey, version, data)
    else:
        key = UnknownKey(version)
    return key


def decode_offset_value(data: bytes) -> OffsetValue:
    """Reads any version. Raises :class:`DecodeError`."""
    value: OffsetValue = _decode(OffsetValue, _value_version(data), data)
    return value


def decode_group_value(data: bytes) -> GroupValue:
    """Reads any version; version 0 gets the session time-out as its rebalance time-out. Raises
    :class:`DecodeError`."""
    version = _value_version(data)
    value: GroupValue = _decode(GroupValue, version, data)
    if version == 0:
        for member in value.members:
            member.rebalance_timeout_ms = member.session_timeout_ms
    return value


def _encode(kind: type[Message], version: int, message: Message) -> bytes:
    out = bytearray(version.to_bytes(2, "big"))
    try:
        message_writer(kind, version, False)(out, message)
    except (struct.error, OverflowError, UnicodeEncodeError) as error:
        raise EncodeError(f"{kind.__name__}: {error}") from None
    return bytes(out)


def _decode(kind: type[Message], version: int, data: bytes) -> Any:
    # Keys have no flexible version; their versions are below the values' first flexible one.
    try:
        message, _ = message_reader(kind, version, version >= VALUE_FLEXIBLE_SINCE)(data, 2)
    except (IndexError, struct.error):
        raise DecodeError(f"{kind.__name__} v{version} ends too early") from None
    except DecodeError as error:
        raise DecodeError(f"{kind.__name__} v{version}: {error}") from None
    return message


def _value_version(data: bytes) -> int:
    version = _version(data)
    if not 0 <= version <= VALUE_VERSION_MAX:
        raise DecodeError(f"value version {version} is unknown")
    return version


def _version(data: bytes) -> int:
    if len(data) < 2:
        raise DecodeError(f"{len(data)} bytes hold no version")
    return int.from_bytes(data[:2], "big", signed=True)
