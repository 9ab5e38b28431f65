"""Brings the offsets of groups to the target."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from confluent_kafka import TopicPartition

from pyrklog.mirror.checkpoints import Checkpoint, Told
from pyrklog.mirror.errors import Kind, MirrorError
from pyrklog.mirror.names import Names, Patterns, Unmatched, chosen_groups
from pyrklog.mirror.state import Partition, Row

Committed = Mapping[str, Mapping[Partition, TopicPartition]]
"""By group."""


class Bounds(Protocol):
    """What is known of a partition's offsets at the target, such as
    :class:`pyrklog.mirror.spans.Spans`."""

    def bounds(self, offset: int) -> tuple[int, int] | None: ...


class GroupAdmin(Protocol):
    """Of :class:`pyrklog.mirror.cluster.ClusterAdmin`."""

    def groups(self) -> list[str]: ...
    def committed(
        self, groups: Sequence[str], partitions: Iterable[Partition], note: Callable[[str], None]
    ) -> Committed: ...
    def without_members(self, groups: Sequence[str], note: Callable[[str], None]) -> list[str]: ...
    def commit(self, group: str, offsets: Sequence[TopicPartition]) -> None: ...


def checkpoints(
    committed: Committed, names: Names, spans: Mapping[Partition, Bounds]
) -> dict[Checkpoint, int]:
    """Where the groups are at the target at least, as far as that is known, and at most."""
    found = {}
    for group, offsets in committed.items():
        for partition, one in offsets.items():
            known = spans.get(partition)
            bounds = known.bounds(one.offset) if known is not None else None
            if bounds is not None:
                least, most = bounds
                topic = names.at_target(partition[0])
                note = one.metadata or ""
                found[Checkpoint(group, topic, partition[1], one.offset, least, note)] = most
    return found


def ahead(wanted: Iterable[Checkpoint], at_target: Committed) -> dict[str, list[Checkpoint]]:
    """By group, those that lie ahead of what the group has committed at the target."""
    found: dict[str, list[Checkpoint]] = {}
    for one in wanted:
        there = at_target.get(one.group, {}).get((one.topic, one.partition))
        if there is None or there.offset < one.target_offset:
            found.setdefault(one.group, []).append(one)
    return found


def _committed(one: Checkpoint) -> TopicPartition:
    """Without metadata there is none to give: the binding adds a zero byte to what it is given, to
    an empty text too."""
    if not one.metadata:
        return TopicPartition(one.topic, one.partition, one.target_offset)
    return TopicPartition(one.topic, one.partition, one.target_offset, one.metadata)


class Groups:
    """Of one mirror. ``stored`` gives what the topic of checkpoints has. With ``is_whole`` no
    groups that come later are waited for."""

    def __init__(
        self,
        names: Names,
        wanted: Patterns,
        source: GroupAdmin,
        target: GroupAdmin,
        note: Callable[[str], None],
        stored: Callable[[], Iterable[tuple[bytes | None, bytes | None]]],
        *,
        is_whole: bool = False,
    ) -> None:
        self._names = names
        self._wanted = wanted
        self._source = source
        self._target = target
        self._note = note
        self._told = Told(stored)
        self._is_whole = is_whole
        self._left_out: set[str] = set()
        self._told_refused: set[str] = set()
        self._unmatched = Unmatched(names.source, "group", wanted)

    def sync(
        self, spans: Mapping[Partition, Bounds], write: Callable[[Sequence[Row]], None]
    ) -> int:
        """How many groups were moved on at the target. ``write`` writes records there and commits
        them."""
        if not self._wanted:
            return 0
        at_source = self._source.groups()
        groups, left_out = chosen_groups(self._wanted, at_source)
        self._unmatched.tell(at_source, self._note, is_whole=self._is_whole)
        self._tell_left_out(left_out)
        committed = self._source.committed(groups, spans, self._tell_refused)
        found = checkpoints(committed, self._names, spans)
        self._write(found, write)
        wanting = sorted({one.group for one in found})
        idle = set(self._target.without_members(wanting, self._tell_refused))
        # Not what was told before: only this is known to be right.
        wanted = [one for one in found if one.group in idle]
        asked = sorted({(one.topic, one.partition) for one in wanted})
        there = self._target.committed(sorted(idle), asked, self._tell_refused)
        # Of one that is not told it is not known whether it would go backwards.
        wanted = [one for one in wanted if one.group in there]
        moved = 0
        for group, some in ahead(wanted, there).items():
            try:
                self._target.commit(group, [_committed(one) for one in some])
            except MirrorError as error:
                # A member may have joined since.
                if error.kind is Kind.UNREACHABLE:
                    raise
                self._note(error.what)
            else:
                moved += 1
        return moved

    def _tell_refused(self, what: str) -> None:
        """Once for each reason: other groups go on."""
        if what not in self._told_refused:
            self._note(what)
        self._told_refused.add(what)

    def _tell_left_out(self, prefixes: set[str]) -> None:
        for prefix in sorted(prefixes - self._left_out):
            self._note(
                f"groups whose names begin with {prefix} are left out, as MirrorMaker does; "
                f"--groups '{prefix}.*' takes them, too"
            )
        self._left_out |= prefixes

    def _write(
        self, found: Mapping[Checkpoint, int], write: Callable[[Sequence[Row]], None]
    ) -> None:
        new = self._told.news(found)
        if new:
            topic = self._names.checkpoints_topic
            write([Row(topic, one.key(), one.value()) for one in new])
        self._told.were_told(new)
