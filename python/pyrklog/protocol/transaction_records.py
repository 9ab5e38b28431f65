"""The records of ``__transaction_state``, byte for byte Kafka's.

The key is a version (0) and the transactional id. The value begins with its version:

=======  =========================================================================
version  fields
=======  =========================================================================
0        those without a tag
1        the same, flexible, with tagged fields (KIP-890 part 2): the producer ids
         before and after this one, and the version of the client's transactions
=======  =========================================================================

Version 1 is written where a tagged field has a value, so that brokers older than Kafka 3.8 read
what old clients leave. A null value is a tombstone: the transactional id has expired. Source:
Kafka's TransactionLogKey and TransactionLogValue.
"""

import struct
from typing import Annotated, Any

from pyrklog.protocol.compiler import message_reader, message_writer
from pyrklog.protocol.fields import Int8, Int16, Int32, Int64, Message, Str, tagged
from pyrklog.protocol.primitives import DecodeError, EncodeError

NO_PRODUCER_ID = -1
KEY_VERSION = 0
VALUE_VERSION_MAX = 1
FLEXIBLE_SINCE = 1


class TransactionKey(Message):
    transactional_id: Str


class PartitionsValue(Message):
    topic: Str
    partition_ids: list[Int32]


class TransactionValue(Message):
    """``transaction_partitions`` is null for the status Empty (0)."""

    producer_id: Int64
    producer_epoch: Int16 = 0
    transaction_timeout_ms: Int32 = 0
    transaction_status: Int8 = 0
    transaction_partitions: list[PartitionsValue] | None = None
    last_update_timestamp_ms: Int64 = -1
    start_timestamp_ms: Int64 = -1
    previous_producer_id: Annotated[Int64, tagged(0, since=1)] = NO_PRODUCER_ID
    next_producer_id: Annotated[Int64, tagged(1, since=1)] = NO_PRODUCER_ID
    client_transaction_version: Annotated[Int16, tagged(2, since=1)] = 0


def encode_transaction_key(key: TransactionKey) -> bytes:
    return _encode(TransactionKey, KEY_VERSION, key)


def encode_transaction_value(value: TransactionValue) -> bytes:
    is_plain = (
        value.previous_producer_id == NO_PRODUCER_ID
        and value.next_producer_id == NO_PRODUCER_ID
        and value.client_transaction_version == 0
    )
    return _encode(TransactionValue, 0 if is_plain else VALUE_VERSION_MAX, value)


def decode_transaction_key(data: bytes) -> TransactionKey:
    """Raises :class:`DecodeError`."""
    version = _version(data)
    if version != KEY_VERSION:
        raise DecodeError(f"key version {version} is unknown")
    key: TransactionKey = _decode(TransactionKey, version, data)
    return key


def decode_transaction_value(data: bytes) -> TransactionValue:
    """Raises :class:`DecodeError`. Unknown tagged fields are skipped."""
    version = _version(data)
    if not 0 <= version <= VALUE_VERSION_MAX:
        raise DecodeError(f"value version {version} is unknown")
    value: TransactionValue = _decode(TransactionValue, version, data)
    return value


def _encode(kind: type[Message], version: int, message: Message) -> bytes:
    out = bytearray(version.to_bytes(2, "big"))
    try:
        message_writer(kind, version, _is_flexible(kind, version))(out, message)
    except (struct.error, OverflowError, UnicodeEncodeError) as error:
        raise EncodeError(f"{kind.__name__}: {error}") from None
    return bytes(out)


def _decode(kind: type[Message], version: int, data: bytes) -> Any:
    try:
        message, _ = message_reader(kind, version, _is_flexible(kind, version))(data, 2)
    except (IndexError, struct.error):
        raise DecodeError(f"{kind.__name__} v{version} ends too early") from None
    except DecodeError as error:
        raise DecodeError(f"{kind.__name__} v{version}: {error}") from None
    return message


def _is_flexible(kind: type[Message], version: int) -> bool:
    return kind is TransactionValue and version >= FLEXIBLE_SINCE


def _version(data: bytes) -> int:
    if len(data) < 2:
        raise DecodeError(f"{len(data)} bytes hold no version")
    return int.from_bytes(data[:2], "big", signed=True)
