"""Every message of every version survives a round trip; malformed bytes are refused."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyrklog.protocol import DecodeError
from pyrklog.protocol.api import Api
from tests.unit.protocol.messages import ALL_CASES, EXAMPLES, decode, encode, ids, messages

_SETTINGS = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
every_case = pytest.mark.parametrize(("api", "kind", "version"), ALL_CASES, ids=ids(ALL_CASES))


@every_case
@_SETTINGS
@given(data=st.data())
def test_what_is_written_is_read_back(
    api: Api[Any, Any], kind: str, version: int, data: st.DataObject
) -> None:
    message = data.draw(messages(getattr(api, kind), version))
    assert decode(api, kind, encode(api, kind, message, version), version) == message


@every_case
@_SETTINGS
@given(data=st.data())
def test_a_cut_message_is_refused_and_a_lengthened_response(
    api: Api[Any, Any], kind: str, version: int, data: st.DataObject
) -> None:
    body = encode(api, kind, data.draw(messages(getattr(api, kind), version)), version)
    if body:  # ListGroups has an empty body before version 3
        cut = data.draw(st.integers(0, len(body) - 1))
        with pytest.raises(DecodeError):
            decode(api, kind, body[:cut], version)
    if kind == "request":
        longer = decode(api, kind, body + b"\0", version)
        assert encode(api, kind, longer, version) == body
        return
    with pytest.raises(DecodeError, match="after its end"):
        decode(api, kind, body + b"\0", version)


@every_case
@_SETTINGS
@given(data=st.data())
def test_a_changed_byte_is_read_or_refused_but_never_crashes(
    api: Api[Any, Any], kind: str, version: int, data: st.DataObject
) -> None:
    body = bytearray(encode(api, kind, data.draw(messages(getattr(api, kind), version)), version))
    if not body:
        return
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] ^= data.draw(st.integers(1, 255))
    try:
        message = decode(api, kind, bytes(body), version)
    except DecodeError:
        return
    again = encode(api, kind, message, version)
    assert decode(api, kind, again, version) == message


@every_case
@given(body=st.binary(max_size=200))
@_SETTINGS
def test_garbage_is_read_or_refused_but_never_crashes(
    api: Api[Any, Any], kind: str, version: int, body: bytes
) -> None:
    try:
        message = decode(api, kind, body, version)
    except DecodeError:
        return
    assert decode(api, kind, encode(api, kind, message, version), version) == message
