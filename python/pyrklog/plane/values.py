"""What goes down to the Rust side: the image of the cluster, and what to lead and to follow.

The Rust side reads these by the names of their fields (rust/bridge/src/image.rs). Pure values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyrklog.config.resolved import LogConfig, Throttled


class BrokerImage(NamedTuple):
    """A live broker; one endpoint a listener: (name, host, port)."""

    id: int
    rack: str | None
    endpoints: Sequence[tuple[str, str, int]]


class PartitionImage(NamedTuple):
    """One partition as the controller last decided."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]
    offline: Sequence[int]


class TopicImage(NamedTuple):
    """One topic with its resolved options."""

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


class FollowerSpec(NamedTuple):
    """This broker follows another in the partition and this epoch; -1 = there is no leader."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]
    is_new: bool
