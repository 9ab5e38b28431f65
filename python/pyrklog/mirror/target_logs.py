"""What the target's logs have of what was mirrored."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from pyrklog.mirror.cluster import Logs
from pyrklog.mirror.copy import Copier
from pyrklog.mirror.errors import AwayError, MirrorError, how_again
from pyrklog.mirror.names import Names
from pyrklog.mirror.silent import Partitions, Silent
from pyrklog.mirror.state import Partition, Progress
from pyrklog.mirror.topics import Plan
from pyrklog.scanning import UnknownTopicError

NEW_TOPIC_S = 10.0
MARKERS_S = 10.0


class Admin(Protocol):
    """Of :class:`pyrklog.mirror.cluster.ClusterAdmin`."""

    def ends(self, topics: Mapping[str, int], isolation: str) -> dict[Partition, int]: ...
    def logs(
        self, partitions: Mapping[str, list[int]], isolation: str, *, leaves: bool
    ) -> Logs: ...
    def silent(self, partitions: Partitions) -> Iterable[Partition]: ...


class TargetLogs:
    """Of one mirror. ``note`` is told what a user may want to know. With ``is_whole`` leaders that
    do not answer count as away, else their partitions are left out: neither asked for nor copied.
    With ``recopies`` records that the target has lost are no failure.
    """

    def __init__(
        self,
        names: Names,
        target: Admin,
        note: Callable[[str], None],
        *,
        is_whole: bool = False,
        recopies: bool = False,
    ) -> None:
        self._names = names
        self._target = target
        self._note = note
        self._is_whole = is_whole
        self._recopies = recopies
        self._silent = Silent("target", self._still_silent, note)

    def without_silent(self, partitions: Partitions) -> dict[str, list[int]]:
        """The source's partitions whose counterparts can be written to."""
        return self._silent.without(partitions)

    def look(self, partitions: Partitions) -> bool:
        """As :meth:`Silent.look`."""
        return self._silent.look(partitions)

    def _still_silent(self, partitions: Partitions) -> list[Partition]:
        at_source = {self._names.at_target(topic): topic for topic in partitions}
        asked = {name: partitions[topic] for name, topic in at_source.items()}
        return [(at_source[name], number) for name, number in self._target.silent(asked)]

    def wait_until_visible(self, topic: str) -> None:
        """All that was committed to a topic of one partition at the target."""
        until = time.monotonic() + MARKERS_S
        end = self._target.ends({topic: 1}, "read_uncommitted")[topic, 0]
        while self._target.ends({topic: 1}, "read_committed")[topic, 0] < end:
            if time.monotonic() > until:
                raise AwayError(f"what was committed to topic {topic} is not visible yet")
            time.sleep(0.05)

    def settled(self, plan: Plan, known: Mapping[Partition, Progress]) -> Logs:
        """Once what a former session left is over: its markers come after the producer has been
        opened, and take offsets. Others' transactions may stay open."""
        # Finds those that do not answer, which takes a while.
        self.read(plan)
        until = time.monotonic() + MARKERS_S
        while True:
            logs = self.intact(plan, known)
            if self.read(plan, "read_committed").ends == logs.ends or time.monotonic() > until:
                return logs
            time.sleep(0.05)

    def intact(self, plan: Plan, known: Mapping[Partition, Progress]) -> Logs:
        """With what was mirrored. A new leader may show less for a moment. Raises MirrorError if
        that was lost."""
        until = time.monotonic() + MARKERS_S
        while True:
            logs = self.read(plan)
            if lost_at_target(known, logs) is None:
                return logs
            if time.monotonic() > until:
                lost = lost_at_target(known, logs, recopies=self._recopies)
                if lost is None:
                    return logs
                raise lost
            time.sleep(0.1)

    def visible_ends(self, copier: Copier, plan: Plan) -> dict[Partition, int] | None:
        """Once all that was committed is visible: a coordinator writes markers after it has
        answered. None, and a note, if that takes too long."""
        until = time.monotonic() + MARKERS_S
        while copier.is_behind(ends := self.read(plan, "read_committed").ends):
            if time.monotonic() > until:
                self.intact(plan, copier.progress)
                self._note("not all of the target's transactions are visible yet")
                return None
            time.sleep(0.05)
        return ends

    def read(self, plan: Plan, isolation: str = "read_uncommitted") -> Logs:
        """As they are now."""
        until = time.monotonic() + NEW_TOPIC_S
        while True:
            wanted = self.without_silent(plan.partitions())
            at_source = {self._names.at_target(topic): topic for topic in wanted}
            partitions = {name: wanted[topic] for name, topic in at_source.items()}
            try:
                logs = self._target.logs(partitions, isolation, leaves=not self._is_whole)
            except UnknownTopicError:
                # One that was just created.
                if time.monotonic() > until:
                    raise
            else:
                named = [one._replace(topic=at_source[one.topic]) for one in logs.left_out]
                self._silent.add(named)
                return logs
            time.sleep(0.1)


def lost_at_target(
    known: Mapping[Partition, Progress], logs: Logs, *, recopies: bool = False
) -> MirrorError | None:
    """Returns a MirrorError if mirrored records are gone at the target; None if they are there."""
    for (topic, partition), one in known.items():
        fix = how_again(topic, one.target, keeps=recopies)
        topic_id = logs.topic_ids.get(one.target, "")
        if one.target_id and topic_id and topic_id != one.target_id:
            what = f"topic {one.target} was deleted at the target and created anew"
            return MirrorError(f"{what}: mirrored records are lost there", fix)
        end = logs.ends.get((one.target, partition))
        if end is not None and end < one.target_end and not recopies:
            what = f"partition {partition} of topic {one.target} ends at {end} at the target"
            lost = f"before {one.target_end}: mirrored records are lost there"
            return MirrorError(f"{what}, {lost}", fix)
    return None
