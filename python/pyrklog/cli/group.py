"""``pyrklog group``: list, describe, lag, seek, export, history, delete, delete-offsets."""

import sys
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from pyrklog.base.problems import Problem
from pyrklog.cli.admin_common import confirm, connect, report_each, show
from pyrklog.cli.deeds import tell_done, telling
from pyrklog.cli.failures import CliError, refuse_empty
from pyrklog.cli.options import (
    CONNECTION,
    Output,
    OutputFormat,
    Settings,
    Yes,
    argument,
    command,
    command_group,
    option,
)

if TYPE_CHECKING:
    from pyrklog.cli.connection import Connection, PartitionKey
    from pyrklog.cli.group_seek import Move
    from pyrklog.cli.group_state import ConsumerGroup, GroupLag
    from pyrklog.cli.output import Listing

app = command_group("List, describe, move and delete consumer groups.")

T = TypeVar("T")

WATCH_INTERVAL_S = 2.0
MEMBERS_SHOWN = 5
FORCED_ATTEMPTS_MAX = 20

Name = Annotated[str, argument("GROUP")]
Names = Annotated[list[str], argument("GROUP...")]
Watch = Annotated[bool, option("-w, --watch", "Again every two seconds, until Ctrl-C.")]
DryRun = Annotated[bool, option("--dry-run", "Only say what would be changed.")]


@command(app, "list", *CONNECTION)
def list_groups(
    options: Settings,
    states: list[str] | None = option("--state STATE", "Only groups in it; may be repeated.", None),
    lag: bool = option("--lag", "Members and lag too.", False),
    lag_over: str | None = option(
        "--lag-over RECORDS,TIME",
        "Only groups that lag more, such as 1000, 30s or 1000,30s (either).",
        None,
    ),
    watch: Watch = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List consumer groups."""
    from pyrklog.cli import group_tables
    from pyrklog.cli.too_few_brokers import tell_too_few_brokers
    from pyrklog.groups.partitioner import OFFSETS_TOPIC

    limits = group_tables.parse_limits(lag_over)
    connection = connect(options)

    def once(before: "Listing | None") -> "Listing":
        listing = group_tables.list_groups(connection, states or [], lag, limits)
        show(listing, output)
        if before is None and not listing.items:
            tell_too_few_brokers(options, OFFSETS_TOPIC)
        return listing

    _repeat(once, watch)


@command(app, "describe", *CONNECTION)
def describe(
    options: Settings,
    names: Names,
    watch: Watch = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show a group's members and its progress, partition by partition.

    LAG_S: how long ago the first unread record was appended; >N: at least so long; -: the
    coordinator does not tell. TREND is that of the last minute. A LAG below 0 is an offset beyond
    the log end. -o wide adds LOST: records that retention deleted unread.
    """
    from pyrklog.cli import group_state, group_tables

    _refuse_empty(*names)
    connection = connect(options)
    wanted = list(dict.fromkeys(names))

    def once(before: "list[GroupLag] | None") -> "list[GroupLag]":
        groups = [group_state.existing_group(connection, name) for name in wanted]
        found = [group_state.standing(connection, group) for group in groups]
        cluster_id = connection.metadata().cluster_id
        group_tables.print_described(found, before or [], output, cluster_id)
        return found

    _repeat(once, watch)


@command(app, "lag", *CONNECTION)
def lag(
    options: Settings,
    name: Name,
    since: str = option("--since TIME", "How far back, such as 6h; at most 14d.", "1h"),
    every: str | None = option(
        "--every TIME",
        "A row for so long, with the most of it; default: at most 40 rows in a table, else all "
        "points that are kept.",
        None,
    ),
    topic: str | None = option("-t, --topic TOPIC", "Only the group's lag in it.", None),
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show how far a group was behind, if pyrklog coordinates it.

    LAG_S: how long ago the first unread record had been appended. -: unknown, such as while the
    coordinator was away.
    """
    from pyrklog.cli.group_lag import print_past

    _refuse_empty(name)
    print_past(connect(options), name, topic, since, every, output)


def _refuse_empty(*names: str) -> None:
    refuse_empty("GROUP", "group", names)


def _pause(seconds: float) -> None:
    sys.stdout.flush()
    time.sleep(seconds)


def _repeat(once: "Callable[[T | None], T]", watch: bool) -> None:
    before = once(None)
    while watch:
        _pause(WATCH_INTERVAL_S)
        sys.stdout.write("\n")
        before = once(before)


@command(app, "seek", *CONNECTION, "quiet")
def seek(
    options: Settings,
    name: Name,
    to: str = option(
        "--to WHERE",
        "start, end, an offset, +N or -N (from where it is), @TIME, current, FILE (see export) or "
        "group:OTHER.",
    ),
    topics: list[str] | None = option(
        "-t, --topic TOPIC[:P,...]",
        "Only these partitions; default: all that the group has committed; may be repeated.",
        None,
    ),
    force: bool = option("--force", "Make members leave first; they join again.", False),
    dry_run: DryRun = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Move a group's committed offsets. Refused while the group has members.

    current, +N and -N leave out partitions in which the group has committed nothing.
    """
    from pyrklog.cli import group_seek, group_state, group_tables

    _refuse_empty(name)
    connection = connect(options)
    group = group_state.describe_group(connection, name)
    if not group.is_idle and not force:
        raise _active(group)
    if not group.exists and not topics and not group_seek.names_partitions(to):
        on_purpose = "; to create it, name topics with --topic"
        raise group_state.missing_group(connection, name, on_purpose)
    now_ms = time.time_ns() // 1_000_000
    moves = group_seek.plan(connection, name, to, topics or [], now_ms)
    if not dry_run:
        _move(connection, group, moves)
    if not options.quiet:
        if not group.exists:
            done = "would be created" if dry_run else "was created"
            typer.echo(f"note: group {name} did not exist; it {done}", err=True)
        show(group_tables.moves(moves, connection.metadata().cluster_id), output)


def _active(group: "ConsumerGroup") -> CliError:
    count = len(group.members)
    members = "1 member" if count == 1 else f"{count} members"
    return CliError(
        Problem.GROUP_ACTIVE,
        f"group {group.name} is {group.state} with {members}",
        "stop its consumers, or give --force",
        why="it would overwrite the offsets",
    )


def _move(connection: "Connection", group: "ConsumerGroup", moves: "list[Move]") -> None:
    from pyrklog.cli import group_seek, group_state

    if group.is_idle:
        group_seek.apply(connection, group.name, moves)
        return
    from pyrklog.cli.coordinator import CoordinatorConnection

    with CoordinatorConnection(connection, group.name) as coordinator:
        for attempt in range(1, FORCED_ATTEMPTS_MAX + 1):
            if group.members:
                ids = [(one.member_id, one.instance_id) for one in group.members]
                coordinator.remove_members(ids)
            try:
                group_seek.apply(connection, group.name, moves)
            except CliError:
                if attempt == FORCED_ATTEMPTS_MAX:
                    raise
                group = group_state.describe_group(connection, group.name)
            else:
                return


@command(app, "export", *CONNECTION)
def export(
    options: Settings,
    name: Name,
    topics: list[str] | None = option(
        "-t, --topic TOPIC[:P,...]", "Only these partitions; may be repeated.", None
    ),
    output: Output = OutputFormat.CSV,
) -> None:
    """Print committed offsets as `group seek --to FILE` reads them (csv, json, jsonl), and Kafka's
    `consumer-groups --reset-offsets --from-file` (csv)."""
    from pyrklog.cli import group_seek, group_state, group_tables

    _refuse_empty(name)
    connection = connect(options)
    group_state.existing_group(connection, name)
    offsets = dict(sorted(group_state.committed_offsets(connection, name).items()))
    if topics:
        chosen = _chosen_offsets(name, offsets, topics)
        offsets = {key: offsets[key] for key in chosen}
    if output is OutputFormat.CSV:
        found = {key: offset for key, (offset, _) in offsets.items()}
        sys.stdout.write(group_seek.write_file(found))
        return
    show(group_tables.exported(offsets, connection.metadata().cluster_id), output)


@command(app, "history", *CONNECTION)
def history(
    options: Settings,
    name: Name,
    count: int | None = option("-n, -c, --count N", "Only the last N.", None, min=1),
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show a group's rebalances and, if pyrklog coordinates it, why each began."""
    from dataclasses import replace

    from pyrklog.cli.group_history import read_history

    _refuse_empty(name)
    listing = read_history(connect(options), name)
    if count is not None:
        listing = replace(listing, items=listing.items[-count:])
    show(listing, output)


@command(app, "delete", *CONNECTION, "quiet")
@telling
def delete(
    options: Settings,
    names: Names,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Delete groups with all their offsets. Refused while a group has members."""
    from pyrklog.cli import group_state

    _refuse_empty(*names)
    connection = connect(options)
    wanted = list(dict.fromkeys(names))
    groups = [group_state.existing_group(connection, name) for name in wanted]
    if dry_run:
        for group in groups:
            count = len(group_state.committed_offsets(connection, group.name))
            result = f"{count} offsets would be deleted"
            told = f"{group.name}: {result}"
            tell_done(options, told, kind="group", name=group.name, result=result)
        return
    if not yes:
        confirm(wanted)
    futures = connection.admin.delete_consumer_groups(wanted, request_timeout=options.timeout_s)
    fixes = {"NON_EMPTY_GROUP": _fix_of_members(groups)}
    report_each("group", futures, "deleted", options, fixes=fixes)


def _fix_of_members(groups: "list[ConsumerGroup]") -> str:
    """Names members as they were before the groups were to be deleted."""
    live = [
        f"{group.name} has {', '.join(sorted(one.label for one in group.members)[:MEMBERS_SHOWN])}"
        + (", ..." if len(group.members) > MEMBERS_SHOWN else "")
        for group in groups
        if group.members
    ]
    return "stop its members first" + "".join(f"; {one}" for one in live)


@command(app, "delete-offsets", *CONNECTION, "quiet")
@telling
def delete_offsets(
    options: Settings,
    name: Name,
    topics: list[str] = option("-t, --topic TOPIC[:P,...]", "Whose offsets; may be repeated."),
    dry_run: DryRun = False,
) -> None:
    """Forget a group's offsets of topics that no member reads."""
    from pyrklog.cli import group_state

    _refuse_empty(name)
    connection = connect(options)
    group_state.existing_group(connection, name)
    places: dict[str, list[int]] = {}
    committed = sorted(group_state.committed_offsets(connection, name))
    for topic, partition in _chosen_offsets(name, committed, topics):
        places.setdefault(topic, []).append(partition)
    if not dry_run:
        _forget(connection, name, places)
    done = "would be deleted" if dry_run else "deleted"
    for topic, partitions in places.items():
        place = f"{topic} [{','.join(map(str, partitions))}]"
        tell_done(options, f"{place}: {done}", kind="offsets", name=place, result=done)


def _chosen_offsets(
    name: str, committed: "Iterable[PartitionKey]", topics: list[str]
) -> "list[PartitionKey]":
    """Those that ``topics`` name. Raises :class:`CliError` for a topic without any."""
    from pyrklog.cli.group_seek import parse_selection

    wanted = parse_selection(topics)
    found = []
    for topic, partition in committed:
        partitions = wanted.get(topic, [])
        if partitions is None or partition in partitions:
            found.append((topic, partition))
    missing = [topic for topic in wanted if all(topic != key[0] for key in found)]
    if missing:
        raise CliError(
            Problem.NO_OFFSETS, f"group {name} has no such offsets of {', '.join(missing)}"
        )
    return found


def _forget(connection: "Connection", name: str, places: dict[str, list[int]]) -> None:
    from pyrklog.cli.coordinator import CoordinatorConnection
    from pyrklog.protocol.errors import ErrorCode

    with CoordinatorConnection(connection, name) as coordinator:
        codes = coordinator.delete_offsets(places)
    failed = [(key, code) for key, code in codes.items() if code is not ErrorCode.NONE]
    if failed:
        (topic, partition), code = failed[0]
        subscribed = code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        why = "its members read the topic" if subscribed else code.message
        refused = Problem.GROUP_ACTIVE if subscribed else Problem.BROKER_REFUSED
        raise CliError(
            refused if len(failed) == len(codes) else Problem.PARTLY_DONE,
            f"group {name}, {topic} [{partition}]: {why}",
            "stop its consumers first" if subscribed else None,
        )
