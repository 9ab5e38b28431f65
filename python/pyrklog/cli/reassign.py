"""``pyrklog cluster reassign``: plan, apply, status, cancel; on any Kafka cluster (KIP-455)."""

import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pyrklog.base.problems import Problem
from pyrklog.cli.admin_common import connect, say, show
from pyrklog.cli.deeds import is_document, telling
from pyrklog.cli.failures import CliError, Exit, exit_with, missing_partition, tell, unread
from pyrklog.cli.options import (
    CONNECTION,
    OnlySaid,
    Output,
    OutputFormat,
    Settings,
    argument,
    command,
    command_group,
    option,
)

if TYPE_CHECKING:
    from pyrklog.cli.connection import PartitionKey
    from pyrklog.cli.output import Listing
    from pyrklog.cli.reassign_cluster import ReassignmentAdmin
    from pyrklog.cli.reassign_plan import Placement

app = command_group(
    "Move partitions to other brokers. Plans are those of kafka-reassign-partitions."
)

DEFAULT_RATE = "50MB/s"
WATCH_INTERVAL_S = 1.0
STANDARD_INPUT = "-"


class Minimize(StrEnum):
    BYTES = "bytes"


@command(app, "plan", *CONNECTION, "quiet")
def plan(
    options: Settings,
    topics: list[str] | None = option("-t, --topics T,...", "Only these; default: all.", None),
    topics_file: str | None = option(
        "-f, --topics-file FILE", "Kafka's topics-to-move JSON instead.", None
    ),
    brokers: str | None = option("--brokers N,...", "Where replicas may lie; default: all.", None),
    replication_factor: int | None = option(
        "--rf", "Replicas of each partition; default: as many as now.", None, min=1
    ),
    rack_aware: bool = option("--rack-aware/--no-rack-aware", "Spread replicas over racks.", True),
    minimize: Minimize | None = option(
        "--minimize", "bytes: move only what must move, balance nothing.", None
    ),
    rate: str = option("--rate RATE", "For the estimate of the time.", DEFAULT_RATE),
) -> None:
    """Print a plan in Kafka's JSON, and on standard error what it costs. Changes nothing."""
    from pyrklog.cli.reassign_cluster import ReassignmentAdmin
    from pyrklog.cli.reassign_plan import cost, parse_rate, parse_topics, propose, render_plan

    rate_bytes = parse_rate(rate)
    names = [name for text in topics or [] for name in text.split(",") if name]
    if topics_file is not None:
        names += parse_topics(_read(topics_file), topics_file)
    if not names and (topics is not None or topics_file is not None):
        raise CliError(
            Problem.ARGUMENT_MISSING, "no topic is named", "leave -t and -f out for all of them"
        )
    cluster = ReassignmentAdmin(connect(options))
    everything, _ = cluster.placement()
    live = {one.broker_id: one.rack for one in cluster.describe().brokers}
    allowed = _brokers(brokers, live)
    _check_names(names, everything)
    chosen = {place: now for place, now in everything.items() if not names or place[0] in names}
    sizes = _largest(cluster.sizes())
    proposed = propose(
        chosen,
        sizes,
        allowed,
        replication_factor=replication_factor,
        racks=live if rack_aware else {},
        balance=minimize is None,
    )
    changed = {place: now for place, now in proposed.items() if now != chosen[place]}
    sys.stdout.write(render_plan(changed))
    sys.stdout.flush()
    if not options.quiet:
        told = cost(everything, changed, sizes, live).line(rate_bytes)
        typer.echo(f"{told} · nothing changed yet", err=True)


@command(app, "apply", *CONNECTION, "quiet")
@telling
def apply(
    options: Settings,
    file: str = argument("FILE", "A plan; - for standard input."),
    throttle: str | None = option(
        "--throttle RATE",
        "Copy no faster than this on each broker, such as 50MB/s; without a unit, bytes "
        "a second. `status FILE` takes it away.",
        None,
    ),
    rollback: str | None = option(
        "--rollback FILE", "Write the plan that undoes this one there, first.", None
    ),
    watch: bool = option("-w, --watch", "Wait until nothing of it moves any more.", False),
    dry_run: OnlySaid = False,
) -> None:
    """Begin the moves of a plan. Partitions that move already get new targets."""
    from pyrklog.cli.reassign_cluster import ReassignmentAdmin
    from pyrklog.cli.reassign_plan import amount, parse_plan, parse_throttle, render_plan

    wanted = parse_plan(_read(file), file)
    rate_bytes = None if throttle is None else parse_throttle(throttle)
    cluster = ReassignmentAdmin(connect(options))
    before, _ = cluster.placement()
    _check_places(wanted, before)
    if not wanted:
        say(options, "nothing to do: the plan is empty")
        return
    if dry_run:
        _say_only(cluster, options, before, wanted)
        return
    if rollback is not None:
        undo = {place: before[place] for place in wanted}
        try:
            Path(rollback).write_text(render_plan(undo))
        except OSError as error:
            raise CliError(Problem.NOT_WRITTEN, f"{rollback}: {error.strerror}") from None
    if rate_bytes is not None:
        cluster.throttle(before, wanted, rate_bytes)
        say(options, f"each broker copies at most {amount(rate_bytes)}/s")
    results = cluster.alter(wanted)
    codes = []
    for place in wanted:
        if results[place][0]:
            codes.append(_report(place, *results[place]))
            continue
        codes.append(Exit.OK)
        say(options, _arrow(place, before, wanted))
    if watch and Exit.OK in codes:
        _watch(cluster, options, set(wanted), None if is_document() else OutputFormat.TABLE)
    if rate_bytes is not None and (watch or Exit.OK not in codes):
        cluster.unthrottle({topic for topic, _ in wanted})
    if watch and Exit.OK in codes:
        codes.append(_conclude(cluster, options, wanted))
    exit_with(codes)


def _say_only(
    cluster: "ReassignmentAdmin", options: Settings, before: "Placement", wanted: "Placement"
) -> None:
    live = {one.broker_id for one in cluster.describe().brokers}
    codes = []
    for place, replicas in wanted.items():
        dead = [broker for broker in replicas if broker not in live]
        if dead:
            what = f"{_name(place)}: broker {_list(dead)} is not there"
            tell(CliError(Problem.BROKER_NOT_FOUND, what))
        else:
            say(options, f"{_arrow(place, before, wanted)} (not done)")
        codes.append(Exit.NOT_FOUND if dead else Exit.OK)
    exit_with(codes)


def _arrow(place: "PartitionKey", before: "Placement", wanted: "Placement") -> str:
    return f"{_name(place)}: {_list(before[place])} -> {_list(wanted[place])}"


@command(app, "status", *CONNECTION, "quiet")
def status(
    options: Settings,
    file: str | None = argument(
        "[FILE]",
        "Only this plan; when it is done, its throttle goes. 8 where it was not kept.",
        None,
    ),
    watch: bool = option("-w, --watch", "Print it again until nothing moves.", False),
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show what moves, its progress, and (with -w) how long it takes."""
    from pyrklog.cli.reassign_cluster import ReassignmentAdmin
    from pyrklog.cli.reassign_plan import parse_plan

    wanted = None if file is None else parse_plan(_read(file), file)
    cluster = ReassignmentAdmin(connect(options))
    places = None if wanted is None else set(wanted)
    if watch:
        items = _watch(cluster, options, places, output)
    else:
        items = _progress(cluster, places)
        show(_listing(items, cluster.placement()[1]), output)
    if wanted is None or items:
        return
    there = {topic for topic, _ in cluster.placement()[0]}
    cluster.unthrottle({topic for topic, _ in wanted} & there)
    if _conclude(cluster, options, wanted):
        raise typer.Exit(Exit.DIFFERS)


def _conclude(cluster: "ReassignmentAdmin", options: Settings, wanted: "Placement") -> Exit:
    after, _ = cluster.placement()
    other = [place for place in wanted if after.get(place) != wanted[place]]
    for place in other:
        found = _list(after[place]) if place in after else "gone"
        what = f"{_name(place)} is {found}, not {_list(wanted[place])}"
        tell(CliError(Problem.NOT_AS_PLANNED, what))
    if other:
        return Exit.DIFFERS
    count = "1 partition is" if len(wanted) == 1 else f"{len(wanted)} partitions are"
    say(options, f"done: {count} where the plan wants them")
    return Exit.OK


@command(app, "cancel", *CONNECTION, "quiet")
@telling
def cancel(
    options: Settings,
    file: str | None = argument("[FILE]", "A plan.", None),
    everything: bool = option("--all", "Whatever moves.", False),
    dry_run: OnlySaid = False,
) -> None:
    """Cancel moves: the earlier replicas come back, and throttles go."""
    from pyrklog.cli.reassign_cluster import ReassignmentAdmin
    from pyrklog.cli.reassign_plan import parse_plan

    if everything == (file is not None):
        raise CliError(Problem.ARGUMENT_MISSING, "a plan or --all says what to cancel")
    named = None if file is None else set(parse_plan(_read(file), file))
    cluster = ReassignmentAdmin(connect(options))
    moving = cluster.moving()
    chosen = [place for place in moving if named is None or place in named]
    if dry_run:
        say(options, *[f"{_name(place)}: would be cancelled" for place in chosen])
        say(options, *([] if chosen else ["nothing moves"]))
        return
    # Remove throttles also if nothing moves any more: the plan may be done.
    throttled = cluster.throttled_topics()
    if named is not None:
        throttled &= {topic for topic, _ in named}
    if not chosen:
        if throttled or named is not None:
            cluster.unthrottle(throttled)
        say(options, "nothing moves")
        return
    codes = []
    for place, (code, why) in cluster.alter(dict.fromkeys(chosen)).items():
        if code:
            codes.append(_report(place, code, why))
        else:
            codes.append(Exit.OK)
            say(options, f"{_name(place)}: cancelled")
    cluster.unthrottle(throttled)
    exit_with(codes)


def _read(file: str) -> str:
    if file == STANDARD_INPUT:
        return sys.stdin.read()
    try:
        return Path(file).read_text()
    except OSError as error:
        raise unread(file, error, Problem.FILE_CONTENT) from None
    except UnicodeDecodeError:
        raise CliError(Problem.FILE_CONTENT, f"{file} is no text") from None


def _brokers(text: str | None, live: "dict[int, str | None]") -> list[int]:
    if text is None:
        return sorted(live)
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() for part in parts):
        raise CliError(Problem.ARGUMENT_VALUE, f"--brokers takes numbers, not {text!r}")
    dead = [part for part in parts if int(part) not in live]
    if dead:
        what = f"broker {','.join(dead)} is not there"
        raise CliError(Problem.BROKER_NOT_FOUND, what, f"brokers alive: {_list(sorted(live))}")
    return sorted({int(part) for part in parts})


def _check_names(names: list[str], everything: "Placement") -> None:
    from pyrklog.cli.connection import missing_topic

    known = {topic for topic, _ in everything}
    for name in names:
        if name not in known:
            raise missing_topic(name, sorted(known))


def _check_places(wanted: "Placement", before: "Placement") -> None:
    _check_names([topic for topic, _ in wanted], before)
    for place in wanted:
        if place not in before:
            raise missing_partition(*place, sum(topic == place[0] for topic, _ in before))


def _largest(sizes: Any) -> "dict[PartitionKey, int]":
    """A partition's size is that of its largest replica."""
    found: dict[PartitionKey, int] = {}
    for (topic, index, _), size in sizes.items():
        found[topic, index] = max(size, found.get((topic, index), 0))
    return found


def _progress(
    cluster: "ReassignmentAdmin", places: "set[PartitionKey] | None"
) -> list[dict[str, Any]]:
    moving = cluster.moving()
    chosen = [place for place in sorted(moving) if places is None or place in places]
    # A broker that has just died stays listed for a moment: its replicas count as not copied.
    sizes = cluster.sizes(without_silent=True) if chosen else {}
    whole = _largest(sizes)
    items = []
    for place in chosen:
        one = moving[place]
        adding = one.adding_replicas
        wanted = whole.get(place, 0) * len(adding)
        there = sum(min(sizes.get((*place, b), 0), whole.get(place, 0)) for b in adding)
        items.append(
            {
                "topic": place[0],
                "partition": place[1],
                "replicas": list(one.replicas),
                "adding": list(adding),
                "removing": list(one.removing_replicas),
                "percent": int(100 * there / wanted) if wanted else 100,
                "bytes_left": wanted - there,
                "eta_s": None,
            }
        )
    return items


def _watch(
    cluster: "ReassignmentAdmin",
    options: Settings,
    places: "set[PartitionKey] | None",
    output: OutputFormat | None,
) -> list[dict[str, Any]]:
    """Prints moves (None: nothing) until none is left; returns the last list, which is empty."""

    cluster_id = cluster.placement()[1]
    before: dict[PartitionKey, int] = {}
    seen_at = time.monotonic()
    while True:
        items = _progress(cluster, places)
        now = time.monotonic()
        for item in items:
            place = item["topic"], item["partition"]
            copied = before.get(place, item["bytes_left"]) - item["bytes_left"]
            if copied > 0:
                item["eta_s"] = round(item["bytes_left"] * (now - seen_at) / copied)
        if items and output is not None and not options.quiet:
            show(_listing(items, cluster_id), output)
        if not items:
            return items
        before = {(item["topic"], item["partition"]): item["bytes_left"] for item in items}
        seen_at = now
        time.sleep(WATCH_INTERVAL_S)


def _listing(items: list[dict[str, Any]], cluster_id: str | None) -> "Listing":
    from pyrklog.cli.output import Listing, columns

    shown = columns(
        "topic, partition>, replicas*, adding, removing, percent> %, bytes_left> BYTES LEFT, "
        "eta_s> ETA S"
    )
    return Listing("pyrklog.reassignments/1", shown, items, cluster_id)


def _report(place: "PartitionKey", code: Any, why: str | None) -> Exit:
    from pyrklog.protocol.errors import ErrorCode

    is_unknown = code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    problem = Problem.PARTITION_NOT_FOUND if is_unknown else Problem.REASSIGNMENT_REFUSED
    refused = CliError(problem, f"{_name(place)}: {why or code.name}")
    tell(refused)
    return refused.code


def _name(place: "PartitionKey") -> str:
    return f"{place[0]}-{place[1]}"


def _list(brokers: Any) -> str:
    return ",".join(map(str, brokers))
