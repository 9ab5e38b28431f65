"""What metrics and health are read from. Loads nothing that a start does not load anyway."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from pyrklog.base.clock_reading import ClockReading
from pyrklog.cluster.metadata import Metadata
from pyrklog.cluster.requests import TopicPartition
from pyrklog.handlers.client_table import ClientTable
from pyrklog.metastore.interface import Metastore
from pyrklog.plane.core_plane import Plane
from pyrklog.telemetry.client_metrics import ClientMetrics

if TYPE_CHECKING:
    from pyrklog.groups.group_manager import GroupManager
    from pyrklog.lag.service import LagService

Stage = Literal["starting", "serving", "ending"]


class Origin(NamedTuple):
    """Whose metrics they are."""

    cluster_id: str
    broker: int
    started_at: float
    """Seconds since the epoch."""


@dataclass(frozen=True)
class Sources:
    """What there is to read."""

    cluster_id: str
    metadata: Metadata
    plane: Plane
    store: Metastore
    log_dirs: Sequence[str]
    stage: Callable[[], Stage]
    failed_log_dirs: Callable[[], Sequence[str]]
    groups: Callable[[], GroupManager | None]
    """None until the coordinator runs."""
    lag: Callable[[], LagService | None]
    """None until it is looked at."""
    started_at: float
    """Seconds since the epoch."""
    is_told: Callable[[], bool]
    """Whether a controller has told this broker the cluster since its registration in the latest
    session; without ZooKeeper always."""
    adding: Callable[[TopicPartition], Sequence[int]]
    """Replicas that a reassignment adds to a partition with a replica here."""
    is_reassigned: Callable[[TopicPartition], bool]
    """Whether a reassignment adds or removes replicas of a partition with a replica here."""
    partial: Callable[[TopicPartition], Sequence[int]]
    """Those of them that count for none in ``min.insync.replicas``."""
    adding_changes: Callable[[], int]
    """How often one of both has changed; the image's version need not change with it."""
    store_clock: Callable[[], ClockReading | None]
    """Of ZooKeeper, at the last registration."""
    clients: ClientTable
    client_metrics: ClientMetrics
    """What clients have pushed."""
    isr_changes: Callable[[], tuple[int, int]]
    """How many ISRs of partitions led here have grown, and how many have shrunk."""
    unclean_elections: Callable[[], int]
    """By this broker as the controller."""
