"""Asks one broker after the other, until one knows what was written.

A broker that is cut off from its peers, and led a partition before, shows clients that ask it the
log as it was. A client that has written something itself therefore asks until it sees that.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

WAIT_S = 0.2


def servers_in_turn(servers: str, within_s: float, wait_s: float = WAIT_S) -> Iterator[str]:
    """The bootstrap servers, each time with another one first: a new client asks that one. For so
    long, and once at least."""
    turn = servers.split(",")
    until = time.monotonic() + within_s
    while True:
        yield ",".join(turn)
        if time.monotonic() >= until:
            return
        time.sleep(wait_s)
        turn = turn[1:] + turn[:1]
