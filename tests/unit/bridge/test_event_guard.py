"""An event that nobody can take does not end the handing out of the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio

from pyrklog.config import load_config
from pyrklog.core_plane import CorePlane
from pyrklog.plane_settings import plane_settings


async def test_a_listener_that_raises_hears_the_next_event(
    tmp_path: Path, monkeypatch: Any
) -> None:
    config = load_config(flags={"pyrklog.data.dir": str(tmp_path)})
    plane = CorePlane(plane_settings(config, 1, "cluster"))
    heard = []
    raised = trio.Event()
    real = plane._dispatch

    def dispatch(event: Any, listener: Any) -> None:
        heard.append(type(event).__name__)
        if len(heard) == 1:
            raised.set()
            raise RuntimeError("planted")
        real(event, listener)

    monkeypatch.setattr(plane, "_dispatch", dispatch)
    listener: Any = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(plane.run, listener)
        nursery.start_soon(plane.describe_log_dirs)
        with trio.fail_after(60):
            await raised.wait()
            assert await plane.shutdown(1000)
        nursery.cancel_scope.cancel()
    assert heard[0] == "LogDirsDescribed"
    assert heard[-1] == "ShutdownDone"
