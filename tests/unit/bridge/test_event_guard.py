"""Events that fail or take long do not hold up others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio

from pyrklog.config.load import load_config
from pyrklog.plane import core_plane
from pyrklog.plane.core_plane import Plane
from pyrklog.plane.plane_settings import plane_settings
from tests.unit.bridge.test_plane_end import Listener


async def test_a_listener_that_raises_hears_the_next_event(
    tmp_path: Path, monkeypatch: Any
) -> None:
    config = load_config(flags={"pyrklog.data.dir": str(tmp_path)})
    plane = Plane(plane_settings(config, 1, "cluster"))
    heard = []
    raised = trio.Event()
    real = plane._finish

    def finish(event: Any) -> None:
        heard.append(type(event).__name__)
        if len(heard) == 1:
            raised.set()
            raise RuntimeError("planted")
        real(event)

    monkeypatch.setattr(plane, "_finish", finish)
    listener: Any = Listener()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(plane.run, listener)
        nursery.start_soon(plane.describe_log_dirs)
        with trio.fail_after(60):
            await raised.wait()
            assert await plane.shutdown(1000)
        nursery.cancel_scope.cancel()
    assert heard[0] == "LogDirsDescribed"
    assert heard[-1] == "ShutdownDone"


async def test_other_tasks_run_while_events_take_long(tmp_path: Path, monkeypatch: Any) -> None:
    config = load_config(flags={"pyrklog.data.dir": str(tmp_path)})
    plane = Plane(plane_settings(config, 1, "cluster"))
    monkeypatch.setattr(core_plane, "TURN_SECONDS", 0.0)
    order: list[str] = []
    all_handed_out = trio.Event()

    def take(event: Any) -> None:
        order.append("event")
        if order.count("event") == 10:
            all_handed_out.set()

    async def beside() -> None:
        while not all_handed_out.is_set():
            order.append("beside")
            await trio.lowlevel.checkpoint()

    monkeypatch.setattr(plane, "_takers", lambda listener: {object: take})
    real = plane._plane

    class Ten:
        def event_fd(self) -> int:
            return real.event_fd()

        def drain_events(self, most: int) -> list[Any]:
            return [object()] * 10

    listener: Any = None
    monkeypatch.setattr(plane, "_plane", Ten())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(beside)
        nursery.start_soon(plane.run, listener)
        real.describe_log_dirs()
        with trio.fail_after(60):
            await all_handed_out.wait()
        nursery.cancel_scope.cancel()
    # Tasks run in any order within a turn of the loop.
    assert "event event event" not in " ".join(order)
    monkeypatch.undo()
    plane.abandon()
