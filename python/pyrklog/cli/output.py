"""Prints lists: tables for people, and stable formats for programs, which only gain fields.

``json`` and ``yaml`` print ``{schema, cluster_id, at, items}``; ``jsonl`` an item a line; ``csv``
the columns of the wide table; ``name`` the first column only.
"""

import csv
import io
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from pyrklog.base.json_text import without_controls
from pyrklog.cli import colour
from pyrklog.cli.options import OutputFormat

Item = Mapping[str, Any]
_TEXT_WIDTH_MIN = 8
_GAP_WIDTH = 2
_YAML_WORDS = frozenset(("null", "true", "false", "yes", "no", "on", "off", "y", "n"))


@dataclass(frozen=True)
class Column:
    """The item's key, the heading, and whether only ``wide`` shows it."""

    key: str
    heading: str
    right: bool = False
    wide: bool = False


def columns(text: str) -> tuple[Column, ...]:
    """Parses ``KEY[>][*][ HEADING], ...``: ``>`` aligns to the right, ``*`` is for ``wide`` only;
    without a heading the key is it."""
    found = []
    for part in text.split(", "):
        marked, _, heading = part.partition(" ")
        key = marked.rstrip(">*")
        found.append(Column(key, heading or key.upper(), ">" in marked, "*" in marked))
    return tuple(found)


@dataclass(frozen=True)
class Listing:
    """A command's list. ``schema`` is ``name/version``; items hold JSON's types only. ``summary``
    tells of all of them together; only ``json`` and ``yaml`` have it."""

    schema: str
    columns: Sequence[Column]
    items: Sequence[Item]
    cluster_id: str | None = None
    summary: Mapping[str, Any] | None = None


def print_listing(listing: Listing, output: OutputFormat) -> None:
    if output is OutputFormat.TABLE and colour.is_for_people(sys.stdout):
        print_rich(listing)
        return
    sys.stdout.write(render(listing, output))
    sys.stdout.flush()


def render(listing: Listing, output: OutputFormat) -> str:
    match output:
        case OutputFormat.JSON:
            return as_json(envelope(listing), indent=2) + "\n"
        case OutputFormat.YAML:
            return "".join(_yaml(envelope(listing), 0))
        case OutputFormat.JSONL:
            return "".join(f"{as_json(item)}\n" for item in listing.items)
        case OutputFormat.CSV:
            return _csv(listing)
        case OutputFormat.NAME:
            key = listing.columns[0].key
            return "".join(f"{text(item.get(key))}\n" for item in listing.items)
        case _:
            return plain_table(_shown(listing, output), listing.items)


def as_json(value: Any, *, indent: int | None = None) -> str:
    """Escapes what is not ASCII where the output's encoding may lack it, and controls of terminals:
    programs get all."""
    is_unicode = str(sys.stdout.encoding or "utf").lower().startswith("utf")
    return without_controls(json.dumps(value, indent=indent, ensure_ascii=not is_unicode))


def envelope(listing: Listing) -> dict[str, Any]:
    summary = {} if listing.summary is None else {"summary": dict(listing.summary)}
    return {
        "schema": listing.schema,
        "cluster_id": listing.cluster_id,
        "at": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        **summary,
        "items": list(listing.items),
    }


def text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ",".join(map(text, value))
    if isinstance(value, Mapping):
        return as_json(value)
    return str(value)


def cell(value: Any) -> str:
    """The same for a terminal: names that clients choose must not move the cursor."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text(value))


def plain_table(columns: Sequence[Column], items: Iterable[Item]) -> str:
    rows = [[column.heading for column in columns]]
    rows += [[cell(item.get(column.key)) for column in columns] for item in items]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    lines: list[str] = []
    for row in rows:
        cells = [
            cell.rjust(width) if column.right else cell.ljust(width)
            for cell, width, column in zip(row, widths, columns, strict=True)
        ]
        lines.append("  ".join(cells).rstrip() + "\n")
    return "".join(lines)


def _shown(listing: Listing, output: OutputFormat) -> list[Column]:
    wide = output is not OutputFormat.TABLE
    return [column for column in listing.columns if wide or not column.wide]


def print_rich(listing: Listing) -> None:
    """For a terminal."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    columns = _shown(listing, OutputFormat.TABLE)
    for column in columns:
        justify: Literal["left", "right"] = "right" if column.right else "left"
        # A number in two lines would be read as another one.
        table.add_column(column.heading, justify=justify, overflow="fold", no_wrap=column.right)
    rows = [[cell(item.get(column.key)) for column in columns] for item in listing.items]
    for row in rows:
        table.add_row(*map(_plain, row))
    is_forced = True if colour.mode() == colour.ALWAYS else None
    is_without = True if colour.mode() == colour.NEVER else None
    console = Console(highlight=False, force_terminal=is_forced, no_color=is_without)
    # What does not fit with whole numbers runs on, as in a pipe.
    console.width = max(console.width, _least_width(columns, rows))
    console.print(table)


def _least_width(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> int:
    """With numbers in one piece, and some letters of each text."""
    widths = [len(column.heading) for column in columns]
    for row in rows:
        wanted = (
            len(shown) if column.right else min(len(shown), _TEXT_WIDTH_MIN)
            for shown, column in zip(row, columns, strict=True)
        )
        widths = [max(pair) for pair in zip(widths, wanted, strict=True)]
    return sum(widths) + _GAP_WIDTH * len(widths)


def _plain(shown: str) -> Any:
    from rich.text import Text

    return Text(shown)


def _csv(listing: Listing) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.key for column in listing.columns])
    for item in listing.items:
        values = (item.get(column.key) for column in listing.columns)
        writer.writerow(["" if value is None else text(value) for value in values])
    return out.getvalue()


def _yaml(value: Any, depth: int) -> Iterable[str]:
    """Block style; texts are quoted as in JSON, which YAML reads alike."""
    pad = "  " * depth
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _yaml_entry(f"{pad}{_yaml_key(key)}:", inner, depth + 1)
    elif isinstance(value, list) and value:
        for inner in value:
            block = "".join(_yaml(inner, depth + 1))
            yield f"{pad}- {block[len(pad) + 2 :]}"
    else:
        yield f"{pad}{as_json(value)}\n"


def _yaml_entry(head: str, value: Any, depth: int) -> Iterable[str]:
    if isinstance(value, Mapping | list) and value:
        yield f"{head}\n"
        yield from _yaml(value, depth)
    else:
        yield f"{head} {as_json(value)}\n"


def _yaml_key(key: str) -> str:
    plain = key.replace("_", "").replace(".", "").replace("-", "")
    if plain.isalnum() and plain[0].isalpha() and key.lower() not in _YAML_WORDS:
        return key
    return as_json(key)
