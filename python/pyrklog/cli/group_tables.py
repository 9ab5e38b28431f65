import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pyrklog.cli.connection import Connection
from pyrklog.cli.failures import CliError, Exit
from pyrklog.cli.group_seek import Move
from pyrklog.cli.group_state import GroupLag, PartitionLag, describe_group, standing, total
from pyrklog.cli.group_state import list_groups as find_groups
from pyrklog.cli.options import OutputFormat
from pyrklog.cli.output import Listing, columns, plain_table, print_listing

LIST_COLUMNS = columns("name, state, type*")
LAG_COLUMNS = (*LIST_COLUMNS, *columns("members>, lag>, lag_s>"))
PARTITION_COLUMNS = columns(
    "topic, partition> PART, committed>, end>, lag>, lag_s>, trend, member, note*"
)
FLAT_COLUMNS = (*columns("group"), *PARTITION_COLUMNS)
MOVE_COLUMNS = columns("topic, partition> PART, before>, after>, remark")
EXPORT_COLUMNS = columns("topic, partition> PART, offset>, metadata*")
_UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


class Limits(NamedTuple):
    records: int | None = None
    seconds: float | None = None


def parse_limits(text: str | None) -> Limits:
    """Parses ``1000``, ``30s`` or both, separated by a comma."""
    limits = Limits()
    for part in filter(None, (text or "").split(",")):
        match = re.fullmatch(r"(\d+)(ms|s|m|h|d)?", part.strip())
        if match is None:
            raise CliError(
                Exit.USAGE, f"--lag-over takes RECORDS or TIME, such as 30s, not {part!r}"
            )
        if match[2] is None:
            limits = limits._replace(records=int(match[1]))
        else:
            limits = limits._replace(seconds=int(match[1]) * _UNITS_S[match[2]])
    return limits


def list_groups(
    connection: Connection, states: Sequence[str], lag: bool, limits: Limits
) -> Listing:
    """One item for each group; lag only on demand, since each group takes requests."""
    found = find_groups(connection, states)
    cluster_id = connection.metadata().cluster_id
    if not lag and limits == Limits():
        return Listing("pyrklog.groups/1", LIST_COLUMNS, found, cluster_id)
    items: list[dict[str, Any]] = []
    for item in found:
        one = standing(connection, describe_group(connection, item["name"]))
        if _exceeds(one, limits):
            numbers = {
                "members": len(one.group.members),
                "lag": one.lag,
                "lag_s": _whole(one.age_s),
            }
            items.append({**item, **numbers})
    return Listing("pyrklog.groups/1", LAG_COLUMNS, items, cluster_id)


def _exceeds(one: GroupLag, limits: Limits) -> bool:
    if limits == Limits():
        return True
    more = limits.records is not None and (one.lag or 0) > limits.records
    older = limits.seconds is not None and (one.age_s or 0) > limits.seconds
    return more or older


def print_described(
    found: Sequence[GroupLag],
    before: Sequence[GroupLag],
    output: OutputFormat,
    cluster_id: str | None,
) -> None:
    """A page for each group for people; a row for each partition in ``csv`` and ``name``."""
    earlier = {
        (one.group.name, part.topic, part.partition): part.lag
        for one in before
        for part in one.partitions
    }
    items = [_item(one, earlier) for one in found]
    if output in (OutputFormat.TABLE, OutputFormat.WIDE):
        wide = output is OutputFormat.WIDE
        pages = (_page(one, item, wide) for one, item in zip(found, items, strict=True))
        sys.stdout.write("\n".join(pages))
        sys.stdout.flush()
        return
    if output is OutputFormat.CSV:
        items = [{"group": item["group"], **part} for item in items for part in item["partitions"]]
    print_listing(Listing("pyrklog.group-details/1", FLAT_COLUMNS, items, cluster_id), output)


def _item(one: GroupLag, earlier: Mapping[tuple[str, str, int], int | None]) -> dict[str, Any]:
    group = one.group
    return {
        "group": group.name,
        "state": group.state,
        "assignor": group.assignor,
        "coordinator": group.coordinator,
        "lag": one.lag,
        "lag_s": _whole(one.age_s),
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.host.lstrip("/"),
                "partitions": [list(key) for key in member.partitions],
            }
            for member in group.members
        ],
        "partitions": [
            _row(part, earlier.get((group.name, part.topic, part.partition)))
            for part in one.partitions
        ],
    }


def _row(part: PartitionLag, lag_before: int | None) -> dict[str, Any]:
    return {
        "topic": part.topic,
        "partition": part.partition,
        "committed": part.committed,
        "end": part.end,
        "lag": part.lag,
        "lag_s": _whole(part.age_s),
        "trend": trend(lag_before, part.lag),
        "member": part.member,
        "note": part.note,
    }


def trend(before: int | None, now: int | None) -> str | None:
    if before is None or now is None:
        return None
    if now > before:
        return "up"
    return "down" if now < before else "flat"


def _page(one: GroupLag, item: Mapping[str, Any], wide: bool) -> str:
    rows = [dict(row) for row in item["partitions"]]
    shown = [column for column in PARTITION_COLUMNS if wide or not column.wide]
    rows += _totals(rows)
    return f"{_head(one, item)}\n{plain_table(shown, map(_grouped, rows)) if rows else ''}"


def _head(one: GroupLag, item: Mapping[str, Any]) -> str:
    group = one.group
    count = "1 member" if len(group.members) == 1 else f"{len(group.members)} members"
    parts = [group.name, group.state, count]
    if group.coordinator is not None and group.coordinator >= 0:
        parts.append(f"coordinator {group.coordinator}")
    if item["lag"] is not None:
        age = "" if item["lag_s"] is None else f" / {item['lag_s']} s"
        parts.append(f"lag {item['lag']:,}{age}")
    return "  ".join(parts)


def _totals(rows: Sequence[Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
    for topic in dict.fromkeys(row["topic"] for row in rows):
        own = [row for row in rows if row["topic"] == topic]
        if len(own) > 1:
            ages = [row["lag_s"] for row in own if row["lag_s"] is not None]
            yield {
                "topic": topic,
                "partition": "total",
                "committed": "",
                "end": "",
                "lag": total(row["lag"] for row in own),
                "lag_s": max(ages, default=None),
                "trend": "",
                "member": "",
                "note": "",
            }


def _grouped(row: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("committed", "end", "lag", "lag_s")
    return {
        key: f"{value:,}" if key in keys and isinstance(value, int) else value
        for key, value in row.items()
    }


def _whole(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds)


def moves(found: Sequence[Move], cluster_id: str | None) -> Listing:
    items = [move._asdict() for move in found]
    return Listing("pyrklog.group-seek/1", MOVE_COLUMNS, items, cluster_id)


def exported(offsets: Mapping[tuple[str, int], tuple[int, str]], cluster_id: str | None) -> Listing:
    """Committed offsets with the members' notes on them."""
    items = [
        {"topic": topic, "partition": partition, "offset": offset, "metadata": note}
        for (topic, partition), (offset, note) in offsets.items()
    ]
    return Listing("pyrklog.group-offsets/1", EXPORT_COLUMNS, items, cluster_id)
