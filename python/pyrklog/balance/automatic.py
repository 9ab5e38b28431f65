"""When a cluster is balanced without being asked: only if a skew persists, at allowed hours."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pyrklog.balance.model import Goal

MINUTES_OF_DAY = 24 * 60


class Hours(NamedTuple):
    """From and until, in minutes of the day; over midnight if the second is not later."""

    first: int
    last: int

    def allow(self, minute: int) -> bool:
        if self.first < self.last:
            return self.first <= minute < self.last
        return minute >= self.first or minute < self.last


class Decision(NamedTuple):
    """Whether to act, for which goals, and what to say."""

    acts: bool
    goals: tuple[Goal, ...]
    why: str


@dataclass
class Watcher:
    """``over``: largest over mean that is too much. ``persists_s``: for how long it has to be."""

    over: float
    persists_s: float
    hours: Hours | None = None
    _since: dict[Goal, float] = field(default_factory=dict)

    def look(
        self,
        at_s: float,
        minute_of_day: int,
        skews: Mapping[Goal, float],
        *,
        is_moving: bool,
        absent: Collection[int] = (),
    ) -> Decision:
        """``at_s``: a clock that only goes on. ``absent``: brokers with replicas that are not
        there. What the others have meanwhile is no skew; it has to persist once all are back."""
        if absent:
            self._since.clear()
            brokers = "broker" if len(absent) == 1 else "brokers"
            numbers = ", ".join(map(str, sorted(absent)))
            why = (
                f"waits: replicas lie on {brokers} {numbers}, not there now; see `cluster replace`"
            )
            return Decision(False, (), why)
        for goal, skew in skews.items():
            if skew > self.over:
                self._since.setdefault(goal, at_s)
            else:
                self._since.pop(goal, None)
        if not self._since:
            return Decision(False, (), "balanced")
        told = ", ".join(
            f"{goal.value} {skews[goal]:.2f} for {at_s - since:.0f} s"
            for goal, since in self._since.items()
        )
        ripe = tuple(
            goal for goal in Goal if at_s - self._since.get(goal, at_s + 1) >= self.persists_s
        )
        if not ripe:
            return Decision(False, (), f"waits: {told}")
        if self.hours is not None and not self.hours.allow(minute_of_day):
            return Decision(False, ripe, f"not at this hour: {told}")
        if is_moving:
            return Decision(False, ripe, f"replicas move already: {told}")
        return Decision(True, ripe, told)

    def acted(self) -> None:
        """A plan is done: what is left of the skew has to persist anew."""
        self._since.clear()
