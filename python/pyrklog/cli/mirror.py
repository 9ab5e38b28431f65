"""``pyrklog mirror``: run, status, verify."""

from typing import TYPE_CHECKING, Annotated

import typer

from pyrklog.base.problems import Problem
from pyrklog.cli.failures import CliError, Exit, counted, refuse_empty
from pyrklog.cli.mirror_clusters import Sides, admins, fail, places, probe, with_sides
from pyrklog.cli.options import (
    Output,
    OutputFormat,
    Settings,
    command,
    command_group,
    option,
)

if TYPE_CHECKING:
    from pyrklog.mirror import Options

app = command_group("Copy topics of one cluster to another, exactly once; show how far it is.")

OVER_S = 5.0

Name = Annotated[
    str | None, option("--name NAME", "The mirror's name. Default: the source's alias.")
]
Commit = Annotated[
    float,
    option("--commit SECONDS", "How long records wait to be visible there.", min=0.05, max=30.0),
]
Interval = Annotated[
    float,
    option("--interval SECONDS", "How often the source is asked for new records.", min=0.05),
]
GroupInterval = Annotated[
    float, option("--group-interval SECONDS", "How often groups are looked at.", min=0.1)
]
Heartbeats = Annotated[
    float | None,
    option("--heartbeats SECONDS", "Write MirrorMaker's heartbeats this often.", min=0.1),
]


@command(app, "run", "timeout_s", "verbose", "quiet")
@with_sides
def run(
    options: Settings,
    sides: Sides,
    topics: list[str] = option(
        "--topics REGEX", "Topics whose whole name it matches; may be repeated."
    ),
    groups: list[str] | None = option(
        "--groups REGEX", "Groups whose offsets are kept up to date there; may be repeated.", None
    ),
    policy: str = option(
        "--policy POLICY", "Names there: prefix (ALIAS.TOPIC) or identity (TOPIC).", "prefix"
    ),
    offsets: str = option("--offsets RULE", "Offsets there: translate or keep them.", "translate"),
    name: Name = None,
    start: str = option("--start WHERE", "Where a topic's copy begins: start or end.", "start"),
    once: bool = option("--once", "End when all that is there now is copied.", False),
    missing: str = option(
        "--missing RULE", "Records deleted before they were copied: fail, or skip them.", "fail"
    ),
    again: list[str] | None = option(
        "--again TOPIC", "Copy this topic from its beginning, once more; may be repeated.", None
    ),
    rate: str | None = option("--rate RATE", "Read at most this, such as 50MB/s.", None),
    codec: str = option("-z, --compression CODEC", "none, gzip, snappy, lz4 or zstd.", "none"),
    replicas: int = option(
        "-r, --replication-factor N", "Replicas of new topics; -1: the target's default.", -1
    ),
    commit_s: Commit = 1.0,
    interval_s: Interval = 1.0,
    group_interval_s: GroupInterval = 60.0,
    heartbeat_s: Heartbeats = None,
    dry_run: bool = option("--dry-run", "Only say which topics would be copied.", False),
) -> None:
    """Copy topics until Ctrl-C, and go on where it was the next time."""
    from pyrklog.cli.reassign_plan import parse_rate

    _refuse_others(policy, start, missing, offsets, codec)
    _refuse_names(topics, again or [])
    from pyrklog.mirror import MirrorError, Offsets, Options, Pace, Patterns

    source, target, names = places(options, sides, policy, name)
    try:
        wanted = Options(
            source=source,
            target=target,
            names=names,
            topics=Patterns(topics, "--topics"),
            groups=Patterns(groups or [], "--groups"),
            start={"start": "earliest", "end": "latest"}[start],
            once=once,
            missing=missing,
            again=again or [],
            codec=codec,
            replicas=replicas,
            pace=Pace(commit_s, None if rate is None else parse_rate(rate)),
            interval_s=interval_s,
            group_interval_s=group_interval_s,
            heartbeat_s=heartbeat_s,
            timeout_s=options.timeout_s,
            offsets=Offsets(offsets),
        )
        _refuse_without_arrow()
        (_tell_plan if dry_run else _run)(options, wanted)
    except MirrorError as error:
        fail(error)


def _tell_plan(options: Settings, wanted: "Options") -> None:
    """Changes nothing at either cluster."""
    from pyrklog.cli.admin_common import say
    from pyrklog.cli.mirror_told import Said
    from pyrklog.mirror import Mirror

    # They have the rights that a run needs, too.
    admins(options, wanted.source, wanted.target)
    look = Mirror(wanted, Said(wanted.names, options)).look()
    if not look.topics:
        say(options, "nothing would be copied: no topic matches")
    for topic, count in sorted(look.topics.items()):
        name = wanted.names.at_target(topic)
        there = look.at_target.get(name)
        more = "which would be created"
        if there is not None:
            has = f"which has {counted(there, 'partition')}"
            more = has if there >= count else f"{has} and would get {count - there} more"
        say(options, f"{topic}: {counted(count, 'partition')} would be copied to {name}, {more}")


def _refuse_without_arrow() -> None:
    from importlib.util import find_spec

    if find_spec("pyarrow") is None:
        what = "pyarrow, which the mirror needs, is not installed"
        raise CliError(Problem.PROGRAM_MISSING, what, "pip install 'pyrklog[arrow]'")


def _run(options: Settings, wanted: "Options") -> None:
    from pyrklog.cli.mirror_told import Said
    from pyrklog.mirror import Mirror

    probe(options, wanted.source, wanted.target)
    said = Said(wanted.names, options)
    mirror = Mirror(wanted, said)
    try:
        mirror.run()
    finally:
        said.summary()
    if mirror.is_partial:
        raise typer.Exit(Exit.PARTIAL)


@command(app, "status", "timeout_s")
@with_sides
def status(
    options: Settings,
    sides: Sides,
    name: Name = None,
    over_s: float = option(
        "--over SECONDS", "Measure the rate over this time; 0: do not.", OVER_S, min=0.0, max=60.0
    ),
    max_lag: int | None = option(
        "--max-lag N", "Exit code 8 if a partition is further behind.", None, min=0
    ),
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show how far a mirror is: lag and rate of each partition."""
    from pyrklog.cli.admin_common import show
    from pyrklog.cli.mirror_tables import status_listing
    from pyrklog.mirror import MirrorError

    source, target, names = places(options, sides, None, name)
    try:
        listing = status_listing(names, *admins(options, source, target), over_s)
    except MirrorError as error:
        fail(error)
    show(listing, output)
    if max_lag is not None and any(
        one["lag"] is not None and one["lag"] > max_lag for one in listing.items
    ):
        raise typer.Exit(Exit.DIFFERS)


@command(app, "verify", "timeout_s", "quiet")
@with_sides
def verify(
    options: Settings,
    sides: Sides,
    name: Name = None,
    topics: list[str] | None = option(
        "--topics REGEX", "Only these topics of the mirror's; may be repeated.", None
    ),
    output: Output = OutputFormat.TABLE,
) -> None:
    """Compare what was copied at both sides, by digests.

    Exit code 8 if anything differs, else 9 if a partition could not be compared.
    """
    from pyrklog.cli.admin_common import show
    from pyrklog.cli.mirror_tables import verify_listing
    from pyrklog.mirror import MirrorError, Patterns

    source, target, names = places(options, sides, None, name)
    try:
        chosen = Patterns(topics or [".*"], "--topics")
        listing = verify_listing(names, *admins(options, source, target), chosen)
    except MirrorError as error:
        fail(error)
    show(listing, output)
    results = {one["result"] for one in listing.items}
    if "differs" in results:
        raise typer.Exit(Exit.DIFFERS)
    if results - {"same"}:
        raise typer.Exit(Exit.PARTIAL)


def _refuse_names(patterns: list[str], again: list[str]) -> None:
    from pyrklog.cluster.topic_names import wrong_with_name

    refuse_empty("--topics", "topic", patterns)
    for topic in again:
        if wrong_with_name(topic) is not None:
            what = f"--again takes the name of one topic, not {topic!r}"
            raise CliError(Problem.ARGUMENT_VALUE, what, "repeat --again for several topics")


def _refuse_others(policy: str, start: str, missing: str, offsets: str, codec: str) -> None:
    from pyrklog.cli.produce import refuse_codec

    refuse_codec(codec)
    for name, value, known in (
        ("--policy", policy, ("prefix", "identity")),
        ("--start", start, ("start", "end")),
        ("--missing", missing, ("fail", "skip")),
        ("--offsets", offsets, ("translate", "keep")),
    ):
        if value not in known:
            raise CliError(
                Problem.ARGUMENT_VALUE, f"{name} takes {' or '.join(known)}, not {value!r}"
            )
