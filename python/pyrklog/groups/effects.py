"""Effects of a group's events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import NamedTuple

from pyrklog.groups.core_types import OffsetCommit
from pyrklog.groups.messages import Result
from pyrklog.plane.internal_log import NewRecord, Producer


class Timer(Enum):
    SESSION = auto()
    """A member's session; for a new member, the limit of its JoinGroup."""
    PENDING_MEMBER = auto()
    """A given member id may come back until then."""
    INITIAL_DELAY = auto()
    REBALANCE = auto()
    """Members may join again until then."""
    SYNC = auto()
    """Members of a new generation may send SyncGroup until then."""


class Reply(NamedTuple):
    """Answers the request of this token, once."""

    token: int
    result: Result


class Append(NamedTuple):
    """Records for the group's partition of ``__consumer_offsets``.

    The driver calls ``append_finished`` with the ticket once the high watermark has passed the
    records, or the append has failed.
    """

    ticket: int
    records: Sequence[NewRecord]
    producer: Producer | None = None
    guard: int | None = None
    """Of a transaction's first append to the partition (KIP-890)."""


class AppendCommit(NamedTuple):
    """A staged commit for ``__consumer_offsets``. The data plane answers it and puts it into the
    group's offset table."""

    commit: OffsetCommit


class SetTimer(NamedTuple):
    """Starts or restarts a timer; ``member_id`` is empty for the group's."""

    timer: Timer
    member_id: str
    delay_ms: int


class CancelTimer(NamedTuple):
    timer: Timer
    member_id: str


class Notice(NamedTuple):
    """A line for the log."""

    event: str
    fields: Mapping[str, object]
    level: str = "info"


Effect = Reply | Append | AppendCommit | SetTimer | CancelTimer | Notice
