"""Plans: first what must move, then what makes brokers alike, then who leads."""

from __future__ import annotations

from collections.abc import Sequence

from pyrklog.balance.leaders import Leaders
from pyrklog.balance.model import Cluster, Obstacle, Partition, PartitionKey, Plan, Wish, too_few
from pyrklog.balance.search import Search
from pyrklog.balance.settling import Settling
from pyrklog.balance.working import Working


def make_plan(cluster: Cluster, wish: Wish) -> Plan:
    """The same cluster and wish give the same plan.

    Partitions that cannot be placed as wished stay as they are, and are among the obstacles. So do
    those with a replica on a broker that is not there, unless that one is given up: it may be back
    in a moment, and until then no move of theirs would end.
    """
    plan = Plan()
    chosen = cluster.partitions if wish.chosen is None else wish.chosen
    waits = set()
    for key in sorted(chosen):
        away = [one for one in cluster.absent(key) if one not in wish.given_up]
        why = _why_never(cluster.partitions[key], wish, away)
        if why is not None:
            plan.obstacles.append(Obstacle(key, why))
        elif away:
            waits.add(key)
    refused = {one.key for one in plan.obstacles} | waits
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
    found = [working.rooms[one].full(working.numbers[one]) for one in working.held_back()]
    plan.full = [one for one in found if one is not None]
    for at, key in enumerate(working.keys):
        replicas = working.result(at)
        if replicas != working.before[at]:
            plan.changed[key] = replicas
    plan.obstacles.sort(key=lambda one: one.key)
    return plan


def absent_why(broker: int) -> str:
    """Nothing of a partition is moved to its end while another replica's broker is away."""
    fix = f"`cluster reassign plan --exclude {broker}` gives it up"
    return f"broker {broker}, which has a replica of it, is not there ({fix})"


def _with(wish: Wish, chosen: list[PartitionKey]) -> Wish:
    from dataclasses import replace

    return replace(wish, chosen=frozenset(chosen))


def _why_never(one: Partition, wish: Wish, away: Sequence[int]) -> str | None:
    """Why the partition must stay as it is. ``away``: brokers of its replicas that may be back."""
    wanted = wish.replication_factor or len(one.replicas)
    may_have = {*wish.allowed, *away}
    is_touched = wanted != len(one.replicas) or not set(one.replicas) <= may_have
    if not is_touched:
        return None
    if not one.is_led:
        return "it has no leader, so nothing can be copied"
    if away:
        return absent_why(away[0])
    if wanted < one.least_replicas:
        return f"{wanted} replicas are fewer than its min.insync.replicas of {one.min_insync}"
    if wanted > len(set(wish.allowed)):
        return too_few(wanted, len(set(wish.allowed)))
    return None
