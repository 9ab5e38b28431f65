"""The rate of a plan's copies and back-fills: as given, or following what the brokers bear."""

from __future__ import annotations

from typing import Any

from pyrklog.balance.model import Placement
from pyrklog.balance.throttle import AutoThrottle
from pyrklog.cli.connection import Connection
from pyrklog.cli.reassign_cluster import ReassignmentAdmin, target_of
from pyrklog.cli.reassign_plan import AUTO, amount, parse_throttle
from pyrklog.cli.throttles import Throttles

PLAIN_RATE = "50MB/s"
"""Instead of a rate that follows the brokers, where they do not tell how they are."""
HOLD_STEPS = 5
"""Steps between two looks whether the throttle is there still: the end of another plan may have
taken it away."""
CHANGE_LEAST = 0.1
"""A throttle that changes by less is left as it is: each change is written for every broker."""


class Rate:
    """The rate of a plan's copies."""

    def __init__(self, connection: Connection, admin: ReassignmentAdmin, given: str) -> None:
        self._admin = admin
        self._throttles = Throttles(connection, admin)
        self._auto: AutoThrottle | None = None
        self._sources: list[Any] = []
        self.rate_bytes = 0
        self._given = given
        self._before: Placement = {}
        self._plan: Placement = {}
        self._filled: Placement = {}
        self._filling: set[int] = set()
        """Brokers that back-fill for the plan."""
        self._steps = 0

    @property
    def follows(self) -> bool:
        """Whether somebody has to go on looking."""
        return self._auto is not None

    def begin(self, before: Placement, wanted: Placement, filled: Placement | None = None) -> str:
        """Sets the rate; returns what to say. ``filled``: those of the partitions whose new
        replicas start at the end, and are back-filled."""
        from pyrklog.cli.expansion import filling_brokers

        self._before, self._plan, self._filled = before, wanted, filled or {}
        fresh = fresh_brokers(before, self._filled)
        self._filling = filling_brokers(self._admin, fresh) if fresh else set()
        if self._given != AUTO:
            self.rate_bytes = parse_throttle(self._given)
            told = f"each broker copies at most {amount(self.rate_bytes)}/s"
        else:
            told = self._begin_auto()
        self._throttles.begin(before, wanted, self.rate_bytes)
        self._throttles.set_fill_rate(self._filling, self.rate_bytes)
        return told

    def _begin_auto(self) -> str:
        from pyrklog.cli import reassign_signs

        described = self._admin.describe()
        addresses = {one.broker_id: (one.host, one.port) for one in described.brokers}
        if not reassign_signs.all_ours(addresses):
            self.rate_bytes = parse_throttle(PLAIN_RATE)
            told = "these brokers do not tell how they bear it"
            return f"{told}: each copies at most {amount(self.rate_bytes)}/s"
        givers = {key: self._before.get(key, ()) for key in self._filled}
        leaders = self._admin.leaders()
        self._sources = reassign_signs.sources(addresses, leaders, self._plan.keys(), givers)
        calm = reassign_signs.read(self._sources)
        self._auto = AutoThrottle(calm.latency_ms)
        self.rate_bytes = self._auto.rate_bytes
        return f"each broker copies at most {amount(self.rate_bytes)}/s for a start"

    def step(self) -> str | None:
        """Looks at the sources, and changes the rate; returns what to say. Sets the throttle again
        where it is gone, while anything of the plan moves."""
        from pyrklog.cli import reassign_signs
        from pyrklog.cli.expansion import filling_brokers

        if self._steps % HOLD_STEPS == 0:
            self._hold()
        self._steps += 1
        if self._auto is None:
            return None
        behind = self._admin.behind(self._plan.keys())
        rate = self._auto.step(reassign_signs.read(self._sources, behind))
        if abs(rate - self.rate_bytes) < CHANGE_LEAST * self.rate_bytes:
            return None
        self._throttles.set_rate(rate)
        # An operator may have stopped one meanwhile.
        self._throttles.set_fill_rate(filling_brokers(self._admin, self._filling), rate)
        self.rate_bytes = rate
        return f"at most {amount(rate)}/s now: {self._auto.why}"

    def _hold(self) -> None:
        moving = self._admin.moving()
        mine = {
            key: after
            for key, after in self._plan.items()
            if key in moving and target_of(moving[key]) == after
        }
        if mine:
            self._throttles.hold(self._before, mine, self.rate_bytes)
        if moving.keys() & self._filled.keys():
            self._hold_fills()

    def _hold_fills(self) -> None:
        from pyrklog.cli.expansion import fill_rates

        rates = fill_rates(self._admin, self._filling)
        kept = (None, "0", str(self.rate_bytes))
        lost = {broker for broker, rate in rates.items() if rate not in kept}
        self._throttles.set_fill_rate(lost, self.rate_bytes)


def fresh_brokers(before: Placement, plan: Placement) -> set[int]:
    """Brokers that get a replica."""
    return {one for key, after in plan.items() for one in after if one not in before.get(key, ())}
