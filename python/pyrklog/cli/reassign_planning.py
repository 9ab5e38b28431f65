"""Makes a plan of what a cluster has, and the record of a plan that begins."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import typer

from pyrklog.balance.directories import choose
from pyrklog.balance.explaining import explain
from pyrklog.balance.filling import NO_FILLING, Filling, retention_s
from pyrklog.balance.model import Broker, Cluster, Goal, Partition, Placement, Plan, Wish
from pyrklog.balance.planner import make_plan
from pyrklog.balance.prediction import (
    STEP_S,
    Batch,
    Limit,
    Prediction,
    RateFrom,
    in_batches,
    predict,
)
from pyrklog.balance.record import Record, begun
from pyrklog.balance.throttle import raise_s
from pyrklog.base.problems import Problem
from pyrklog.cli import copy_rates, reassign_record
from pyrklog.cli.admin_common import connect, show
from pyrklog.cli.connection import Connection, PartitionKey, missing_topic
from pyrklog.cli.expansion import NO_START, Start, from_the_end, tell_copied
from pyrklog.cli.failures import CliError, counted
from pyrklog.cli.options import OutputFormat, Settings
from pyrklog.cli.reassign_cluster import ReassignmentAdmin
from pyrklog.cli.reassign_measure import Measured, measure
from pyrklog.cli.reassign_plan import (
    AUTO,
    parse_fill,
    parse_limit,
    parse_rate,
    parse_throttle,
    render_plan,
)
from pyrklog.cli.reassign_progress import Moves, applied, largest
from pyrklog.cli.reassign_run import arrow
from pyrklog.cli.reassign_summary import (
    lines,
    listing,
    obstacle_lines,
    refuse_without_room,
    room_lines,
)
from pyrklog.cli.write_rates import GOING_ON_S, add_write_rates

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
    max_fill: str | None = None


class Shown(NamedTuple):
    """How a plan is shown."""

    rate: str | None
    batch: str | None
    is_from_end: bool
    explained: bool
    write: str | None
    output: OutputFormat


def print_plan(
    options: Settings,
    topics: Sequence[str],
    choice: Choice,
    shown: Shown,
) -> None:
    rate, batch, is_from_end, explained, write, output = shown
    given = None if rate is None else parse_rate(rate)
    limit, goals = parse_limit(batch), goals_of(choice)
    fill_max = parse_fill(choice.max_fill)
    if write is None and output is not OutputFormat.TABLE:
        what = "-o needs --write FILE: standard output has the plan"
        raise CliError(Problem.ARGUMENTS_DISAGREE, what)
    connection = connect(options)
    admin = ReassignmentAdmin(connection)
    everything, _ = admin.placement()
    check_names(topics, everything)
    names = set(topics) or {topic for topic, _ in everything}
    rates_of = names if Goal.IN in goals else ()
    found = measure(connection, admin, rates_of=rates_of, fill_max=fill_max)
    # Who is there is judged by one view, that of the plan.
    wish = wish_of(choice, found.cluster.brokers, goals)
    chosen = {
        key for key in found.cluster.partitions if key[0] in names and key not in found.moving
    }
    wish = replace(wish, chosen=chosen)
    refuse_too_few(found.cluster, wish)
    plan = make_plan(found.cluster, wish)
    start = NO_START
    if is_from_end:
        start = from_the_end(admin, found.cluster.placement, plan.changed)
        tell_copied(start)
    guess = guess_of(found.cluster_id, None, given)
    filling = filling_of(start, found.cluster, rate, guess)
    prediction = prediction_of(found.cluster, plan.changed, limit, guess, filling)
    text = render_plan(plan.changed, choose(found.cluster, plan.changed))
    used = set(found.cluster.brokers)
    if write is None:
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        write_plan(write, text)
        show(listing(found.cluster, plan.changed, prediction, used, found.cluster_id), output)
    if not options.quiet:
        _tell(found, plan, wish, prediction, explained=explained)
    refuse_without_room(found.cluster, plan)


def _tell(
    found: Measured, plan: Plan, wish: Wish, prediction: Prediction, *, explained: bool
) -> None:
    """On standard error: what the plan costs, and what it leaves alone."""
    used = set(found.cluster.brokers)
    told = lines(found.cluster, plan.changed, prediction, used)
    typer.echo("\n".join(told[:2]) + " · nothing changed yet", err=True)
    notes = told[2:] + [f"stays: {one}" for one in obstacle_lines(plan.obstacles)]
    notes += [f"held back: {one}" for one in room_lines(plan.full)]
    if explained:
        reasons = explain(found.cluster, plan.changed, wish.allowed)
        before = found.cluster.placement
        notes += [f"{arrow(key, before, plan.changed)}: {reasons[key]}" for key in plan.changed]
    if found.moving:
        notes.append(f"{counted(len(found.moving), 'partition')} left out: moving now")
    notes += _absent_notes(found.cluster, wish)
    for one in notes:
        typer.echo(one, err=True)


def _absent_notes(cluster: Cluster, wish: Wish) -> list[str]:
    """Brokers that are not there, and whose replicas stay."""
    notes = []
    for number in cluster.absent_brokers:
        if number in wish.given_up:
            continue
        left = sum(number in cluster.absent(key) for key in wish.chosen or ())
        if left:
            told = f"broker {number} is not there (--exclude {number} gives it up)"
            notes.append(f"{counted(left, 'partition')} left out: {told}")
    return notes


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
    by = ",".join(_GOALS) if choice.by is None else choice.by
    words = [one.strip() for one in by.split(",")]
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
    return Wish(
        sorted(allowed),
        goals,
        None,
        choice.replication_factor,
        choice.rack_aware,
        added,
        given_up=sorted(excluded),
    )


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
            raise CliError(Problem.BROKER_NOT_FOUND, what, f"brokers alive: {known}")
    return {int(part) for part in parts}


def refuse_too_few(cluster: Cluster, wish: Wish) -> None:
    """Raises :class:`CliError` if no partition could have all replicas, or too few. What lies on a
    broker that is not there stays anyway."""
    chosen = [
        cluster.partitions[key]
        for key in wish.chosen or ()
        if set(cluster.absent(key)) <= set(wish.given_up)
    ]
    wanted = wish.replication_factor or max([len(one.replicas) for one in chosen], default=0)
    if wanted > len(wish.allowed):
        what = f"{wanted} replicas need {wanted} brokers, and there are only {len(wish.allowed)}"
        raise CliError(
            Problem.REPLICAS_DO_NOT_FIT, what, "name more with --brokers, or fewer with --rf"
        )
    least = max([one.least_replicas for one in chosen], default=1)
    if wish.replication_factor is not None and wish.replication_factor < least:
        what = f"--rf {wish.replication_factor} is less than a topic needs for acks=all, {least}"
        fix = "lower min.insync.replicas of it first, or name other topics with -t"
        raise CliError(Problem.REPLICAS_DO_NOT_FIT, what, fix)


def check_names(names: Sequence[str], everything: Placement) -> None:
    known = {topic for topic, _ in everything}
    for name in names:
        if name not in known:
            raise missing_topic(name, sorted(known))


def begin_record(
    connection: Connection,
    admin: ReassignmentAdmin,
    record: Record,
    limit: Limit,
    start: Start = NO_START,
) -> tuple[Record, Callable[[Record], Record] | None]:
    """The record of a plan that begins now, of its first record, and what completes it; None: it is
    complete. Batches need the bytes; where replicas start at the end, all brokers have answered
    before, so that none is waited for."""
    leaders = admin.leaders()

    def complete(first: Record) -> Record:
        return measured_record(connection, admin, first, leaders, limit, start)

    if limit == Limit() and not start.at_end:
        return record, complete
    return replace(complete(record), begun_ms=reassign_record.now_ms()), None


def first_record(
    admin: ReassignmentAdmin,
    wanted: Mapping[PartitionKey, tuple[int, ...]],
    throttle: str | None,
    before: Placement | None = None,
    handed_over: Placement | None = None,
    at_end: Collection[PartitionKey] = (),
) -> Record:
    """Of a plan that begins now, as one batch; its bytes and times are not known yet. ``before``:
    how replicas were, if they have changed for the plan already. ``at_end``: whose new replicas
    start at the leader's end."""
    placement, cluster_id = admin.origins()
    if before is not None:
        placement.update(before)
    all_at_once = [Batch(tuple(wanted), 0, None)]
    rate_bytes, rate_from = guess_of(cluster_id, throttle)
    prediction = Prediction(rate_bytes, all_at_once, rate_from=rate_from)
    at_ms = reassign_record.now_ms()
    record = begun(cluster_id, at_ms, placement, wanted, prediction, {}, throttle)
    ids = admin.topic_ids({topic for topic, _ in wanted})
    handed = dict(handed_over or {})
    return replace(record, topic_ids=ids, handed_over=handed, at_end=frozenset(at_end))


def show_planned(
    admin: ReassignmentAdmin,
    wanted: Placement,
    output: OutputFormat,
    errors: Mapping[PartitionKey, str] | None = None,
) -> None:
    """For programs: what would be done."""
    if output in (OutputFormat.TABLE, OutputFormat.WIDE):
        return
    record = first_record(admin, {key: tuple(wanted[key]) for key in wanted}, None)
    show(applied(record, Moves([]), errors or {}), output)


def measured_record(
    connection: Connection,
    admin: ReassignmentAdmin,
    record: Record,
    leaders: Mapping[PartitionKey, int],
    limit: Limit,
    start: Start = NO_START,
) -> Record:
    """The same with batches, bytes and prediction. ``leaders``: before it began. A broker that does
    not tell its bytes counts as empty."""
    sizes = largest(admin.sizes(without_silent=True))
    brokers = admin.describe().brokers
    addresses = {one.broker_id: (one.host, one.port) for one in brokers}
    partitions = {
        key: Partition(before, sizes.get(key, 0), leader=leaders.get(key, -1))
        for key, before in record.before.items()
    }
    add_write_rates(connection, addresses, partitions, partitions.keys(), GOING_ON_S)
    cluster = Cluster({number: Broker(number) for number in addresses}, partitions)
    found = Measured(cluster, record.cluster_id, addresses)
    known = new_record(found, record.after, limit, record.throttle, start)
    return replace(
        known,
        begun_ms=record.begun_ms,
        topic_ids=record.topic_ids,
        handed_over=record.handed_over,
        is_begun=record.is_begun,
    )


def new_record(
    found: Measured,
    wanted: Mapping[PartitionKey, tuple[int, ...]],
    limit: Limit | None,
    throttle: str | None,
    start: Start = NO_START,
) -> Record:
    guess = guess_of(found.cluster_id, throttle)
    filling = filling_of(start, found.cluster, throttle, guess)
    prediction = prediction_of(found.cluster, wanted, limit, guess, filling, throttle)
    known = begun(
        found.cluster_id,
        reassign_record.now_ms(),
        found.cluster.placement,
        wanted,
        prediction,
        {},
        throttle,
    )
    entries = {}
    for key, entry in known.entries.items():
        one = found.cluster.partitions[key]
        whole = one.size_bytes * len(entry.targets)
        copied, filled = (0, whole) if key in start.at_end else (whole, 0)
        entries[key] = replace(
            entry,
            copied_bytes=copied,
            filled_bytes=filled,
            source=one.leader_now,
            rate_in=one.rate_in,
        )
    return replace(known, entries=entries, at_end=start.at_end)


class Guess(NamedTuple):
    """The rate of a prediction."""

    rate_bytes: int
    rate_from: RateFrom


def guess_of(cluster_id: str | None, throttle: str | None, given: int | None = None) -> Guess:
    """What is known comes first: a rate, then what the last plan of this kind copied."""
    if given is not None:
        return Guess(given, RateFrom.GIVEN)
    if throttle is not None and throttle != AUTO:
        return Guess(parse_throttle(throttle), RateFrom.GIVEN)
    rate_bytes = copy_rates.remembered(cluster_id, throttle)
    if rate_bytes is not None:
        return Guess(rate_bytes, RateFrom.EARLIER)
    return Guess(DEFAULT_RATE_BYTES, RateFrom.ASSUMED)


def filling_of(start: Start, cluster: Cluster, throttle: str | None, guess: Guess) -> Filling:
    """A throttle is for back-fills, too; a broker that does none goes on so."""
    rates = {
        broker: guess.rate_bytes if rate and throttle is not None else rate
        for broker, rate in start.rates.items()
    }
    kept_s = {
        key: retention_s(start.options.get(key[0], {}), cluster.partitions[key].rate_in)
        for key in start.at_end
    }
    return Filling(start.at_end, rates, kept_s)


def prediction_of(
    cluster: Cluster,
    changed: Placement,
    limit: Limit | None,
    guess: Guess,
    filling: Filling = NO_FILLING,
    throttle: str | None = None,
) -> Prediction:
    batches = in_batches(cluster, changed, limit)
    found = predict(cluster, changed, batches, guess.rate_bytes, filling)
    longer_s = 0.0
    if throttle == AUTO and found.seconds is not None:
        is_held = found.fill is not None and found.fill.is_by_retention
        lasts_s = max(0.0, found.seconds - STEP_S * len(batches))
        longer_s = 0.0 if is_held else raise_s(lasts_s, guess.rate_bytes)
    return replace(found, rate_from=guess.rate_from, raise_s=longer_s)
