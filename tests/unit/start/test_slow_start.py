from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from pyrklog.base import logs
from pyrklog.start import slow_start
from pyrklog.start.slow_start import tell_slow_start


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    done: list[str] = []
    monkeypatch.setattr(logs, "load", lambda: done.append("load"))
    monkeypatch.setattr(logs, "ensure_configured", lambda: done.append("configured"))
    warns = SimpleNamespace(warning=lambda event, **_: done.append(event))
    monkeypatch.setattr(slow_start, "log", warns)
    return done


def _metadata(*brokers: object) -> Any:
    listeners = SimpleNamespace(inter_broker="PLAINTEXT")
    return SimpleNamespace(
        image=SimpleNamespace(brokers=brokers), config=SimpleNamespace(listeners=listeners)
    )


def _set() -> trio.Event:
    event = trio.Event()
    event.set()
    return event


async def test_start_that_waits_for_metadata_is_reported(
    configured: list[str], autojump_clock: trio.testing.MockClock
) -> None:
    await tell_slow_start(trio.Event(), _set(), _metadata(), lambda: 3)
    assert configured == ["load", "configured", "waiting_for_controller"]


async def test_start_that_waits_for_logs_reports_progress(
    configured: list[str], autojump_clock: trio.testing.MockClock
) -> None:
    await tell_slow_start(trio.Event(), _set(), _metadata(1), lambda: 3)
    assert configured == ["load", "configured"]


async def test_a_broker_that_is_ready_in_time_has_nothing_to_add(
    configured: list[str], autojump_clock: trio.testing.MockClock
) -> None:
    ready = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tell_slow_start, ready, _set(), _metadata(), lambda: 3)
        await trio.sleep(slow_start.PATIENCE_SECONDS - 0.1)
        ready.set()
    assert configured == []


async def test_before_its_registration_no_controller_owes_it_anything(
    configured: list[str],
    autojump_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registered, late = trio.Event(), trio.Event()

    def configure() -> None:
        configured.append("configured")
        late.set()

    monkeypatch.setattr(logs, "ensure_configured", configure)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tell_slow_start, trio.Event(), registered, _metadata(), lambda: 3)
        await late.wait()  # a thread loads the log: its time is not the clock's
        await trio.sleep(slow_start.PATIENCE_SECONDS * 3)
        assert configured == ["load", "configured"]
        registered.set()
    assert configured == ["load", "configured", "waiting_for_controller"]
