"""What the driver says of brokers that do not answer."""

from __future__ import annotations

from contextlib import nullcontext
from re import Pattern
from typing import Any

import pytest

from pyrklog.scanning import BrokerNotAvailableError, LeaderNotAvailableError, UnknownTopicError
from pyrklog.spark import unreached
from pyrklog.spark.connection import Connection
from pyrklog.testing.ports import free_port

AWAY = Connection("h:1", timeout_s=60.0, connect_timeout_s=0.5)


class FakeScan:
    """Meets an exception, or nothing."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self.asked: list[tuple[Pattern[str], float, float]] = []

    def __call__(
        self,
        topics: Pattern[str],
        *_: object,
        timeout_s: float,
        connect_timeout_s: float,
        **others: object,
    ) -> Any:
        self.asked.append((topics, timeout_s, connect_timeout_s))
        if self.error is not None:
            raise self.error
        return nullcontext()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (BrokerNotAvailableError("broker h:1: cannot connect"), "broker h:1: cannot connect"),
        (LeaderNotAvailableError("broker i:1 is away"), "broker i:1 is away"),
        (UnknownTopicError("no topic matches"), None),
        (None, None),
    ],
)
def test_what_a_scan_meets_is_told(error: Exception | None, told: str | None) -> None:
    scan = FakeScan(error)
    assert unreached.reason(AWAY, "a.b", scan) == told
    [(pattern, timeout_s, connect_timeout_s)] = scan.asked
    assert pattern.fullmatch("a.b")
    assert not pattern.fullmatch("axb")
    assert (timeout_s, connect_timeout_s) == (2.0, 0.5)


def test_any_broker_is_looked_for_without_a_topic() -> None:
    scan = FakeScan(None)
    assert unreached.reason(AWAY, None, scan) is None
    assert not scan.asked[0][0].fullmatch("")


def test_a_port_without_a_broker() -> None:
    address = f"127.0.0.1:{free_port()}"
    assert "Connection refused" in (unreached.reason(Connection(address), "a") or "")
