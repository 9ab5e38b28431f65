"""``pyrklog mirror``: run, status, verify."""

import re
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from pyrklog.cli.failures import CliError, Exit, refuse_empty
from pyrklog.cli.options import (
    Output,
    OutputFormat,
    Settings,
    command,
    command_group,
    option,
)

if TYPE_CHECKING:
    from pyrklog.mirror import Cluster, MirrorError, Names, Options
    from pyrklog.mirror.cluster import ClusterAdmin

app = command_group("Copy topics of one cluster to another, exactly once; show how far it is.")

SOURCE, TARGET = "source", "target"
"""Aliases unless others are given, as MirrorMaker's."""
OVER_S = 5.0
_PLACE = re.compile(r"(?:([^=:,]*)=)?(.+)", re.DOTALL)

From = Annotated[
    str,
    option(
        "--from [ALIAS=]HOST:PORT", "A broker of the cluster to copy from; several with commas."
    ),
]
To = Annotated[
    str,
    option("--to [ALIAS=]HOST:PORT", "A broker of the cluster to copy to; several with commas."),
]
Name = Annotated[
    str | None, option("--name NAME", "The mirror's name. Default: the source's alias.")
]


@command(app, "run", "timeout_s", "verbose", "quiet")
def run(
    options: Settings,
    source: From,
    target: To,
    topics: list[str] = option(
        "--topics REGEX", "Topics whose whole name it matches; may be repeated."
    ),
    groups: list[str] | None = option(
        "--groups REGEX", "Groups whose offsets are kept up to date there; may be repeated.", None
    ),
    policy: str = option(
        "--policy POLICY", "Names there: prefix (ALIAS.TOPIC) or identity (TOPIC).", "prefix"
    ),
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
    commit_s: float = option(
        "--commit SECONDS", "How long records wait to be visible there.", 1.0, min=0.05, max=30.0
    ),
    interval_s: float = option(
        "--interval SECONDS", "How often the source is asked for new records.", 1.0, min=0.05
    ),
    group_interval_s: float = option(
        "--group-interval SECONDS", "How often groups are looked at.", 60.0, min=0.1
    ),
) -> None:
    """Copy topics until Ctrl-C, and go on where it was the next time."""
    from pyrklog.cli.produce import refuse_codec
    from pyrklog.cli.reassign_plan import parse_rate

    refuse_codec(codec)
    _refuse_other("--start", start, ("start", "end"))
    _refuse_other("--missing", missing, ("fail", "skip"))
    refuse_empty("--topics", "topic", topics)
    from pyrklog.mirror import MirrorError, Options, Pace, Patterns

    there, here, names = _places(source, target, policy, name)
    try:
        wanted = Options(
            source=there,
            target=here,
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
            timeout_s=options.timeout_s,
        )
        _run(options, wanted)
    except MirrorError as error:
        _fail(error)


def _run(options: Settings, wanted: "Options") -> None:
    from importlib.util import find_spec

    from pyrklog.cli.mirror_told import Said
    from pyrklog.mirror import Mirror

    if find_spec("pyarrow") is None:
        what = "pyarrow, which the mirror needs, is not installed"
        raise CliError(Exit.FAILED, what, "pip install 'pyrklog[arrow]'")
    _probe(options, wanted.source, wanted.target)
    said = Said(wanted.names, options)
    try:
        Mirror(wanted, said).run()
    finally:
        said.summary()


@command(app, "status", "timeout_s")
def status(
    options: Settings,
    source: From,
    target: To,
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

    there, here, names = _places(source, target, None, name)
    try:
        listing = status_listing(names, *_admins(options, there, here), over_s)
    except MirrorError as error:
        _fail(error)
    show(listing, output)
    if max_lag is not None and any(
        one["lag"] is not None and one["lag"] > max_lag for one in listing.items
    ):
        raise typer.Exit(Exit.DIFFERS)


@command(app, "verify", "timeout_s", "quiet")
def verify(
    options: Settings,
    source: From,
    target: To,
    name: Name = None,
    topics: list[str] | None = option(
        "--topics REGEX", "Only these topics of the mirror's; may be repeated.", None
    ),
    output: Output = OutputFormat.TABLE,
) -> None:
    """Compare what was copied at both sides, by digests.

    Exit code 8 if anything differs.
    """
    from pyrklog.cli.admin_common import show
    from pyrklog.cli.mirror_tables import verify_listing
    from pyrklog.mirror import MirrorError, Patterns

    there, here, names = _places(source, target, None, name)
    try:
        chosen = Patterns(topics or [".*"], "--topics")
        listing = verify_listing(names, *_admins(options, there, here), chosen)
    except MirrorError as error:
        _fail(error)
    show(listing, output)
    if any(one["result"] == "differs" for one in listing.items):
        raise typer.Exit(Exit.DIFFERS)


def _places(
    source: str, target: str, policy: str | None, name: str | None
) -> "tuple[Cluster, Cluster, Names]":
    from pyrklog.mirror import MirrorError, Names, Policy

    there, here = _cluster("--from", source, SOURCE), _cluster("--to", target, TARGET)
    if policy is not None:
        _refuse_other("--policy", policy, [one.value for one in Policy])
    # Names that do not depend on the policy are asked for without one.
    kind = Policy.IDENTITY if policy is None else Policy(policy)
    try:
        return there, here, Names(there.alias, here.alias, kind, name or there.alias)
    except MirrorError as error:
        _fail(error)


def _cluster(name: str, text: str, alias: str) -> "Cluster":
    from pyrklog.cli.bootstrap import addresses
    from pyrklog.mirror import Cluster

    refuse_empty(name, "broker", [text])
    found = _PLACE.fullmatch(text)
    assert found is not None
    places = ",".join(f"{host}:{port}" for host, port in addresses(found[2]))
    return Cluster(alias if found[1] is None else found[1], places)


def _probe(options: Settings, *clusters: "Cluster") -> None:
    """Raises :class:`CliError` at once if a cluster is not reached."""
    from dataclasses import replace

    from pyrklog.cli.connection import probe

    for cluster, name in zip(clusters, ("--from", "--to"), strict=True):
        probe(replace(options, bootstrap=cluster.bootstrap, bootstrap_option=name, properties={}))


def _admins(
    options: Settings, source: "Cluster", target: "Cluster"
) -> "tuple[ClusterAdmin, ClusterAdmin]":
    from pyrklog.mirror.cluster import ClusterAdmin

    _probe(options, source, target)
    return ClusterAdmin(source, options.timeout_s), ClusterAdmin(target, options.timeout_s)


def _refuse_other(name: str, value: str, known: "list[str] | tuple[str, ...]") -> None:
    if value not in known:
        raise CliError(Exit.USAGE, f"{name} takes {' or '.join(known)}, not {value!r}")


def _fail(error: "MirrorError") -> NoReturn:
    code = Exit[error.kind.name]
    raise CliError(code, error.what, error.fix) from None
