"""``pyrklog cluster reassign cancel``: ends moves, and undoes those that have ended."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import typer

from pyrklog.balance.model import Placement
from pyrklog.balance.prediction import Limit
from pyrklog.balance.record import Record
from pyrklog.base.problems import Problem
from pyrklog.cli import reassign_past, reassign_record
from pyrklog.cli.admin_common import connect, say
from pyrklog.cli.connection import Connection, PartitionKey
from pyrklog.cli.expansion import rates_at_run_time
from pyrklog.cli.failures import CliError, Exit, counted, exit_with, tell
from pyrklog.cli.options import Settings
from pyrklog.cli.reassign_cluster import ReassignmentAdmin, target_of
from pyrklog.cli.reassign_plan import AUTO, check_throttle, render_plan
from pyrklog.cli.reassign_planning import begin_record, first_record, write_plan
from pyrklog.cli.reassign_run import Run, end_fills, listed, name_of, report, settled
from pyrklog.cli.throttles import Throttles
from pyrklog.protocol.errors import ErrorCode

ROLLBACK = ".rollback"


class Back(NamedTuple):
    """How a plan is undone."""

    file: str
    progress: str | None
    throttle: str | None
    watch: bool

    def record(self, named: Placement | None) -> Record:
        """What is kept of the plan. Raises :class:`CliError`."""
        path = reassign_record.path_of(self.file, self.progress)
        found = reassign_record.load(path)
        if found is None:
            what = f"{path or 'standard input'}: nothing is known of how replicas were before"
            fix = "apply the file that `apply --rollback FILE` has written"
            raise CliError(Problem.FILE_NOT_FOUND, what, fix)
        if named is None or reassign_record.of_plan(found, named) is None:
            raise CliError(Problem.FILE_CONTENT, f"{path} is of another plan than {self.file}")
        return found


def cancel_moves(
    options: Settings,
    named: Placement | None,
    back: Back | None,
    *,
    dry_run: bool,
    earlier: Record | None = None,
    path: Path | None = None,
) -> None:
    """``named``: only these; None: all. ``earlier``: what is kept of the plan, in ``path``."""
    if back is not None:
        check_throttle(back.throttle)
    record = None if back is None else back.record(named)
    connection = connect(options)
    cluster = ReassignmentAdmin(connection)
    known = record or earlier
    if known is not None and not reassign_record.is_of(known, cluster.placement()[1]):
        raise CliError(Problem.FILE_CONTENT, "the plan was applied to another cluster", "check -b")
    moving = cluster.moving()
    if record is not None:
        stays = _stays(cluster, record)
    else:
        stays = {} if named is None else _of_others(moving, named, earlier)
    chosen = [place for place in moving if (named is None or place in named) and place not in stays]
    going: set[PartitionKey] = set()
    if record is not None:
        # What an earlier rollback has begun goes on, with its throttle.
        going = {place for place in chosen if target_of(moving[place]) == record.before[place]}
        chosen = [place for place in chosen if place not in going]
    codes = [_tell_stays(place, why) for place, why in stays.items()]
    if dry_run:
        say(options, *[f"{name_of(place)}: would be cancelled" for place in chosen])
        say(options, *([] if chosen else ["nothing moves"]))
        if record is not None:
            _say_back(cluster, options, record, {*chosen, *stays})
        exit_with(codes)
        return
    codes += _cancel(cluster, options, chosen)
    if not chosen:
        say(options, "nothing moves")
    # Also if nothing moves any more: the plan may be done.
    throttles = Throttles(connection, cluster)
    kept = going | (stays.keys() & moving.keys())
    throttles.end(None if named is None else named.keys() - kept)
    if not kept:
        end_fills(throttles, known)
    if named is None:
        fresh = {broker for place in chosen for broker in moving[place].adding_replicas}
        throttles.set_fill_rate(rates_at_run_time(cluster, fresh), None)
    if record is not None and back is not None:
        # Brokers hear of a cancelled move a moment later.
        settled(cluster, {place: record.before[place] for place in chosen})
        codes += _move_back(connection, cluster, options, record, back, stays)
        if going and (back.watch or back.throttle == AUTO):
            throttles.end(going)
    elif earlier is not None:
        _restore_orders(cluster, earlier, chosen)
        if earlier.finished_ms is None and not kept:
            reassign_record.keep(path, earlier.marked_cancelled(reassign_record.now_ms()))
    exit_with(codes)


def _restore_orders(cluster: ReassignmentAdmin, record: Record, chosen: list[PartitionKey]) -> None:
    """A cancelled move leaves the earlier replicas in the order of its target. The order of before
    copies nothing."""
    before = {key: record.handed_over.get(key, record.before[key]) for key in chosen}
    now = settled(cluster, before)
    other = {
        key: one
        for key, one in before.items()
        if now.get(key, one) != one and set(now[key]) == set(one)
    }
    results = cluster.alter(other) if other else {}
    left = [key for key, (code, _) in results.items() if code]
    if left:
        told = (
            f"{counted(len(left), 'partition')} left in another order, such as {name_of(left[0])}"
        )
        typer.echo(f"note: {told}", err=True)


class _Why(NamedTuple):
    """Why a partition is not moved back."""

    problem: Problem
    text: str


def _of_others(
    moving: reassign_past.Moving, named: Placement, earlier: Record | None
) -> dict[PartitionKey, _Why]:
    """Partitions of a plan that something else moves now."""
    found = {}
    for key in moving.keys() & named.keys():
        target = target_of(moving[key])
        known = {tuple(named[key])}
        if earlier is not None and key in earlier.entries:
            known |= earlier.left_behind(key)
        if target not in known:
            why = f"it moves to {listed(target)}, by another plan (--all cancels that, too)"
            found[key] = _Why(Problem.REASSIGNMENT_REFUSED, why)
    return dict(sorted(found.items()))


def _stays(cluster: ReassignmentAdmin, record: Record) -> dict[PartitionKey, _Why]:
    """Partitions that are not moved back: others have changed them since, or they would have fewer
    replicas than their topic needs by now."""
    changed = reassign_past.changed_since(cluster, record)
    found = {key: _Why(Problem.NOT_AS_PLANNED, why) for key, why in changed.items()}
    fewer = {
        key: one
        for key, one in record.entries.items()
        if key not in found and len(one.before) < len(one.after)
    }
    minimums = cluster.minimums({topic for topic, _ in fewer}) if fewer else {}
    for key, one in fewer.items():
        least = minimums.get(key[0], 1)
        if len(one.before) < least:
            what = f"{counted(len(one.before), 'replica')} of before are fewer than its "
            found[key] = _Why(Problem.REASSIGNMENT_REFUSED, f"{what}min.insync.replicas of {least}")
    return found


def _tell_stays(place: PartitionKey, why: _Why) -> Exit:
    told = CliError(why.problem, f"{name_of(place)} stays: {why.text}")
    tell(told)
    return told.code


def _cancel(
    cluster: ReassignmentAdmin, options: Settings, chosen: list[PartitionKey]
) -> list[Exit]:
    codes = []
    results = cluster.alter(dict.fromkeys(chosen)) if chosen else {}
    for place, (code, why) in results.items():
        if code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:
            say(options, f"{name_of(place)}: has just ended")
            codes.append(Exit.OK)
        elif code:
            codes.append(report(place, code, why))
        else:
            codes.append(Exit.OK)
            say(options, f"{name_of(place)}: cancelled")
    return codes


def _say_back(
    cluster: ReassignmentAdmin, options: Settings, record: Record, without: Collection[PartitionKey]
) -> None:
    now, _ = cluster.placement()
    for place, before in record.before.items():
        if place not in without and now.get(place) not in (None, before):
            told = f"{listed(now[place])} -> {listed(before)}"
            say(options, f"{name_of(place)}: would go back, {told}")


def _move_back(
    connection: Connection,
    cluster: ReassignmentAdmin,
    options: Settings,
    record: Record,
    back: Back,
    stays: Collection[PartitionKey],
) -> list[Exit]:
    """Begins the moves back, which are a plan with a record of its own."""
    now, _ = cluster.placement()
    wanted = {
        place: before
        for place, before in record.before.items()
        if place in now and now[place] != before and place not in stays
    }
    if not wanted:
        say(options, *([] if stays else ["all replicas are as before"]))
        return []
    first = first_record(cluster, wanted, back.throttle)
    undone, complete = begin_record(connection, cluster, first, Limit())
    file = back.file + ROLLBACK
    path = reassign_record.able(reassign_record.path_of(file), None)
    if path is not None:
        write_plan(file, render_plan(wanted))
    run = Run(connection, cluster, options, undone, path, complete=complete)
    codes = run.carry_out(back.throttle, watch=back.watch)
    if path is not None and not back.watch and back.throttle != AUTO:
        say(options, f"`pyrklog cluster reassign status {file}` shows how far that is")
    return codes
