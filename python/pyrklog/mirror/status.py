"""How far a mirror is."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from pyrklog.mirror.cluster import ClusterAdmin, Logs
from pyrklog.mirror.errors import Kind, MirrorError
from pyrklog.mirror.names import Names, mirror_of
from pyrklog.mirror.state import Partition, Progress, State, read_state
from pyrklog.scanning import ScanError, UnknownTopicError


class Standing(Enum):
    """What is to be said of a partition, besides figures."""

    COPIED = "copied"
    BEHIND = "behind"
    GONE = "gone"
    ANEW = "created anew"
    LEADERLESS = "no leader"


class Row(NamedTuple):
    """Of a partition; ``end`` is None if the source has it no more, or nobody leads it. ``missing``
    says why."""

    topic: str
    partition: int
    progress: Progress
    end: int | None
    missing: Standing | None = None

    @property
    def lag(self) -> int | None:
        """In offsets."""
        return None if self.end is None else max(0, self.end - self.progress.position)

    @property
    def standing(self) -> Standing:
        if self.missing is not None:
            return self.missing
        return Standing.BEHIND if self.lag else Standing.COPIED


def stored(names: Names, target: ClusterAdmin) -> State:
    """What the topic of progress says. Raises MirrorError without one."""
    try:
        state = read_state(names.state_topic, target.records(names.state_topic))
    except ScanError as error:
        raise MirrorError(f"topic {names.state_topic} cannot be read: {error}") from error
    if state.origin is None:
        found = [one for one in map(mirror_of, sorted(target.topics()[1])) if one is not None]
        hint = f", which is one of {', '.join(found)}" if found else ""
        raise MirrorError(
            f"{target.cluster.alias} ({target.cluster.bootstrap}) knows no mirror {names.mirror}",
            f"give the alias of --from or the --name that `pyrklog mirror run` had{hint}",
            Kind.NOT_FOUND,
        )
    return state


def rows(source: ClusterAdmin, partitions: dict[Partition, Progress]) -> list[Row]:
    """Raises MirrorError."""
    for is_last in (False, True):
        _, counts = source.topics()
        offline = source.leaderless()
        wanted: dict[str, list[int]] = {}
        for topic, number in partitions:
            if number < counts.get(topic, 0) and (topic, number) not in offline:
                wanted.setdefault(topic, []).append(number)
        try:
            logs = source.logs(wanted, "read_committed")
        except UnknownTopicError as error:
            # It was deleted since the cluster told its topics.
            if is_last:
                raise MirrorError(f"{source.cluster.alias}: {error}", "try again") from error
        except ScanError as error:
            raise MirrorError(f"{source.cluster.alias}: {error}", kind=Kind.UNREACHABLE) from error
        else:
            break
    return [
        _row(key, one, counts.get(key[0], 0), key in offline, logs)
        for key, one in sorted(partitions.items())
    ]


def _row(key: Partition, one: Progress, count: int, is_offline: bool, logs: Logs) -> Row:
    topic, number = key
    now = logs.topic_ids.get(topic)
    missing = None
    if count == 0:
        missing = Standing.GONE
    elif number >= count or (now and one.topic_id and now != one.topic_id):
        missing = Standing.ANEW
    elif is_offline:
        missing = Standing.LEADERLESS
    return Row(topic, number, one, None if missing is not None else logs.ends.get(key), missing)
