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

``%k``, ``%v``, ``%s`` and ``%h`` take ``{hex}``, ``{base64}`` or ``{json}``, keys and values that
have a schema ``{avro}`` or ``{protobuf}``, too. With a schema ``%k`` and ``%v`` are the JSON that
it makes of them; ``{hex}``, ``{base64}`` and lengths are always of the bytes. ``\n``, ``\t``,
``\r``, ``\0``, ``\\`` and ``\xHH`` are escapes.
"""

import base64
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import NamedTuple

from pyrklog.cli.records import Record, json_of

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


class Kinds(NamedTuple):
    """Formats of the schemas of keys and values: ``avro``, ``protobuf``, :data:`ANY` where each
    record's schema tells it; None without a schema."""

    key: str | None = None
    value: str | None = None


ANY = "any"
_TYPED = ("avro", "protobuf")


class FormatError(ValueError):
    """The message says where."""


class RecordFormat:
    def __init__(
        self,
        source: str,
        *,
        null: bytes = b"",
        bounds: BoundsSource,
        kinds: Kinds | None = None,
    ) -> None:
        """``null`` stands for null keys and values; ``bounds`` gives ``%[``, ``%|``, ``%]``."""
        self._source = source
        self._kinds = kinds or Kinds()
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
            self._writers.append(self._payload(verb, position, option))
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
            if option in _TYPED:
                raise self._error(position, f"{{{option}}} is for keys and values: %k, %v or %s")
            known = ", ".join((*_ENCODERS, *_TYPED))
            raise self._error(position, f"unknown encoding {{{option}}}; known are {known}")
        encode = _ENCODERS[option]
        if option == "json":
            return encode
        return lambda data: self._null if data is None else encode(data)

    def _payload(self, verb: str, position: int, option: str | None) -> Writer:
        name = "key" if verb == "k" else "value"
        kind = self._kinds.key if verb == "k" else self._kinds.value
        if option in _TYPED and kind not in (option, ANY):
            why = f"no schema of the {name}" if kind is None else f"the {name}'s schema is {kind}"
            given = "--key-schema" if verb == "k" else "--schema"
            raise self._error(position, f"{{{option}}}, and {why}: give one with {given}")
        if option in ("hex", "base64") or kind is None:
            raw, encode = attrgetter(name), self._encoder(position, option)
            return lambda record: encode(raw(record))
        if option not in (None, "json", *_TYPED):
            self._encoder(position, option)
        return self._typed(name, option)

    def _typed(self, name: str, option: str | None) -> Writer:
        """What the schema makes of it; else as without a schema."""
        raw, found = attrgetter(name), attrgetter(f"{name}_json")
        otherwise = self._encoder(0, "json" if option == "json" else None)

        def write(record: Record) -> bytes:
            shown: bytes | None = found(record)
            return otherwise(raw(record)) if shown is None else shown

        return write

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
    "json": json_of,
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
