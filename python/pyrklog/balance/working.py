"""A placement in the making: who has what, and how far each broker is from the mean.

Brokers and partitions are numbers from 0, in the order of their names, so that the same cluster
gives the same plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pyrklog.balance.model import Cluster, Goal, PartitionKey, Replicas, Wish

SLACK = 1e-9
OF_REPLICAS = (Goal.BYTES, Goal.IN, Goal.REPLICAS)
"""Goals that each replica counts for; the others are the leader's."""


class Working:
    """Partitions that may move, on the brokers that may have them.

    ``load[goal][broker]`` includes what other partitions have there.
    """

    def __init__(self, cluster: Cluster, wish: Wish) -> None:
        self.goals = tuple(goal for goal in Goal if goal in wish.goals)
        self.numbers = sorted({*wish.allowed} & {*cluster.brokers})
        self.index = {number: index for index, number in enumerate(self.numbers)}
        self.keys: list[PartitionKey] = sorted(
            key
            for key, one in cluster.partitions.items()
            if one.is_led and (wish.chosen is None or key in wish.chosen)
        )
        chosen = [cluster.partitions[key] for key in self.keys]
        self.before: list[Replicas] = [one.replicas for one in chosen]
        self.size = [one.size_bytes for one in chosen]
        self.rate_in = [one.rate_in for one in chosen]
        self.rate_out = [one.rate_out for one in chosen]
        self.wanted = [wish.replication_factor or len(one.replicas) for one in chosen]
        self.replicas: list[list[int]] = [
            [self.index[number] for number in one.replicas if number in self.index]
            for one in chosen
        ]
        racks = cluster.racks if wish.rack_aware else {}
        names = {rack: at for at, rack in enumerate(sorted(set(racks.values())))}
        self.rack = [names[racks[number]] for number in self.numbers] if racks else []
        targets = set(self.numbers if wish.targets is None else wish.targets)
        takers = set(self.numbers if wish.takers is None else wish.takers)
        takers = {number for number in takers if number not in cluster.silent}
        self.is_open = [number in takers for number in self.numbers]
        """Whether a broker gets replicas at all."""
        self.takes = [number in targets & takers for number in self.numbers]
        """Whether it gets replicas for balance."""
        self.full: set[int] = set()
        """Those that lacked room for a replica which would have come otherwise."""
        self.crowding: set[int] = set()
        """Those of them for lack of whose room two replicas share a rack."""
        self.rooms = [cluster.rooms(number) for number in self.numbers]
        self.load = {goal: [0.0] * len(self.numbers) for goal in Goal}
        self._weigh(cluster)
        self.mean: dict[Goal, float] = {}
        self.lower: dict[Goal, float] = {}
        self.upper: dict[Goal, float] = {}
        self._tolerance = wish.tolerance

    def _weigh(self, cluster: Cluster) -> None:
        from pyrklog.balance.model import shares

        mine = set(self.keys)
        for key, one in cluster.partitions.items():
            if key in mine:
                continue
            for goal in Goal:
                for number, value in shares(one, one.replicas, goal):
                    if number in self.index:
                        self.load[goal][self.index[number]] += value
        for at, replicas in enumerate(self.replicas):
            for broker in replicas:
                self._count(at, broker, 1)
            if replicas:
                self._count_leader(at, replicas[0], 1)

    # --- changes -----------------------------------------------------------------------------

    def _count(self, at: int, broker: int, sign: int) -> None:
        self.load[Goal.BYTES][broker] += sign * self.size[at]
        self.load[Goal.IN][broker] += sign * self.rate_in[at]
        self.load[Goal.REPLICAS][broker] += sign

    def _count_leader(self, at: int, broker: int, sign: int) -> None:
        self.load[Goal.LEADERS][broker] += sign
        self.load[Goal.OUT][broker] += sign * self.leads(at)

    def leads(self, at: int) -> float:
        """What a leader sends: to its followers, and to consumers."""
        return self.rate_in[at] * (self.wanted[at] - 1) + self.rate_out[at]

    def add(self, at: int, broker: int) -> None:
        """Puts a replica at the end."""
        replicas = self.replicas[at]
        replicas.append(broker)
        self._count(at, broker, 1)
        if len(replicas) == 1:
            self._count_leader(at, broker, 1)
        self._take_room(at, broker)

    def remove(self, at: int, broker: int) -> None:
        replicas = self.replicas[at]
        was_leader = replicas[0] == broker
        replicas.remove(broker)
        self._count(at, broker, -1)
        if was_leader:
            self._count_leader(at, broker, -1)
            if replicas:
                self._count_leader(at, replicas[0], 1)

    def move(self, at: int, source: int, target: int) -> None:
        """A replica moves, and keeps its place in the order."""
        replicas = self.replicas[at]
        place = replicas.index(source)
        replicas[place] = target
        self._count(at, source, -1)
        self._count(at, target, 1)
        if place == 0:
            self._count_leader(at, source, -1)
            self._count_leader(at, target, 1)
        self._take_room(at, target)

    def lead(self, at: int, broker: int) -> None:
        """Another replica becomes the preferred leader; the two change places, as others keep
        theirs."""
        replicas = self.replicas[at]
        old, place = replicas[0], replicas.index(broker)
        replicas[0], replicas[place] = broker, old
        self._count_leader(at, old, -1)
        self._count_leader(at, broker, 1)

    def _take_room(self, at: int, broker: int) -> None:
        # What leaves a disk is there until the copy elsewhere is whole: it makes no room.
        if self.numbers[broker] not in self.before[at]:
            self.rooms[broker].take(self.size[at])

    # --- constraints -------------------------------------------------------------------------

    def fits(self, at: int, broker: int) -> bool:
        """Whether the broker may get a replica, whatever its rack."""
        if broker in self.replicas[at]:
            return False
        is_back = self.numbers[broker] in self.before[at]
        if not (is_back or self.is_open[broker]):
            return False
        if is_back or self.rooms[broker].fit(self.size[at]):
            return True
        self.full.add(broker)
        return False

    def crowd(self, at: int, broker: int, without: int = -1) -> int:
        """How many replicas, apart from that on ``without``, share the broker's rack."""
        if not self.rack:
            return 0
        rack = self.rack[broker]
        return sum(
            self.rack[one] == rack for one in self.replicas[at] if one not in (broker, without)
        )

    def keeps_racks(self, at: int, source: int, target: int) -> bool:
        """Whether a replica that moves has no more company in its rack than before."""
        if not self.rack:
            return True
        return self.crowd(at, target, source) <= self.crowd(at, source)

    # --- balance -----------------------------------------------------------------------------

    def set_bounds(self) -> None:
        """By the loads of all brokers together; call it once all replicas are placed."""
        for goal in Goal:
            mean = sum(self.load[goal]) / max(1, len(self.numbers))
            self.mean[goal] = mean
            self.lower[goal] = mean * (1 - self._tolerance)
            self.upper[goal] = mean * (1 + self._tolerance)
            if goal in (Goal.LEADERS, Goal.REPLICAS):
                # Whole numbers: the two next to the mean are always good.
                self.lower[goal] = min(float(mean // 1), self.lower[goal])
                self.upper[goal] = max(float(-(-mean // 1)), self.upper[goal])

    def violation(self, goal: Goal, broker: int, more: float = 0.0) -> float:
        """How far the broker is outside the bounds, in means, with ``more`` on it."""
        load, mean = self.load[goal][broker] + more, self.mean[goal]
        if mean <= 0:
            return 0.0
        if load > self.upper[goal]:
            return (load - self.upper[goal]) / mean
        return max(0.0, self.lower[goal] - load) / mean

    def held_back(self) -> Iterator[int]:
        """Brokers that lack room for what would part racks, or bring a goal nearer to its
        bounds."""
        goals = [goal for goal in self.goals if goal in OF_REPLICAS]
        for broker in sorted(self.full):
            if broker in self.crowding or any(self._would_take(goal, broker) for goal in goals):
                yield broker

    def _would_take(self, goal: Goal, broker: int) -> bool:
        """Whether it has less than others, and it or one of these is outside the bounds."""
        load, mean = self.load[goal], self.mean[goal]
        least = SLACK * mean
        is_outside = load[broker] < self.lower[goal] - least or max(load) > self.upper[goal] + least
        return load[broker] < mean - least and is_outside

    # --- result ------------------------------------------------------------------------------

    def result(self, at: int) -> Replicas:
        return tuple(self.numbers[broker] for broker in self.replicas[at])

    def placed(self) -> Mapping[PartitionKey, Replicas]:
        return {key: self.result(at) for at, key in enumerate(self.keys)}


def by_size(working: Working) -> Sequence[int]:
    """Partitions, the largest first."""
    return sorted(range(len(working.keys)), key=lambda at: (-working.size[at], at))
