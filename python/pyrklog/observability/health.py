"""Answers of ``/health/...``: status and JSON, of the broker's state and its metadata. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyrklog.observability.health_rules import (
    ZOOKEEPER_FIX,
    BrokerState,
    ClusterState,
    LogDir,
    PartitionState,
    Reason,
    blockers,
    examine,
    health_item,
    is_healthy,
    of_log_dir,
)
from pyrklog.observability.sources import Stage
from pyrklog.observability.tally import TopicPartitions
from pyrklog.plane.values import BrokerImage

OK = 200
UNAVAILABLE = 503
PARTITIONS_SHOWN_MAX = 1000
"""Of one answer."""
ALONE = "it is the only broker, and a restart stops all service until it is back"


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
    reasons = [*_of_stage(broker), *_of_store(broker), *map(of_log_dir, broker.log_dirs)]
    is_ready = not any(one.severity == "error" for one in reasons)
    return _answer(is_ready, {"ready": is_ready, "broker": broker.number}, reasons)


def cluster(broker: BrokerHealth, state: ClusterState) -> Answer:
    """Whether everything is led and replicated, as this broker sees it."""
    reasons = [*_of_stage(broker), *examine(state)]
    item = health_item(state, reasons)
    return _answer(is_healthy(reasons), {"broker": broker.number, **item}, reasons)


def restart_safe(broker: BrokerHealth, state: ClusterState) -> Answer:
    """Whether this broker may end without harm: no partition would have no leader, or fewer
    in-sync replicas than acks=all needs. A view that may be old is not safe."""
    reasons = _of_stage(broker)
    if not broker.is_store_reachable:
        what = f"broker {broker.number} does not reach ZooKeeper: what it knows may be old"
        reasons.append(
            Reason("zookeeper_unreached", "error", what, broker.number, fix=ZOOKEEPER_FIX)
        )
    found = blockers(state, broker.number)
    if found and state.alive == [broker.number]:
        reasons.append(Reason("alone", "error", ALONE, broker.number))
    elif found:
        count = "1 partition" if len(found) == 1 else f"{len(found)} partitions"
        what = f"{count} would have no leader, or refuse acks=all, without broker {broker.number}"
        names = [one.partition.name for one in found]
        reasons.append(Reason("in_the_way", "error", what, broker.number, names))
    item = {
        "safe": not reasons,
        "broker": broker.number,
        "partition_count": len(found),
        "partitions": [one.item() for one in found[:PARTITIONS_SHOWN_MAX]],
    }
    return _answer(not reasons, item, reasons)


def cluster_state(
    cluster_id: str,
    controller_id: int,
    brokers: Sequence[BrokerImage],
    topics: Sequence[TopicPartitions],
    broker: BrokerHealth,
    min_insync: Mapping[str, int],
) -> ClusterState:
    """The broker's view. Of log directories and ZooKeeper it knows its own state only; topics
    that ``min_insync`` lacks need one in-sync replica."""
    partitions = [
        PartitionState(
            name, one.partition, one.leader, one.replicas, one.isr, min_insync.get(name, 1)
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
    what = f"broker {broker.number} does not reach ZooKeeper"
    return [
        Reason("zookeeper_unreached", "degraded", what, broker.number, fix=ZOOKEEPER_FIX),
    ]
