import sys
from collections.abc import Mapping, Sequence
from typing import Any

from pyrklog.cli.config_cluster import Entry
from pyrklog.cli.config_kinds import Kind
from pyrklog.cli.options import OutputFormat
from pyrklog.cli.output import Column, Listing, columns, plain_table, print_listing

ENTRY_COLUMNS = columns("name OPTION, value, source, default, read_only*, type*, why*")
FLAT_COLUMNS = (*columns("kind, resource"), *ENTRY_COLUMNS)


def print_described(
    kind: Kind,
    found: Mapping[str, Sequence[Entry]],
    output: OutputFormat,
    cluster_id: str | None,
) -> None:
    """A table for each resource for people; a row for each option in ``csv``."""
    if output in (OutputFormat.TABLE, OutputFormat.WIDE):
        wide = output is OutputFormat.WIDE
        shown = [one for one in ENTRY_COLUMNS if wide or not one.wide]
        pages = [
            f"{kind} {name}\n{plain_table(shown, [_for_people(one) for one in entries])}"
            for name, entries in found.items()
        ]
        sys.stdout.write("\n".join(pages))
        sys.stdout.flush()
        return
    if output is OutputFormat.CSV:
        items = [
            {"kind": kind.value, "resource": name, **one.item()}
            for name, entries in found.items()
            for one in entries
        ]
        listing = Listing("pyrklog.configs/1", FLAT_COLUMNS, items, cluster_id)
    else:
        items = [
            {"resource": name, "kind": kind.value, "configs": [one.item() for one in entries]}
            for name, entries in found.items()
        ]
        names = columns("resource, kind, configs")
        listing = Listing("pyrklog.configs/1", names, items, cluster_id)
    print_listing(listing, output)


def _for_people(one: Entry) -> dict[str, Any]:
    return {**one.item(), "value": one.shown}


def print_difference(
    headings: Sequence[str],
    items: Sequence[Mapping[str, Any]],
    output: OutputFormat,
    cluster_id: str | None,
) -> None:
    """A column for each resource."""
    option = columns("name OPTION")
    if output in (OutputFormat.JSON, OutputFormat.JSONL, OutputFormat.YAML, OutputFormat.NAME):
        print_listing(Listing("pyrklog.config-diff/1", option, items, cluster_id), output)
        return
    # A resource may be called "name".
    shown = (*option, *(Column(f"value {one}", one) for one in headings))
    rows = [
        {"name": item["name"], **{f"value {one}": item["values"][one] for one in headings}}
        for item in items
    ]
    if items or output is OutputFormat.CSV:
        print_listing(Listing("pyrklog.config-diff/1", shown, rows, cluster_id), output)
