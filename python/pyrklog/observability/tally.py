"""Counts of a broker's image of the cluster. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from pyrklog.cluster.requests import TopicPartition
from pyrklog.observability.health_rules import is_under_replicated
from pyrklog.plane.values import PartitionImage

TopicPartitions = tuple[str, Sequence[PartitionImage]]


@dataclass(frozen=True)
class Tally:
    """One field for each metric of :data:`.metric_table.CLUSTER`."""

    brokers: int | None
    """None where not the controller."""
    replicas: int
    leaders: int
    under_replicated: int
    under_min_isr: int
    at_min_isr: int
    reassigned: int
    offline_replicas: int
    is_controller: int
    offline: int
    not_preferred: int
    uneven_brokers: int
    topics: int
    partitions: int


def count(
    node_id: int,
    controller_id: int,
    brokers: Collection[int],
    topics: Iterable[TopicPartitions],
    min_insync: Callable[[str], int],
    adding: Callable[[TopicPartition], Sequence[int]] = lambda _: (),
    is_reassigned: Callable[[TopicPartition], bool] = lambda _: False,
    *,
    partial: Callable[[TopicPartition], Sequence[int]] = lambda _: (),
    imbalance_percent: int,
) -> Tally:
    """``min_insync`` gives a topic's ``min.insync.replicas``, ``adding`` the replicas that a
    reassignment adds: the one is asked only for topics that are led here, the other only where
    replicas are not in sync. ``is_reassigned`` is asked for partitions that are led here.
    ``partial`` gives the replicas that count for none in ``min.insync.replicas``.
    ``imbalance_percent`` is ``leader.imbalance.per.broker.percentage``.

    As in Kafka only the leader counts a partition as under-replicated, and only the controller
    counts those of the whole cluster.
    """
    replicas = leaders = under = below = at_minimum = moving = dead = offline = not_preferred = 0
    topic_count = partition_count = 0
    preferring, astray = Counter[int](), Counter[int]()
    controls = controller_id == node_id
    for name, partitions in topics:
        topic_count += 1
        partition_count += len(partitions)
        needed: int | None = None
        for one in partitions:
            offline += one.leader < 0
            not_preferred += one.leader not in one.replicas[:1]
            if controls and one.replicas:
                preferring[one.replicas[0]] += 1
                astray[one.replicas[0]] += one.leader != one.replicas[0]
            replicas += node_id in one.replicas
            dead += node_id in one.offline
            if one.leader != node_id:
                continue
            leaders += 1
            moving += is_reassigned((name, one.partition))
            needed = min_insync(name) if needed is None else needed
            whole = len(one.replicas)
            if len(one.isr) < whole:
                key = (name, one.partition)
                under += is_under_replicated(one.replicas, one.isr, adding(key))
                whole -= len(partial(key))
            minimum = min(needed, whole)
            below += len(one.isr) < minimum
            at_minimum += len(one.isr) == minimum
    # As the controller's periodic election reckons.
    uneven = sum(100 * astray[one] > imbalance_percent * preferring[one] for one in brokers)
    return Tally(
        brokers=len(brokers) if controls else None,
        replicas=replicas,
        leaders=leaders,
        under_replicated=under,
        under_min_isr=below,
        at_min_isr=at_minimum,
        reassigned=moving,
        offline_replicas=dead,
        is_controller=int(controls),
        offline=offline if controls else 0,
        not_preferred=not_preferred if controls else 0,
        uneven_brokers=uneven,
        topics=topic_count if controls else 0,
        partitions=partition_count if controls else 0,
    )
