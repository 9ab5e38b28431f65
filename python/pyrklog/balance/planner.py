"""Plans: first what must move, then what makes brokers alike, then who leads."""

from __future__ import annotations

from pyrklog.balance.leaders import Leaders
from pyrklog.balance.model import Cluster, Obstacle, Partition, PartitionKey, Plan, Wish, too_few
from pyrklog.balance.search import Search
from pyrklog.balance.settling import Settling
from pyrklog.balance.working import Working


def make_plan(cluster: Cluster, wish: Wish) -> Plan:
    """The same cluster and wish give the same plan.

    Partitions that cannot be placed as wished stay as they are, and are among the obstacles.
    """
    plan = Plan()
    chosen = cluster.partitions if wish.chosen is None else wish.chosen
    for key in sorted(chosen):
        why = _why_never(cluster.partitions[key], wish)
        if why is not None:
            plan.obstacles.append(Obstacle(key, why))
    refused = {one.key for one in plan.obstacles}
    possible = [key for key in chosen if key not in refused]
    while True:
        working = Working(cluster, _with(wish, possible))
        settling = Settling(working)
        settling.settle()
        if not settling.obstacles:
            break
        # What cannot be placed must not count where it was put for a part.
        plan.obstacles += settling.obstacles
        refused |= {one.key for one in settling.obstacles}
        possible = [key for key in possible if key not in refused]
    working.set_bounds()
    if wish.goals:
        Search(working).run()
        Leaders(working).run()
    for at, key in enumerate(working.keys):
        replicas = working.result(at)
        if replicas != working.before[at]:
            plan.changed[key] = replicas
    plan.obstacles.sort(key=lambda one: one.key)
    return plan


def _with(wish: Wish, chosen: list[PartitionKey]) -> Wish:
    from dataclasses import replace

    return replace(wish, chosen=frozenset(chosen))


def _why_never(one: Partition, wish: Wish) -> str | None:
    """Why the partition must stay as it is."""
    wanted = wish.replication_factor or len(one.replicas)
    is_touched = wanted != len(one.replicas) or not set(one.replicas) <= set(wish.allowed)
    if not is_touched:
        return None
    if not one.is_led:
        return "it has no leader, so nothing can be copied"
    if wanted < one.least_replicas:
        return f"{wanted} replicas are fewer than its min.insync.replicas of {one.min_insync}"
    if wanted > len(set(wish.allowed)):
        return too_few(wanted, len(set(wish.allowed)))
    return None
