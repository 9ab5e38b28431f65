"""The faults of a round: a pure function of a seed and the round's number.

Faults of brokers come one after another, so that one broker at a time is faulty (or all, if all are
killed); in a storm, two others are faulty at their own times. ZooKeeper's faults come at any time.
A role such as ``LEADER`` is resolved when the fault begins.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import NamedTuple

LEADER = "leader"
CONTROLLER = "controller"
COORDINATOR = "coordinator"
ANY = "any"
ALL = "all"
ZOOKEEPER = "zookeeper"

ROLES = (LEADER, CONTROLLER, COORDINATOR, ANY)
FAULTS_MAX = 3
LANE_S = 4.0
BROKERS = 3
STORM_SHARE = 0.15
ZOOKEEPER_SHARE = 0.25


class Fault(NamedTuple):
    """``kind`` is a key of ``KINDS``; ``victim`` a role, and ``number`` distinguishes brokers of
    that role. It begins ``after_s`` after its lane's previous fault and is undone
    after ``hold_s``."""

    kind: str
    victim: str
    number: int
    after_s: float
    hold_s: float

    def __str__(self) -> str:
        who = f"{self.victim}/{self.number}"
        return f"+{self.after_s:.2f} s {self.kind} {who} for {self.hold_s:.2f} s"


class Plan(NamedTuple):
    brokers: tuple[Fault, ...]
    others: tuple[Fault, ...]
    """In a storm: faults of other brokers than the first lane's."""
    zookeeper: tuple[Fault, ...]

    def __str__(self) -> str:
        lanes = self._asdict().items()
        return "\n".join(f"  {lane}: {fault}" for lane, faults in lanes for fault in faults)


class _Kind(NamedTuple):
    weight: int
    hold_s: tuple[float, float]
    on_all: bool = False
    alone: bool = False
    """The only fault of its round: it needs a whole cluster."""


BROKER_KINDS = {
    "kill": _Kind(8, (0.0, 2.5)),
    "kill_all": _Kind(2, (0.0, 0.5), on_all=True),
    "pause": _Kind(3, (0.1, 1.2)),
    "pause_past_session": _Kind(3, (2.5, 3.5)),
    "restart": _Kind(3, (0.0, 0.3)),
    "session_cut": _Kind(3, (2.5, 3.5)),
    "session_reset": _Kind(1, (0.0, 0.0)),
    "isolate": _Kind(4, (0.3, 3.0)),
    "deaf": _Kind(2, (0.3, 3.0)),
    "mute": _Kind(2, (0.3, 3.0)),
    "unplug": _Kind(2, (0.3, 3.5)),
    "link_reset": _Kind(1, (0.0, 0.0)),
    "full_disk": _Kind(2, (0.5, 2.0)),
    "broken_disk": _Kind(1, (0.2, 1.0)),
    "machine_crash": _Kind(2, (0.0, 1.0), alone=True),
    "clock_step": _Kind(1, (0.3, 2.0)),
    "clock_step_back": _Kind(1, (0.3, 2.0)),
}
"""Weight and duration of each; sessions last two seconds. ``deaf`` receives nothing from other
brokers, ``mute`` reaches none of them, ``unplug`` is cut off from all (except from clients on a
shared host). On a ``broken_disk`` every write fails until a kill and a restart. ``machine_crash``:
killed, and its shared memory is gone with all that was not in files, so the cluster must treat the
broker as unclean."""

ZOOKEEPER_KINDS = {
    "zookeeper_pause": _Kind(2, (0.3, 1.2)),
    "zookeeper_pause_past_session": _Kind(2, (2.5, 3.5)),
    "zookeeper_kill": _Kind(3, (0.0, 1.0)),
}

KINDS = {**BROKER_KINDS, **ZOOKEEPER_KINDS}


def make_plan(seed: int, number: int, kinds: Collection[str] = ()) -> Plan:
    """The faults of one round, of these kinds or of all. Raises KeyError for an unknown kind."""
    source = random.Random(f"{seed}/{number}")
    enabled = {name: KINDS[name] for name in kinds or KINDS}
    brokers = {name: kind for name, kind in enabled.items() if name not in ZOOKEEPER_KINDS}
    zookeeper = {name: kind for name, kind in enabled.items() if name in ZOOKEEPER_KINDS}
    single = {name: kind for name, kind in brokers.items() if not (kind.on_all or kind.alone)}
    beside = not brokers or source.random() < ZOOKEEPER_SHARE
    if single and source.random() < STORM_SHARE:
        one, other = source.sample(range(BROKERS), 2)
        lanes = (_lane(source, single, one), _lane(source, single, other))
    else:
        lanes = (_lane(source, brokers), ())
        beside = beside and not any(KINDS[fault.kind].alone for fault in lanes[0])
    return Plan(*lanes, _lane(source, zookeeper, faults_max=1) if beside else ())


def _lane(
    source: random.Random,
    kinds: dict[str, _Kind],
    broker: int | None = None,
    faults_max: int = FAULTS_MAX,
) -> tuple[Fault, ...]:
    """Faults one after another, of this broker (from 0) or of any."""
    faults: list[Fault] = []
    left_s = LANE_S
    # Long faults mostly get rounds of their own.
    for _ in range(source.choice((1, 1, 2, faults_max)) if kinds else 0):
        (name,) = source.choices(list(kinds), [kind.weight for kind in kinds.values()])
        kind = kinds[name]
        if kind.alone and faults:
            continue
        victim = _victim(source, name, kind) if broker is None else ANY
        number = source.randrange(1_000)
        if broker is not None:
            number = number * BROKERS + broker
        after_s = round(source.uniform(0.1, 0.8), 2)
        hold_s = round(source.uniform(*kind.hold_s), 2)
        if len(faults) < faults_max and (not faults or after_s + hold_s <= left_s):
            faults.append(Fault(name, victim, number, after_s, hold_s))
            left_s -= after_s + hold_s
        if kind.alone:
            break
    return tuple(faults)


def _victim(source: random.Random, name: str, kind: _Kind) -> str:
    if kind.on_all:
        return ALL
    return ZOOKEEPER if name in ZOOKEEPER_KINDS else source.choice(ROLES)
