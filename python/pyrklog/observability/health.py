"""Answers of ``/health/...``: status and JSON, of the broker's state and its metadata. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from pyrklog.cluster.requests import TopicPartition
from pyrklog.observability.health_rules import (
    BrokerState,
    ClusterState,
    LogDir,
    PartitionState,
    Reason,
    Severity,
    examine,
    health_item,
    is_healthy,
    of_log_dir,
    told_of,
    worst_first,
)
from pyrklog.observability.health_signs import store_unreached
from pyrklog.observability.restart_rules import Restart, restart_of
from pyrklog.observability.sources import Stage
from pyrklog.observability.tally import TopicPartitions
from pyrklog.plane.values import BrokerImage

OK = 200
UNAVAILABLE = 503
NOT_FOUND = 404
NUMBER_DIGITS_MAX = 10
NAME_SHOWN_MAX = 50
MAY_BE_OLD = "what it knows may be old"
UNTOLD_FIX = "wait until the controller has told it; if it does not, see the controller's log"
PARTITIONS_SHOWN_MAX = 1000
"""Of one answer."""
OWN_KINDS = (
    *("starting", "ending", "log_dir_full", "log_dir_failed", "disk_filling", "disk_hangs"),
    *("zookeeper_unreached", "clock_skew", "reads_stuck", "writes_stuck"),
    *("cache_thrashing", "cache_small", "file_handles"),
)
"""Kinds of :func:`of_broker`."""


class Answer(NamedTuple):
    status: int
    body: Mapping[str, Any]


@dataclass(frozen=True)
class BrokerHealth:
    """What a broker knows of itself."""

    number: int
    stage: Stage
    is_store_reachable: bool
    full_log_dirs: Sequence[str] = ()
    failed_log_dirs: Sequence[str] = ()
    store_away_seconds: float | None = None
    """None: not known, or it is reached."""
    signs: Sequence[Reason] = ()
    """Of :mod:`.health_signs`."""
    brokers_away: Mapping[int, float] = field(default_factory=dict)
    """Others that it has seen go, and for how many seconds."""
    is_told: bool = True
    """See :attr:`.Sources.is_told`: else what it knows may be of an earlier session."""

    @property
    def log_dirs(self) -> list[LogDir]:
        """Those that take no records."""
        return [
            *(LogDir(self.number, path, has_failed=True) for path in self.failed_log_dirs),
            *(LogDir(self.number, path, has_failed=False) for path in self.full_log_dirs),
        ]


def live() -> Answer:
    return Answer(OK, {"live": True})


def ready(broker: BrokerHealth) -> Answer:
    """Only what a restart or another route would help against makes it unready: without ZooKeeper
    all brokers would be."""
    reasons = of_broker(broker)
    good = is_ready(reasons)
    return _answer(good, {"ready": good, "broker": broker.number}, reasons)


def is_ready(reasons: Sequence[Reason]) -> bool:
    """``reasons``: of :func:`of_broker`."""
    return not any(one.severity == "error" for one in reasons)


def of_broker(broker: BrokerHealth) -> list[Reason]:
    """What a broker knows of itself."""
    found = [*_of_stage(broker), *_of_store(broker), *map(of_log_dir, broker.log_dirs)]
    return worst_first([*found, *broker.signs])


def counted(reasons: Sequence[Reason]) -> dict[str, int]:
    """How many there are of each kind that a broker may find; most often none."""
    found = dict.fromkeys(OWN_KINDS, 0)
    for one in reasons:
        found[one.kind] = found.get(one.kind, 0) + 1
    return found


def cluster(broker: BrokerHealth, state: ClusterState) -> Answer:
    """Whether everything is led and replicated, as this broker sees it."""
    reasons = of_cluster(broker, state)
    item = health_item(state, reasons)
    return _answer(is_healthy(reasons), {"broker": broker.number, **item}, reasons)


def of_cluster(broker: BrokerHealth, state: ClusterState) -> list[Reason]:
    signs = [*_of_store(broker), *_of_view(broker, "degraded"), *told_of(broker.signs)]
    return worst_first([*_of_stage(broker), *examine(replace(state, signs=signs))])


def restart(broker: BrokerHealth, state: ClusterState, number: int) -> Restart:
    """Whether the broker of that number may end without harm, by the view of ``broker``: no
    partition would have no leader, or fewer in-sync replicas than acks=all needs. A view that may
    be old is not safe."""
    found = restart_of(replace(state, without_store=()), number)
    reasons = _of_stage(broker) if number == broker.number else []
    if not broker.is_store_reachable:
        away = store_unreached(broker.number, broker.store_away_seconds, "error")
        reasons.append(replace(away, what=f"{away.what}: {MAY_BE_OLD}"))
    reasons += _of_view(broker, "error")
    return replace(found, reasons=[*reasons, *found.reasons])


def restart_safe(broker: BrokerHealth, state: ClusterState, number: int) -> Answer:
    if number not in state.alive and number != broker.number:
        known = ", ".join(map(str, state.alive))
        return Answer(NOT_FOUND, {"error": f"no broker {number} is alive; there are {known}"})
    found = restart(broker, state, number)
    return _answer(found.is_safe, found.item(PARTITIONS_SHOWN_MAX), found.reasons)


def broker_number(text: str) -> int:
    """Raises :class:`ValueError` for what is no number of a broker."""
    if not (text.isascii() and text.isdecimal()) or len(text) > NUMBER_DIGITS_MAX:
        raise ValueError(f"broker takes a broker's number, not {text[:NAME_SHOWN_MAX]!r}")
    return int(text)


def cluster_state(
    cluster_id: str,
    controller_id: int,
    brokers: Sequence[BrokerImage],
    topics: Sequence[TopicPartitions],
    broker: BrokerHealth,
    min_insync: Mapping[str, int],
    adding: Callable[[TopicPartition], Sequence[int]] = lambda _: (),
    partial: Callable[[TopicPartition], Sequence[int]] = lambda _: (),
) -> ClusterState:
    """The broker's view. Of log directories, ZooKeeper and ends it knows its own state only; topics
    that ``min_insync`` lacks need one in-sync replica. ``adding`` gives the replicas that a
    reassignment adds, ``partial`` those that ``min.insync.replicas`` does not count, where this
    broker knows them; asked only where not all are in sync."""
    partitions = [
        PartitionState(
            name,
            one.partition,
            one.leader,
            one.replicas,
            one.isr,
            min_insync.get(name, 1),
            adding((name, one.partition)) if len(one.isr) < len(one.replicas) else (),
            partial((name, one.partition)) if len(one.isr) < len(one.replicas) else (),
        )
        for name, found in topics
        for one in found
    ]
    lost = () if broker.is_store_reachable else (broker.number,)
    return ClusterState(
        cluster_id,
        [_broker_state(one) for one in sorted(brokers, key=lambda one: one.id)],
        controller_id,
        partitions,
        broker.log_dirs,
        lost,
        away=broker.brokers_away,
        leaving=(broker.number,) if broker.stage == "ending" else (),
    )


def _broker_state(one: BrokerImage) -> BrokerState:
    _, host, port = one.endpoints[0] if one.endpoints else ("", "", 0)
    return BrokerState(one.id, host, port, one.rack)


def _answer(is_good: bool, item: Mapping[str, Any], reasons: Sequence[Reason]) -> Answer:
    told = [
        {**one.item(), "partitions": list(one.partitions[:PARTITIONS_SHOWN_MAX])} for one in reasons
    ]
    return Answer(OK if is_good else UNAVAILABLE, {**item, "reasons": told})


def _of_stage(broker: BrokerHealth) -> list[Reason]:
    if broker.stage == "serving":
        return []
    what = f"broker {broker.number} is {broker.stage}"
    fix = "wait; its log says what it waits for" if broker.stage == "starting" else None
    return [Reason(broker.stage, "error", what, broker.number, fix=fix)]


def _of_store(broker: BrokerHealth) -> list[Reason]:
    if broker.is_store_reachable:
        return []
    return [store_unreached(broker.number, broker.store_away_seconds)]


def _of_view(broker: BrokerHealth, severity: Severity) -> list[Reason]:
    """A broker with a new session keeps the brokers and ISRs of before until a controller has told
    it others. Where it does not reach ZooKeeper, that says enough."""
    if broker.is_told or not broker.is_store_reachable:
        return []
    what = f"no controller has told broker {broker.number} anything since it registered"
    return [
        Reason("metadata_old", severity, f"{what}: {MAY_BE_OLD}", broker.number, fix=UNTOLD_FIX)
    ]
