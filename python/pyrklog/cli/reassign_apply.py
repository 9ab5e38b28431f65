"""``pyrklog cluster reassign apply``: begins a plan, or goes on with it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import NamedTuple

from pyrklog.balance.model import Placement
from pyrklog.balance.record import Record
from pyrklog.base.problems import Problem
from pyrklog.cli import reassign_past, reassign_record
from pyrklog.cli.admin_common import connect, say
from pyrklog.cli.connection import PartitionKey
from pyrklog.cli.expansion import NO_START, from_the_end, tell_copied
from pyrklog.cli.failures import CliError, Exit, exit_with, missing_partition, tell
from pyrklog.cli.options import OutputFormat, Settings
from pyrklog.cli.reassign_cluster import ReassignmentAdmin
from pyrklog.cli.reassign_plan import (
    AUTO,
    check_throttle,
    parse_limit,
    parse_log_dirs,
    parse_plan,
    render_plan,
)
from pyrklog.cli.reassign_planning import (
    begin_record,
    check_names,
    first_record,
    show_planned,
    write_plan,
)
from pyrklog.cli.reassign_run import Limits, Run, arrow, heard, listed, name_of
from pyrklog.cli.throttles import Throttles


class How(NamedTuple):
    """Options of the command."""

    file: str
    throttle: str | None
    batch: str | None
    rollback: str | None
    progress: str | None
    from_end: bool
    additional: bool
    watch: bool
    dry_run: bool
    output: OutputFormat


def apply_plan(options: Settings, text: str, how: How) -> None:
    """``text``: the plan."""
    wanted, directories = parse_plan(text, how.file), parse_log_dirs(text, how.file)
    check_throttle(how.throttle)
    limit = parse_limit(how.batch)
    path = reassign_record.able(reassign_record.path_of(how.file, how.progress), how.progress)
    earlier = reassign_record.load(path)
    connection = connect(options)
    cluster = ReassignmentAdmin(connection)
    before, cluster_id = cluster.origins()
    record = _going_on(earlier, wanted, before, path, cluster_id)
    if record is None or how.dry_run:
        # A plan that goes on is not stopped by a topic that was deleted meanwhile.
        _check_places(wanted, before)
    if not wanted:
        say(heard(options, how.output), "nothing to do: the plan is empty")
        return show_planned(cluster, wanted, how.output)
    moving = cluster.moving()
    changed: dict[PartitionKey, str] = {}
    if record is not None:
        changed = reassign_past.changed_since(cluster, record, overrides=how.additional)
    if record is not None and record.finished_ms is not None and changed:
        record, changed = None, {}
    if not how.additional:
        mine = {place: after for place, after in wanted.items() if place not in changed}
        reassign_past.refuse_moving(moving, mine)
    is_in_the_way = reassign_past.is_in_the_way(earlier, record, cluster_id)
    if earlier is not None and is_in_the_way:
        reassign_past.refuse_under_way(earlier, moving, path)
    if how.dry_run:
        return _say_only(cluster, heard(options, how.output), before, wanted, changed, how.output)
    if earlier is not None and is_in_the_way:
        reassign_past.put_aside(earlier, moving.keys(), path, Throttles(connection, cluster))
    complete = None
    if record is None:
        start = from_the_end(cluster, before, wanted) if how.from_end else NO_START
        tell_copied(start)
        first = first_record(cluster, wanted, how.throttle, at_end=start.at_end)
        record, complete = begin_record(connection, cluster, first, limit, start)
    elif record.cancelled_ms is not None:
        record = record.begun_again(reassign_record.now_ms())
    if how.rollback is not None:
        _write_rollback(how.rollback, record, changed)
    limits = Limits(changed, None, how.additional)
    run = Run(connection, cluster, options, record, path, how.output, directories, complete, limits)
    codes = run.carry_out(how.throttle, watch=how.watch)
    run.show_all()
    is_watched = how.watch or how.throttle == AUTO
    is_throttled = how.throttle is not None and not is_watched
    if is_throttled and (Exit.OK in codes or cluster.moving().keys() & wanted.keys()):
        say_status(heard(options, how.output), how.file, how.progress)
    exit_with(codes)


def say_status(options: Settings, file: str | None, progress: str | None = None) -> None:
    """What is to be done about a throttle that nobody waits for."""
    if file is None or file == reassign_record.STANDARD_INPUT:
        fix = "`pyrklog cluster reassign cancel --all` takes the throttle away once nothing moves"
        say(options, fix)
        return
    words = shlex.join([file, *([] if progress is None else ["--progress", progress])])
    command = f"`pyrklog cluster reassign status {words}`"
    say(options, f"{command} shows how far it is, and takes the throttle away at the end")


def _going_on(
    earlier: Record | None,
    wanted: Placement,
    before: Placement,
    path: Path | None,
    cluster_id: str | None,
) -> Record | None:
    """The record of this plan, if it was begun. What undoes a plan of another cluster is not lost
    to this one: raises :class:`CliError`."""
    record = reassign_record.of_plan(earlier, wanted, cluster_id)
    is_unfinished = earlier is not None and record is None and earlier.finished_ms is None
    if earlier is not None and is_unfinished and not reassign_record.is_of(earlier, cluster_id):
        raise reassign_past.of_another_cluster(path)
    # A plan that is done, and was undone since, begins anew; what it began from is kept otherwise.
    if record and record.finished_ms is not None and not before.items() >= wanted.items():
        return None
    return record


def _write_rollback(file: str, record: Record, changed: dict[PartitionKey, str]) -> None:
    """What others have changed since is not theirs to lose."""
    back = {place: old for place, old in record.before.items() if place not in changed}
    write_plan(file, render_plan(back))


def _say_only(
    cluster: ReassignmentAdmin,
    options: Settings,
    before: Placement,
    wanted: Placement,
    changed: dict[PartitionKey, str],
    output: OutputFormat,
) -> None:
    live = {one.broker_id for one in cluster.describe().brokers}
    codes, errors = [], dict(changed)
    for place, replicas in wanted.items():
        dead = [broker for broker in replicas if broker not in live]
        if place in changed:
            told = CliError(
                Problem.REASSIGNMENT_REFUSED, f"{name_of(place)} stays: {changed[place]}"
            )
        elif dead:
            what = f"{name_of(place)}: broker {listed(dead)} is not there"
            told = CliError(Problem.BROKER_NOT_FOUND, what)
        else:
            say(options, f"{arrow(place, before, wanted)} (not done)")
            codes.append(Exit.OK)
            continue
        tell(told)
        errors[place] = told.what
        codes.append(told.code)
    show_planned(cluster, wanted, output, errors)
    exit_with(codes)


def _check_places(wanted: Placement, before: Placement) -> None:
    check_names([topic for topic, _ in wanted], before)
    for place in wanted:
        if place not in before:
            raise missing_partition(*place, sum(topic == place[0] for topic, _ in before))
