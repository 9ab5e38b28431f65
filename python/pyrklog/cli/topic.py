"""``pyrklog topic``: create, list, describe, alter, delete."""

import re
from typing import TYPE_CHECKING, Annotated

from pyrklog.cli.admin_common import confirm, connect, report_each, say, show
from pyrklog.cli.failures import CliError, Exit, refuse_empty
from pyrklog.cli.options import (
    CONNECTION,
    DryRun,
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

app = command_group("Create, list, describe, alter and delete topics.")

BROKER_DEFAULT = -1
PARTITIONS_MAX = 100_000
REPLICAS_MAX = 10_000
"""librdkafka's limits."""
INTERNAL_PREFIX = "__"

Names = Annotated[list[str], argument("TOPIC...")]


@command(app, "create", *CONNECTION, "quiet")
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

    from pyrklog.cli.topic_details import like_option
    from pyrklog.config.topic import TOPIC_OPTIONS_BY_NAME

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
    fixes = {"INVALID_CONFIG": like_option(configs, list(TOPIC_OPTIONS_BY_NAME))}
    report_each("topic", futures, done, options, ignore, fixes)


@command(app, "list", *CONNECTION)
def list_topics(
    options: Settings,
    names: list[str] | None = argument("TOPIC...", default=None),
    regex: str | None = option("--regex", "Only names that it matches somewhere.", None),
    internal: bool = option("--internal", "Internal topics too (__consumer_offsets, ...).", False),
    output: Output = OutputFormat.TABLE,
) -> None:
    """List topics."""
    _refuse_empty(names or [])
    pattern = _pattern(regex)
    connection = connect(options)
    from pyrklog.cli import topic_details

    def wanted(name: str) -> bool:
        if names:
            return name in names
        return internal or not name.startswith(INTERNAL_PREFIX)

    listing = topic_details.list_topics(
        connection,
        names or [],
        lambda name: wanted(name) and (pattern is None or pattern.search(name) is not None),
    )
    show(listing, output)


def _pattern(regex: str | None) -> re.Pattern[str] | None:
    if regex is None:
        return None
    try:
        return re.compile(regex)
    except re.error as error:
        raise CliError(Exit.USAGE, f"--regex {regex!r} is no regular expression: {error}") from None


@command(app, "describe", *CONNECTION)
def describe(
    options: Settings,
    names: Names,
    configs: bool = option("--configs", "Options too: value and where it comes from.", False),
    output: Output = OutputFormat.TABLE,
) -> None:
    """Describe topics: partitions with leader, replicas and offsets, and options."""
    from pyrklog.cli import topic_details

    _refuse_empty(names)
    connection = connect(options)
    described = topic_details.describe_topics(connection, list(dict.fromkeys(names)), configs)
    topic_details.print_described(described, output)


@command(app, "alter", *CONNECTION, "quiet")
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
        raise CliError(Exit.USAGE, "nothing to change", "give --set, --unset or --partitions")
    if partitions is not None:
        _check_count("--partitions", partitions, PARTITIONS_MAX)
    from pyrklog.cli import topic_details

    connection = connect(options)
    names = list(dict.fromkeys(names))
    if confirm_adopted:
        unset = topic_details.to_confirm(connection, names, changes, unset or [])
    if partitions is not None:
        counts = {name: len(found) for name, found in connection.topic_partitions(names).items()}
        _add_partitions(connection, counts, partitions, dry_run)
    if changes or unset:
        lines = topic_details.alter_configs(connection, names, changes, unset or [], dry_run)
        say(options, *lines)


def _refuse_empty(names: list[str]) -> None:
    refuse_empty("TOPIC", "topic", names)


def _check_count(option: str, count: int, most: int, *, or_default: bool = False) -> None:
    if not (1 <= count <= most or (or_default and count == BROKER_DEFAULT)):
        default = "-1 for the broker's default, or " if or_default else ""
        raise CliError(Exit.USAGE, f"{option} takes {default}1 to {most}, not {count}")


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
def delete(
    options: Settings,
    names: Names,
    yes: Yes = False,
    dry_run: bool = option("--dry-run", "Only say what would be deleted.", False),
) -> None:
    """Delete topics with all their records. Asks for the name, unless -y is given."""
    _refuse_empty(names)
    connection = connect(options)
    names = list(dict.fromkeys(names))
    found = connection.topic_partitions(names)
    if dry_run:
        for name in names:
            say(options, f"{name}: {len(found[name])} partitions would be deleted")
        return
    if not yes:
        confirm(names)
    futures = connection.admin.delete_topics(names, **_time_outs(options.timeout_s))
    report_each("topic", futures, "deleted", options)


def _time_outs(timeout_s: float) -> dict[str, float]:
    """The broker answers before the client's timeout ends."""
    return {"operation_timeout": timeout_s, "request_timeout": timeout_s + 5.0}
