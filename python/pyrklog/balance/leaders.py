"""Evens out how many partitions brokers lead, and what leaders send. Nothing is copied for it: only
the order of replicas changes."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from pyrklog.balance.model import Goal
from pyrklog.balance.working import Working

EPSILON = 1e-9


class Room(NamedTuple):
    """What two brokers send, and the bounds."""

    source: float
    target: float
    lower: float
    upper: float

    def gain(self, value: float) -> float:
        """How much nearer they come when ``value`` moves from the source, which sends too much; 0
        if they stay as far outside the bounds."""
        source, target = self.source - value, self.target + value
        if value <= 0 or (target > self.upper and target >= self.source):
            return 0.0
        less = self.source - max(source, self.upper)
        more = max(0.0, self.lower - source) + max(0.0, target - max(self.upper, self.target))
        if less - more <= EPSILON * self.upper:
            return 0.0
        return value * (self.source - self.target - value)


class Leaders:
    def __init__(self, working: Working) -> None:
        self._working = working
        self._rates = [working.leads(at) for at in range(len(working.keys))]
        self._led: list[dict[int, None]] = [{} for _ in working.numbers]
        """Partitions by preferred leader, in the order of their coming."""
        self._followed: list[dict[int, None]] = [{} for _ in working.numbers]
        """Partitions by each other replica."""
        for at, replicas in enumerate(working.replicas):
            for place, broker in enumerate(replicas):
                (self._followed if place else self._led)[broker][at] = None

    def run(self) -> None:
        if Goal.LEADERS in self._working.goals:
            self._even_numbers()
        if Goal.OUT in self._working.goals:
            self._even_rates()

    def _lead(self, at: int, broker: int) -> None:
        old = self._working.replicas[at][0]
        del self._led[old][at], self._followed[broker][at]
        self._working.lead(at, broker)
        self._led[broker][at] = self._followed[old][at] = None

    # --- numbers -----------------------------------------------------------------------------

    def _even_numbers(self) -> None:
        """Hands partitions along the shortest chains of brokers from one that leads too many to one
        that leads fewer, until no chain helps. The result is as even as replicas allow."""
        working = self._working
        count = working.load[Goal.LEADERS]
        lower, upper = working.lower[Goal.LEADERS], working.upper[Goal.LEADERS]
        stuck: set[tuple[int, bool]] = set()
        while True:
            over = [(count[b] - upper, b, True) for b in range(len(count)) if count[b] > upper]
            under = [(lower - count[b], b, False) for b in range(len(count)) if count[b] < lower]
            left = [one for one in (*over, *under) if one[1:] not in stuck]
            if not left:
                return
            _, broker, gives = min(left, key=lambda one: (-one[0], one[1]))
            chain = self._chain(broker) if gives else self._chain_to(broker)
            if chain is None:
                stuck.add((broker, gives))
                continue
            for at, to in chain:
                self._lead(at, to)

    def _chain(self, start: int) -> list[tuple[int, int]] | None:
        """Partitions, and who is to lead each, from ``start`` to the nearest broker that leads less
        by two at least."""
        working = self._working
        count = working.load[Goal.LEADERS]
        came: dict[int, tuple[int, int]] = {start: (-1, -1)}
        queue = deque([start])
        while queue:
            broker = queue.popleft()
            for at in self._led[broker]:
                for other in working.replicas[at][1:]:
                    if other in came:
                        continue
                    came[other] = (broker, at)
                    if count[other] <= count[start] - 2:
                        return _path(came, other)
                    queue.append(other)
        return None

    def _chain_to(self, end: int) -> list[tuple[int, int]] | None:
        """The same from the nearest broker that leads more by two at least, to ``end``."""
        working = self._working
        count = working.load[Goal.LEADERS]
        goes: dict[int, tuple[int, int]] = {end: (-1, -1)}
        queue = deque([end])
        while queue:
            broker = queue.popleft()
            for at in self._followed[broker]:
                leader = working.replicas[at][0]
                if leader in goes:
                    continue
                goes[leader] = (broker, at)
                if count[leader] >= count[end] + 2:
                    return _path_back(goes, leader)
                queue.append(leader)
        return None

    # --- rates -------------------------------------------------------------------------------

    def _even_rates(self) -> None:
        """Hands over, or exchanges, partitions between two brokers while one sends too much."""
        working = self._working
        sends = working.load[Goal.OUT]
        given_up: set[int] = set()
        while True:
            upper = working.upper[Goal.OUT]
            over = [b for b in range(len(sends)) if sends[b] > upper and b not in given_up]
            if not over:
                return
            broker = max(over, key=lambda one: (sends[one], -one))
            if self._relieve(broker):
                given_up.clear()
            else:
                given_up.add(broker)

    def _relieve(self, broker: int) -> bool:
        """The best hand-over to another replica, else the best exchange of two partitions."""
        replicas = self._working.replicas
        others = {other for at in self._led[broker] for other in replicas[at][1:]}
        rooms = {other: self._room(broker, other) for other in others}
        may = {other for other in others if self._may_hand_over(broker, other)}
        best, found = 0.0, (-1, -1)
        for at in self._led[broker]:
            rate = self._rates[at]
            for other in replicas[at][1:]:
                if other in may and (gain := rooms[other].gain(rate)) > best:
                    best, found = gain, (at, other)
        if found[0] >= 0:
            self._lead(*found)
            return True
        return self._exchange(broker, rooms)

    def _exchange(self, broker: int, rooms: dict[int, Room]) -> bool:
        """For each other broker the partition is looked at that comes back with the least."""
        replicas = self._working.replicas
        returns: dict[int, tuple[float, int]] = {}
        for at in self._followed[broker]:
            other, rate = replicas[at][0], self._rates[at]
            if other in rooms and (other not in returns or (rate, at) < returns[other]):
                returns[other] = (rate, at)
        best, found = 0.0, (-1, -1, -1)
        for at in self._led[broker]:
            rate = self._rates[at]
            for other in replicas[at][1:]:
                if other in returns:
                    less, back = returns[other]
                    if (gain := rooms[other].gain(rate - less)) > best:
                        best, found = gain, (at, other, back)
        at, other, back = found
        if at < 0:
            return False
        self._lead(at, other)
        self._lead(back, broker)
        return True

    def _room(self, source: int, target: int) -> Room:
        working = self._working
        sends = working.load[Goal.OUT]
        lower, upper = working.lower[Goal.OUT], working.upper[Goal.OUT]
        return Room(sends[source], sends[target], lower, upper)

    def _may_hand_over(self, source: int, target: int) -> bool:
        """Whether the numbers of led partitions stay as even as they are."""
        working = self._working
        if Goal.LEADERS not in working.goals:
            return True
        now = working.violation(Goal.LEADERS, source) + working.violation(Goal.LEADERS, target)
        then = working.violation(Goal.LEADERS, source, -1) + working.violation(
            Goal.LEADERS, target, 1
        )
        return then <= now


def _path(came: dict[int, tuple[int, int]], end: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    broker = end
    while True:
        earlier, at = came[broker]
        if at < 0:
            break
        found.append((at, broker))
        broker = earlier
    # Each partition is led by its earlier broker until it is handed on, so any order will do.
    return found[::-1]


def _path_back(goes: dict[int, tuple[int, int]], start: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    broker = start
    while True:
        later, at = goes[broker]
        if at < 0:
            return found
        found.append((at, later))
        broker = later
