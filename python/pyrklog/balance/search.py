"""Evens out what replicas weigh: bytes, what producers write, and how many there are.

One goal after the other, the most important first. The broker that is furthest outside the bounds
of a goal gives to, or takes from, the brokers at the other end. Of its replicas those are looked at
whose size is what the broker lacks for each replica that it lacks, so that bytes and numbers come
right together. A move counts only if it brings the goal nearer and no earlier goal further away.
Where no single replica helps, two of about the same size are exchanged.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from pyrklog.balance.model import Goal
from pyrklog.balance.working import OF_REPLICAS, Working

LOOKED_AT = 24
"""Replicas of a broker that are compared for one move."""
PARTNERS = 8
"""Brokers at the other end that are tried."""
EXCHANGED = 8
"""Replicas of the other broker that each one is compared with for an exchange."""
ROUNDS = 3
"""A later goal may undo an earlier one a little; then all are looked at again."""
EPSILON = 1e-9
NOTHING = (0.0, 0.0)
WORTH_DIGITS = 6
SMALLEST = 1e-6
"""What a move costs besides its bytes, in means of a broker's bytes: the smallest do not win by any
ratio."""


class Scale(NamedTuple):
    """What counts for one goal between two brokers. ``values`` None: each replica counts 1."""

    is_goal: bool
    is_earlier: bool
    values: list[float] | None
    mean: float
    lower: float
    upper: float
    source: float
    target: float

    def outside(self, value: float) -> float:
        """How far the two are outside the bounds, in loads, once ``value`` has moved."""
        source, target = self.source - value, self.target + value
        found = 0.0
        if source > self.upper:
            found += source - self.upper
        elif source < self.lower:
            found += self.lower - source
        if target > self.upper:
            found += target - self.upper
        elif target < self.lower:
            found += self.lower - target
        return found

    def is_worse(self, value: float) -> bool:
        """Whether the two are further outside then, together or one of them: what one is nearer,
        the other may be further."""
        slack = EPSILON * self.mean
        source, target = self.source - value, self.target + value
        return (
            self.outside(value) > self.outside(0.0) + slack
            or max(source, target) > max(self.source, self.target, self.upper) + slack
            or min(source, target) < min(self.source, self.target, self.lower) - slack
        )


class Search:
    def __init__(self, working: Working) -> None:
        self._working = working
        self._goals = [goal for goal in working.goals if goal in OF_REPLICAS]
        self._values: dict[Goal, list[float] | None] = {
            Goal.BYTES: [float(size) for size in working.size],
            Goal.IN: working.rate_in,
            Goal.REPLICAS: None,
        }
        self._own: list[list[tuple[int, int]]] = [[] for _ in working.numbers]
        """Replicas of each broker by size, with those that have left; those that have come move no
        further."""
        for at, replicas in enumerate(working.replicas):
            for broker in replicas:
                self._own[broker].append((working.size[at], at))
        for found in self._own:
            found.sort()
        self._came: dict[tuple[int, int], int] = {}
        """Replicas that have come to a broker, and where from."""
        self._unit_bytes = working.mean[Goal.BYTES] or 1.0

    def run(self) -> None:
        for _ in range(ROUNDS):
            if not sum(self._even(goal) for goal in self._goals):
                break
        self._undo_needless()

    def _even(self, goal: Goal) -> int:
        """Moves replicas until no broker is outside the bounds, or nothing helps; how many."""
        working, moves = self._working, 0
        given_up: set[int] = set()
        while True:
            broker = self._worst(goal, given_up)
            if broker is None:
                return moves
            is_over = working.load[goal][broker] > working.mean[goal]
            if self._improve(goal, broker, is_over):
                moves += 1
            else:
                given_up.add(broker)

    def _worst(self, goal: Goal, given_up: set[int]) -> int | None:
        working = self._working
        load, lower, upper = working.load[goal], working.lower[goal], working.upper[goal]
        best, found = EPSILON * max(1.0, working.mean[goal]), None
        for broker, value in enumerate(load):
            outside = value - upper if value > upper else lower - value
            if outside > best and broker not in given_up:
                best, found = outside, broker
        return found

    def _improve(self, goal: Goal, broker: int, is_over: bool) -> bool:
        load = self._working.load[goal]
        others = [one for one in range(len(load)) if one != broker]
        others.sort(key=lambda one: (load[one] if is_over else -load[one], one))
        takes = self._working.takes
        if not is_over and not takes[broker]:
            return False
        others = [one for one in others if takes[one] or not is_over][:PARTNERS]
        pairs = [(broker, other) if is_over else (other, broker) for other in others]
        pairs = [(source, target) for source, target in pairs if load[source] > load[target]]
        for source, target in pairs:
            found = self._best(goal, source, target, broker)
            if found is not None:
                self._move(found, source, target)
                return True
        for source, target in pairs if goal is not Goal.REPLICAS else ():
            if not takes[source]:
                continue
            exchanged = self._best_exchange(goal, source, target)
            if exchanged is not None:
                self._move(exchanged[0], source, target)
                self._move(exchanged[1], target, source)
                return True
        return False

    def _move(self, at: int, source: int, target: int) -> None:
        self._working.move(at, source, target)
        self._came[at, target] = source

    def _undo_needless(self) -> None:
        """Takes moves back, the largest first, without which no goal is further away: later moves
        may have made them so."""
        working = self._working
        moves = sorted(self._came.items(), key=lambda one: (-working.size[one[0][0]], one))
        for (at, target), source in moves:
            scales = self._scales(Goal.BYTES, target, source)
            is_needless = all(_is_no_worse(one, at) for one in scales)
            if is_needless and self._may_return(at, target, source):
                working.move(at, target, source)
                del self._came[at, target]

    def _may_return(self, at: int, target: int, source: int) -> bool:
        working = self._working
        return (
            source not in working.replicas[at]
            and target in working.replicas[at]
            and working.fits(at, source)
            and working.keeps_racks(at, target, source)
        )

    # --- one replica -------------------------------------------------------------------------

    def _best(self, goal: Goal, source: int, target: int, needy: int) -> int | None:
        working = self._working
        scales = self._scales(goal, source, target)
        best, found = NOTHING, None
        for at in self._candidates(goal, source, target, needy):
            values = [1.0 if one.values is None else one.values[at] for one in scales]
            gain = _worth(scales, values, working.size[at] / self._unit_bytes + SMALLEST)
            if gain > best and working.fits(at, target) and working.keeps_racks(at, source, target):
                best, found = gain, at
        return found

    def _scales(self, goal: Goal, source: int, target: int) -> list[Scale]:
        working, is_earlier = self._working, True
        found = []
        for one in self._goals:
            is_earlier = is_earlier and one is not goal
            if working.mean[one] > 0:
                load = working.load[one]
                bounds = working.mean[one], working.lower[one], working.upper[one]
                kind = one is goal, is_earlier, self._values[one]
                found.append(Scale(*kind, *bounds, load[source], load[target]))
        return found

    def _candidates(self, goal: Goal, source: int, target: int, needy: int) -> Iterator[int]:
        """Replicas whose size is about what ``needy`` lacks for each replica that it lacks."""
        size = self._size_wanted(goal, source, target, needy)
        return self._near(source, size, LOOKED_AT)

    def _near(self, broker: int, size: float, most: int) -> Iterator[int]:
        own, replicas, came = self._own[broker], self._working.replicas, self._came
        right = bisect_left(own, (size, -1))
        left, count = right - 1, len(own)
        looked_at = 0
        while looked_at < most and (left >= 0 or right < count):
            for place in (right, left):
                if 0 <= place < count:
                    at = own[place][1]
                    if broker in replicas[at] and (at, broker) not in came:
                        looked_at += 1
                        yield at
            left, right = left - 1, right + 1

    def _size_wanted(self, goal: Goal, source: int, target: int, needy: int) -> float:
        working = self._working
        size, count = working.load[Goal.BYTES], working.load[Goal.REPLICAS]
        lacks = abs(working.mean[Goal.BYTES] - size[needy])
        others = abs(working.mean[Goal.REPLICAS] - count[needy])
        if goal is not Goal.BYTES:
            # Bytes are even by now: a replica for another goal copies as little as it can.
            is_even = working.violation(Goal.BYTES, needy) <= 0
            return 0.0 if is_even else lacks / max(1.0, others)
        gap = min(
            lacks, max(working.upper[goal] - size[target], 0.0), (size[source] - size[target]) / 2
        )
        is_same_side = (size[needy] < working.mean[Goal.BYTES]) == (
            count[needy] < working.mean[Goal.REPLICAS]
        )
        return min(gap, lacks / others) if is_same_side and others >= 1 else gap

    # --- two replicas ------------------------------------------------------------------------

    def _best_exchange(self, goal: Goal, source: int, target: int) -> tuple[int, int] | None:
        """Two replicas of about the same size that change places, the smallest that help."""
        working = self._working
        scales = self._scales(goal, source, target)
        best, found = NOTHING, None
        for at in self._heaviest(goal, source):
            for back in self._near(target, working.size[at], EXCHANGED):
                if not self._may_exchange(at, source, back, target):
                    continue
                values = [
                    0.0 if one.values is None else one.values[at] - one.values[back]
                    for one in scales
                ]
                copied = (working.size[at] + working.size[back]) / self._unit_bytes
                gain = _worth(scales, values, copied + SMALLEST)
                if gain > best:
                    best, found = gain, (at, back)
        return found

    def _heaviest(self, goal: Goal, broker: int) -> list[int]:
        """Replicas with the most for the goal; for rates: for each byte that is copied."""
        working, values = self._working, self._values[goal]
        assert values is not None
        own = [
            at
            for _, at in self._own[broker]
            if broker in working.replicas[at] and (at, broker) not in self._came
        ]
        floor = working.mean[Goal.BYTES] / 1000 + 1
        if goal is not Goal.BYTES:
            own.sort(key=lambda at: (-values[at] / (working.size[at] + floor), at))
            return own[:LOOKED_AT]
        return own[::-1][:LOOKED_AT]

    def _may_exchange(self, at: int, source: int, back: int, target: int) -> bool:
        working = self._working
        return (
            at != back
            and working.fits(at, target)
            and working.fits(back, source)
            and working.keeps_racks(at, source, target)
            and working.keeps_racks(back, target, source)
        )


def _is_no_worse(scale: Scale, at: int) -> bool:
    value = 1.0 if scale.values is None else scale.values[at]
    return not scale.is_worse(value)


def _worth(scales: list[Scale], values: list[float], copied: float) -> tuple[float, float]:
    """How good a move of these values from the source to the target is, the better the greater:
    what the goal gains for each byte copied, then how much nearer all goals come to the means.
    :data:`NOTHING` if the goal gains nothing, or an earlier one loses."""
    gain, worth = 0.0, 0.0
    for scale, value in zip(scales, values, strict=True):
        if scale.is_goal:
            gained = scale.outside(0.0) - scale.outside(value)
            if gained <= EPSILON * scale.mean:
                return NOTHING
            # Equal up to rounding is equal: what fits in whole is as good, large or small.
            worth = round(gained / scale.mean / copied, WORTH_DIGITS)
        elif scale.is_earlier and scale.is_worse(value):
            return NOTHING
        gain += value * (scale.source - scale.target - value) / (scale.mean * scale.mean)
    return worth, gain
