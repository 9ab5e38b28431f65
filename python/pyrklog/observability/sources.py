"""What metrics and health are read from. Loads nothing that a start does not load anyway."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from pyrklog.cluster.metadata import Metadata
from pyrklog.metastore.interface import Metastore
from pyrklog.plane.core_plane import Plane

if TYPE_CHECKING:
    from pyrklog.groups.group_manager import GroupManager

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
    started_at: float
    """Seconds since the epoch."""
