"""Transactional clients are refused; the broker's log says so, at limited rate."""

from typing import Any

import pytest

from pyrklog.base.told import Told
from pyrklog.handlers import transactions
from pyrklog.protocol.coordinators import FindCoordinatorRequest
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.producer_ids import InitProducerIdRequest
from pyrklog.protocol.registry import find_api
from tests.unit.handlers.fake_service import FakeRequest, FakeService, FakeSession, make_handlers

COORDINATOR, PRODUCER_ID = 10, 22


class Log:
    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def warning(self, event: str, **fields: Any) -> None:
        assert event == "transactions_not_served"
        self.told.append((fields["client_id"], fields["transactional_id"]))


class Clock:
    now = 0.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    fresh = Told(transactions.TELL_SECONDS, transactions.CLIENTS_MAX, lambda: found.now)
    monkeypatch.setattr(transactions, "_told", fresh)
    return found


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    found = Log()
    monkeypatch.setattr(transactions, "log", found)
    return found


async def ask(key: int, version: int, message: Any, client_id: str | None) -> int:
    api = find_api(key)
    body = api.encode_request(message, version)
    session = FakeSession(client_id=client_id)
    request = FakeRequest(key, version, body, session=session)
    answer = await make_handlers(FakeService()).handle(request)
    assert answer is not None
    response = api.decode_response(answer, version)
    if key == COORDINATOR and version >= 4:
        (response,) = response.coordinators
    return int(response.error_code)


@pytest.mark.parametrize(
    ("key", "version", "message"),
    [
        (COORDINATOR, 3, FindCoordinatorRequest("tx", 1)),
        (COORDINATOR, 4, FindCoordinatorRequest("", 1, ["tx"])),
        (PRODUCER_ID, 4, InitProducerIdRequest("tx")),
    ],
)
async def test_transactional_client_is_logged_once_an_hour(
    clock: Clock, log: Log, key: int, version: int, message: Any
) -> None:
    for _ in range(3):
        code = await ask(key, version, message, "a")
        assert code == ErrorCode.UNSUPPORTED_VERSION
    assert log.told == [("a", "tx")]
    await ask(key, version, message, None)
    clock.now = transactions.TELL_SECONDS
    await ask(key, version, message, "a")
    assert log.told == [("a", "tx"), ("", "tx"), ("a", "tx")]


async def test_transactional_clients_fill_neither_memory_nor_log(clock: Clock, log: Log) -> None:
    for number in range(transactions.CLIENTS_MAX + 50):
        await ask(PRODUCER_ID, 4, InitProducerIdRequest("t" * 5000), f"{number}" + "c" * 5000)
    assert len(log.told) == transactions.CLIENTS_MAX
    assert max(len(text) for pair in log.told for text in pair) == 200
    clock.now = transactions.TELL_SECONDS
    await ask(PRODUCER_ID, 4, InitProducerIdRequest("t"), "new")
    assert log.told[-1] == ("new", "t")
    assert len(transactions._told._at) == 1


async def test_a_request_without_keys_is_answered(clock: Clock, log: Log) -> None:
    request = FindCoordinatorRequest("", 1, [])
    api = find_api(COORDINATOR)
    body = api.encode_request(request, 4)
    answer = await make_handlers(FakeService()).handle(FakeRequest(COORDINATOR, 4, body))
    assert answer is not None
    assert log.told == [("test", "")]
