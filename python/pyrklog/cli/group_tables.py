import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import typer

from pyrklog.base.problems import Problem
from pyrklog.cli.connection import Connection
from pyrklog.cli.failures import CliError
from pyrklog.cli.group_seek import Move
from pyrklog.cli.group_state import (
    GroupLag,
    PartitionLag,
    describe_group,
    standing,
    total,
    total_lag,
)
from pyrklog.cli.group_state import list_groups as find_groups
from pyrklog.cli.options import OutputFormat
from pyrklog.cli.output import Listing, columns, plain_table, print_listing
from pyrklog.cli.told_lag import UNTOLD, ToldGroup, ToldGroups, ToldLag, told_groups

LIST_COLUMNS = columns("name, state, type*")
LAG_COLUMNS = (*LIST_COLUMNS, *columns("members>, lag>, lag_s>, ahead>*"))
PARTITION_COLUMNS = columns(
    "topic, partition> PART, committed>, end>, lag>, lag_s>, trend, member, ahead>*, lost>*, note*"
)
FLAT_COLUMNS = (*columns("group"), *PARTITION_COLUMNS)
MOVE_COLUMNS = columns("topic, partition> PART, before>, after>, remark")
EXPORT_COLUMNS = columns("topic, partition> PART, offset>, metadata*")
_TRENDS = {"up": "rising", "flat": "steady", "down": "falling"}
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
                Problem.ARGUMENT_VALUE,
                f"--lag-over takes RECORDS or TIME, such as 30s, not {part!r}",
            )
        if match[2] is None:
            limits = limits._replace(records=int(match[1]))
        else:
            limits = limits._replace(seconds=int(match[1]) * _UNITS_S[match[2]])
    return limits


def list_groups(
    connection: Connection, states: Sequence[str], lag: bool, limits: Limits
) -> Listing:
    """One item for each group; lag only on demand."""
    found = find_groups(connection, states)
    cluster_id = connection.metadata().cluster_id
    if not lag and limits == Limits():
        return Listing("pyrklog.groups/1", LIST_COLUMNS, found, cluster_id)
    told = told_groups(connection, *limits)
    _tell_unknown(told, limits)
    items: list[dict[str, Any]] = []
    for item in found:
        one = told.groups.get(item["name"])
        if one is None and told.silent:
            one = _untold(connection, item["name"], limits, told.silent)
        if one is not None:
            lag_of = _lag_of(one.lag, one.whole)
            items.append({**item, "members": one.members, **lag_of, "ahead": one.ahead})
        elif limits == Limits():
            items.append({**item, "members": None, **_lag_of(None, UNTOLD), "ahead": None})
    return Listing("pyrklog.groups/1", LAG_COLUMNS, items, cluster_id)


def _untold(
    connection: Connection, name: str, limits: Limits, silent: Sequence[int]
) -> ToldGroup | None:
    """By requests about the one group, in records only; None if its lag is not over a limit, or if
    its coordinator has told about its groups."""
    group = describe_group(connection, name)
    if group.coordinator is not None and group.coordinator not in silent:
        return None
    one = standing(connection, group)
    is_over = limits.records is not None and (one.lag or 0) > limits.records
    if limits.seconds is not None:
        is_over |= (one.told.lag_s or 0) > limits.seconds
    if limits != Limits() and not is_over:
        return None
    return ToldGroup(len(group.members), one.lag, one.told, ahead=one.ahead)


def _tell_unknown(told: ToldGroups, limits: Limits) -> None:
    if told.silent and limits.seconds is not None:
        brokers = ", ".join(map(str, told.silent))
        typer.echo(
            f"warning: broker {brokers} does not tell lag in seconds; the groups that it "
            "coordinates are left out unless they lag in records",
            err=True,
        )
    if told.unfinished:
        brokers = ", ".join(map(str, told.unfinished))
        typer.echo(
            f"warning: broker {brokers} has not looked at all its groups since its start; some "
            "are left out",
            err=True,
        )
    if told.left_out:
        typer.echo(
            f"warning: {told.left_out:,} groups are left out: more than their coordinators look at",
            err=True,
        )


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
        **_lag_of(one.lag, one.told),
        "trend": one.told.trend,
        "ahead": one.ahead,
        "lost": one.told.lost,
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
        **_lag_of(part.lag, part.told),
        "trend": part.told.trend or trend(lag_before, part.lag),
        "member": part.member,
        "ahead": part.ahead,
        "lost": part.told.lost,
        "note": part.note,
    }


def _lag_of(lag: int | None, told: ToldLag) -> dict[str, Any]:
    seconds = None if told.lag_s is None else round(told.lag_s)
    return {"lag": lag, "lag_s": seconds, "lag_s_is_least": told.is_least}


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
        age = "" if item["lag_s"] is None else f" / {_seconds(item)} s"
        parts.append(f"lag {item['lag']:,}{age}")
    if item["trend"] is not None:
        parts.append(_TRENDS[item["trend"]])
    if item["ahead"]:
        parts.append(f"ahead {item['ahead']:,} of the log end")
    if item["lost"]:
        parts.append(f"lost {item['lost']:,} to retention")
    return "  ".join(parts)


def _totals(rows: Sequence[Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
    for topic in dict.fromkeys(row["topic"] for row in rows):
        own = [row for row in rows if row["topic"] == topic]
        if len(own) > 1:
            told = [row for row in own if row["lag_s"] is not None]
            untold: Mapping[str, Any] = {}
            longest = max(told, key=lambda row: row["lag_s"], default=untold)
            yield {
                "topic": topic,
                "partition": "total",
                "committed": "",
                "end": "",
                "lag": total_lag(row["lag"] for row in own),
                "lag_s": longest.get("lag_s"),
                "lag_s_is_least": longest.get("lag_s_is_least"),
                "trend": "",
                "member": "",
                "ahead": total(row["ahead"] for row in own),
                "lost": total(row["lost"] for row in own),
                "note": "",
            }


def _grouped(row: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("committed", "end", "lag", "ahead", "lost")
    shown = {
        key: f"{value:,}" if key in keys and isinstance(value, int) else value
        for key, value in row.items()
    }
    return {**shown, "lag_s": _seconds(row)}


def _seconds(row: Mapping[str, Any]) -> str | None:
    """``41``, or ``>41`` for at least so many."""
    if row["lag_s"] is None:
        return None
    return f"{'>' if row['lag_s_is_least'] else ''}{row['lag_s']:,}"


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
