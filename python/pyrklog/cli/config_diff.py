"""Options with different values. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from pyrklog.cli.config_cluster import Entry
from pyrklog.cli.config_kinds import ALL_BROKERS, Kind

DEFAULT = "default"
"""Heading of the values that nobody set."""
DIFFERENT_BY_NATURE = frozenset(
    (
        *("broker.id", "node.id", "broker.rack", "log.dir", "log.dirs", "metadata.log.dir"),
        *("host.name", "port", "advertised.host.name", "advertised.port", "process.roles"),
        *("listeners", "advertised.listeners", "listener.security.protocol.map"),
        *("pyrklog.data.dir", "pyrklog.meta.dir"),
    )
)
"""What each broker has of its own: numbers, addresses, directories."""


def is_of_all_brokers(kind: Kind, names: Sequence[str]) -> bool:
    """Whether brokers are compared with ``default``: that has only what was set for all."""
    return kind is Kind.BROKER and len(names) > 1 and ALL_BROKERS in names


def difference(
    kind: Kind, found: Mapping[str, Sequence[Entry]], *, all_options: bool
) -> tuple[list[str], list[dict[str, Any]]]:
    """Headings, and an item ``{name, values: {heading: value}}`` for each option that differs.

    One resource alone is compared with its defaults, and a broker with ``default`` by the options
    that this has. Sensitive values are unknown, and left out.
    """
    by_name = {name: {one.name: one for one in entries} for name, entries in found.items()}
    options = sorted({option for entries in by_name.values() for option in entries})
    if is_of_all_brokers(kind, list(found)):
        options = sorted(by_name[ALL_BROKERS])
    left_out = DIFFERENT_BY_NATURE if kind is Kind.BROKER and not all_options else ()
    headings = list(found)
    if len(headings) == 1:
        headings.append(DEFAULT)
    items = []
    for option in options:
        known = {name: entries.get(option) for name, entries in by_name.items()}
        if option in left_out or any(one is not None and one.is_hidden for one in known.values()):
            continue
        values = {name: None if one is None else one.value for name, one in known.items()}
        if len(known) == 1:
            (only,) = known.values()
            values[DEFAULT] = None if only is None else only.default
            if only is None or only.source == DEFAULT:
                continue  # some defaults depend on the machine
        if len(set(values.values())) > 1:
            items.append({"name": option, "values": values})
    return headings, items
