"""Levels of a broker's loggers (KIP-412), as options of ``broker-loggers``. Pure."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyrklog.base.problems import Problem
from pyrklog.cli.failures import CliError
from pyrklog.cli.option_advice import like_option

if TYPE_CHECKING:
    from pyrklog.cli.config_cluster import Entry, Operation

LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
"""Kafka's."""
LISTED_MAX = 40
"""Loggers that a sentence names; Kafka has hundreds."""
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
    can have, and for levels that there are not."""
    listed = next((one for one in operations if one.value is not None and one.is_of_list), None)
    if listed is not None:
        what = f"the level of {listed.option} is no list"
        raise CliError(Problem.ARGUMENTS_DISAGREE, what, "give --set LOGGER=LEVEL")
    found = [
        one if one.value is None else one._replace(value=one.value.strip().upper())
        for one in operations
    ]
    for one in found:
        if one.value is not None and one.value not in LEVELS:
            what = f"{one.value} is no level of a logger ({one.option})"
            raise CliError(Problem.ARGUMENT_VALUE, what, f"levels: {', '.join(LEVELS)}")
    return found


def like_or_all(loggers: Sequence[str], known: Sequence[str], broker: str) -> str:
    """About loggers that a broker does not have."""
    like = like_option(loggers, known)
    if like is not None:
        return like
    if len(known) <= LISTED_MAX:
        return f"loggers of broker {broker}: {', '.join(known)}"
    return f"see `pyrklog config describe broker-loggers {broker}`"
