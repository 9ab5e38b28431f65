"""Levels of a broker's loggers (KIP-412), as options of ``broker-loggers``. Pure."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyrklog.base.problems import Problem
from pyrklog.cli.failures import CliError

if TYPE_CHECKING:
    from pyrklog.cli.config_cluster import Entry, Operation

ROOT = "root"
"""The logger whose level others have that have none of their own."""


def with_inherited(entries: Sequence["Entry"]) -> list["Entry"]:
    """With the level that each logger has without one of its own as the default. Brokers tell
    levels in force only. The root's own counts as its default."""
    levels = {one.name: one.value for one in entries}
    return [
        one._replace(default=inherited, unset=inherited)
        for one in entries
        for inherited in (inherited_level(one.name, levels),)
    ]


def inherited_level(name: str, levels: Mapping[str, str | None]) -> str | None:
    """Kafka's loggers have their parent's, by the dots of their names; ours the root's."""
    while "." in name:
        name = name.rpartition(".")[0]
        if name in levels:
            return levels[name]
    return levels.get(ROOT)


def level_after(name: str, before: Mapping[str, "Entry"], given: Sequence["Operation"]) -> str:
    """The level of a logger whose own is taken away."""
    levels = {one.name: one.value for one in before.values()}
    levels |= {one.option: one.value for one in given if one.value is not None}
    return inherited_level(name, levels) or "-"


def spelled(operations: Sequence["Operation"]) -> list["Operation"]:
    """With levels in capitals, as brokers want them. Raises :class:`CliError` for what no level
    can have."""
    listed = next((one for one in operations if one.value is not None and one.is_of_list), None)
    if listed is not None:
        what = f"the level of {listed.option} is no list"
        raise CliError(Problem.ARGUMENTS_DISAGREE, what, "give --set LOGGER=LEVEL")
    return [
        one if one.value is None else one._replace(value=one.value.strip().upper())
        for one in operations
    ]
