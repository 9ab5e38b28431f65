"""Reads how far this mirror is, from a leader that has all of it.

A broker that is cut off from its peers shows the positions of before to clients that ask it, for as
long as it takes itself for the leader; the mirror has committed through its successor meanwhile.
With these positions records would be copied twice. So a mark is written, which comes behind all
that former sessions have committed, and the topic is read until it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol
from uuid import uuid4

from pyrklog.base.in_turn import servers_in_turn
from pyrklog.mirror.errors import AwayError, MirrorError
from pyrklog.mirror.names import Cluster
from pyrklog.mirror.state import Row, State, mark_row, read_state
from pyrklog.mirror.stopped import PASSING

SHOWN_WITHIN_S = 90.0
ATTEMPT_S = 15.0
"""For one broker's answer: what an open transaction hides there may stay so."""


class Admin(Protocol):
    """Of :class:`pyrklog.mirror.cluster.ClusterAdmin`."""

    @property
    def cluster(self) -> Cluster: ...
    def options(
        self, topics: Iterable[str]
    ) -> Mapping[str, Mapping[str, tuple[str | None, bool]]]: ...
    def records(
        self, topic: str, *, waits: bool, exists: bool, servers: str, timeout_s: float
    ) -> Iterable[tuple[bytes | None, bytes | None]]: ...


def read_own(target: Admin, topic: str, write: Callable[[Sequence[Row]], None]) -> State:
    """All that was committed to the topic of progress before. ``write`` writes rows and commits
    them; nobody else does. Raises MirrorError, AwayError if no leader shows what was written."""
    mark = mark_row(topic, uuid4().hex)
    write([mark])
    why = "the leader that brokers name lacks what was just written to it"
    for servers in servers_in_turn(target.cluster.bootstrap, SHOWN_WITHIN_S):
        try:
            last = dict(
                target.records(topic, waits=True, exists=True, servers=servers, timeout_s=ATTEMPT_S)
            )
        except PASSING as error:
            why = str(error)
            continue
        if mark.key in last:
            return read_state(topic, last.items())
    raise AwayError(
        f"how far the mirror is is not known, so nothing is copied: topic {topic} at "
        f"{target.cluster.alias}: {why}"
    )


def require_compacted(target: Admin, topic: str) -> None:
    """Raises MirrorError for a topic of progress that loses rows."""
    policy = target.options([topic])[topic].get("cleanup.policy", ("compact", False))[0]
    if policy != "compact":
        raise MirrorError(
            f"topic {topic} has cleanup.policy={policy}, with which progress is lost, and "
            "records can be copied twice",
            "set cleanup.policy=compact",
        )
