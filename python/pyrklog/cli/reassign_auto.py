"""``pyrklog cluster reassign auto``: balances without being asked, and explains each move."""

from __future__ import annotations

import re
import time
from typing import NamedTuple

import typer

from pyrklog.balance.automatic import MINUTES_OF_DAY, Decision, Hours, Watcher
from pyrklog.balance.directories import choose
from pyrklog.balance.explaining import explain
from pyrklog.balance.model import FILL_MAX, Goal, Wish, skews
from pyrklog.balance.planner import make_plan
from pyrklog.balance.prediction import Limit, in_batches
from pyrklog.base.problems import Problem
from pyrklog.cli.admin_common import connect, say
from pyrklog.cli.connection import Connection, PartitionKey
from pyrklog.cli.failures import CliError, Exit, tell
from pyrklog.cli.options import Settings
from pyrklog.cli.reassign_cluster import ReassignmentAdmin
from pyrklog.cli.reassign_measure import Measured, measure
from pyrklog.cli.reassign_planning import new_record
from pyrklog.cli.reassign_run import Run, arrow
from pyrklog.cli.reassign_summary import room_lines
from pyrklog.cli.throttles import Throttles

_HOURS = re.compile(r"(\d\d?)(?::(\d\d))?-(\d\d?)(?::(\d\d))?")


class Rules(NamedTuple):
    """``limit``: what a round moves at most. ``rounds`` 0: for ever."""

    goals: tuple[Goal, ...]
    watcher: Watcher
    every_s: float
    limit: Limit
    throttle: str
    rounds: int
    dry_run: bool
    fill_max: float = FILL_MAX


def parse_hours(text: str) -> Hours:
    """Parses ``22-6`` or ``22:30-6:00``. Raises :class:`CliError`."""
    match = _HOURS.fullmatch(text.strip())
    parts = [int(part or 0) for part in match.groups()] if match else [0, 60, 0, 0]
    first, last = parts[0] * 60 + parts[1], parts[2] * 60 + parts[3]
    is_valid = max(parts[1], parts[3]) < 60 and max(first, last) <= MINUTES_OF_DAY
    if not is_valid or first == last:
        what = f"--hours takes two times of the day such as 22-6 or 22:30-6:00, not {text!r}"
        raise CliError(Problem.ARGUMENT_VALUE, what)
    return Hours(first % MINUTES_OF_DAY, last)


def run_rounds(options: Settings, rules: Rules) -> None:
    """Looks again and again; an unreachable cluster is waited for."""
    looks, before = 0, ""
    unfinished: set[PartitionKey] = set()
    connection: Connection | None = None
    while True:
        try:
            connection = connection or connect(options)
            if not looks:
                _tell_left(connection)
            decision = _look(connection, options, rules, unfinished)
        except CliError as error:
            if error.code not in (Exit.UNREACHABLE, Exit.TIMED_OUT):
                raise
            tell(error)
            connection, decision = None, Decision(False, (), "")
        what = decision.why.split(" for ", 1)[0]
        if not decision.acts and decision.why and what != before:
            say(options, decision.why)
        before = what
        looks += 1
        if looks == rules.rounds:
            return
        time.sleep(rules.every_s)


def _tell_left(connection: Connection) -> None:
    """What an earlier command has left throttled may be somebody's wish, so it stays."""
    admin = ReassignmentAdmin(connection)
    if not admin.moving() and Throttles(connection, admin).named():
        fix = "`pyrklog cluster reassign cancel --all` takes that away"
        typer.echo(f"note: nothing moves, and replicas are throttled still; {fix}", err=True)


def _look(
    connection: Connection, options: Settings, rules: Rules, unfinished: set[PartitionKey]
) -> Decision:
    """``unfinished``: what a round has begun before the cluster was out of reach."""
    admin = ReassignmentAdmin(connection)
    needs_rates = Goal.IN in rules.goals
    rates_of = None if needs_rates else ()
    found = measure(connection, admin, rates_of=rates_of, fill_max=rules.fill_max)
    if unfinished and not unfinished & found.moving:
        Throttles(connection, admin).end(unfinished)
        unfinished.clear()
    now = skews(found.cluster, found.cluster.placement, found.cluster.brokers)
    local = time.localtime()
    decision = rules.watcher.look(
        time.monotonic(),
        local.tm_hour * 60 + local.tm_min,
        {goal: now[goal] for goal in rules.goals},
        is_moving=bool(found.moving),
        absent=found.cluster.absent_brokers,
    )
    if decision.acts:
        say(options, f"balances: {decision.why}")
        _balance(connection, admin, options, rules, found, unfinished)
    return decision


def _balance(
    connection: Connection,
    admin: ReassignmentAdmin,
    options: Settings,
    rules: Rules,
    found: Measured,
    unfinished: set[PartitionKey],
) -> None:
    """One round: the first batch of a plan, each move with its reason."""
    cluster = found.cluster
    plan = make_plan(cluster, Wish(sorted(cluster.brokers), rules.goals))
    batches = in_batches(cluster, plan.changed, rules.limit)
    say(options, *[f"held back: {one}" for one in room_lines(plan.full)])
    if not batches:
        is_full = bool(plan.full)
        say(options, "no disk has room for a move" if is_full else "no move would help")
        rules.watcher.acted()
        return
    changed = {key: plan.changed[key] for key in batches[0]}
    reasons = explain(cluster, changed, cluster.brokers)
    for key in changed:
        say(options, f"{arrow(key, cluster.placement, changed)}: {reasons[key]}")
    if rules.dry_run:
        say(options, "nothing changed")
    else:
        record = new_record(found, changed, None, rules.throttle)
        places = choose(cluster, changed)
        quiet = Run(connection, admin, _quiet(options), record, None, directories=places)
        unfinished.update(changed)
        codes = quiet.carry_out(rules.throttle, watch=True)
        unfinished.clear()
        bad = [code for code in codes if code is not Exit.OK]
        say(options, "not all of it was done" if bad else "done")
    rules.watcher.acted()


def _quiet(options: Settings) -> Settings:
    from dataclasses import replace

    return replace(options, quiet=True)
