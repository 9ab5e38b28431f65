"""``pyrklog cluster reassign cancel``: ends moves, and undoes those that have ended."""

from __future__ import annotations

from typing import NamedTuple

from pyrklog.balance.model import Placement
from pyrklog.balance.prediction import Limit
from pyrklog.balance.record import Record
from pyrklog.base.problems import Problem
from pyrklog.cli import reassign_record
from pyrklog.cli.admin_common import connect, say
from pyrklog.cli.connection import Connection, PartitionKey
from pyrklog.cli.failures import CliError, Exit, exit_with
from pyrklog.cli.options import Settings
from pyrklog.cli.reassign_cluster import ReassignmentAdmin
from pyrklog.cli.reassign_plan import AUTO, check_throttle, render_plan
from pyrklog.cli.reassign_planning import begin_record, write_plan
from pyrklog.cli.reassign_run import Run, listed, name_of, report
from pyrklog.cli.throttles import Throttles
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.reassignments import OngoingPartitionReassignment

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
    options: Settings, named: Placement | None, back: Back | None, *, dry_run: bool
) -> None:
    """``named``: only these; None: all."""
    if back is not None:
        check_throttle(back.throttle)
    record = None if back is None else back.record(named)
    connection = connect(options)
    cluster = ReassignmentAdmin(connection)
    if record is not None and not reassign_record.is_of(record, cluster.placement()[1]):
        raise CliError(Problem.FILE_CONTENT, "the plan was applied to another cluster", "check -b")
    moving = cluster.moving()
    chosen = [place for place in moving if named is None or place in named]
    going: set[PartitionKey] = set()
    if record is not None:
        # What an earlier rollback has begun goes on, with its throttle.
        going = {place for place in chosen if _target(moving[place]) == record.before[place]}
        chosen = [place for place in chosen if place not in going]
    if dry_run:
        say(options, *[f"{name_of(place)}: would be cancelled" for place in chosen])
        say(options, *([] if chosen else ["nothing moves"]))
        if record is not None:
            _say_back(cluster, options, record, set(chosen))
        return
    codes = _cancel(cluster, options, chosen)
    if not chosen:
        say(options, "nothing moves")
    # Also if nothing moves any more: the plan may be done.
    throttles = Throttles(connection, cluster)
    if named is not None or chosen or throttles.named():
        throttles.end(None if named is None else named.keys() - going)
    if record is not None and back is not None:
        codes += _move_back(connection, cluster, options, record, back)
        if going and (back.watch or back.throttle == AUTO):
            throttles.end(going)
    exit_with(codes)


def _target(one: OngoingPartitionReassignment) -> tuple[int, ...]:
    return tuple(broker for broker in one.replicas if broker not in one.removing_replicas)


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
    cluster: ReassignmentAdmin, options: Settings, record: Record, cancelled: set[PartitionKey]
) -> None:
    now, _ = cluster.placement()
    for place, before in record.before.items():
        if place not in cancelled and now.get(place) not in (None, before):
            told = f"{listed(now[place])} -> {listed(before)}"
            say(options, f"{name_of(place)}: would go back, {told}")


def _move_back(
    connection: Connection,
    cluster: ReassignmentAdmin,
    options: Settings,
    record: Record,
    back: Back,
) -> list[Exit]:
    """Begins the moves back, which are a plan with a record of its own."""
    now, _ = cluster.placement()
    wanted = {
        place: before
        for place, before in record.before.items()
        if place in now and now[place] != before
    }
    if not wanted:
        say(options, "all replicas are as before")
        return []
    undone, complete = begin_record(connection, cluster, wanted, Limit(), back.throttle)
    file = back.file + ROLLBACK
    path = reassign_record.able(reassign_record.path_of(file), None)
    if path is not None:
        write_plan(file, render_plan(wanted))
    run = Run(connection, cluster, options, undone, path, complete=complete)
    codes = run.carry_out(back.throttle, watch=back.watch)
    if path is not None and not back.watch and back.throttle != AUTO:
        say(options, f"`pyrklog cluster reassign status {file}` shows how far that is")
    return codes
