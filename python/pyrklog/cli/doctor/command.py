"""``pyrklog doctor``."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pyrklog.base.problems import Problem
from pyrklog.cli.failures import CliError, Exit, counted
from pyrklog.cli.options import CONNECTION, Output, OutputFormat, Settings, option, with_settings

if TYPE_CHECKING:
    from pyrklog.cli.doctor.checks import Check
    from pyrklog.cli.doctor.evidence import Evidence

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
    output: Output = OutputFormat.TABLE,
) -> None:
    """Look for the mistakes that keep a cluster from working; say how to mend each.

    Asks any Kafka, and looks at this machine; changes nothing. Exit code 8 if something is
    unhealthy.
    """
    _refuse_mistakes(bundle, include)
    refuse_missing(data, config)
    from pyrklog.cli.doctor.checks import examined
    from pyrklog.cli.doctor.gathering import gather
    from pyrklog.cli.doctor.host import named_places

    evidence = gather(options, named_places(data, config))
    checks = examined(evidence)
    _print(checks, evidence, output)
    if bundle is not None:
        from pyrklog.cli.doctor.bundle import write_bundle

        told = write_bundle(bundle, options, evidence, checks, config, include or [])
        if not options.quiet:
            for line in told:
                typer.echo(f"note: {line}", err=True)
    if not all(one.is_healthy for one in checks):
        raise typer.Exit(Exit.DIFFERS)


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


def _print(checks: "Sequence[Check]", evidence: "Evidence", output: OutputFormat) -> None:
    from pyrklog.cli.output import Listing, columns, print_listing

    if output is OutputFormat.TABLE:
        sys.stdout.write(page(checks))
        sys.stdout.flush()
        return
    state = evidence.state
    heads = columns("check, status, what, fix")
    cluster_id = None if state is None else state.cluster_id
    print_listing(Listing(SCHEMA, heads, [one.item() for one in checks], cluster_id), output)


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
