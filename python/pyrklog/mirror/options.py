"""What a mirror is asked for, and whom it tells what it does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from pyrklog.mirror.copy import Pace
from pyrklog.mirror.names import Cluster, Names, Offsets, Patterns
from pyrklog.mirror.state import Partition, Progress
from pyrklog.mirror.topics import BROKER_DEFAULT, Plan


class Options(NamedTuple):
    """What a user asks for. Times are seconds."""

    source: Cluster
    target: Cluster
    names: Names
    topics: Patterns
    groups: Patterns
    start: str = "earliest"
    once: bool = False
    missing: str = "fail"
    again: Sequence[str] = ()
    codec: str = "none"
    replicas: int = BROKER_DEFAULT
    pace: Pace = Pace()
    interval_s: float = 1.0
    group_interval_s: float = 60.0
    heartbeat_s: float | None = None
    timeout_s: float = 30.0
    offsets: Offsets = Offsets.TRANSLATE


class Told(Protocol):
    """Whom a mirror tells what it does."""

    def note(self, text: str) -> None:
        """What a user may want to know."""

    def began(self, plan: Plan, progress: Mapping[Partition, Progress]) -> None:
        """A session has begun, or its topics are others."""

    def copied(self, progress: Mapping[Partition, Progress]) -> None:
        """After each round."""
