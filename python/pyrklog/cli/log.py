"""``pyrklog log``: looks into the files of a partition, without a broker."""

from pathlib import Path
from typing import Annotated

import typer

from pyrklog.cli.failures import CliError, Exit, guarded
from pyrklog.cli.options import Output, OutputFormat

app = typer.Typer(help="Look into log files.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def log() -> None:
    """Look into log files."""


@app.command("dump")
@guarded
def dump(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH", show_default=False)],
    records: Annotated[
        bool, typer.Option("--records", help="Each record of each batch too.")
    ] = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify/--no-verify", help="Check every checksum, and indexes against their segment."
        ),
    ] = True,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Print segments, indexes, snapshots and checkpoints; PATH is a file or a partition folder.

    Where something is damaged, says at which byte and ends with exit code 8.
    """
    from pyrklog.cli.dumping import Printer, files, rows

    printer = Printer(output, lines=records)
    for path in files(paths):
        printer.begin(path)
        for row in rows(path, records=records, verify=verify):
            printer.add(row)
        printer.end()
    printer.finish()
    if printer.damages:
        what = "damage" if printer.damages == 1 else "damages"
        raise CliError(Exit.DIFFERS, f"{printer.damages} {what} found")
