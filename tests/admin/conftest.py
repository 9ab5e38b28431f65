"""A connection for requests of any version."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyrklog.protocol.registry import find_api
from tests.support.wire import Connection

Ask = Callable[[int, int, Any], Any]


@pytest.fixture
def ask(bootstrap: str) -> Iterator[Ask]:
    """Sends a request of (API key, version, message); returns its response."""
    with Connection(bootstrap) as connection:

        def call(key: int, version: int, message: Any) -> Any:
            api = find_api(key)
            body = api.encode_request(message, version)
            flexible = version >= api.flexible_since
            reply = connection.request(key, version, body, flexible=flexible)
            return api.decode_response(reply, version)

        yield call
