"""Brings the offsets of groups to the target."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from confluent_kafka import TopicPartition

from pyrklog.mirror.checkpoints import Checkpoint
from pyrklog.mirror.errors import Kind, MirrorError
from pyrklog.mirror.names import Names, Patterns
from pyrklog.mirror.spans import Spans
from pyrklog.mirror.state import Partition, Row

Committed = Mapping[str, Mapping[Partition, TopicPartition]]
"""By group."""


class GroupAdmin(Protocol):
    """Of :class:`pyrklog.mirror.cluster.ClusterAdmin`."""

    def groups(self) -> list[str]: ...
    def committed(self, groups: Sequence[str]) -> Committed: ...
    def without_members(self, groups: Sequence[str]) -> list[str]: ...
    def commit(self, group: str, offsets: Sequence[TopicPartition]) -> None: ...


def checkpoints(
    committed: Committed, names: Names, spans: Mapping[Partition, Spans]
) -> list[Checkpoint]:
    """Where the groups are at the target, as far as that is known."""
    found = []
    for group, offsets in committed.items():
        for partition, one in offsets.items():
            known = spans.get(partition)
            target = known.translate(one.offset) if known is not None else None
            if target is not None:
                topic = names.at_target(partition[0])
                found.append(Checkpoint(group, topic, partition[1], one.offset, target))
    return found


def ahead(wanted: Iterable[Checkpoint], at_target: Committed) -> dict[str, list[Checkpoint]]:
    """By group, those that lie ahead of what the group has committed at the target."""
    found: dict[str, list[Checkpoint]] = {}
    for one in wanted:
        there = at_target.get(one.group, {}).get((one.topic, one.partition))
        if there is None or there.offset < one.target_offset:
            found.setdefault(one.group, []).append(one)
    return found


class Groups:
    """Of one mirror. ``write`` writes records to the target and commits them."""

    def __init__(
        self,
        names: Names,
        wanted: Patterns,
        source: GroupAdmin,
        target: GroupAdmin,
        note: Callable[[str], None],
    ) -> None:
        self._names = names
        self._wanted = wanted
        self._source = source
        self._target = target
        self._note = note
        self._told: dict[tuple[str, str, int], Checkpoint] = {}

    def sync(self, spans: Mapping[Partition, Spans], write: Callable[[Sequence[Row]], None]) -> int:
        """How many groups were moved on at the target."""
        if not self._wanted:
            return 0
        groups = self._wanted.matching(self._source.groups())
        found = checkpoints(self._source.committed(groups), self._names, spans)
        self._write(found, write)
        idle = set(self._target.without_members(sorted({one.group for one in found})))
        wanted = [one for one in found if one.group in idle]
        there = self._target.committed(sorted(idle))
        moved = 0
        for group, some in ahead(wanted, there).items():
            offsets = [TopicPartition(one.topic, one.partition, one.target_offset) for one in some]
            try:
                self._target.commit(group, offsets)
            except MirrorError as error:
                # A member may have joined since.
                if error.kind is Kind.UNREACHABLE:
                    raise
                self._note(error.what)
            else:
                moved += 1
        return moved

    def _write(self, found: Sequence[Checkpoint], write: Callable[[Sequence[Row]], None]) -> None:
        new = [one for one in found if self._told.get((one.group, one.topic, one.partition)) != one]
        if new:
            topic = self._names.checkpoints_topic
            write([Row(topic, one.key(), one.value()) for one in new])
        self._told.update(((one.group, one.topic, one.partition), one) for one in new)
