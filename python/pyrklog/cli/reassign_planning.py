"""Makes a plan of what a cluster has, and the record of a plan that begins."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import typer

from pyrklog.balance.directories import choose
from pyrklog.balance.model import Cluster, Goal, Placement, Wish
from pyrklog.balance.planner import make_plan
from pyrklog.balance.prediction import Limit, Prediction, in_batches, predict
from pyrklog.balance.record import Record, begun
from pyrklog.base.problems import Problem
from pyrklog.cli import reassign_record
from pyrklog.cli.admin_common import connect, show
from pyrklog.cli.connection import Connection, PartitionKey, missing_topic
from pyrklog.cli.failures import CliError, counted
from pyrklog.cli.options import OutputFormat, Settings
from pyrklog.cli.reassign_cluster import ReassignmentAdmin
from pyrklog.cli.reassign_measure import Measured, measure
from pyrklog.cli.reassign_plan import AUTO, parse_limit, parse_rate, parse_throttle, render_plan
from pyrklog.cli.reassign_summary import lines, listing, obstacle_lines

DEFAULT_RATE_BYTES = 50_000_000
_GOALS = {
    "bytes": (Goal.BYTES,),
    "rate": (Goal.IN, Goal.OUT),
    "leaders": (Goal.LEADERS,),
    "replicas": (Goal.REPLICAS,),
}


class Choice(NamedTuple):
    """What a plan is for, as the command line says it."""

    by: str | None = None
    brokers: str | None = None
    add: str | None = None
    exclude: str | None = None
    replication_factor: int | None = None
    rack_aware: bool = True
    only_needed: bool = False


def print_plan(
    options: Settings,
    topics: Sequence[str],
    choice: Choice,
    rate: str,
    batch: str | None,
    write: str | None,
    output: OutputFormat,
) -> None:
    rate_bytes, limit, goals = parse_rate(rate), parse_limit(batch), goals_of(choice)
    if write is None and output is not OutputFormat.TABLE:
        what = "-o needs --write FILE: standard output has the plan"
        raise CliError(Problem.ARGUMENTS_DISAGREE, what)
    connection = connect(options)
    admin = ReassignmentAdmin(connection)
    everything, _ = admin.placement()
    live = {one.broker_id for one in admin.describe().brokers}
    wish = wish_of(choice, live, goals)
    check_names(topics, everything)
    names = set(topics) or {topic for topic, _ in everything}
    found = measure(connection, admin, rates_of=names if Goal.IN in goals else ())
    chosen = {
        key for key in found.cluster.partitions if key[0] in names and key not in found.moving
    }
    wish = Wish(
        wish.allowed, goals, chosen, wish.replication_factor, choice.rack_aware, wish.targets
    )
    refuse_too_few(found.cluster, wish)
    plan = make_plan(found.cluster, wish)
    batches = in_batches(found.cluster, plan.changed, limit)
    prediction = predict(found.cluster, plan.changed, batches, rate_bytes)
    text = render_plan(plan.changed, choose(found.cluster, plan.changed))
    used = set(found.cluster.brokers)
    if write is None:
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        write_plan(write, text)
        show(listing(found.cluster, plan.changed, prediction, used, found.cluster_id), output)
    if options.quiet:
        return
    told = lines(found.cluster, plan.changed, prediction, used)
    typer.echo("\n".join(told[:2]) + " · nothing changed yet", err=True)
    notes = told[2:] + [f"stays: {one}" for one in obstacle_lines(plan.obstacles)]
    if found.moving:
        notes.append(f"{counted(len(found.moving), 'partition')} left out: moving now")
    for one in notes:
        typer.echo(one, err=True)


def write_plan(file: str, text: str) -> None:
    try:
        Path(file).write_text(text)
    except OSError as error:
        raise CliError(Problem.NOT_WRITTEN, f"{file}: {error.strerror}") from None


def goals_of(choice: Choice) -> tuple[Goal, ...]:
    """Raises :class:`CliError` for a word that is no goal."""
    if choice.only_needed:
        if choice.by is not None:
            what = "--by and --minimize bytes do not go together"
            raise CliError(Problem.ARGUMENTS_DISAGREE, what, "leave one of them out")
        return ()
    words = [one.strip() for one in (choice.by or ",".join(_GOALS)).split(",")]
    unknown = [one for one in words if one not in _GOALS]
    if unknown:
        what = f"--by takes {', '.join(_GOALS)}, not {unknown[0]!r}"
        raise CliError(Problem.ARGUMENT_VALUE, what)
    return tuple(goal for word in _GOALS if word in words for goal in _GOALS[word])


def wish_of(choice: Choice, live: Collection[int], goals: Sequence[Goal]) -> Wish:
    allowed = set(live) if choice.brokers is None else numbers(choice.brokers, "--brokers", live)
    excluded = set() if choice.exclude is None else numbers(choice.exclude, "--exclude")
    added = None if choice.add is None else numbers(choice.add, "--add", live)
    if added is not None:
        both = added & excluded
        if both:
            what = f"broker {min(both)} is named by --add and --exclude"
            raise CliError(Problem.ARGUMENTS_DISAGREE, what)
        allowed |= added
    allowed -= excluded
    if not allowed:
        raise CliError(Problem.REPLICAS_DO_NOT_FIT, "no broker is left that may have replicas")
    return Wish(sorted(allowed), goals, None, choice.replication_factor, choice.rack_aware, added)


def numbers(text: str, name: str, live: Collection[int] | None = None) -> set[int]:
    """Parses brokers' numbers; each must be among ``live``, if that is given."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() for part in parts):
        raise CliError(Problem.ARGUMENT_VALUE, f"{name} takes numbers, not {text!r}")
    if live is not None:
        dead = [part for part in parts if int(part) not in live]
        if dead:
            what = f"broker {','.join(dead)} is not there"
            known = ",".join(map(str, sorted(live)))
            raise CliError(Problem.BROKER_NOT_FOUND, what, f"any of {known}")
    return {int(part) for part in parts}


def refuse_too_few(cluster: Cluster, wish: Wish) -> None:
    """Raises :class:`CliError` if no partition could have all replicas, or too few."""
    chosen = [cluster.partitions[key] for key in wish.chosen or ()]
    wanted = wish.replication_factor or max([len(one.replicas) for one in chosen], default=0)
    if wanted > len(wish.allowed):
        what = f"{wanted} replicas do not fit on {counted(len(wish.allowed), 'broker')}"
        raise CliError(
            Problem.REPLICAS_DO_NOT_FIT, what, "name more with --brokers, or fewer with --rf"
        )
    least = max([one.min_insync for one in chosen], default=1)
    if wish.replication_factor is not None and wish.replication_factor < least:
        what = f"--rf {wish.replication_factor} is less than a topic's min.insync.replicas={least}"
        fix = "lower min.insync.replicas of it first, or name other topics with -t"
        raise CliError(Problem.REPLICAS_DO_NOT_FIT, what, fix)


def check_names(names: Sequence[str], everything: Placement) -> None:
    known = {topic for topic, _ in everything}
    for name in names:
        if name not in known:
            raise missing_topic(name, sorted(known))


def record_of(
    connection: Connection,
    admin: ReassignmentAdmin,
    wanted: Mapping[PartitionKey, tuple[int, ...]],
    limit: Limit | None,
    throttle: str | None,
) -> Record:
    """Of a plan that begins now; a broker that does not tell its bytes counts as empty."""
    topics = {topic for topic, _ in wanted}
    found = measure(connection, admin, rates_of=topics, without_silent=True)
    return new_record(found, wanted, limit, throttle)


def new_record(
    found: Measured,
    wanted: Mapping[PartitionKey, tuple[int, ...]],
    limit: Limit | None,
    throttle: str | None,
) -> Record:
    prediction = prediction_of(found.cluster, wanted, limit, throttle)
    copied = {
        key: found.cluster.partitions[key].size_bytes
        * len(set(after) - set(found.cluster.partitions[key].replicas))
        for key, after in wanted.items()
    }
    return begun(
        found.cluster_id,
        reassign_record.now_ms(),
        found.cluster.placement,
        wanted,
        prediction,
        copied,
        throttle,
    )


def prediction_of(
    cluster: Cluster, changed: Placement, limit: Limit | None, throttle: str | None
) -> Prediction:
    """Without a plain rate: as if each broker copied 50 MB a second."""
    rate = DEFAULT_RATE_BYTES
    if throttle is not None and throttle != AUTO:
        rate = parse_throttle(throttle)
    return predict(cluster, changed, in_batches(cluster, changed, limit), rate)
