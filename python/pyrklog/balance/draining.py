"""How a broker gives away all that it has: what it leads at once, then its replicas."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyrklog.balance.amounts import amount
from pyrklog.balance.model import (
    Cluster,
    Obstacle,
    PartitionKey,
    Plan,
    Replicas,
    Wish,
)
from pyrklog.balance.planner import absent_why, make_plan


def on_broker(
    cluster: Cluster, broker: int, without: Collection[PartitionKey] = ()
) -> list[PartitionKey]:
    return sorted(
        key
        for key, one in cluster.partitions.items()
        if broker in one.replicas and key not in without
    )


def handover(cluster: Cluster, broker: int) -> dict[PartitionKey, Replicas]:
    """The order of replicas in which an election takes leadership from ``broker``: the in-sync
    replica whose broker leads least comes first, ``broker`` last.

    A partition without another live replica in sync is left out: its leader goes with the copy.
    """
    led = dict.fromkeys(cluster.brokers, 0)
    for one in cluster.partitions.values():
        if one.leader_now in led:
            led[one.leader_now] += 1
    found = {}
    for key in on_broker(cluster, broker):
        one = cluster.partitions[key]
        if one.leader_now != broker and one.replicas[0] != broker:
            continue
        able = [
            number
            for number in one.replicas
            if number != broker and number in cluster.brokers and number in one.in_sync
        ]
        if not able:
            continue
        # One that leads already goes on.
        head = min(able, key=lambda number: (number != one.leader_now, led[number], number))
        if one.leader_now == broker:
            led[head] += 1
        rest = [number for number in one.replicas if number not in (head, broker)]
        found[key] = (head, *rest, broker)
    return found


def drain(
    cluster: Cluster,
    broker: int,
    allowed: Sequence[int] | None = None,
    *,
    rack_aware: bool = True,
    moving: Collection[PartitionKey] = (),
) -> Plan:
    """The plan by which ``broker`` has no replica any more; the partitions that cannot go are
    obstacles. ``allowed``: who gets its replicas; other brokers keep those that they have.
    ``moving``: partitions that are left alone."""
    others = [number for number in cluster.brokers if number != broker]
    chosen = on_broker(cluster, broker, moving)
    wish = Wish(others, (), chosen, rack_aware=rack_aware, takers=allowed, given_up=[broker])
    plan = make_plan(cluster, wish)
    return without_crowding(cluster, plan) if rack_aware else plan


def replace(
    cluster: Cluster,
    broker: int,
    by: int,
    *,
    rack_aware: bool = True,
    moving: Collection[PartitionKey] = (),
) -> Plan:
    """The plan by which ``by`` has the replicas of ``broker``, in their places. A partition that
    ``by`` has a replica of goes elsewhere. ``moving``: as for :func:`drain`."""
    plan = Plan()
    rooms = cluster.rooms(by)
    elsewhere = []
    for key in on_broker(cluster, broker, moving):
        one = cluster.partitions[key]
        away = [other for other in cluster.absent(key) if other != broker]
        if away:
            plan.obstacles.append(Obstacle(key, absent_why(away[0])))
        elif by in one.replicas:
            elsewhere.append(key)
        elif not one.is_led:
            why = "it has no leader, so nothing can be copied"
            plan.obstacles.append(Obstacle(key, why))
        elif not rooms.fit(one.size_bytes):
            full = rooms.full(by)
            why = f"it has {amount(one.size_bytes)}" + ("" if full is None else f"; {full.text}")
            plan.obstacles.append(Obstacle(key, why, is_room=True))
        else:
            rooms.take(one.size_bytes)
            plan.changed[key] = tuple(by if one == broker else one for one in one.replicas)
    others = [number for number in cluster.brokers if number != broker]
    wish = Wish(others, (), elsewhere, rack_aware=rack_aware, given_up=[broker])
    rest = make_plan(cluster, wish)
    plan.changed.update(rest.changed)
    plan.obstacles += rest.obstacles
    return without_crowding(cluster, plan) if rack_aware else plan


def without_crowding(cluster: Cluster, plan: Plan) -> Plan:
    """Partitions whose replicas would be on fewer racks become obstacles."""
    racks = cluster.racks
    if not racks:
        return plan
    kept = Plan(obstacles=list(plan.obstacles), full=plan.full)
    for key, replicas in plan.changed.items():
        before = {racks[one] for one in cluster.partitions[key].replicas if one in racks}
        after = {racks[one] for one in replicas if one in racks}
        if len(after) < len(before):
            why = f"its replicas would be on {len(after)} racks instead of {len(before)}"
            kept.obstacles.append(Obstacle(key, why))
        else:
            kept.changed[key] = replicas
    kept.obstacles.sort(key=lambda one: one.key)
    return kept
