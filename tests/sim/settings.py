"""The settings of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

TOPIC = "t"
TOPIC_ID = b"simulated-topic!"


class Settings(NamedTuple):
    """Seed and faults are apart."""

    brokers: tuple[int, ...] = (1, 2, 3)
    partitions: Mapping[int, tuple[int, ...]] = {0: (1, 2, 3)}
    min_insync_replicas: int = 2
    rebalance_seconds: int | None = 7
    fetch_timeout_us: int = 3_000_000
    suspects: bool = True
    """``pyrklog.failover.suspicion``."""
    loses_power: bool = True
    """Machines lose power and what was not synced: ``min.insync.replicas`` less one at a time."""
    cuts_power: bool = False
    """Several machines lose power at once, beyond what is survivable."""
    moves: bool = False
    expands: bool = False
    """Some moves let new replicas begin at their leaders' ends. Records are deleted."""
    fills: bool = False
    """What such replicas lack is back-filled."""
    promotes: bool = False
    """Such replicas are promoted early. Members of groups read again, and commit."""
    makes_topics: bool = False
    changes_minimum: bool = False
    allows_unclean: bool = False
    """``unclean.leader.election.enable`` is true for a while."""
    hangs: bool = False
    caches: bool = False
    """Brokers have a block cache, so appends are acknowledged before they are written. Brokers are
    then also stopped at any time, and their machines switched off."""
    transactions: bool = False
    """Transactional clients, and the coordinators' topics."""
    injected: tuple[str, ...] = ()
    """Bugs of the data plane (``injected_faults.rs``)."""


def without_losses(settings: Settings) -> Settings:
    """The same without what may lose promised records."""
    return settings._replace(
        moves=False,
        expands=False,
        fills=False,
        promotes=False,
        cuts_power=False,
        changes_minimum=False,
        allows_unclean=False,
    )


def with_transactions(settings: Settings) -> Settings:
    """The same with transactional clients and two partitions, without losses and moves."""
    partitions = _two(settings.partitions)
    return without_losses(settings)._replace(transactions=True, partitions=partitions)


def _two(partitions: Mapping[int, tuple[int, ...]]) -> Mapping[int, tuple[int, ...]]:
    """The partitions, or the only one and another, led by its second replica."""
    if len(partitions) > 1:
        return partitions
    first, *others = partitions[0]
    return {0: partitions[0], 1: (*others, first)}
