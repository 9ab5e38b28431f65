"""Lag in seconds, which coordinators of ours tell (GroupLag); the clients' protocol has none.

Asked without authentication or encryption; with such settings lag in seconds is unknown.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from pyrklog.cli.broker_connection import BrokerConnection
from pyrklog.cli.broker_healths import is_ours
from pyrklog.cli.in_parallel import in_parallel
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.lag import (
    GROUP_LAG,
    UNKNOWN,
    GroupLag,
    GroupLagRequest,
    GroupLagResponse,
    PartitionLag,
    PastLag,
    Trend,
)

if TYPE_CHECKING:
    from pyrklog.cli.connection import Connection

ANSWER_WAIT_S = 5.0
RETRY_PAUSE_S = 0.2
_PASSING = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
)
_TRENDS = {Trend.UP: "up", Trend.FLAT: "flat", Trend.DOWN: "down"}

Key = tuple[str, int]


class ToldLag(NamedTuple):
    """None: unknown. ``is_least``: at least so many seconds. ``lost``: records that retention has
    deleted before the group read them."""

    lag_s: float | None = None
    is_least: bool = False
    lost: int | None = None
    trend: str | None = None


UNTOLD = ToldLag()


@dataclass(frozen=True)
class ToldGroup:
    members: int
    lag: int | None
    whole: ToldLag
    partitions: Mapping[Key, ToldLag] = field(default_factory=dict)
    ahead: int | None = None
    """Records by which committed offsets are beyond log ends; None: unknown."""


@dataclass
class ToldGroups:
    """``silent``: brokers that did not tell; ``unfinished``: those that have not looked at all
    groups yet; ``left_out``: groups that coordinators leave out."""

    groups: dict[str, ToldGroup] = field(default_factory=dict)
    silent: list[int] = field(default_factory=list)
    unfinished: list[int] = field(default_factory=list)
    left_out: int = 0


def told_group(connection: Connection, coordinator: int | None, name: str) -> ToldGroup | None:
    """None: the coordinator does not tell."""
    broker = connection.metadata().brokers.get(coordinator)
    if broker is None or connection.settings.security_protocol != "plaintext":
        return None
    asking = _Asking(connection, broker.id, (broker.host, broker.port))
    try:
        [found] = asking.ask(GroupLagRequest([name])).groups
    except (OSError, UnicodeError, ValueError):
        return None
    return _group(found) if found.error_code == ErrorCode.NONE else None


def told_past(
    connection: Connection, number: int, name: str, topic: str | None, back_s: float
) -> PastLag | None:
    """How far a group, or a topic of it, was behind while the broker coordinated it. None: it does
    not tell."""
    if connection.settings.security_protocol != "plaintext":
        return None
    broker = connection.metadata().brokers[number]
    request = GroupLagRequest([name], history_ms=int(back_s * 1000), history_topic=topic or "")
    try:
        asking = _Asking(connection, number, (broker.host, broker.port))
        [found] = asking.ask(request).groups
    except (OSError, UnicodeError, ValueError):
        return None
    return found.history[0] if found.history else PastLag()


def told_groups(
    connection: Connection, over_records: int | None, over_s: float | None
) -> ToldGroups:
    """All groups whose lag is over one of the limits."""
    request = GroupLagRequest(
        over_records=UNKNOWN if over_records is None else over_records,
        over_ms=UNKNOWN if over_s is None else int(over_s * 1000),
    )
    brokers = list(connection.metadata().brokers.values())
    found = ToldGroups()
    if connection.settings.security_protocol != "plaintext":
        found.silent = [one.id for one in brokers]
        return found

    def ask(number: int) -> _All | None:
        broker = connection.metadata().brokers[number]
        try:
            return _Asking(connection, number, (broker.host, broker.port)).all(request)
        except (OSError, UnicodeError, ValueError):
            return None

    numbers = sorted(one.id for one in brokers)
    for number, told in zip(numbers, in_parallel(ask, numbers), strict=True):
        if told is None:
            found.silent.append(number)
        else:
            found.groups.update(told.groups)
            found.left_out += told.left_out
            if not told.is_whole:
                found.unfinished.append(number)
    return found


class _Asking:
    """Of one broker."""

    def __init__(self, connection: Connection, number: int, address: tuple[str, int]) -> None:
        self._number = number
        self._address = address
        self._wait_s = min(ANSWER_WAIT_S, connection.settings.timeout_s)

    def ask(self, request: GroupLagRequest) -> GroupLagResponse:
        """Waits a while for one that has looked at all groups. Raises :class:`OSError` if it is
        none of ours, or does not tell in time."""
        deadline = time.monotonic() + self._wait_s
        with BrokerConnection(self._address, self._wait_s) as connection:
            if not is_ours(connection, self._number):
                raise OSError("another kind of broker")
            while True:
                found = connection.ask(GROUP_LAG, 0, request)
                code = ErrorCode(found.error_code)
                is_late = time.monotonic() > deadline
                if code is ErrorCode.NONE and (found.is_whole or is_late):
                    return found
                if is_late or (code and code not in _PASSING):
                    raise OSError(code.name)
                time.sleep(RETRY_PAUSE_S)

    def all(self, request: GroupLagRequest) -> _All:
        """The pages together."""
        groups: dict[str, ToldGroup] = {}
        after: str | None = ""
        left_out, is_whole = 0, True
        while after is not None:
            page = self.ask(
                GroupLagRequest(
                    after=after, over_records=request.over_records, over_ms=request.over_ms
                )
            )
            groups.update((one.group_id, _group(one)) for one in page.groups)
            after, left_out, is_whole = page.after, page.left_out, page.is_whole
        return _All(groups, left_out, is_whole)


class _All(NamedTuple):
    """What one broker tells."""

    groups: dict[str, ToldGroup]
    left_out: int
    is_whole: bool


def _group(told: GroupLag) -> ToldGroup:
    return ToldGroup(
        told.members,
        _known(told.lag),
        _lag(told),
        {(one.topic, one.partition_index): _lag(one) for one in told.partitions},
        None if told.lag == UNKNOWN else told.ahead,
    )


def _lag(told: GroupLag | PartitionLag) -> ToldLag:
    ms = _known(told.lag_ms)
    seconds = None if ms is None else ms / 1000
    trend = next((name for one, name in _TRENDS.items() if one == told.trend), None)
    return ToldLag(seconds, told.is_least, _known(told.lost), trend)


def _known(number: int) -> int | None:
    return None if number == UNKNOWN else number
