"""What a plan is made of: brokers, partitions, goals, and how a finished plan is judged."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from pyrklog.balance.amounts import amount, percent

PartitionKey = tuple[str, int]
"""Topic and partition."""
Replicas = tuple[int, ...]
Placement = Mapping[PartitionKey, Replicas]
"""Ordered replicas; the first is the preferred leader."""

TOLERANCE = 0.05
"""A broker within so much of the mean is balanced: nothing moves for it."""
FILL_MAX = 0.9
"""Share of a volume that a plan fills at most, unless it is told otherwise."""


class Goal(StrEnum):
    """What brokers should have alike, the most important first."""

    BYTES = "bytes"
    IN = "in"
    OUT = "out"
    LEADERS = "leaders"
    REPLICAS = "replicas"


@dataclass(frozen=True)
class LogDir:
    """``total_bytes`` and ``free_bytes`` are those of its volume; None where a broker does not
    tell."""

    path: str
    used_bytes: int = 0
    total_bytes: int | None = None
    free_bytes: int | None = None

    def room(self, fill_max: float) -> int:
        """What may be added before its volume is fuller than ``fill_max``; less than 0 where it is
        fuller already."""
        total = self.total_bytes or 0
        return (self.free_bytes or 0) - total + round(fill_max * total)

    @property
    def fill(self) -> float:
        """The share of its volume that is taken; 0 where that is unknown."""
        total = self.total_bytes or 0
        return 1 - (self.free_bytes or 0) / total if total else 0.0


class Full(NamedTuple):
    """A broker that lacks room for a replica. ``path``: a directory of its emptiest volume, of
    which the share ``fill`` is taken. ``room_bytes``: what may come, besides running moves and the
    plan, until it is ``fill_max``."""

    broker: int
    path: str
    fill: float
    room_bytes: int
    fill_max: float

    @property
    def text(self) -> str:
        room = f"room for {amount(self.room_bytes)} more" if self.room_bytes > 0 else "no room"
        told = f"{self.path} is {percent(self.fill)} full"
        limit = f"the limit is {percent(self.fill_max)} (--max-fill)"
        return f"broker {self.broker} has {room}: {told}, {limit}"


SAME_VOLUME_BYTES = 64 << 20
"""Directories of a volume tell its free bytes one after the other, while it is written to."""


class Rooms:
    """What the volumes of one broker can take still; each replica lies on one of them."""

    def __init__(self, volumes: Sequence[LogDir], fill_max: float) -> None:
        """``volumes``: a directory of each. None: unknown, so unbounded."""
        self._volumes, self._fill_max = volumes, fill_max
        self._left = [max(0, one.room(fill_max)) for one in volumes] or None

    def fit(self, size: int) -> bool:
        return self._left is None or size <= max(self._left)

    def take(self, size: int) -> None:
        """On the emptiest volume."""
        if self._left:
            self._left[self._left.index(max(self._left))] -= size

    @property
    def largest(self) -> int | None:
        return None if self._left is None else max(self._left)

    def full(self, broker: int) -> Full | None:
        """What to tell of the broker that has them; None if its room is unknown."""
        if self._left is None:
            return None
        at = self._left.index(max(self._left))
        one = self._volumes[at]
        return Full(broker, one.path, one.fill, self._left[at], self._fill_max)


@dataclass(frozen=True)
class Broker:
    """A live broker. ``arriving``: bytes that each replica lacks which is on its way there.
    ``answers``: False for one that does not tell what it has, and gets nothing."""

    number: int
    rack: str | None = None
    log_dirs: Sequence[LogDir] = ()
    arriving: Sequence[int] = ()
    answers: bool = True

    def volumes(self) -> list[list[LogDir]]:
        """Directories that share a volume: of one size, and about as many free bytes."""
        found: list[list[LogDir]] = []
        for one in sorted(
            self.log_dirs, key=lambda one: (one.total_bytes or 0, one.free_bytes or 0)
        ):
            if one.total_bytes is None or one.free_bytes is None:
                continue
            last = found[-1][-1] if found else None
            if (
                last is not None
                and last.total_bytes == one.total_bytes
                and one.free_bytes - (last.free_bytes or 0) <= SAME_VOLUME_BYTES
            ):
                found[-1].append(one)
            else:
                found.append([one])
        return found

    def rooms(self, fill_max: float = FILL_MAX) -> Rooms:
        """What may be added before a volume is fuller than ``fill_max``."""
        found = Rooms([one for one, *_ in self.volumes()], fill_max)
        for size in sorted(self.arriving, reverse=True):
            found.take(size)
        return found


@dataclass(frozen=True)
class Partition:
    """``size_bytes`` is that of the largest replica; rates are bytes a second: what producers
    write, and what consumers read from the leader. ``leader`` -1: none, so nothing can move."""

    replicas: Replicas
    size_bytes: int = 0
    rate_in: float = 0.0
    rate_out: float = 0.0
    leader: int | None = None
    isr: Sequence[int] | None = None
    min_insync: int = 1

    @property
    def leader_now(self) -> int:
        """Who leads it; the preferred leader where that is unknown."""
        return self.replicas[0] if self.leader is None and self.replicas else self.leader or 0

    @property
    def is_led(self) -> bool:
        return self.leader is None or self.leader >= 0

    @property
    def least_replicas(self) -> int:
        """A plan leaves it as many. One that has fewer than ``min.insync.replicas`` serves acks=all
        with those that it has."""
        return min(self.min_insync, len(self.replicas))

    @property
    def in_sync(self) -> Sequence[int]:
        return self.replicas if self.isr is None else self.isr


@dataclass(frozen=True)
class Cluster:
    """Live brokers by number, and all partitions. ``fill_max``: share of a volume that plans fill
    at most."""

    brokers: Mapping[int, Broker]
    partitions: Mapping[PartitionKey, Partition]
    fill_max: float = FILL_MAX

    def rooms(self, number: int) -> Rooms:
        return self.brokers[number].rooms(self.fill_max)

    @property
    def placement(self) -> dict[PartitionKey, Replicas]:
        return {key: one.replicas for key, one in self.partitions.items()}

    @property
    def silent(self) -> set[int]:
        """Brokers that do not tell what they have."""
        return {number for number, one in self.brokers.items() if not one.answers}

    def absent(self, key: PartitionKey) -> list[int]:
        """Brokers of its replicas that are not live."""
        return [one for one in self.partitions[key].replicas if one not in self.brokers]

    @property
    def absent_brokers(self) -> list[int]:
        """All that have replicas, and are not live."""
        return sorted({one for key in self.partitions for one in self.absent(key)})

    @property
    def racks(self) -> dict[int, str]:
        """The rack of each broker; empty if none has one. Those without are in one of their own, as
        where the controller places new topics."""
        found = {number: one.rack or "" for number, one in self.brokers.items()}
        return found if any(found.values()) else {}


@dataclass(frozen=True)
class Wish:
    """What a plan is for.

    ``allowed``: brokers that may have replicas of the chosen partitions; others give theirs away.
    ``chosen``: partitions that may move; None: all. ``replication_factor`` None: as many as now.
    ``goals`` empty: move only what must move. ``targets``: the brokers that get replicas for
    balance; None: all of ``allowed``. ``takers``: the brokers that get replicas at all; None:
    all of ``allowed``. ``given_up``: brokers that may be dead, whose replicas move all the same.
    """

    allowed: Collection[int]
    goals: Sequence[Goal] = tuple(Goal)
    chosen: Collection[PartitionKey] | None = None
    replication_factor: int | None = None
    rack_aware: bool = True
    targets: Collection[int] | None = None
    takers: Collection[int] | None = None
    tolerance: float = TOLERANCE
    given_up: Collection[int] = ()


@dataclass(frozen=True)
class Obstacle:
    """Why a partition cannot be placed as wished. ``is_room``: for lack of room."""

    key: PartitionKey
    why: str
    is_room: bool = False

    @property
    def name(self) -> str:
        return name_of(self.key)


@dataclass
class Plan:
    """``changed``: partitions with other replicas, or in another order. ``obstacles``: what must
    move, and cannot. ``full``: brokers that would get more, were there room, so that brokers end
    uneven."""

    changed: dict[PartitionKey, Replicas] = field(default_factory=dict)
    obstacles: list[Obstacle] = field(default_factory=list)
    full: list[Full] = field(default_factory=list)

    @property
    def lacks_room(self) -> bool:
        """Whether it would move more, were there room."""
        return bool(self.full) or any(one.is_room for one in self.obstacles)


def too_few(replicas: int, brokers: int) -> str:
    """Why so many replicas do not fit on so many brokers."""
    if not brokers:
        return "no other broker is there"
    return f"{replicas} replicas need {replicas} brokers, and there are only {brokers}"


def name_of(key: PartitionKey) -> str:
    """``topic-0``."""
    return f"{key[0]}-{key[1]}"


def ratio(values: Collection[float]) -> float:
    """Largest over mean; 1 if all are alike, also all 0."""
    total = sum(values)
    return max(values) * len(values) / total if total > 0 else 1.0


def loads(
    cluster: Cluster, placement: Placement, goal: Goal, brokers: Collection[int]
) -> dict[int, float]:
    """What each of ``brokers``, and each that has a replica, has of a goal. The preferred leader
    counts as leader."""
    found: dict[int, float] = dict.fromkeys(sorted(brokers), 0.0)
    for key, replicas in placement.items():
        one = cluster.partitions[key]
        for broker, value in shares(one, replicas, goal):
            found[broker] = found.get(broker, 0.0) + value
    return found


def shares(one: Partition, replicas: Sequence[int], goal: Goal) -> Iterator[tuple[int, float]]:
    """What a partition gives to each of its brokers."""
    if goal is Goal.LEADERS:
        yield from ((broker, 1.0) for broker in replicas[:1])
    elif goal is Goal.OUT:
        for broker in replicas[:1]:
            yield broker, one.rate_in * (len(replicas) - 1) + one.rate_out
    else:
        value = {Goal.BYTES: float(one.size_bytes), Goal.IN: one.rate_in, Goal.REPLICAS: 1.0}[goal]
        yield from ((broker, value) for broker in replicas)


def skews(cluster: Cluster, placement: Placement, brokers: Collection[int]) -> dict[Goal, float]:
    """Largest over mean of the brokers' loads, by goal."""
    return {goal: ratio(loads(cluster, placement, goal, brokers).values()) for goal in Goal}


def arriving(before: Sequence[int], after: Sequence[int]) -> list[int]:
    """Brokers that have to copy the partition."""
    return [broker for broker in after if broker not in before]


def copied_bytes(cluster: Cluster, changed: Placement) -> int:
    """What a plan copies."""
    return sum(
        cluster.partitions[key].size_bytes
        * len(arriving(cluster.partitions[key].replicas, replicas))
        for key, replicas in changed.items()
    )
