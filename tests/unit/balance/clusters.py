"""Clusters for plans: by hand, by generation, and a naive plan to compare with."""

import random
from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from pyrklog.balance.model import (
    Broker,
    Cluster,
    Goal,
    LogDir,
    Partition,
    PartitionKey,
    Placement,
    Wish,
    loads,
)

GB = 10**9


def broker(number: int, rack: str | None = None, free: int | None = None) -> Broker:
    """``free``: of a disk of 1,000 GB."""
    place = [] if free is None else [LogDir("/d", 0, 1000 * GB, free)]
    return Broker(number, rack, place)


def cluster_of(
    replicas: Sequence[tuple[int, ...]],
    brokers: Sequence[int],
    sizes: Sequence[int] | None = None,
    racks: Mapping[int, str] | None = None,
) -> Cluster:
    """Topic ``t``, of which each partition has 1 GB unless ``sizes`` says otherwise."""
    partitions = {
        ("t", index): Partition(members, GB if sizes is None else sizes[index])
        for index, members in enumerate(replicas)
    }
    return Cluster({one: broker(one, (racks or {}).get(one)) for one in brokers}, partitions)


@st.composite
def clusters(draw: st.DrawFn, least: int = 0, plain: bool = False) -> Cluster:
    """Up to eight brokers, with racks and disks or (``plain``) without, and sixty partitions."""
    numbers = draw(st.lists(st.integers(1, 20), min_size=3, max_size=8, unique=True))
    racks = None if plain else draw(st.one_of(st.none(), st.integers(2, 4)))
    has_disks = not plain and draw(st.booleans())
    seed = draw(st.integers(0, 2**32))
    dice = random.Random(seed)
    brokers = {}
    for number in numbers:
        rack = None if racks is None else f"rack{dice.randrange(racks)}"
        brokers[number] = broker(number, rack, dice.randrange(1000) * GB if has_disks else None)
    partitions: dict[PartitionKey, Partition] = {}
    for index in range(draw(st.integers(least, 60))):
        members = tuple(dice.sample(numbers, dice.randint(1, min(3, len(numbers)))))
        rate = dice.choice([0.0, dice.expovariate(1e-6)])
        partitions["t" if index % 3 else "u", index] = Partition(
            members,
            int(dice.expovariate(1 / GB)),
            rate,
            rate * dice.randint(0, 3),
            leader=dice.choice([*members, members[0], members[0]]),
            isr=members,
            min_insync=dice.randint(1, len(members)),
        )
    return Cluster(brokers, partitions)


def naive(cluster: Cluster, wish: Wish) -> dict[PartitionKey, tuple[int, ...]]:
    """From scratch: the largest partition first, each replica on the least loaded broker."""
    load = dict.fromkeys(sorted(wish.allowed), 0.0)
    found = {}
    by_size = sorted(cluster.partitions, key=lambda key: (-cluster.partitions[key].size_bytes, key))
    for key in by_size:
        one = cluster.partitions[key]
        chosen = sorted(load, key=lambda number: (load[number], number))[: len(one.replicas)]
        for number in chosen:
            load[number] += one.size_bytes
        found[key] = tuple(chosen)
    return found


def spread(cluster: Cluster, placement: Placement, goal: Goal) -> tuple[float, float]:
    """The least and the most loaded broker, in means."""
    found = loads(cluster, placement, goal, cluster.brokers).values()
    mean = sum(found) / len(found)
    return (min(found) / mean, max(found) / mean) if mean else (1.0, 1.0)


def crowds(racks: Mapping[int, str], replicas: Sequence[int]) -> int:
    """Pairs of replicas that share a rack."""
    names = [racks[one] for one in replicas if one in racks]
    return sum(first == second for at, first in enumerate(names) for second in names[at + 1 :])


def large(brokers: int = 200, replicas: int = 100_000, added: int = 20) -> Cluster:
    """Uneven sizes and rates, ten racks, and brokers that have nothing yet."""
    dice = random.Random(27)
    found = {one: broker(one, f"rack{one % 10}") for one in range(1, brokers + added + 1)}
    partitions: dict[PartitionKey, Partition] = {}
    for index in range(replicas // 3):
        first, step = index % brokers, 1 + index // brokers % 7
        members = tuple((first + step * place) % brokers + 1 for place in range(3))
        rate = dice.lognormvariate(0, 1) * 50_000
        size = int(dice.lognormvariate(0, 1) * GB)
        partitions[f"t{index // 100}", index % 100] = Partition(
            members, size, rate, rate * dice.randint(0, 3)
        )
    return Cluster(found, partitions)
