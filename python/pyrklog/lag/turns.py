"""Long work on the broker's own thread."""

from __future__ import annotations

from collections.abc import Iterator

import trio


async def in_turns(turns: Iterator[object]) -> None:
    """Others have the thread after each turn."""
    for _ in turns:
        await trio.lowlevel.checkpoint()
