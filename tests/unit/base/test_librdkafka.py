"""What all handles of librdkafka have: pauses between attempts, each complaint once."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from pyrklog.base.librdkafka import KINDS_MAX, RECONNECT, Once, once_logger
from pyrklog.benchmark import librdkafka as benchmark
from pyrklog.cli import connection
from pyrklog.cli.options import Settings

AWAY = "h:1/1: Connect to ipv4#h:1 failed: refused (after 0ms in state CONNECT)"
AGAIN = "h:1/1: Connect to ipv4#h:1 failed: refused (after 3ms in state CONNECT, 9 identical)"


def test_a_complaint_is_written_once(capsys: pytest.CaptureFixture[str]) -> None:
    logger = once_logger("pyrklog.test_librdkafka")
    for line in (AWAY, AGAIN, "h:2/2: Connect failed", AWAY):
        logger.error(line)
    assert capsys.readouterr().err.splitlines() == [AWAY, "h:2/2: Connect failed"]
    assert once_logger(logger.name).handlers == logger.handlers


def test_complaints_are_bounded() -> None:
    once = Once()
    records = [
        logging.LogRecord("a", logging.ERROR, "", 0, f"h{number}: no", None, None)
        for number in range(KINDS_MAX + 9)
    ]
    assert sum(map(once.filter, records)) == KINDS_MAX


def test_handles_of_commands_pause_and_keep_each_complaint_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "probe", lambda _: None)
    one = connection.Connection(Settings("h:1", {"reconnect.backoff.max.ms": "9000"}))
    found = one.configuration()
    assert found["reconnect.backoff.ms"] == RECONNECT["reconnect.backoff.ms"]
    assert found["reconnect.backoff.max.ms"] == "9000"
    for line in (AWAY, AGAIN, "h:2/2: Connect failed", AGAIN):
        found["error_cb"](SimpleNamespace(str=lambda line=line: line, name=lambda: "_TRANSPORT"))
    assert list(one._said) == [AWAY, "h:2/2: Connect failed"]


def test_handles_of_bench_pause() -> None:
    load: Any = SimpleNamespace(properties={}, bootstrap="h:1")
    found = benchmark.configuration(load)
    assert {name: found[name] for name in RECONNECT} == RECONNECT
    assert any(isinstance(one, Once) for one in found["logger"].handlers[0].filters)
