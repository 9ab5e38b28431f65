"""What a group asks its driver to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import NamedTuple

from pyrklog.groups.core_types import OffsetCommit
from pyrklog.groups.messages import Result
from pyrklog.internal_log import NewRecord, Producer


class Timer(Enum):
    """Every timer of a group."""

    SESSION = auto()
    """A member's session; of a new one: how long its JoinGroup may wait."""
    PENDING_MEMBER = auto()
    """A member id was handed out and has not come back."""
    INITIAL_DELAY = auto()
    """The first members of an empty group wait for more."""
    REBALANCE = auto()
    """Members have this long to join again."""
    SYNC = auto()
    """Members of a new generation have this long to ask for their assignment."""


class Reply(NamedTuple):
    """The answer to the request that came with this token; each token gets exactly one."""

    token: int
    result: Result


class Append(NamedTuple):
    """Records for the group's partition of ``__consumer_offsets``.

    To be answered by ``append_finished`` with the same ticket, once the high watermark has passed
    them or they have failed.
    """

    ticket: int
    records: Sequence[NewRecord]
    producer: Producer | None = None


class AppendCommit(NamedTuple):
    """A staged commit for the group's partition of ``__consumer_offsets``; the data plane answers
    it and puts it into the group's table."""

    commit: OffsetCommit


class SetTimer(NamedTuple):
    """Starts a timer, or starts it anew; ``member_id`` is empty for the group's own."""

    timer: Timer
    member_id: str
    delay_ms: int


class CancelTimer(NamedTuple):
    """Stops a timer, if it runs."""

    timer: Timer
    member_id: str


class Notice(NamedTuple):
    """A line for the log."""

    event: str
    fields: Mapping[str, object]
    level: str = "info"


Effect = Reply | Append | AppendCommit | SetTimer | CancelTimer | Notice
