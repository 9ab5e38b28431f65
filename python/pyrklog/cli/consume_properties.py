"""Properties of librdkafka that ``consume`` sets itself, or that change nothing in it. Pure."""

from collections.abc import Iterable

from pyrklog.base.problems import Problem
from pyrklog.cli.failures import CliError

_COMMITS = "with -g consume commits what it has printed"
_MEMBER = "it is for members of a group: give -g"
_WHERE = "say where to begin with -o"
_INSTEAD = {
    "group.id": "name the group with -g",
    "enable.auto.commit": _COMMITS,
    "auto.commit.enable": _COMMITS,
    "auto.commit.interval.ms": _COMMITS,
    "enable.auto.offset.store": _COMMITS,
    "auto.offset.reset": _WHERE,
    "topic.auto.offset.reset": _WHERE,
    "enable.partition.eof": "-e stops at the end",
    "max.poll.records": "-n stops after so many records",
}
_OF_MEMBERS = (
    "group.instance.id",
    "group.protocol",
    "group.remote.assignor",
    "heartbeat.interval.ms",
    "partition.assignment.strategy",
    "session.timeout.ms",
)


def refuse_without_effect(properties: Iterable[str], group: str | None) -> None:
    """Raises :class:`CliError` for the first such property."""
    for name in properties:
        instead = _INSTEAD.get(name)
        if instead is None and group is None and name in _OF_MEMBERS:
            instead = _MEMBER
        if instead is not None:
            raise CliError(Problem.ARGUMENTS_DISAGREE, f"consume does not take -X {name}", instead)
