"""What all formats have in common."""

from __future__ import annotations

import json
from typing import Any, Protocol

AVRO, PROTOBUF = "avro", "protobuf"
SCHEMA_BYTES_MAX = 16 * 2**20
"""Of a schema's text, a set of descriptors, and an answer of a registry."""


class SchemaError(ValueError):
    """A schema cannot be used; the message says why."""


class DataError(ValueError):
    """Bytes or a JSON value do not fit the schema. :meth:`within` adds where, from the inside."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = ""

    def within(self, step: str) -> DataError:
        """A step is ``.NAME`` or ``[NUMBER]``."""
        self.path = f"{step}{self.path}"
        return self

    def __str__(self) -> str:
        path = self.path.removeprefix(".")
        return f"{path}: {self.reason}" if path else self.reason


class Decoder(Protocol):
    """``kind``: the format; None where each record's schema tells it."""

    @property
    def kind(self) -> str | None: ...

    def decode(self, data: bytes) -> bytes:
        """JSON in one line. Raises DataError."""


class Encoder(Protocol):
    def encode(self, value: Any) -> bytes:
        """Bytes of a JSON value. Raises DataError."""


class Codec(Decoder, Encoder, Protocol):
    """Both."""


def as_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def shortened(value: object) -> str:
    """A value for an error, in at most some 60 characters."""
    # What is long is not written out first.
    if isinstance(value, str | bytes):
        text = repr(value[:60])
    elif isinstance(value, dict):
        text = f"an object of {len(value)}"
    elif isinstance(value, list):
        text = f"a list of {len(value)}"
    elif isinstance(value, int) and abs(value) > 10**60:
        text = "a number of more than 60 digits"
    else:
        text = {True: "true", False: "false", None: "null"}.get(value, repr(value))  # type: ignore[call-overload]
    return text if len(text) <= 64 else f"{text[:60]}..."
