"""One API: its key, its versions and its two messages, with their codecs."""

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
    """A row of Kafka's API table with the codecs of its bodies (what follows the header)."""

    key: int
    name: str
    request: type[Req]
    response: type[Resp]
    versions: tuple[int, int]
    """First and last version served, inclusive."""
    flexible_since: int
    """First flexible version (KIP-482)."""

    def decode_request(self, body: bytes, version: int, *, elements_max: int = sys.maxsize) -> Req:
        """Reads a request body, whose arrays have at most so many elements in all. Raises
        :class:`DecodeError`."""
        if len(body) > elements_max:  # else it cannot hold as many
            body = Bounded(body)
            body.elements_left = elements_max
        return cast(Req, self._decode(self.request, body, version))

    def decode_response(self, body: bytes, version: int) -> Resp:
        """Reads a response body. Raises :class:`DecodeError`."""
        return cast(Resp, self._decode(self.response, body, version))

    def encode_request(self, message: Req, version: int) -> bytes:
        """Writes a request body. Raises :class:`EncodeError`."""
        return self._encode(self.request, message, version)

    def encode_response(self, message: Resp, version: int) -> bytes:
        """Writes a response body. Raises :class:`EncodeError`."""
        return self._encode(self.response, message, version)

    def _decode(self, kind: type[Message], body: bytes, version: int) -> object:
        if not self.versions[0] <= version <= self.versions[1]:
            raise DecodeError(f"{self.name} v{version} is not served")
        read = message_reader(kind, version, version >= self.flexible_since)
        try:
            message, position = read(body, 0)
        except (IndexError, struct.error):
            raise DecodeError(f"{kind.__name__} v{version} ends too early") from None
        except DecodeError as error:
            raise DecodeError(f"{kind.__name__} v{version}: {error}") from None
        if position != len(body):
            raise DecodeError(
                f"{kind.__name__} v{version}: {len(body) - position} bytes after its end"
            )
        return message

    def _encode(self, kind: type[Message], message: Message, version: int) -> bytes:
        if not self.versions[0] <= version <= self.versions[1]:
            raise EncodeError(f"{self.name} v{version} is not served")
        out = bytearray()
        try:
            message_writer(kind, version, version >= self.flexible_since)(out, message)
        except (struct.error, OverflowError, UnicodeEncodeError, EncodeError) as error:
            raise EncodeError(f"{kind.__name__} v{version}: {error}") from None
        return bytes(out)
