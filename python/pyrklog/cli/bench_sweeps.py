"""The command ``bench sweep``: what it is given, and what it shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pyrklog.base.problems import Problem
from pyrklog.cli.admin_common import show
from pyrklog.cli.bench import Wanted, on_topic, refuse_errors, run_produce, tell
from pyrklog.cli.bench_files import NO_MATPLOTLIB, write_environment
from pyrklog.cli.bench_runs import Bench
from pyrklog.cli.bench_sweep import (
    COLUMNS,
    PRESETS,
    RATIOS,
    Point,
    Sweep,
    draw,
    parse_variable,
    points,
    ratios,
    summary,
)
from pyrklog.cli.connection import Connection
from pyrklog.cli.failures import CliError
from pyrklog.cli.options import OutputFormat, Settings
from pyrklog.cli.output import Listing

NO_FOLDER = "give --out DIR: the sweep's results go there, and it goes on from them"


@dataclass(frozen=True)
class Given:
    out: Path
    variables: Mapping[str, list[int]]
    repeat: int
    against: str | None


def given_of(
    out: Path | None, variables: list[str], preset: str | None, repeat: int, against: str | None
) -> Given:
    """Raises :class:`CliError` for what is wrong, also if there is more than one thing."""
    try:
        found = _variables(variables, preset)
    except CliError as error:
        if out is None:
            error.fix = f"{error.fix}; {NO_FOLDER}" if error.fix else NO_FOLDER
        raise
    if out is None:
        raise CliError(Problem.ARGUMENT_MISSING, "a sweep needs a folder", NO_FOLDER)
    return Given(out, found, repeat, against)


def run_sweep(
    options: Settings, wanted: Wanted, bench: Bench, given: Given, output: OutputFormat
) -> None:
    """Raises :class:`CliError` for what is wrong with the command line, and of the first run that
    fails: the earlier ones are there."""
    variables = given.variables
    brokers = [options.bootstrap, *filter(None, [given.against])]
    if len(set(brokers)) != len(brokers):
        raise CliError(
            Problem.ARGUMENTS_DISAGREE, "--against names the broker of -b", "name another one"
        )
    connections = {one: Connection(replace(options, bootstrap=one)) for one in brokers}
    found = Sweep(given.out, points(variables, given.repeat, brokers))
    found.open(
        {
            "variables": {name: list(values) for name, values in variables.items()},
            "repeat": given.repeat,
            "brokers": brokers,
            "engine": bench.engine.value,
            "load": asdict(wanted),
        }
    )
    write_environment(given.out)

    def run(point: Point) -> Mapping[str, Any]:
        changed = _changed(wanted, point)
        done = on_topic(connections[point.broker], changed, bench, run_produce)
        refuse_errors(done)
        if done[0].is_interrupted:
            raise CliError(Problem.STOPPED, "stopped", "the same command goes on")
        return done[0].row()

    found.run(run, tell(options))
    rows = found.rows()
    show(Listing("pyrklog.bench-sweep/1", COLUMNS, summary(rows)), output)
    if len(brokers) > 1 and output in (OutputFormat.TABLE, OutputFormat.WIDE):
        show(Listing("pyrklog.bench-sweep-ratios/1", RATIOS, ratios(rows, brokers)), output)
    if not draw(given.out, rows):
        tell(options)(NO_MATPLOTLIB)


def _variables(variables: list[str], preset: str | None) -> dict[str, list[int]]:
    if preset is not None and preset not in PRESETS:
        what = f"--preset takes {', '.join(PRESETS)}, not {preset!r}"
        raise CliError(Problem.ARGUMENT_VALUE, what)
    told = [*(PRESETS[preset] if preset else ()), *variables]
    if not told:
        what = "a sweep needs something to change"
        raise CliError(
            Problem.ARGUMENT_MISSING, what, "give --var size=10,100,1000, or --preset article"
        )
    found: dict[str, list[int]] = {}
    for text in told:
        name, values = parse_variable(text)
        found[name] = values
    return found


def _changed(wanted: Wanted, point: Point) -> Wanted:
    value = point.value
    if point.variable == "rate":
        return replace(wanted, rate=float(value))
    return replace(wanted, **{point.variable: value})  # type: ignore[arg-type]
