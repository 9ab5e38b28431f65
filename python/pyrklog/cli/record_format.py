r"""The format of ``consume -f``: verbs of kcat and rpk, compiled once into a list of writers.

=========  ==========================================================================
``%t``     topic
``%p``     partition
``%o``     offset
``%k %K``  key, its length in bytes (-1 for null)
``%v %V``  value, its length; ``%s %S`` are the same
``%h %H``  headers as ``name=value,...``, their number
``%T``     timestamp in milliseconds; ``%d`` too
``%d{F}``  timestamp by ``iso``, ``unix``, ``millis`` or a strftime format, in UTC
``%e``     leader epoch, -1 if unknown
``%a``     timestamp type: CreateTime, LogAppendTime or none
``%[``     log start offset of the partition
``%|``     its last stable offset
``%]``     its high watermark
``%R``     length of the value as four bytes, big-endian
``%%``     a percent sign
=========  ==========================================================================

``%k``, ``%v``, ``%s`` and ``%h`` take ``{hex}``, ``{base64}`` or ``{json}``. ``\n``, ``\t``,
``\r``, ``\0``, ``\\`` and ``\xHH`` are escapes.
"""

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from pyrklog.cli.records import Record, json_value

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NULL = b"NULL"

Writer = Callable[[Record], bytes]
Encoder = Callable[[bytes | None], bytes]
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


class Bounds(NamedTuple):
    """Offsets of a partition, which records do not carry."""

    start: int
    last_stable: int
    high_watermark: int


BoundsSource = Callable[[str, int], Bounds]


class FormatError(ValueError):
    """The message says where."""


class RecordFormat:
    def __init__(self, source: str, *, null: bytes = b"", bounds: BoundsSource) -> None:
        """``null`` stands for null keys and values; ``bounds`` gives ``%[``, ``%|``, ``%]``."""
        self._source = source
        self._null = null
        self._bounds = bounds
        self._writers: list[Writer] = []
        literal = b""
        position = 0
        while position < len(source):
            character = source[position]
            if character == "%":
                if literal:
                    self._writers.append(_literal(literal))
                    literal = b""
                position = self._verb(position + 1)
            elif character == "\\":
                piece, position = self._escape(position + 1)
                literal += piece
            else:
                literal += character.encode()
                position += 1
        if literal:
            self._writers.append(_literal(literal))
        if "%" not in source:
            what = f"-f {source!r} has no verb such as %v, so it shows nothing of a record"
            raise FormatError(f"{what}; the only format with a name is jsonl")

    def write(self, record: Record) -> bytes:
        return b"".join([writer(record) for writer in self._writers])

    def _escape(self, position: int) -> tuple[bytes, int]:
        character = self._source[position : position + 1]
        if character == "x":
            digits = self._source[position + 1 : position + 3]
            try:
                return bytes.fromhex(digits), position + 3
            except ValueError:
                raise self._error(position, "\\x takes two hexadecimal digits") from None
        if character not in _ESCAPES:
            raise self._error(position, f"unknown escape \\{character}")
        return _ESCAPES[character], position + 1

    def _verb(self, position: int) -> int:
        verb = self._source[position : position + 1]
        option, end = self._braces(position + 1)
        if verb in _NUMBERS and option is None:
            self._writers.append(_NUMBERS[verb])
        elif verb in ("k", "v", "s"):
            self._writers.append(self._payload(verb, self._encoder(position, option)))
        elif verb == "h":
            encode = self._encoder(position, option)
            self._writers.append(lambda record: _headers(record, encode))
        elif verb == "d":
            self._writers.append(_timestamp(option or "millis"))
        elif verb in _BOUNDS and option is None:
            self._writers.append(self._bound(_BOUNDS[verb]))
        else:
            braces = "" if option is None else f"{{{option}}}"
            raise self._error(position, f"unknown verb %{verb}{braces}")
        return end

    def _braces(self, position: int) -> tuple[str | None, int]:
        if self._source[position : position + 1] != "{":
            return None, position
        end = self._source.find("}", position)
        if end < 0:
            raise self._error(position, "{ without }")
        return self._source[position + 1 : end], end + 1

    def _encoder(self, position: int, option: str | None) -> Encoder:
        if option is None:
            return lambda data: self._null if data is None else data
        if option not in _ENCODERS:
            known = ", ".join(_ENCODERS)
            raise self._error(position, f"unknown encoding {{{option}}}; known are {known}")
        encode = _ENCODERS[option]
        if option == "json":
            return encode
        return lambda data: self._null if data is None else encode(data)

    def _payload(self, verb: str, encode: Encoder) -> Writer:
        if verb == "k":
            return lambda record: encode(record.key)
        return lambda record: encode(record.value)

    def _bound(self, name: str) -> Writer:
        def write(record: Record) -> bytes:
            bounds = self._bounds(record.topic, record.partition)
            return str(getattr(bounds, name)).encode()

        return write

    def _error(self, position: int, what: str) -> FormatError:
        return FormatError(f"-f, character {position + 1}: {what}")


def _literal(data: bytes) -> Writer:
    return lambda _record: data


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


_NUMBERS: dict[str, Writer] = {
    "%": lambda _record: b"%",
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "K": lambda record: b"%d" % _length(record.key),
    "S": lambda record: b"%d" % _length(record.value),
    "V": lambda record: b"%d" % _length(record.value),
    "R": lambda record: _length(record.value).to_bytes(4, "big", signed=True),
    "H": lambda record: b"%d" % len(record.headers),
    "T": lambda record: b"%d" % (-1 if record.timestamp_ms is None else record.timestamp_ms),
    "e": lambda record: b"%d" % (-1 if record.leader_epoch is None else record.leader_epoch),
    "a": lambda record: record.timestamp_type.encode(),
}
_BOUNDS = {"[": "start", "|": "last_stable", "]": "high_watermark"}
_ENCODERS: dict[str, Encoder] = {
    "hex": lambda data: (data or b"").hex().encode(),
    "base64": lambda data: base64.b64encode(data or b""),
    "json": lambda data: json.dumps(json_value(data), ensure_ascii=False).encode(),
}


def _headers(record: Record, encode: Encoder) -> bytes:
    return b",".join(
        name.encode() + b"=" + (NULL if value is None else encode(value))
        for name, value in record.headers
    )


def _timestamp(option: str) -> Writer:
    def write(record: Record) -> bytes:
        if record.timestamp_ms is None:
            return b"-1" if option in ("millis", "unix") else b"-"
        if option == "millis":
            return b"%d" % record.timestamp_ms
        if option == "unix":
            return b"%d" % (record.timestamp_ms // 1000)
        return _date(record.timestamp_ms, option).encode()

    return write


def _date(timestamp_ms: int, option: str) -> str:
    try:
        date = EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
    if option == "iso":
        return date.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return date.strftime(option)
