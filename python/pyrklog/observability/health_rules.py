"""Whether a cluster is healthy, by its metadata, and the effect of one broker's end. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

NO_BROKER = -1
MIN_INSYNC = "min.insync.replicas"
MIN_INSYNC_DEFAULT = 1
"""Kafka's."""
SHOWN_MAX = 3
UNREACHED = "zookeeper_unreached"
UNCONTROLLED = "no_controller"
NO_CONTROLLER = "no broker is the controller"

Severity = Literal["error", "degraded", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("error", "degraded", "warning", "info")
"""The worst first."""
Level = Literal["not_safe", "warn", "ok"]
LEVELS: Mapping[Severity, Level] = {
    "error": "not_safe",
    "degraded": "warn",
    "warning": "warn",
    "info": "ok",
}
ADVERTISED_FIX = (
    "set advertised.listeners of the broker to an address that clients reach, or make its host "
    "known here"
)
SILENT_FIX = "see whether its process runs, and whether its host is reachable from here"
MISSING_FIX = (
    "start it again with its data, and its replicas catch up; if its process runs, its log says "
    "why it is no member of the cluster"
)
MOVES_FIX = (
    "wait, if a reassignment is adding these replicas: kafka-reassign-partitions.sh --list tells, "
    "which cannot be asked for over TLS or with authentication here"
)
FULL_FIX = "free space there, or lower retention.ms or retention.bytes of its largest topics"
ZOOKEEPER_FIX = "see whether ZooKeeper runs, and whether brokers reach zookeeper.connect"
CONTROLLER_FIX = (
    "wait until a broker has become the controller; if none does, see whether ZooKeeper runs, and "
    "the brokers' logs"
)
FAILED_FIX = "see the broker's log, replace the disk, and restart the broker"


@dataclass(frozen=True)
class BrokerState:
    """A registered broker; ``answers`` is true if it was not asked."""

    number: int
    host: str
    port: int
    rack: str | None = None
    answers: bool = True
    why: str | None = None

    @property
    def address(self) -> str:
        """``HOST:PORT`` as advertised."""
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class LogDir:
    broker: int
    path: str
    has_failed: bool


@dataclass(frozen=True)
class PartitionState:
    topic: str
    index: int
    leader: int
    replicas: Sequence[int]
    isr: Sequence[int]
    min_insync: int = MIN_INSYNC_DEFAULT
    adding: Sequence[int] = ()
    """Replicas that a running reassignment adds, where that is known."""
    partial: Sequence[int] = ()
    """Those of them that lack older records, where that is known."""

    @property
    def is_under_replicated(self) -> bool:
        """By number, and without the added replicas, as Kafka's ``UnderReplicatedPartitions``
        (``Partition.isUnderReplicated``)."""
        return is_under_replicated(self.replicas, self.isr, self.adding)

    @property
    def lacking(self) -> list[int]:
        """Replicas for whose lack it is under-replicated."""
        if not self.is_under_replicated:
            return []
        return sorted(set(self.replicas) - set(self.adding) - set(self.isr))

    @property
    def name(self) -> str:
        """``topic-0``."""
        return f"{self.topic}-{self.index}"

    @property
    def isr_min(self) -> int:
        """In-sync replicas that acks=all needs, at most the number of replicas that are not
        partial, as the leader reckons."""
        return min(self.min_insync, len(set(self.replicas) - set(self.partial)))


@dataclass(frozen=True)
class ClusterState:
    """Live brokers, the controller (-1: none), and all partitions."""

    cluster_id: str | None
    brokers: Sequence[BrokerState]
    controller: int
    partitions: Sequence[PartitionState]
    log_dirs: Sequence[LogDir] = ()
    """Those that take no records, if asked for."""
    without_store: Sequence[int] = ()
    signs: Sequence[Reason] = ()
    """Findings besides the metadata, of brokers about themselves."""
    away: Mapping[int, float] = field(default_factory=dict)
    """For how many seconds brokers have been away, as far as others have seen them go."""
    knows_moves: bool = True
    """Whether :attr:`PartitionState.adding` was asked for: else an added replica looks late."""
    leaving: Sequence[int] = ()
    """Live brokers that are ending, by their own word."""

    @property
    def alive(self) -> list[int]:
        return [one.number for one in self.brokers]

    @property
    def silent(self) -> list[int]:
        return [one.number for one in self.brokers if not one.answers]


@dataclass(frozen=True)
class Reason:
    """A finding about a cluster: the table of health.md.

    ``error``: records, or their leaders, are at risk. ``degraded``: it serves, but less well.
    ``warning``: it serves well, but will not for long. ``info``: nothing is to be done soon. The
    first two make it unhealthy.
    """

    kind: str
    severity: Severity
    what: str
    broker: int | None = None
    partitions: Sequence[str] = ()
    fix: str | None = None

    def item(self) -> dict[str, Any]:
        return {**vars(self), "partitions": list(self.partitions)}


def examine(state: ClusterState) -> list[Reason]:
    found = [*_silent(state), *_without_store(state)]
    if state.controller not in state.alive:
        found.append(Reason(UNCONTROLLED, "error", NO_CONTROLLER, fix=CONTROLLER_FIX))
    offline = [one for one in state.partitions if one.leader == NO_BROKER]
    if offline:
        what = f"{count_of(offline)} without a leader {some_of(offline)}"
        found.append(Reason("offline", "error", what, partitions=names_of(offline)))
    below = [one for one in state.partitions if len(one.isr) < one.isr_min]
    if below:
        what = f"{count_of(below)} below {MIN_INSYNC} {some_of(below)}: acks=all is refused"
        found.append(Reason("below_min_isr", "error", what, partitions=names_of(below)))
    found += _by_broker(state)
    found += [of_log_dir(one) for one in state.log_dirs]
    moved = [
        one
        for one in state.partitions
        if one.replicas and one.leader not in (NO_BROKER, one.replicas[0])
    ]
    if moved:
        what = f"{count_of(moved)} not led by the preferred replica {some_of(moved)}"
        found.append(Reason("not_preferred", "info", what, partitions=names_of(moved)))
    return _with_signs([*found, *_without_rack(state)], state.signs)


def _with_signs(found: Sequence[Reason], signs: Sequence[Reason]) -> list[Reason]:
    """The same is told once: as a broker tells it of itself, which says more. Where nobody reaches
    ZooKeeper, no single broker is told."""
    of_store = {one.broker: one for one in signs if one.kind == UNREACHED}
    merged = [of_store.get(one.broker, one) if one.kind == UNREACHED else one for one in found]
    told = {one.what for one in merged}
    is_lost = any(one.kind == "zookeeper_lost" for one in merged)
    left = [
        one for one in signs if one.what not in told and not (is_lost and one.kind == UNREACHED)
    ]
    return worst_first([*merged, *left])


def _silent(state: ClusterState) -> list[Reason]:
    """Registered brokers that do not answer. If none answers, their addresses are wrong: one
    reason."""
    silent = [one for one in state.brokers if not one.answers]
    if silent and len(silent) == len(state.brokers):
        told = ", ".join(
            f"broker {one.number} at {one.address} ({one.why or 'no answer'})"
            for one in silent[:SHOWN_MAX]
        )
        what = f"no broker answers where it tells clients to connect: {told}"
        return [Reason("advertised", "error", what, silent[0].number, fix=ADVERTISED_FIX)]
    return [
        Reason(
            "silent",
            "error",
            f"broker {one.number} does not answer at {one.address}",
            one.number,
            fix=SILENT_FIX,
        )
        for one in silent
    ]


def _without_rack(state: ClusterState) -> list[Reason]:
    """If only some brokers have a rack, placements ignore racks."""
    without = [one.number for one in state.brokers if one.rack is None]
    if len(without) in (0, len(state.brokers)):
        return []
    what = "new partitions are not spread over racks, as this broker has no broker.rack"
    fix = "set broker.rack on each broker and restart it"
    return [Reason("no_rack", "info", f"broker {one}: {what}", one, fix=fix) for one in without]


def _without_store(state: ClusterState) -> list[Reason]:
    """If no answering broker reaches ZooKeeper, ZooKeeper itself is the one reason."""
    answering = [one.number for one in state.brokers if one.answers]
    lost = [number for number in answering if number in state.without_store]
    if lost and lost == answering:
        what = "no broker reaches ZooKeeper: no leader is replaced, and no topic made or altered"
        return [Reason("zookeeper_lost", "error", what, fix=ZOOKEEPER_FIX)]
    return [
        Reason(
            UNREACHED,
            "degraded",
            f"broker {number} does not reach ZooKeeper",
            number,
            fix=ZOOKEEPER_FIX,
        )
        for number in lost
    ]


def of_log_dir(one: LogDir) -> Reason:
    if one.has_failed:
        what = f"broker {one.broker} has lost its log directory {one.path}"
        return Reason("log_dir_failed", "degraded", what, one.broker, fix=FAILED_FIX)
    what = f"broker {one.broker} takes no records in {one.path}: its disk is full"
    return Reason("log_dir_full", "degraded", what, one.broker, fix=FULL_FIX)


def _by_broker(state: ClusterState) -> list[Reason]:
    lacking: dict[int, list[PartitionState]] = {}
    for one in state.partitions:
        for broker in one.lacking:
            lacking.setdefault(broker, []).append(one)
        for broker in set(one.isr) - set(state.alive):
            # The last in-sync replica stays in the ISR when its broker dies.
            lacking.setdefault(broker, []).append(one)
    found = []
    for broker, partitions in sorted(lacking.items()):
        severity: Severity = "error"
        if broker in state.alive:
            kind, fix = "behind", None
            what = f"broker {broker} is behind on {count_of(partitions)}"
            if not state.knows_moves:
                severity, fix = "degraded", MOVES_FIX
        else:
            kind, fix = "missing", MISSING_FIX
            away = state.away.get(broker)
            since = "" if away is None else f" (for {span(away)})"
            what = f"broker {broker} is down{since}, and missing from {count_of(partitions)}"
        text = f"{what} {some_of(partitions)}"
        found.append(Reason(kind, severity, text, broker, names_of(partitions), fix))
    return found


def is_under_replicated(
    replicas: Sequence[int], isr: Sequence[int], adding: Sequence[int] = ()
) -> bool:
    """See :attr:`PartitionState.is_under_replicated`."""
    return len(isr) < len(set(replicas) - set(adding))


def is_healthy(reasons: Iterable[Reason]) -> bool:
    return all(reason.severity in ("warning", "info") for reason in reasons)


def level_of(reasons: Iterable[Reason]) -> Level:
    """That of the worst reason."""
    found = {reason.severity for reason in reasons}
    return next((LEVELS[one] for one in SEVERITIES if one in found), "ok")


def worst_first(reasons: Iterable[Reason]) -> list[Reason]:
    """In the given order among equals."""
    return sorted(reasons, key=lambda reason: SEVERITIES.index(reason.severity))


def told_of(signs: Iterable[Reason]) -> list[Reason]:
    """What a cluster's health tells of a single broker: not what needs nobody."""
    return [one for one in signs if one.severity != "info"]


def health_item(state: ClusterState, reasons: Sequence[Reason]) -> dict[str, Any]:
    return {
        "healthy": is_healthy(reasons),
        "level": level_of(reasons),
        "brokers": state.alive,
        "controller": state.controller if state.controller in state.alive else None,
        "partitions": len(state.partitions),
        "reasons": [reason.item() for reason in reasons],
    }


def count_of(partitions: Sequence[PartitionState]) -> str:
    return "1 partition" if len(partitions) == 1 else f"{len(partitions)} partitions"


def some_of(partitions: Sequence[PartitionState]) -> str:
    names = ", ".join(one.name for one in partitions[:SHOWN_MAX])
    return f"({names}, ...)" if len(partitions) > SHOWN_MAX else f"({names})"


def names_of(partitions: Sequence[PartitionState]) -> list[str]:
    return [one.name for one in partitions]


def span(seconds: float) -> str:
    """``0.8 s``, ``12 s``, ``5 min``, ``3 h``, ``2 days``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    for unit, length, limit in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 48 * 3600)):
        if seconds < limit:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 86_400:.0f} days"
