"""``pyrklog doctor``."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pyrklog.base.problems import Problem
from pyrklog.cli.failures import CliError, Exit, counted
from pyrklog.cli.options import (
    CONNECTION,
    Output,
    OutputFormat,
    Settings,
    Yes,
    option,
    with_settings,
)

if TYPE_CHECKING:
    from pyrklog.cli.doctor.checks import Check
    from pyrklog.cli.doctor.evidence import Evidence
    from pyrklog.cli.doctor.fixing import Outcome

SCHEMA = "pyrklog.doctor/1"
ENDINGS = (".tar.gz", ".tgz", ".zip")


@with_settings(*CONNECTION, "quiet")
def doctor(
    options: Settings,
    data: str | None = option(
        "--data DIR", "Also look at this data directory of `serve`, of this machine.", None
    ),
    config: str | None = option(
        "--config FILE", "Also look at the directories of this file of `serve`.", None
    ),
    bundle: str | None = option(
        "--bundle FILE",
        "Write all that was found to FILE (.tar.gz, .tgz or .zip), without secrets.",
        None,
    ),
    include: list[str] | None = option(
        "--include FILE", "A log or other file for the bundle; may be repeated.", None
    ),
    from_here: bool = option(
        "--from-here",
        "Only what a client here meets: ports, the addresses that brokers tell, the cluster there.",
        False,
    ),
    fix: bool = option(
        "--fix", "Do what can be done safely about findings, and look again.", False
    ),
    yes: Yes = False,
    dry_run: bool = option("--dry-run", "With --fix: only say what would be done.", False),
    output: Output = OutputFormat.TABLE,
) -> None:
    """Look for the mistakes that keep a cluster from working; say how to mend each.

    Asks any Kafka, and looks at this machine; without --fix changes nothing. Exit code 8 if
    something is unhealthy.
    """
    _refuse_mistakes(bundle, include)
    if not fix and (yes or dry_run):
        what = f"{'-y' if yes else '--dry-run'} is about --fix"
        raise CliError(Problem.ARGUMENTS_DISAGREE, what, "give --fix as well, or leave it out")
    refuse_missing(data, config)
    from pyrklog.cli.doctor.checks import examined, seen_from_here
    from pyrklog.cli.doctor.gathering import gather
    from pyrklog.cli.doctor.host import named_places
    from pyrklog.cli.doctor.remedies import dev_clusters, with_dev_commands

    latest: list[Evidence] = []

    def look() -> "Sequence[Check]":
        found = gather(options, named_places(data, config), dials=from_here)
        latest.append(found)
        checks = seen_from_here(found) if from_here else examined(found)
        return with_dev_commands(found, checks, dev_clusters(os.environ))

    checks = look()
    outcomes: list[Outcome] = []
    if fix:
        is_page = output is OutputFormat.TABLE
        if is_page:
            sys.stdout.write(page(checks))
            sys.stdout.flush()
        outcomes, checks = _fix(options, latest[-1], checks, look, yes=yes, dry_run=dry_run)
        if is_page:
            _print_outcomes(outcomes, None if dry_run else checks)
    evidence = latest[-1]
    if not fix or output is not OutputFormat.TABLE:
        _print(checks, evidence, output, outcomes if fix else None)
    if bundle is not None:
        from pyrklog.cli.doctor.bundle import write_bundle

        told = write_bundle(bundle, options, evidence, checks, config, include or [])
        if not options.quiet:
            for line in told:
                typer.echo(f"note: {line}", err=True)
    if not all(one.is_healthy for one in checks):
        raise typer.Exit(Exit.DIFFERS)


def _fix(
    options: Settings,
    evidence: "Evidence",
    checks: "Sequence[Check]",
    look: "Callable[[], Sequence[Check]]",
    *,
    yes: bool,
    dry_run: bool,
) -> "tuple[list[Outcome], Sequence[Check]]":
    """What became of each finding, and the checks afterwards."""
    from pyrklog.cli.doctor.fixing import fixed, planned
    from pyrklog.cli.doctor.remedies import dev_clusters, remedies

    found, left = remedies(options, evidence, checks, dev_clusters(os.environ))
    if dry_run:
        return planned(found, left), checks
    last = [checks]

    def again() -> "Sequence[Check]":
        last.append(look())
        return last[-1]

    def say(line: str) -> None:
        if not options.quiet:
            typer.echo(f"note: {line}", err=True)

    return fixed(found, left, again, yes=yes, say=say), last[-1]


def _print_outcomes(outcomes: "Sequence[Outcome]", checks: "Sequence[Check] | None") -> None:
    """``checks`` are those after the remedies; None: nothing was done."""
    lines = [line for one in outcomes for line in one.lines]
    if not outcomes:
        lines = ["nothing is to be fixed"]
    lines += [] if checks is None or not outcomes else [_verdict(checks)]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def _refuse_mistakes(bundle: str | None, include: list[str] | None) -> None:
    if bundle is None and include:
        raise CliError(
            Problem.ARGUMENTS_DISAGREE, "--include is for a bundle", "give --bundle FILE as well"
        )
    if bundle is not None and not bundle.endswith(ENDINGS):
        what = f"--bundle writes {', '.join(ENDINGS)}, not {bundle!r}"
        raise CliError(Problem.ARGUMENT_VALUE, what, "for example --bundle doctor.tar.gz")


def _is_missing(path: str) -> bool:
    """Not one that this user may not look at: the checks tell of that."""
    try:
        return not Path(path).exists()
    except OSError:
        return False


def refuse_missing(data: str | None, config: str | None) -> None:
    """Raises :class:`CliError` for a place that was named and is not there."""
    if data and _is_missing(data):
        fix = "give --data the directory that `pyrklog serve --data` has"
        raise CliError(Problem.FILE_NOT_FOUND, f"the directory {data} does not exist", fix)
    if config and _is_missing(config):
        fix = "give --config the file that `pyrklog serve --config` has"
        raise CliError(Problem.FILE_NOT_FOUND, f"the file {config} does not exist", fix)


def _print(
    checks: "Sequence[Check]",
    evidence: "Evidence",
    output: OutputFormat,
    outcomes: "Sequence[Outcome] | None" = None,
) -> None:
    """``outcomes`` of ``--fix`` stand in the items of their checks."""
    from pyrklog.cli.output import Listing, columns, print_listing

    if output is OutputFormat.TABLE:
        sys.stdout.write(page(checks))
        sys.stdout.flush()
        return
    state = evidence.state
    heads = columns("check, status, what, fix")
    cluster_id = None if state is None else state.cluster_id
    items = [one.item() for one in checks]
    for item in items if evidence.dialled is not None else ():
        if item["check"] == "advertised":
            item["dialled"] = [vars(one) for one in evidence.dialled or ()]
    if outcomes is not None:
        for item in items:
            item["fixes"] = [one.item() for one in outcomes if one.check == item["check"]]
    print_listing(Listing(SCHEMA, heads, items, cluster_id), output)


def page(checks: "Sequence[Check]") -> str:
    """A line for each finding, below it its fix, and a verdict."""
    from pyrklog.cli.output import cell

    width = max(len(one.name) for one in checks)
    lines: list[str] = []
    for one in checks:
        if not one.findings:
            lines.append(f"{one.status:<9} {one.name:<{width}}  {cell(one.what)}")
        for found in one.findings:
            lines.append(f"{found.severity:<9} {one.name:<{width}}  {cell(found.what)}")
            if found.fix:
                lines.append(f"{'':9} {'':{width}}  fix: {cell(found.fix)}")
    return "\n".join([*lines, _verdict(checks), ""])


def _verdict(checks: "Sequence[Check]") -> str:
    bad = [one.name for one in checks if not one.is_healthy]
    unknown = sum(one.status == "unknown" for one in checks)
    told = f"UNHEALTHY: {', '.join(bad)}" if bad else f"{counted(len(checks), 'check')}, all well"
    if not bad and any(one.findings for one in checks):
        told = f"{counted(len(checks), 'check')}, nothing that keeps it from serving"
    return f"{told} ({unknown} unknown)" if unknown else told
