"""Records, and their lossless form as lines of JSON.

``consume -f jsonl | produce -f jsonl`` copies records exactly: nulls, bytes, repeated headers and
timestamps. Valid UTF-8 becomes a JSON string, other bytes an object ``{"base64": "..."}``.

With ``--schema`` a value is the JSON that its schema makes of it, and null a tombstone. What that
cannot say comes as ``"value_base64"`` beside a null ``"value"``: a value that does not fit, or one
that its schema makes null of. Keys are the same with ``--key-schema``.
"""

import base64
import binascii
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from pyrklog.base.json_text import without_controls

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """``leader_epoch`` and ``timestamp_ms`` are None if unknown. ``key_json`` and ``value_json``
    are what schemas make of key and value; without such a schema, and for null, they are None."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    timestamp_type: str
    leader_epoch: int | None
    headers: Headers
    key: bytes | None
    value: bytes | None
    key_json: bytes | None = None
    value_json: bytes | None = None
    has_key_schema: bool = False
    has_value_schema: bool = False

    @property
    def shown_key(self) -> bytes | None:
        return self.key if self.key_json is None else self.key_json

    @property
    def shown_value(self) -> bytes | None:
        return self.value if self.value_json is None else self.value_json


class InputRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class BadLineError(ValueError):
    """The message is half a sentence."""


_TIMESTAMP_TYPES = {0: "none", 1: "CreateTime", 2: "LogAppendTime"}


def from_message(message: Any) -> Record:
    timestamp_type, timestamp_ms = message.timestamp()
    return Record(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        timestamp_ms=timestamp_ms if timestamp_type else None,
        timestamp_type=_TIMESTAMP_TYPES.get(timestamp_type, "none"),
        leader_epoch=message.leader_epoch(),
        headers=tuple(message.headers() or ()),
        key=message.key(),
        value=message.value(),
    )


def to_json(record: Record) -> bytes:
    fields = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "timestamp_type": record.timestamp_type,
        "leader_epoch": record.leader_epoch,
        "headers": [{"key": name, "value": json_value(value)} for name, value in record.headers],
    }
    told = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    parts = [without_controls(told).encode()[:-1]]
    parts += _members("key", record.key, record.key_json, record.has_key_schema)
    parts += _members("value", record.value, record.value_json, record.has_value_schema)
    return b",".join(parts) + b"}\n"


def _members(name: str, data: bytes | None, shown: bytes | None, has_schema: bool) -> list[bytes]:
    """Of a line's object."""
    if shown is not None and shown != b"null":
        return [b'"%s":%s' % (name.encode(), shown)]
    if has_schema and data is not None:
        raw = b'"%s_base64":"%s"' % (name.encode(), base64.b64encode(data))
        return [b'"%s":null' % name.encode(), raw]
    return [b'"%s":%s' % (name.encode(), json_of(data))]


def json_of(data: bytes | None) -> bytes:
    return without_controls(json.dumps(json_value(data), ensure_ascii=False)).encode()


def json_value(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


Encode = Callable[[Any], bytes]
"""Bytes of a JSON value by a schema. Raises :class:`BadLineError`."""


def from_json(
    line: bytes, key_encode: Encode | None = None, value_encode: Encode | None = None
) -> InputRecord:
    """Parses a line of :func:`to_json`; only ``value`` is required. Raises BadLineError."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadLineError(f"is not JSON: {error}") from None
    if not isinstance(fields, dict) or "value" not in fields:
        raise BadLineError('is no object with a "value"')
    headers = fields.get("headers")
    headers = [] if headers is None else headers
    if not isinstance(headers, list) or not all(_is_header(one) for one in headers):
        raise BadLineError('has "headers" that are no list of {"key", "value"}')
    return InputRecord(
        key=_payload(fields, "key", key_encode),
        value=_payload(fields, "value", value_encode),
        headers=tuple((one["key"], _bytes(one.get("value"), "header")) for one in headers),
        partition=_integer(fields, "partition", 0, 2**31 - 1),
        timestamp_ms=_integer(fields, "timestamp_ms", -(2**63), 2**63 - 1),
    )


def _is_header(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("key"), str):
        return False
    # confluent-kafka crashes for half of a surrogate pair, such as "\ud800".
    return not any("\ud800" <= letter <= "\udfff" for letter in value["key"])


def _integer(fields: dict[str, Any], name: str, least: int, most: int) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadLineError(f'has a "{name}" that is no integer')
    if not least <= value <= most:
        raise BadLineError(f'has a "{name}" that is not within {least} to {most}')
    return value


def _payload(fields: dict[str, Any], name: str, encode: Encode | None) -> bytes | None:
    value, raw = fields.get(name), fields.get(f"{name}_base64")
    if raw is not None:
        if value is not None:
            raise BadLineError(f'has both "{name}" and "{name}_base64"')
        return _bytes({"base64": raw}, f"{name}_base64")
    if encode is None or value is None:
        return _bytes(value, name)
    return encode(value)


def _bytes(value: Any, name: str) -> bytes | None:
    if value is None or isinstance(value, str):
        return None if value is None else value.encode("utf-8", "surrogatepass")
    if isinstance(value, dict) and isinstance(value.get("base64"), str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except binascii.Error:
            raise BadLineError(f'has a "{name}" that is no base64') from None
    raise BadLineError(f'has a "{name}" that is neither text, null nor {{"base64": ...}}')
