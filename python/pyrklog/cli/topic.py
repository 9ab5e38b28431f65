"""``pyrklog topic``: create, list, describe, alter, delete, add-partitions, trim, copy, skew."""

import re
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from pyrklog.base.internal_topics import is_internal
from pyrklog.base.problems import Problem
from pyrklog.cli.admin_common import confirm, connect, report_each, say, show
from pyrklog.cli.deeds import telling
from pyrklog.cli.failures import CliError, Exit, counted, exit_with, refuse_empty, tell
from pyrklog.cli.internal_topics import deleted, internal_of, renumbered
from pyrklog.cli.options import (
    CONNECTION,
    INT32_MAX,
    WHERE,
    DryRun,
    OnlySaid,
    Output,
    OutputFormat,
    Settings,
    Yes,
    argument,
    command,
    command_group,
    option,
    parse_pairs,
)

if TYPE_CHECKING:
    from pyrklog.cli.connection import Connection
    from pyrklog.cli.offsets import OffsetPosition, OffsetRange
    from pyrklog.cli.topic_copy import Copied
    from pyrklog.cli.topic_listing import Sort
    from pyrklog.cli.topic_skew import By
    from pyrklog.cli.topic_trim import Trim

app = command_group("Create, list, describe, alter, delete, trim, copy and weigh topics.")

BROKER_DEFAULT = -1
PARTITIONS_MAX = 100_000
REPLICAS_MAX = 10_000
"""librdkafka's limits."""
OVER_S = 5.0
OVER_MIN_S, OVER_MAX_S = 0.1, 60.0

Names = Annotated[list[str], argument("TOPIC...")]


@command(app, "create", *CONNECTION, "quiet")
@telling
def create(
    options: Settings,
    names: Names,
    partitions: int = option(
        "-p, --partitions", "Partitions; -1: the broker's default.", BROKER_DEFAULT
    ),
    replication_factor: int = option(
        "-r, --replication-factor", "Replicas of each; -1: the broker's default.", BROKER_DEFAULT
    ),
    config: list[str] | None = option(
        "-c, --config K=V", "An option of the topic; may be repeated.", None
    ),
    if_not_exists: bool = option("--if-not-exists", "An existing topic is no error.", False),
    dry_run: DryRun = False,
) -> None:
    """Create topics and wait until they are usable."""
    _refuse_empty(names)
    configs = parse_pairs(config, "-c")
    _check_count("--partitions", partitions, PARTITIONS_MAX, or_default=True)
    _check_count("--replication-factor", replication_factor, REPLICAS_MAX, or_default=True)
    connection = connect(options)
    from confluent_kafka.admin import NewTopic

    from pyrklog.cli.option_advice import explained, like_option
    from pyrklog.config.topic import TOPIC_OPTIONS_BY_NAME
    from pyrklog.config.value_fixes import fix_for_number

    wanted = [
        NewTopic(
            name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            config=configs,
        )
        for name in dict.fromkeys(names)
    ]
    futures = connection.admin.create_topics(
        wanted, validate_only=dry_run, **_time_outs(options.timeout_s)
    )
    done = "would be created" if dry_run else "created"
    ignore = {"TOPIC_ALREADY_EXISTS": "exists already"} if if_not_exists else {}
    like = like_option(configs, list(TOPIC_OPTIONS_BY_NAME))
    number = next(filter(None, map(fix_for_number, configs, configs.values())), None)
    fixes = {
        "INVALID_CONFIG": like or number or (explained(configs) if configs else None),
        "INVALID_REPLICATION_FACTOR": "start more brokers, or give fewer replicas with -r; "
        "`pyrklog cluster brokers` lists those that are alive",
    }
    report_each("topic", futures, done, options, ignore, fixes)


@command(app, "list", *CONNECTION)
def list_topics(
    options: Settings,
    names: list[str] | None = argument("TOPIC...", default=None),
    regex: str | None = option("--regex", "Only names that it matches somewhere.", None),
    sort: str = option("--sort WHAT", "name, size, rate or skew.", "name"),
    stale: str | None = option(
        "--stale AGE", "Only topics without a record for so long, such as 7d.", None
    ),
    limit: int | None = option("--limit N", "Only the first N.", None, min=1),
    full: bool = option("--full", "Measure all columns, however large the cluster is.", False),
    internal: bool = option("--internal", "Internal topics too (__consumer_offsets, ...).", False),
    output: Output = OutputFormat.TABLE,
) -> None:
    """List topics.

    SIZE is of one replica of each partition, IN/S what the last minute brought by the records'
    timestamps, GROUPS how many consumer groups have offsets in the topic.
    """
    _refuse_empty(names or [])
    pattern = _pattern(regex)
    by = _sort(sort)
    from pyrklog.cli import topic_listing
    from pyrklog.cli.durations import parse_seconds

    stale_s = None if stale is None else parse_seconds(stale, "--stale")

    def wanted(name: str) -> bool:
        is_chosen = name in names if names else internal or not is_internal(name)
        return is_chosen and (pattern is None or pattern.search(name) is not None)

    selection = topic_listing.Selection(
        names or [],
        wanted,
        by,
        limit,
        stale_s,
        measured=output is not OutputFormat.NAME,
        full=full,
    )
    listing, notes = topic_listing.list_topics(connect(options), selection)
    for note in [] if options.quiet else notes:
        typer.echo(f"note: {note}", err=True)
    is_shown = output in (OutputFormat.TABLE, OutputFormat.WIDE)
    show(topic_listing.for_people(listing) if is_shown else listing, output)


def _sort(text: str) -> "Sort":
    from pyrklog.cli.topic_listing import Sort

    names = [one.value for one in Sort]
    if text not in names:
        raise CliError(
            Problem.ARGUMENT_VALUE, f"--sort {text} is unknown", f"one of {', '.join(names)}"
        )
    return Sort(text)


def _pattern(regex: str | None) -> re.Pattern[str] | None:
    if regex is None:
        return None
    try:
        return re.compile(regex)
    except re.error as error:
        raise CliError(
            Problem.ARGUMENT_VALUE, f"--regex {regex!r} is no regular expression: {error}"
        ) from None


@command(app, "describe", *CONNECTION)
def describe(
    options: Settings,
    names: Names,
    configs: bool = option("--configs", "Options too: value and where it comes from.", False),
    groups: bool = option(
        "--groups", "Consumer groups with offsets in the topic too, and their lag.", False
    ),
    output: Output = OutputFormat.TABLE,
) -> None:
    """Describe topics: partitions with leader, replicas, offsets and bytes, options, groups."""
    from pyrklog.cli import topic_description

    _refuse_empty(names)
    connection = connect(options)
    described = topic_description.describe_topics(
        connection, list(dict.fromkeys(names)), configs=configs, groups=groups
    )
    topic_description.print_described(described, output)


@command(app, "alter", *CONNECTION, "quiet")
@telling
def alter(
    options: Settings,
    names: Names,
    set_: list[str] | None = option("--set K=V", "Give an option a value; may be repeated.", None),
    unset: list[str] | None = option("--unset K", "Back to the default; may be repeated.", None),
    partitions: int | None = option("-p, --partitions", "New number of partitions.", None),
    confirm_adopted: bool = option(
        "--confirm-adopted",
        "End the keeping of everything in topics taken over without their options: those "
        "not given by --set go back to the defaults.",
        False,
    ),
    dry_run: DryRun = False,
) -> None:
    """Change options of topics, or add partitions. Other options stay as they are."""
    _refuse_empty(names)
    changes = parse_pairs(set_, "--set")
    if not changes and not unset and partitions is None and not confirm_adopted:
        raise CliError(
            Problem.ARGUMENT_MISSING, "nothing to change", "give --set, --unset or --partitions"
        )
    if partitions is not None:
        _check_count("--partitions", partitions, PARTITIONS_MAX)
        if not dry_run:
            advice = (
                f"`pyrklog topic add-partitions TOPIC --to {partitions} -y` has it all the same"
            )
            _refuse_renumbering(options, names, advice)
    from pyrklog.cli import topic_details

    connection = connect(options)
    names = list(dict.fromkeys(names))
    groups = [(names, unset or [])]
    if confirm_adopted:
        groups = topic_details.to_confirm(connection, names, changes, unset or [])
    if partitions is not None:
        counts = {name: len(found) for name, found in connection.topic_partitions(names).items()}
        grown = {name: count for name, count in counts.items() if count < partitions}
        say(options, *_moved_keys(_of_users(grown), partitions, []))
        _add_partitions(connection, counts, partitions, dry_run)
    if changes or unset or confirm_adopted:
        for some, reset in groups:
            lines = topic_details.alter_configs(connection, some, changes, reset, dry_run)
            say(options, *lines)


def _refuse_empty(names: list[str]) -> None:
    refuse_empty("TOPIC", "topic", names)


def _refuse_renumbering(options: Settings, names: list[str], advice: str) -> None:
    """``advice``: how other Kafkas than pyrklog do it."""
    found = internal_of(names)
    if not found:
        return
    is_ours = _is_pyrklog(options)
    if is_ours:
        what = f"{renumbered(found[0])}; pyrklog's brokers refuse it, whatever is given"
        raise CliError(Problem.INTERNAL_TOPIC, what, "leave the topic as it is")
    where = advice if is_ours is False else f"{advice}, except at pyrklog's brokers"
    raise CliError(Problem.CONFIRMATION_NEEDED, renumbered(found[0]), where)


def _is_pyrklog(options: Settings) -> bool | None:
    """None where it cannot be known, as over TLS or without an answer."""
    from pyrklog.cli.cluster_requests import ClusterRequests
    from pyrklog.cli.config_cluster import ConfigAdmin
    from pyrklog.cli.config_kinds import Kind

    try:
        with ClusterRequests(options) as requests:
            return ConfigAdmin(requests, Kind.BROKER).is_pyrklog()
    except CliError:
        return None


def _check_count(option: str, count: int, most: int, *, or_default: bool = False) -> None:
    if not (1 <= count <= most or (or_default and count == BROKER_DEFAULT)):
        default = "-1 for the broker's default, or " if or_default else ""
        raise CliError(Problem.ARGUMENT_VALUE, f"{option} takes {default}1 to {most}, not {count}")


def _add_partitions(
    connection: "Connection", counts: dict[str, int], total: int, dry_run: bool
) -> None:
    from confluent_kafka.admin import NewPartitions

    options = connection.settings
    futures = connection.admin.create_partitions(
        [NewPartitions(name, total) for name in counts],
        validate_only=dry_run,
        **_time_outs(options.timeout_s),
    )
    would = " (not done)" if dry_run else ""
    done = {name: f"partitions {count} -> {total}{would}" for name, count in counts.items()}
    report_each("topic", futures, done, options)


@command(app, "delete", *CONNECTION, "quiet")
@telling
def delete(
    options: Settings,
    names: Names,
    yes: Yes = False,
    internal: bool = option(
        "--internal", "Internal topics too, with what they hold for all clients.", False
    ),
    dry_run: bool = option("--dry-run", "Only say what would be deleted.", False),
) -> None:
    """Delete topics with all their records. Asks for the name, unless -y is given."""
    _refuse_empty(names)
    if not internal and not dry_run:
        # Scripts always give -y: it does not mean these.
        for name in internal_of(names):
            raise CliError(
                Problem.INTERNAL_TOPIC, deleted(name), "give --internal, too, to have it"
            )
    connection = connect(options)
    names = list(dict.fromkeys(names))
    found = connection.topic_partitions(names)
    for name in internal_of(names):
        if not options.quiet:
            typer.echo(f"note: {deleted(name)}", err=True)
    if dry_run:
        for name in names:
            say(options, f"{name}: {counted(len(found[name]), 'partition')} would be deleted")
        return
    if not yes:
        confirm(names)
    futures = connection.admin.delete_topics(names, **_time_outs(options.timeout_s))
    report_each("topic", futures, "deleted", options)


def _time_outs(timeout_s: float) -> dict[str, float]:
    """The broker answers before the client's timeout ends."""
    return {"operation_timeout": timeout_s, "request_timeout": timeout_s + 5.0}


@command(app, "add-partitions", *CONNECTION, "quiet")
@telling
def add_partitions(
    options: Settings,
    names: Names,
    total: int = option("--to N", "Partitions afterwards.", min=1, max=PARTITIONS_MAX),
    keys: list[str] | None = option(
        "-k, --key KEY", "Say where this key goes; may be repeated.", None
    ),
    yes: bool = option(
        "-y, --yes", "Internal topics too, which lose what they hold; not in pyrklog.", False
    ),
    dry_run: DryRun = False,
) -> None:
    """Add partitions, and say how many keys move to others. Records stay where they are."""
    _refuse_empty(names)
    names = list(dict.fromkeys(names))
    if not yes and not dry_run:
        _refuse_renumbering(options, names, "give -y to have it")
    connection = connect(options)
    counts = {name: len(found) for name, found in connection.topic_partitions(names).items()}
    for name, count in counts.items():
        if total <= count:
            what = f"topic {name} has {counted(count, 'partition')} already"
            raise CliError(Problem.PARTITION_COUNT, what, f"--to takes more than {count}")
    say(options, *_moved_keys(_of_users(counts), total, keys or []))
    _add_partitions(connection, counts, total, dry_run)


def _of_users(counts: dict[str, int]) -> dict[str, int]:
    """Keys of internal topics do not move: what they stand for is lost."""
    return {name: count for name, count in counts.items() if not internal_of([name])}


def _moved_keys(counts: dict[str, int], total: int, keys: list[str]) -> list[str]:
    from pyrklog.cli.key_partitions import moved_share, partition_of
    from pyrklog.cli.output import cell
    from pyrklog.cli.producer import argument_bytes

    lines = []
    for name, count in counts.items():
        share = float(moved_share(count, total))
        lines.append(f"{name}: about {share:.0%} of the keys go to another partition from now on")
        for key in keys:
            data = argument_bytes(key)
            old, new = partition_of(data, count), partition_of(data, total)
            where = f"partition {old}" if old == new else f"partition {old} -> {new}"
            lines.append(f"{name}: key {cell(key)}: {where}")
    return lines


@command(app, "trim", *CONNECTION, "quiet")
def trim(
    options: Settings,
    places: list[str] = argument("TOPIC[:P,...]..."),
    before: str = option("--before WHERE", f"Delete what is before: {WHERE}."),
    yes: Yes = False,
    dry_run: OnlySaid = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Delete the beginning of partitions. Asks for the topic's name, unless -y is given."""
    from pyrklog.cli import topic_trim

    _refuse_empty(places)
    position = _position(before, "--before")
    connection = connect(options)
    plans = topic_trim.plan(connection, places, position)
    plans = topic_trim.with_sizes(connection, plans)
    wanted = [one for one in plans if one.records > 0]
    failed = False
    if not dry_run and wanted:
        if not yes:
            names = list(dict.fromkeys(one.key[0] for one in wanted))
            action = f"delete {counted(sum(one.records for one in wanted), 'record')}"
            confirm(names, action)
        plans, failed = _trim(connection, plans, wanted)
    if not options.quiet:
        show(topic_trim.listing(plans, connection.metadata().cluster_id), output)
    if failed:
        raise typer.Exit(Exit.PARTIAL)


def _trim(
    connection: "Connection", plans: "list[Trim]", wanted: "list[Trim]"
) -> "tuple[list[Trim], bool]":
    """What was deleted, and what there was nothing to delete of; whether something failed. Ends
    the command if all failed."""
    from pyrklog.cli import topic_trim

    done, results = topic_trim.apply(connection, wanted)
    for _, error in results:
        if error is not None:
            tell(error)
    if not done:
        exit_with(code for code, _ in results)
    kept = [one for one in plans if one.records == 0]
    found = sorted([*done, *kept], key=lambda one: one.key)
    return found, len(done) < len(wanted)


def _position(text: str, name: str) -> "OffsetPosition":
    from pyrklog.cli.offsets import RangeError, parse_position

    try:
        return parse_position(text, time.time_ns() // 1_000_000, name)
    except RangeError as error:
        raise CliError(Problem.ARGUMENT_VALUE, str(error)) from None


@command(app, "copy", *CONNECTION, "quiet")
def copy(
    options: Settings,
    source: str = argument("SOURCE"),
    target: str = argument("TARGET"),
    start: str = option("--from WHERE", f"Where to begin: {WHERE}.", "start"),
    before: str = option("--before WHERE", f"Where to end: {WHERE}.", "end"),
    partitions: list[int] | None = option(
        "-p, --partition N", "Only this partition; may be repeated.", None, min=0, max=INT32_MAX
    ),
    to: str | None = option("--to HOST:PORT", "A broker of another cluster.", None),
    create: bool = option(
        "--create", "Make a missing target, with the source's partitions and options.", False
    ),
    overrides: list[str] | None = option(
        "-c, --config K=V", "With --create: an option instead of the source's.", None
    ),
    repartition: bool = option(
        "--repartition", "Place records by their keys, not in the same partitions.", False
    ),
    codec: str = option("-z, --compression CODEC", "none, gzip, snappy, lz4 or zstd.", "none"),
    read_committed: bool = option(
        "--read-committed",
        "Leave out records of aborted transactions; ends at the first open transaction.",
        False,
    ),
    dry_run: OnlySaid = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Copy records to another topic, up to the source's present end.

    Exit code 9 if --read-committed stops before.
    """
    from pyrklog.cli import topic_copy
    from pyrklog.cli.offsets import RangeError
    from pyrklog.cli.produce import refuse_codec

    _refuse_empty([source, target])
    refuse_codec(codec)
    configs = parse_pairs(overrides, "-c")
    if configs and not create:
        raise CliError(Problem.ARGUMENTS_DISAGREE, "-c needs --create", "see `pyrklog topic alter`")
    wanted = _range(start, before)
    # Acknowledged records are not printed one by one.
    there = replace(options, verbose=False)
    if to is not None:
        refuse_empty("--to", "broker", [to])
        there = replace(there, bootstrap=to, bootstrap_option="--to", is_profiles_broker=False)
    goal = topic_copy.Target(there, target, create, configs)
    connection = connect(options)
    reading = topic_copy.reader(
        options, source, partitions or (), wanted, read_committed=read_committed
    )
    try:
        reading.start()
        chosen = [partition for _, partition in reading.ranges()]
        topic_copy.prepare(connection, source, chosen, goal, by_key=repartition, dry=dry_run)
        if dry_run:
            done = topic_copy.expected(reading)
        else:
            writing = topic_copy.writer(goal, codec)
            done = topic_copy.copy(reading, writing, by_key=repartition, quiet=options.quiet)
    except RangeError as error:
        raise CliError(Problem.OUTSIDE_THE_LOG, str(error), "give another --from") from None
    finally:
        reading.close()
    if not options.quiet:
        _show_copied(connection, done, output, dry_run)
    topic_copy.refuse_held_back(reading.held, "would stop" if dry_run else "stopped")


def _range(start: str, before: str) -> "OffsetRange":
    from pyrklog.cli.offsets import OffsetRange, RangeError, refuse_backwards

    found = OffsetRange(_position(start, "--from"), _position(before, "--before"))
    try:
        refuse_backwards(found, f"--from {start} --before {before}")
    except RangeError as error:
        raise CliError(Problem.ARGUMENT_VALUE, str(error)) from None
    return found


def _show_copied(
    connection: "Connection", done: "dict[tuple[str, int], Copied]", output: OutputFormat, dry: bool
) -> None:
    from pyrklog.cli import topic_copy

    show(topic_copy.listing(done, connection.metadata().cluster_id, dry=dry), output)
    if output is OutputFormat.TABLE and sys.stderr.isatty():
        told = topic_copy.total(done)
        typer.echo(f"{told} {'would be copied' if dry else 'copied'}", err=True)


@command(app, "skew", *CONNECTION)
def skew(
    options: Settings,
    names: list[str] | None = argument("[TOPIC...]", default=None),
    by: str | None = option(
        "--by WHAT", "leaders, replicas, bytes or rate. Default: bytes if brokers tell them.", None
    ),
    over_s: float = option("--over SECONDS", "How long to measure the rate.", OVER_S),
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show how evenly topics (default: all) load brokers, and how evenly partitions are filled."""
    from pyrklog.cli import topic_skew

    _refuse_empty(names or [])
    if not OVER_MIN_S <= over_s <= OVER_MAX_S:
        what = f"--over takes {OVER_MIN_S:g} to {OVER_MAX_S:g} seconds, not {over_s:g}"
        raise CliError(Problem.ARGUMENT_VALUE, what)
    measured = _measured(by)
    connection = connect(options)
    found = topic_skew.measure(connection, list(dict.fromkeys(names or [])), measured, over_s)
    if output in (OutputFormat.TABLE, OutputFormat.WIDE):
        sys.stdout.write(topic_skew.page(found))
        sys.stdout.flush()
    elif output in (OutputFormat.CSV, OutputFormat.NAME):
        show(topic_skew.flat_listing(found), output)
    else:
        show(topic_skew.listing(found), output)


def _measured(by: str | None) -> "By | None":
    from pyrklog.cli.topic_skew import By

    names = [one.value for one in By]
    by = By.REPLICAS.value if by == "count" else by
    if by is not None and by not in names:
        raise CliError(
            Problem.ARGUMENT_VALUE, f"--by {by} is unknown", f"one of {', '.join(names)}"
        )
    return None if by is None else By(by)
