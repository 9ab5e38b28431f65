"""Why a plan moves what it moves, by the loads of the brokers before and after it."""

from __future__ import annotations

from collections.abc import Collection

from pyrklog.balance.model import (
    Cluster,
    Goal,
    PartitionKey,
    Placement,
    arriving,
    loads,
    shares,
)

_WORDS = {
    Goal.BYTES: "bytes",
    Goal.IN: "what producers write",
    Goal.OUT: "what leaders send",
    Goal.LEADERS: "leaders",
    Goal.REPLICAS: "replicas",
}


def explain(
    cluster: Cluster, changed: Placement, brokers: Collection[int]
) -> dict[PartitionKey, str]:
    """A sentence for each partition: the goal for which its broker is furthest above the other one,
    in means of ``brokers``, of those that the move counts for."""
    relative: dict[Goal, dict[int, float]] = {}
    for goal in Goal:
        found = loads(cluster, cluster.placement, goal, brokers)
        mean = sum(found[number] for number in brokers) / max(1, len(brokers))
        relative[goal] = {number: load / mean for number, load in found.items()} if mean else {}
    return {
        key: _why(cluster, key, replicas, brokers, relative) for key, replicas in changed.items()
    }


def _why(
    cluster: Cluster,
    key: PartitionKey,
    after: tuple[int, ...],
    brokers: Collection[int],
    relative: dict[Goal, dict[int, float]],
) -> str:
    one = cluster.partitions[key]
    before = one.replicas
    comes = arriving(before, after)
    goes = [number for number in before if number not in after]
    away = [number for number in goes if number not in brokers]
    if away:
        return f"broker {away[0]} may have no replicas, or is gone"
    if len(after) != len(before):
        return f"it is to have {len(after)} replicas, not {len(before)}"
    pairs = list(zip(goes, comes, strict=True)) or [(before[0], after[0])]
    racks = cluster.racks
    names = [racks.get(number) for number in before]
    if racks and comes and len(set(names)) < len({racks.get(number) for number in after}):
        return "two of its replicas share a rack"
    best: tuple[float, str] | None = None
    for goal in Goal:
        counts = dict(shares(one, before, goal))
        for source, target in pairs:
            if not relative[goal] or not counts.get(source):
                continue
            high, low = relative[goal].get(source, 0.0), relative[goal].get(target, 0.0)
            told = (
                f"broker {source} has {high:.2f} of the mean of {_WORDS[goal]}, {target} {low:.2f}"
            )
            if best is None or high - low > best[0]:
                best = (high - low, told)
    return "it makes room for others" if best is None or best[0] <= 0 else best[1]
