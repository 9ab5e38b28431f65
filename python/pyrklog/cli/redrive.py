"""``pyrklog redrive``: records of a dead-letter topic back to the topics that they came from."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from pyrklog.base.internal_topics import is_internal
from pyrklog.base.problems import Problem
from pyrklog.cli.admin_common import connect, show
from pyrklog.cli.failures import CliError, counted, refuse_empty
from pyrklog.cli.options import (
    CONNECTION,
    Filters,
    OnlySaid,
    Output,
    OutputFormat,
    Settings,
    argument,
    option,
    with_settings,
)

if TYPE_CHECKING:
    from pyrklog.cli.connection import PartitionKey
    from pyrklog.cli.held_back import HeldBack
    from pyrklog.cli.redrive_run import Tally

MAX_REDRIVES = 3
HEADER = "header:"
GROUP_PREFIX = "redrive."
"""Of the group that keeps what is redriven, unless ``-g`` names one."""


@with_settings(*CONNECTION, "verbose", "quiet")
def redrive(
    options: Settings,
    source: str = argument("DLQ"),
    to: str | None = option(
        "--to TOPIC",
        "Where to, or header:NAME that names it. Default: the topic that the record's error "
        "headers name.",
        None,
    ),
    filters: Filters = None,
    limit: int | None = option("-n, --limit N", "Stop after so many records.", None, min=1),
    rate: float | None = option("--rate N", "At most so many records a second.", None),
    group: str | None = option(
        "-g, --group GROUP", f"Keeps what is redriven. Default: {GROUP_PREFIX}DLQ.", None
    ),
    again: bool = option("--again", "Begin anew: records redriven before, too.", False),
    max_redrives: int = option(
        "--max-redrives N", "Leave records that were redriven so often.", MAX_REDRIVES, min=1
    ),
    repartition: bool = option(
        "--repartition", "Place records by their keys, not in their original partitions.", False
    ),
    now: bool = option("--now", "Give records the present time, not the original.", False),
    keep_headers: bool = option("--keep-headers", "Keep the headers about the error.", False),
    dry_run: OnlySaid = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Move records of a dead-letter topic back to where they came from.

    A second run goes on where the first one ended. Records stay in DLQ, too. Exit code 9 if some
    could not be moved, 1 if none could.
    """
    from pyrklog.cli.pace import Pace, parse_rate
    from pyrklog.cli.record_filter import conditions_of
    from pyrklog.cli.redrive_consumer import RedriveConsumer
    from pyrklog.cli.redrive_rules import Rules
    from pyrklog.cli.redrive_run import Redrive, listing
    from pyrklog.cli.redrive_writer import RedriveWriter

    refuse_empty("DLQ", "topic", [source])
    name = f"{GROUP_PREFIX}{source}" if group is None else group
    refuse_empty("-g", "group", [name])
    topic, header = _target(to, source)
    conditions = conditions_of(filters)
    metadata = connect(options).metadata()
    rules = Rules(
        source,
        _partitions(metadata, topic),
        to=topic,
        header=header,
        conditions=conditions,
        max_redrives=max_redrives,
        by_key=repartition,
        now=now,
        keeps_headers=keep_headers,
    )
    reading = RedriveConsumer(options, source, name, dry=dry_run, again=again)
    run = Redrive(reading, rules, limit=limit, pace=Pace(parse_rate(rate)), verbose=options.verbose)
    has_begun = False
    try:
        reading.start()
        writing = None if dry_run else RedriveWriter(options)
        has_begun = True
        run.run(writing)
    finally:
        reading.close()
        if has_begun and not options.quiet:
            show(listing(run.tally, rules, metadata.cluster_id), output)
            _tell(run.tally, output, dry_run)
    _tell_held_back(reading.held, options)
    run.tally.check()


def _target(to: str | None, source: str) -> tuple[str | None, str | None]:
    """The topic, or the header that names it; None for neither."""
    if to is None:
        return None, None
    if to.startswith(HEADER):
        header = to.removeprefix(HEADER)
        refuse_empty("--to header:NAME", "header", [header])
        return None, header
    refuse_empty("--to", "topic", [to])
    if to == source:
        raise CliError(
            Problem.ARGUMENTS_DISAGREE, f"{to} cannot be redriven to itself", "name another topic"
        )
    if is_internal(to):
        raise CliError(Problem.INTERNAL_TOPIC, f"{to} is an internal topic", "name another topic")
    return to, None


def _partitions(metadata: Any, wanted: str | None) -> dict[str, int]:
    """How many each topic has. Raises :class:`CliError` if the wanted one is missing."""
    from pyrklog.cli.connection import missing_topic

    if wanted is not None and wanted not in metadata.topics:
        raise missing_topic(wanted, list(metadata.topics), f"`pyrklog topic create {wanted}`")
    counts = {name: len(one.partitions) for name, one in metadata.topics.items()}
    return {name: count for name, count in counts.items() if count}


def _tell(tally: "Tally", output: OutputFormat, dry: bool) -> None:
    if output is not OutputFormat.TABLE or not sys.stderr.isatty():
        return
    told = counted(tally.moved, "record")
    typer.echo(f"{told} {'would be moved' if dry else 'moved'}", err=True)


def _tell_held_back(held: "Mapping[PartitionKey, HeldBack]", options: Settings) -> None:
    from pyrklog.cli.held_back import sentence, where_seen

    if held and not options.quiet:
        typer.echo(f"note: {sentence(held)}; {where_seen(held)}", err=True)
