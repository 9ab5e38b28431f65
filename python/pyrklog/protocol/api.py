"""One API: its key, versions, and two messages with their codecs."""

import struct
import sys
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from pyrklog.protocol.compiler import Bounded, message_reader, message_writer
from pyrklog.protocol.fields import Message
from pyrklog.protocol.primitives import DecodeError, EncodeError

NEVER_FLEXIBLE = 0x7FFF
"""``flexible_since`` of an API that has no flexible version."""

Req = TypeVar("Req", bound=Message)
Resp = TypeVar("Resp", bound=Message)


@dataclass(frozen=True, slots=True)
class Api(Generic[Req, Resp]):
    """A row of Kafka's API table, with codecs of its bodies (without headers)."""

    key: int
    request: type[Req]
    response: type[Resp]
    versions: tuple[int, int]
    """First and last version served, inclusive."""
    flexible_since: int
    """First flexible version (KIP-482)."""

    @property
    def name(self) -> str:
        """Kafka's name of the API."""
        return self.request.__name__.removesuffix("Request")

    def decode_request(self, body: bytes, version: int, *, elements_max: int = sys.maxsize) -> Req:
        """Bytes after the request are ignored, as in Kafka.

        Raises :class:`DecodeError`, also if the arrays have more than ``elements_max`` elements in
        all."""
        if len(body) > elements_max:  # a shorter body cannot hold as many
            body = Bounded(body)
            body.elements_left = elements_max
        message, _ = self._decode(self.request, body, version)
        return cast(Req, message)

    def decode_response(self, body: bytes, version: int) -> Resp:
        """Raises :class:`DecodeError`, also for bytes after the response."""
        message, position = self._decode(self.response, body, version)
        if position != len(body):
            left = len(body) - position
            raise DecodeError(f"{self.response.__name__} v{version}: {left} bytes after its end")
        return cast(Resp, message)

    def encode_request(self, message: Req, version: int) -> bytes:
        """Raises :class:`EncodeError`."""
        return self._encode(self.request, message, version)

    def encode_response(self, message: Resp, version: int) -> bytes:
        """Raises :class:`EncodeError`."""
        return self._encode(self.response, message, version)

    def _decode(self, kind: type[Message], body: bytes, version: int) -> tuple[object, int]:
        """The message, and where it ends."""
        if not self.versions[0] <= version <= self.versions[1]:
            raise DecodeError(f"{self.name} v{version} is not served")
        read = message_reader(kind, version, version >= self.flexible_since)
        try:
            return read(body, 0)
        except (IndexError, struct.error):
            raise DecodeError(f"{kind.__name__} v{version} ends too early") from None
        except DecodeError as error:
            raise DecodeError(f"{kind.__name__} v{version}: {error}") from None

    def _encode(self, kind: type[Message], message: Message, version: int) -> bytes:
        if not self.versions[0] <= version <= self.versions[1]:
            raise EncodeError(f"{self.name} v{version} is not served")
        out = bytearray()
        try:
            message_writer(kind, version, version >= self.flexible_since)(out, message)
        except (struct.error, OverflowError, UnicodeEncodeError, EncodeError) as error:
            raise EncodeError(f"{kind.__name__} v{version}: {error}") from None
        return bytes(out)
