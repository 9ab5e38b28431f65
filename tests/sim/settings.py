"""What a run is made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

TOPIC = "t"
TOPIC_ID = b"simulated-topic!"


class Settings(NamedTuple):
    """See the module; its seed and its faults are apart."""

    brokers: tuple[int, ...] = (1, 2, 3)
    partitions: Mapping[int, tuple[int, ...]] = {0: (1, 2, 3)}
    min_insync_replicas: int = 2
    rebalance_seconds: int | None = 7
    fetch_timeout_us: int = 3_000_000
    suspects: bool = True
    """``pyrklog.failover.suspicion``."""
    loses_power: bool = True
    """Whether machines go down, too, and lose what was not synced: as many at a time as
    ``min.insync.replicas`` is for, which is one less."""
    cuts_power: bool = False
    """Whether several machines go down at once, more than is borne."""
    moves: bool = False
    """Whether partitions are reassigned."""
    makes_topics: bool = False
    """Whether topics are created and deleted."""
    changes_minimum: bool = False
    """Whether ``min.insync.replicas`` is changed."""
    allows_unclean: bool = False
    """Whether ``unclean.leader.election.enable`` is true for a while."""
    hangs: bool = False
    """Whether log volumes hang."""
    caches: bool = False
    """Whether brokers have a block cache: what is appended is acknowledged before it is written.
    Then brokers are stopped at any time, too, and machines switched off after that."""
    planted: tuple[str, ...] = ()
    """Bugs of the data plane (``injected_faults.rs``)."""
