"""Who could not have answered whom of late: what suspicions by silence are held against."""

from __future__ import annotations

from tests.sim.cluster import Cluster

OF_LATE_US = 5_000_000
"""A decision comes so much later than what it goes by, at most: the store may be away for a
session's time-out in between."""


def _since_us(cluster: Cluster) -> int:
    """No session ends while the store is away: what was decided before is written behind that."""
    since_us = cluster.heap.now_us - OF_LATE_US
    went_us, came_us = cluster.zookeeper.away_us
    return min(since_us, went_us - OF_LATE_US) if came_us >= since_us else since_us


def was_still(cluster: Cluster, observer: int, target: int) -> bool:
    """Whether a question of one broker to another may have had no answer at some time of late."""
    since_us = _since_us(cluster)
    life = cluster.brokers[target].life
    if life is None or not life.is_listening or life.process.is_paused:
        return True
    if max(life.began_us, life.process.resumed_us) >= since_us:
        return True
    network = cluster.network
    return any(
        not network.reaches(*way)
        or network.filters(*way)
        or network.healed_us.get(way, since_us - 1) >= since_us
        for way in ((observer, target), (target, observer))
    )


def was_still_for_another(cluster: Cluster, observer: int, target: int) -> bool:
    """Whether a third broker may have had no answer either."""
    others = set(cluster.brokers) - {observer, target}
    return any(was_still(cluster, other, target) for other in others)
