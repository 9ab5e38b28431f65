"""``pyrklog group lag``: how far a group was behind, as the brokers that coordinated it tell."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime

import typer

from pyrklog.base.problems import Problem
from pyrklog.cli import colour
from pyrklog.cli.admin_common import show
from pyrklog.cli.connection import Connection
from pyrklog.cli.durations import parse_seconds
from pyrklog.cli.failures import CliError
from pyrklog.cli.group_state import existing_group
from pyrklog.cli.in_parallel import in_parallel
from pyrklog.cli.lag_runs import Point, Run, at_steps, fitting_step_s, joined, points, runs_of
from pyrklog.cli.lag_runs import sparkline as bars
from pyrklog.cli.options import OutputFormat
from pyrklog.cli.output import Item, Listing, cell, columns
from pyrklog.cli.told_lag import told_past
from pyrklog.observability.health_rules import span

COLUMNS = columns("at TIME, lag>, lag_s>")
TABLE_ROWS_MAX = 40
ROWS_MAX = 100_000
SINCE_MAX_S = 14 * 86_400.0
BEGIN_TOLERANCE_S = 2.0
"""Points are a second apart, and are told a little later than they were asked for."""
_TABLES = (OutputFormat.TABLE, OutputFormat.WIDE)


def print_past(
    connection: Connection,
    name: str,
    topic: str | None,
    since: str,
    every: str | None,
    output: OutputFormat,
) -> None:
    """Raises :class:`CliError` if nothing is known of that time."""
    wanted_s = parse_seconds(since, "--since")
    since_s = min(wanted_s, SINCE_MAX_S)
    every_s = _step_s(every, since_s, output)
    group = existing_group(connection, name)
    runs, now_s = _ask_all(connection, name, topic, since_s)
    if not runs:
        raise _unknown(name, topic, since, is_told=group.coordinator is not None)
    if not connection.settings.quiet:
        _tell_beginning(name, runs[0][0].at_s, now_s, wanted_s)
    found = points(runs) if every_s is None else at_steps(runs, every_s, now_s)
    if output is OutputFormat.TABLE and colour.is_for_people(sys.stdout):
        typer.echo(_head(name, topic, runs, found))
    items = [_item(one) for one in found]
    cluster_id = connection.metadata().cluster_id
    show(Listing("pyrklog.group-lag/1", COLUMNS, items, cluster_id), output)


def _tell_beginning(name: str, begin_s: float, now_s: float, wanted_s: float) -> None:
    """A shorter history than was asked for must not look like a whole one."""
    if begin_s <= now_s - wanted_s + BEGIN_TOLERANCE_S:
        return
    kept = "; brokers keep 14 days" if wanted_s > SINCE_MAX_S else ""
    what = f"the history of group {name} begins at {_utc(begin_s)}, {span(now_s - begin_s)} ago"
    typer.echo(f"note: {what}{kept}", err=True)


def _step_s(every: str | None, since_s: float, output: OutputFormat) -> float | None:
    """None: the points themselves."""
    if every is None:
        return fitting_step_s(since_s, TABLE_ROWS_MAX) if output in _TABLES else None
    step_s = parse_seconds(every, "--every")
    if step_s < 1 or since_s / step_s > ROWS_MAX:
        least_s = max(1, -(-since_s // ROWS_MAX))
        raise CliError(
            Problem.ARGUMENT_VALUE, f"--every takes {least_s:g}s or more here, not {every!r}"
        )
    return step_s


def _ask_all(
    connection: Connection, name: str, topic: str | None, since_s: float
) -> tuple[list[Run], float]:
    """The runs, and when they were told."""
    brokers = sorted(one.id for one in connection.metadata().brokers.values())

    def ask(broker: int) -> list[Run] | None:
        told = told_past(connection, broker, name, topic, since_s)
        return None if told is None else runs_of(told, time.time())

    found = dict(zip(brokers, in_parallel(ask, brokers), strict=True))
    silent = [str(broker) for broker, runs in found.items() if runs is None]
    if silent:
        typer.echo(
            f"warning: broker {', '.join(silent)} does not tell past lag; times when it "
            "coordinated the group are missing",
            err=True,
        )
    now_s = time.time()
    return joined((runs for runs in found.values() if runs), now_s - since_s), now_s


def _head(name: str, topic: str | None, runs: Sequence[Run], found: Sequence[Point]) -> str:
    """``billing  lag 550 / 2 s  most 18,204 / 41 s  ▁▂▇▂▁``"""
    every = [one for run in runs for one in run]
    has_seconds = any(one.lag_s is not None for one in found)
    parts = [cell(name), *([] if topic is None else [cell(topic)]), _lag_text(every[-1:])]
    parts[-1] = f"lag {parts[-1]}"
    parts.append(f"most {_lag_text(every)}")
    if "utf" in str(sys.stdout.encoding).lower():
        parts.append(bars([one.lag_s if has_seconds else one.lag for one in found]))
    return "  ".join(parts)


def _lag_text(every: Sequence[Point]) -> str:
    records = max(one.lag or 0 for one in every)
    seconds = [one.lag_s for one in every if one.lag_s is not None]
    return f"{round(records):,}" + (f" / {round(max(seconds)):,} s" if seconds else "")


def _item(one: Point) -> Item:
    return {
        "at": _utc(one.at_s),
        "lag": None if one.lag is None else round(one.lag),
        "lag_s": None if one.lag_s is None else round(one.lag_s, 1),
    }


def _utc(at_s: float) -> str:
    at = datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds")
    return at.replace("+00:00", "Z").replace(".000Z", "Z")


def _unknown(name: str, topic: str | None, since: str, *, is_told: bool) -> CliError:
    of_topic = "" if topic is None else f" in {topic}"
    return CliError(
        Problem.NO_HISTORY,
        f"nothing is known of the lag of group {name}{of_topic} in the last {since}",
        "see `pyrklog group describe`" if is_told else None,
    )
