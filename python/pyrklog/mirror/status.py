"""How far a mirror is."""

from __future__ import annotations

from typing import NamedTuple

from pyrklog.mirror.cluster import ClusterAdmin
from pyrklog.mirror.errors import Kind, MirrorError
from pyrklog.mirror.names import Names
from pyrklog.mirror.state import Partition, Progress, State, read_state
from pyrklog.scanning import ScanError, UnknownTopicError


class Row(NamedTuple):
    """Of a partition; ``end`` is None if the source has it no more, or nobody leads it."""

    topic: str
    partition: int
    progress: Progress
    end: int | None

    @property
    def lag(self) -> int | None:
        """In offsets."""
        return None if self.end is None else max(0, self.end - self.progress.position)


def stored(names: Names, target: ClusterAdmin) -> State:
    """What the topic of progress says. Raises MirrorError without one."""
    try:
        state = read_state(names.state_topic, target.records(names.state_topic))
    except ScanError as error:
        raise MirrorError(f"topic {names.state_topic} cannot be read: {error}") from error
    if state.origin is None:
        raise MirrorError(
            f"{target.cluster.alias} ({target.cluster.bootstrap}) knows no mirror {names.mirror}",
            "give the alias or --name that `pyrklog mirror run` had",
            Kind.NOT_FOUND,
        )
    return state


def rows(source: ClusterAdmin, partitions: dict[Partition, Progress]) -> list[Row]:
    """Raises MirrorError."""
    _, counts = source.topics()
    offline = source.leaderless()
    wanted: dict[str, list[int]] = {}
    for topic, number in partitions:
        if number < counts.get(topic, 0) and (topic, number) not in offline:
            wanted.setdefault(topic, []).append(number)
    try:
        ends = source.logs(wanted, "read_committed").ends
    except UnknownTopicError:
        ends = {}
    except ScanError as error:
        raise MirrorError(f"{source.cluster.alias}: {error}", kind=Kind.UNREACHABLE) from error
    return [
        Row(topic, number, one, ends.get((topic, number)))
        for (topic, number), one in sorted(partitions.items())
    ]
