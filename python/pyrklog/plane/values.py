"""Values for the Rust side: the image of the cluster, and what to lead and to follow.

Rust reads them by field names (rust/bridge/src/image.rs). Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyrklog.config.resolved import LogConfig, Throttled


class BrokerImage(NamedTuple):
    """A live broker; one endpoint for each listener: (name, host, port)."""

    id: int
    rack: str | None
    endpoints: Sequence[tuple[str, str, int]]


class PartitionImage(NamedTuple):
    partition: int
    leader: int
    leader_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]
    offline: Sequence[int]


class TopicImage(NamedTuple):
    name: str
    id: bytes
    internal: bool
    log: LogConfig
    min_insync_replicas: int
    partitions: Sequence[PartitionImage]
    throttled: Throttled = Throttled()


class ImageDelta(NamedTuple):
    """A change of the image; ``brokers`` is the whole list."""

    version: int
    controller_id: int
    brokers: Sequence[BrokerImage]
    topics: Sequence[TopicImage]
    removed_topics: Sequence[str]


class LeaderSpec(NamedTuple):
    """This broker leads the partition in this epoch."""

    topic: str
    partition: int
    leader_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]
    is_new: bool
    is_held: bool = False
    """Others are eligible to lead (KIP-966): the high watermark stands still."""
    partial: Sequence[int] = ()
    """Replicas that may join the ISR only once they lack no older records."""


class FollowerSpec(NamedTuple):
    """This broker follows in this epoch; leader -1 = none."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]
    is_new: bool
    is_partial: bool = False
    """Its log may begin at the leader's end."""


class ReplicaOffsets(NamedTuple):
    """Where a replica of this broker stands."""

    log_end: int
    high_watermark: int
    log_start: int
    size_bytes: int
