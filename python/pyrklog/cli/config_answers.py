"""Whom ``config diff`` asks, and what it says about those that do not answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyrklog.base.problems import Problem
from pyrklog.cli.cluster_requests import AWAY_FIX, ClusterRequests
from pyrklog.cli.config_cluster import ConfigAdmin, Entry
from pyrklog.cli.dev_here import Address, zookeepers_behind
from pyrklog.cli.failures import CliError
from pyrklog.cli.in_parallel import in_parallel
from pyrklog.cli.options import Settings
from pyrklog.config.zookeeper_connect import parse_connect
from pyrklog.dev.state import Cluster
from pyrklog.errors import ConfigError

ZOOKEEPER = "zookeeper.connect"
_SILENT = (Problem.NO_ANSWER, Problem.BROKER_AWAY)


class Answers:
    """Options of brokers by name, and why others are missing."""

    def __init__(self, found: dict[str, list[Entry]], silent: dict[str, CliError]) -> None:
        self.found = found
        self.silent = silent

    def refuse_few(self) -> None:
        """Raises :class:`CliError` where nothing is left to compare."""
        if self.silent and len(self.found) < 2:
            first = next(iter(self.silent.values()))
            raise CliError(first.problem, self._what, first.fix, why="nothing is compared")

    def tell_silent(self) -> None:
        """Raises :class:`CliError` for brokers that are not compared."""
        if self.silent:
            why = "; ".join(error.what for error in self.silent.values())
            raise CliError(Problem.PARTLY_DONE, self._what, AWAY_FIX, why=why)

    @property
    def _what(self) -> str:
        names = sorted(self.silent, key=lambda name: (len(name), name))
        brokers = f"broker{'' if len(names) == 1 else 's'} {', '.join(names)}"
        return f"{brokers} did not answer"


def ask_each(settings: Settings, admin: ConfigAdmin, names: Sequence[str]) -> Answers:
    """Brokers at once: one that hangs takes no time of the others. Raises :class:`CliError` for
    all but silence."""

    def ask(name: str) -> list[Entry] | CliError:
        try:
            with ClusterRequests(settings) as requests:
                return admin.by(requests).describe([name])[name]
        except CliError as error:
            return error

    answers = Answers({}, {})
    for name, told in zip(names, in_parallel(ask, names), strict=True):
        if not isinstance(told, CliError):
            answers.found[name] = told
        elif told.problem in _SILENT:
            answers.silent[name] = told
        else:
            raise told
    return answers


def away(requests: ClusterRequests) -> dict[str, CliError]:
    """Brokers that have replicas, but are not alive."""
    metadata = requests.metadata()
    alive = {one.node_id for one in metadata.brokers}
    holders = {
        number
        for topic in metadata.topics
        for partition in topic.partitions
        for number in partition.replica_nodes
    }
    return {
        str(number): CliError(Problem.BROKER_AWAY, f"broker {number} is not alive", AWAY_FIX)
        for number in sorted(holders - alive)
    }


def without_dev_ways(
    items: Sequence[dict[str, Any]], cluster: Cluster
) -> tuple[list[dict[str, Any]], bool]:
    """Without ``zookeeper.connect`` where brokers of ``pyrklog dev`` name the same servers and
    chroot, each by addresses of its own; and whether it was there."""
    behind = zookeepers_behind(cluster)
    kept = [one for one in items if one["name"] != ZOOKEEPER or not _is_same(one, behind)]
    return kept, len(kept) < len(items)


def _is_same(item: Mapping[str, Any], behind: Mapping[Address, Address]) -> bool:
    try:
        places = [parse_connect(value) for value in item["values"].values() if value is not None]
    except ConfigError:
        return False
    named = {(tuple(behind.get(one, one) for one in found), root) for found, root in places}
    return len(named) == 1 and len(places) == len(item["values"])
