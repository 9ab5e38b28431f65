"""What must move: replicas on brokers that may not have them, too few or too many of them, and
racks that two replicas share while another has none."""

from __future__ import annotations

import heapq

from pyrklog.balance.amounts import amount
from pyrklog.balance.model import Goal, Obstacle, too_few
from pyrklog.balance.working import OF_REPLICAS, Working, by_size


class Settling:
    """Places what must move on the least loaded brokers, the largest partitions first."""

    def __init__(self, working: Working) -> None:
        self._working = working
        count = len(working.numbers)
        replicas = sum(working.wanted)
        totals = {
            Goal.BYTES: sum(
                size * wanted for size, wanted in zip(working.size, working.wanted, strict=True)
            ),
            Goal.IN: sum(
                rate * wanted for rate, wanted in zip(working.rate_in, working.wanted, strict=True)
            ),
            Goal.REPLICAS: replicas,
        }
        self._means = {goal: totals[goal] / max(1, count) for goal in OF_REPLICAS}
        self._heap = [(self._weight(broker), broker) for broker in range(count)]
        heapq.heapify(self._heap)
        self.obstacles: list[Obstacle] = []

    def settle(self) -> None:
        for at in by_size(self._working):
            self._remove_surplus(at)
            self._add_missing(at)
        if self._working.rack:
            for at in by_size(self._working):
                self._part_racks(at)

    def _weight(self, broker: int) -> float:
        load = self._working.load
        return sum(
            load[goal][broker] / self._means[goal] for goal in OF_REPLICAS if self._means[goal] > 0
        )

    def _changed(self, broker: int) -> None:
        heapq.heappush(self._heap, (self._weight(broker), broker))

    def _remove_surplus(self, at: int) -> None:
        working = self._working
        while len(working.replicas[at]) > working.wanted[at]:
            # The leader stays.
            gone = max(
                working.replicas[at][1:],
                key=lambda one: (working.crowd(at, one), self._weight(one), one),
            )
            working.remove(at, gone)
            self._changed(gone)

    def _add_missing(self, at: int) -> None:
        working = self._working
        while len(working.replicas[at]) < working.wanted[at]:
            chosen = self._lightest(at)
            if chosen is None:
                self.obstacles.append(self._obstacle(at))
                return
            working.add(at, chosen)
            self._changed(chosen)

    def _lightest(self, at: int, crowd_below: int | None = None) -> int | None:
        """The least loaded broker that fits, with the least company in its rack that any free
        broker has, or with less than ``crowd_below``."""
        working = self._working
        most = self._least_crowd(at) if crowd_below is None else crowd_below - 1
        passed: list[tuple[float, int]] = []
        found: int | None = None
        while self._heap:
            weight, broker = heapq.heappop(self._heap)
            if weight != self._weight(broker):
                continue  # it has changed since, and has another entry
            passed.append((weight, broker))
            if working.fits(at, broker) and working.crowd(at, broker) <= most:
                found = broker
                break
        for entry in dict.fromkeys(passed):
            heapq.heappush(self._heap, entry)
        return found

    def _least_crowd(self, at: int) -> int:
        working = self._working
        if not working.rack:
            return 0
        counts = dict.fromkeys(working.rack, 0)
        free = dict.fromkeys(working.rack, False)
        taken = set(working.replicas[at])
        for broker, rack in enumerate(working.rack):
            if broker in taken:
                counts[rack] += 1
            elif working.is_open[broker]:
                free[rack] = True
        return min((counts[rack] for rack in counts if free[rack]), default=0)

    def _obstacle(self, at: int) -> Obstacle:
        working = self._working
        key = working.keys[at]
        others = [one for one in range(len(working.numbers)) if one not in working.replicas[at]]
        if others and not any(working.is_open[one] for one in others):
            return Obstacle(key, "each broker that may get its replica has one already")
        if not others:
            return Obstacle(key, too_few(working.wanted[at], len(working.numbers)))
        where = " outside the racks of its other replicas" if working.rack else ""
        why = f"no broker{where} has room for its {amount(working.size[at])}"
        most = self._least_crowd(at)
        able = [one for one in others if working.is_open[one] and working.crowd(at, one) <= most]
        best = max(able, key=lambda one: (working.rooms[one].largest or 0, -one), default=None)
        full = None if best is None else working.rooms[best].full(working.numbers[best])
        return Obstacle(key, why if full is None else f"{why}; {full.text}", is_room=True)

    def _part_racks(self, at: int) -> None:
        """Moves replicas out of crowded racks while another rack has fewer by two."""
        working = self._working
        for _ in range(len(working.replicas[at])):
            crowded = max(
                working.replicas[at], key=lambda one: (working.crowd(at, one), self._weight(one))
            )
            crowd = working.crowd(at, crowded)
            if crowd <= 0:
                return
            # Apart from itself: a rack with as many others gains nothing.
            target = self._lightest(at, crowd_below=crowd)
            if target is None:
                full = [one for one in working.full if one not in working.replicas[at]]
                working.crowding |= {one for one in full if working.crowd(at, one) < crowd}
                return
            working.move(at, crowded, target)
            self._changed(crowded)
            self._changed(target)
