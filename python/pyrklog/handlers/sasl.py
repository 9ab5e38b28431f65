"""SaslHandshake and SaslAuthenticate: what Kafka answers on a listener without SASL
(``KafkaApis``), where a client needs no authentication and can have none."""

from pyrklog.handlers.context import Context
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

_REFUSED = ErrorCode.ILLEGAL_SASL_STATE


async def sasl_handshake(
    _context: Context, _request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=_REFUSED)


async def sasl_authenticate(
    _context: Context, _request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=_REFUSED,
        error_message="SaslAuthenticate request received after successful authentication",
    )
