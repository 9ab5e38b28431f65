"""SaslHandshake (KIP-43) and SaslAuthenticate (KIP-152, KIP-368)."""

from typing import Annotated

from pyrklog.protocol.api import NEVER_FLEXIBLE, Api
from pyrklog.protocol.fields import Bytes, Int16, Int64, Message, Str, empty_list, since


class SaslHandshakeRequest(Message):
    mechanism: Str


class SaslHandshakeResponse(Message):
    """``mechanisms`` are those that the listener offers."""

    error_code: Int16 = 0
    mechanisms: list[Str] = empty_list()


class SaslAuthenticateRequest(Message):
    auth_bytes: Bytes


class SaslAuthenticateResponse(Message):
    error_code: Int16 = 0
    error_message: Str | None = None
    auth_bytes: Bytes = b""
    session_lifetime_ms: Annotated[Int64, since(1)] = 0


SASL_HANDSHAKE = Api(
    17,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
    versions=(0, 1),
    flexible_since=NEVER_FLEXIBLE,
)
SASL_AUTHENTICATE = Api(
    36, SaslAuthenticateRequest, SaslAuthenticateResponse, versions=(0, 2), flexible_since=2
)
