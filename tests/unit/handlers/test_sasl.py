"""SASL on a listener without it, which is every listener."""

import pytest

from pyrklog.errors import ErrorCode
from pyrklog.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.unit.handlers.fake_service import FakeService, ask

HANDSHAKE, AUTHENTICATE = 17, 36


@pytest.mark.parametrize("version", [0, 1])
async def test_no_mechanism_is_offered(version: int) -> None:
    answer = await ask(FakeService(), HANDSHAKE, version, SaslHandshakeRequest("PLAIN"))
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_no_token_is_taken(version: int) -> None:
    answer = await ask(FakeService(), AUTHENTICATE, version, SaslAuthenticateRequest(b"\0a\0b"))
    told = (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms)
    assert told == (ErrorCode.ILLEGAL_SASL_STATE, b"", 0)
    assert "after successful authentication" in answer.error_message
