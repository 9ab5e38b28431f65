"""What a fault is, and what every alert needs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple

from tests.service.watched import Watched

Make = Callable[[Watched], AbstractContextManager[None]]


class Fault(NamedTuple):
    """``make`` makes it; the fault stands within the block and is undone after it. ``fires``: the
    alerts that it must raise. ``may``: those that it entails for a while, by how long things take
    and who leads what."""

    name: str
    what: str
    make: Make
    fires: frozenset[str]
    may: frozenset[str] = frozenset()


def alerts(*names: str) -> frozenset[str]:
    """By the names without `Pyrklog`."""
    return frozenset(f"Pyrklog{name}" for name in names)


LEFT = alerts("PartitionsUnderReplicated", "LeadersUneven")
"""What a broker leaves behind whose session has ended, for as long as it is away."""
RESTARTED = LEFT | alerts("BrokerDown")
"""Of a broker that is restarted: a start may take longer than :data:`.durations.LEAST_S`."""
