"""What a broker does while another one is controller."""

from __future__ import annotations

from typing import Protocol

import trio

from pyrklog.controller.store_writes import Term
from pyrklog.controller.takeover.evidence import Incumbent


class Standby(Protocol):
    async def run(self, incumbent: Incumbent | None, moved: trio.Event) -> Term | None:
        """Waits for its turn; returns this broker's term where it has deposed the incumbent.

        None once ``moved``, or where /controller must be read again. Without an incumbent it only
        waits.
        """


class Patience:
    """A controller leads until its session ends."""

    async def run(self, incumbent: Incumbent | None, moved: trio.Event) -> Term | None:
        await moved.wait()
        return None
