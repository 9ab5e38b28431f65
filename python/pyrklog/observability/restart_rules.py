"""The effect of one broker's end. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pyrklog.observability.health_rules import (
    CONTROLLER_FIX,
    NO_CONTROLLER,
    UNCONTROLLED,
    UNREACHED,
    ZOOKEEPER_FIX,
    ClusterState,
    PartitionState,
    Reason,
    count_of,
    level_of,
    names_of,
    some_of,
)

ALONE = "it is the only broker, and a restart stops all service until it is back"
BLOCKED_FIX = "wait until their replicas are in sync, or add replicas"


@dataclass(frozen=True)
class Blocker:
    partition: PartitionState
    reason: Literal["leaderless", "below_min_isr"]

    def item(self) -> dict[str, Any]:
        one = self.partition
        return {
            "topic": one.topic,
            "partition": one.index,
            "reason": self.reason,
            "leader": one.leader,
            "isr": list(one.isr),
            "min_insync_replicas": one.min_insync,
        }


def blockers(state: ClusterState, broker: int) -> list[Blocker]:
    """Partitions that would lose their leader, or refuse acks=all, without this broker.

    A partition that already has too few in-sync replicas counts only if this broker is one.
    """
    able = _able(state, broker)
    found = []
    for one in state.partitions:
        if broker not in one.isr and broker != one.leader:
            continue
        left = able & set(one.isr)
        if not left:
            found.append(Blocker(one, "leaderless"))
        elif len(left) < one.isr_min:
            found.append(Blocker(one, "below_min_isr"))
    return found


def at_risk(state: ClusterState, broker: int) -> list[PartitionState]:
    """Partitions that would be served by a single in-sync replica without this broker: the next
    failure stops them. Those of one replica are :func:`blockers`."""
    able = _able(state, broker)
    return [
        one
        for one in state.partitions
        if broker in one.isr
        and len(one.replicas) > 1
        and len(able & set(one.isr)) == 1 >= one.isr_min
    ]


def _able(state: ClusterState, broker: int) -> set[int]:
    """Brokers that may lead without this one. A broker that is ending will not, though it is in
    ISRs until it has handed over."""
    return set(state.alive) - {broker, *state.silent, *state.leaving}


@dataclass(frozen=True)
class Restart:
    """What the end of a broker would do. It may restart without an error among ``reasons``."""

    broker: int
    blockers: Sequence[Blocker]
    reasons: Sequence[Reason]

    @property
    def is_safe(self) -> bool:
        return not any(one.severity == "error" for one in self.reasons)

    def item(self, shown_max: int | None = None) -> dict[str, Any]:
        """With at most so many of the partitions in the way."""
        return {
            "safe": self.is_safe,
            "level": level_of(self.reasons),
            "broker": self.broker,
            "partition_count": len(self.blockers),
            "partitions": [one.item() for one in self.blockers[:shown_max]],
        }


def restart_of(state: ClusterState, broker: int) -> Restart:
    """By the metadata, and by what brokers tell of ZooKeeper and of their own end."""
    found, risky = blockers(state, broker), at_risk(state, broker)
    reasons: list[Reason] = []
    if found and state.alive == [broker]:
        reasons.append(Reason("alone", "error", ALONE, broker))
    elif found:
        count = "1 partition" if len(found) == 1 else f"{len(found)} partitions"
        what = f"{count} would have no leader, or refuse acks=all, without broker {broker}"
        names = [one.partition.name for one in found]
        reasons.append(Reason("in_the_way", "error", what, broker, names, BLOCKED_FIX))
    reasons += [*_without_controller(state, broker), *_without_store(state)]
    reasons += [
        Reason("ending", "warning", f"broker {one} is ending, and does not count", one)
        for one in state.leaving
        if one != broker
    ]
    if risky:
        what = f"{count_of(risky)} would have one in-sync replica meanwhile {some_of(risky)}"
        reasons.append(Reason("single_replica", "warning", what, broker, names_of(risky)))
    return Restart(broker, found, reasons)


def _without_controller(state: ClusterState, broker: int) -> list[Reason]:
    """Nobody would replace the leaders. The end of a controller that is silent makes room for
    another one, and a broker that is alone has no followers."""
    if state.alive == [broker]:
        return []
    if state.controller not in state.alive:
        what = f"{NO_CONTROLLER}: no leader would be replaced"
        return [Reason(UNCONTROLLED, "error", what, fix=CONTROLLER_FIX)]
    if state.controller in state.silent and state.controller != broker:
        what = f"the controller, broker {state.controller}, does not answer: no leader would be"
        fix = f"see what broker {state.controller} does, or restart it first"
        return [Reason(UNCONTROLLED, "error", f"{what} replaced", state.controller, fix=fix)]
    return []


def _without_store(state: ClusterState) -> list[Reason]:
    lost = list(state.without_store)
    if not lost:
        return []
    if set(lost) == {one.number for one in state.brokers if one.answers}:
        what = "no broker reaches ZooKeeper: no leader would be replaced"
        return [Reason("zookeeper_lost", "error", what, fix=ZOOKEEPER_FIX)]
    what = "does not reach ZooKeeper, and may soon count as gone"
    return [
        Reason(UNREACHED, "warning", f"broker {one} {what}", one, fix=ZOOKEEPER_FIX) for one in lost
    ]
